"""The evidence behind a number in one file: made, signed, and verified offline."""
