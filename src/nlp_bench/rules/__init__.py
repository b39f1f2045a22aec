"""Rules of a benchmark as data, checked against what run.json requested, what the log prints and how the run ended."""
