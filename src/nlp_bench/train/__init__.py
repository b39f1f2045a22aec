"""The trainer: one GPT rank on megatron-core, logging in the shape that benchmarkers know."""
