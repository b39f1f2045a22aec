"""Every legal configuration of a model on a machine, and their order by predicted time."""
