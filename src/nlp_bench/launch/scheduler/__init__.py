"""Slurm: its commands, the words of its states, handing a script to it."""
