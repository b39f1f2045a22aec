"""A micro-benchmark of one accelerator, and the constants of the model that follow from it."""
