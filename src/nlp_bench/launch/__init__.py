"""From run.json to processes: the job script, the schedulers, the local backend, torchrun, and how a run ended."""
