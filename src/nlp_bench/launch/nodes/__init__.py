"""What happens on the nodes of a job: finding each other, torchrun, binding, watching over it."""
