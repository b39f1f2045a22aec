"""Many results: repeats, A against B, scaling, sweeps, and the runs of a machine over time."""
