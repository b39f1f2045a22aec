"""Configurations of one workload on equal GPUs: ranked, failures kept, and a tie reported as a tie."""
