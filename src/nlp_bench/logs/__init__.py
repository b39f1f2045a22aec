"""Training logs to records, one per logged interval. One file per dialect family."""
