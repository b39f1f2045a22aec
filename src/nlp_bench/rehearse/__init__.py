"""Runs the training step of any rank of any job on tensors without data, without the other ranks."""
