"""How a run ended: what is known, the decision, and what to type next."""
