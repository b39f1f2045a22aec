"""Training logs to records: bytes in, whole and believable intervals out. One file per dialect."""
