"""Checkpoints: what is kept of a training, from where it goes on, and when it stops.

`folder`, `record` and `start` need no torch, so that a wrong checkpoint is refused at once; `state`, `safety` and `store` are
megatron-core's dist_checkpointing; `stop` and `keeper` stand between the training loop and these.
"""
