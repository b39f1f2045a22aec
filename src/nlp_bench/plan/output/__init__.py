"""Answers as tables, records, plots and sweeps."""
