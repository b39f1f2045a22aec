"""What a node is, and what it does while a job runs: its recorder, NVML, the cores and their binding, names, the timing of devices."""
