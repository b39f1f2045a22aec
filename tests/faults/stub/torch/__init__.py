"""A stand-in of PyTorch in which only torchrun exists: job script, srun and all that decides stay the real ones."""
