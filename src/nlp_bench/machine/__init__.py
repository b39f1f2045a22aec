"""What the nodes of a job are and do while it runs: a recorder beside torchrun that writes into the run folder."""
