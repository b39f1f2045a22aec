"""See `run`."""
