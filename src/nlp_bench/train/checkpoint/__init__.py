"""Checkpoints, and resuming from them; when one is due is decided in train/loop.py.

`folder` needs no torch, so that a wrong checkpoint is refused at once; `store` writes and reads by megatron-core's
dist_checkpointing, `integrity` checks the files.
"""
