"""The training step of any rank of any job, run on tensors without data in a world without other ranks."""
