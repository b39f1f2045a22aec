"""The trainer: one rank training a GPT, T5 or BERT on megatron-core, with Megatron-LM's log line."""
