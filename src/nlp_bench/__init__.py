"""nlp-bench: how fast a machine trains large language models, as one number that can be defended."""

__version__ = "0.1.0"
