"""Records to numbers: three throughputs that are never confused, their window, interval, and the verdict on a limit."""
