"""Records to numbers: two throughputs that are never confused, their window, their interval, their verdict."""
