"""Parallel layouts and model shapes: their arithmetic, the rules of a legal layout, FLOPs and parameters; for one run and for many."""
