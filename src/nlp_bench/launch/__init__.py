"""From run.json to processes: the job script, Slurm, the local backend, torchrun, and how a run ended."""
