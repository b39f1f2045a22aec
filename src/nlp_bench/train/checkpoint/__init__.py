"""Checkpoints, resuming from them, and early stops.

`folder` needs no torch, so that a wrong checkpoint is refused at once; `store` writes and reads by megatron-core's
dist_checkpointing, `integrity` checks the files; the training loop calls `keeper`.
"""
