"""Which configurations are legal, whether they fit, how fast they will be: arithmetic, before any GPU is touched."""
