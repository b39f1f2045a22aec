"""Two measurements side by side: whether one is faster, and whether both were of the same work."""
