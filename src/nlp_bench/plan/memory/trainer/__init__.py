"""Peak memory of this package's trainer, tensor by tensor."""
