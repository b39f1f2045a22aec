"""The evidence behind a number in one file: made, verified offline, never trusted."""
