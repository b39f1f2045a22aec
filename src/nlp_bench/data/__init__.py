"""Training data: a small corpus of our own, or a user's text, as Megatron's indexed tokens."""
