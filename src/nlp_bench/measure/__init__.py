"""Records to numbers: three throughputs that are never confused, their window, interval, and the verdict on a limit."""

REPORT_TOKENS = 20_000_000  # tokens of the hypothetical training (NLP benchmark of the JUPITER suite)
