"""How long one iteration takes."""
