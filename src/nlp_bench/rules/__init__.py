"""Rules of a benchmark as data, held against what run.json asked for, what the log prints and how the run ended."""
