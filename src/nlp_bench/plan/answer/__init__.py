"""What the planner is asked: the best, why not this one, how many nodes, how large a model, what to expect of one run."""
