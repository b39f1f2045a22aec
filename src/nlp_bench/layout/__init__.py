"""Parallel layouts and model shapes: their arithmetic, the rules of a valid layout, FLOPs and parameters; for one run or arrays of them."""
