"""What the nodes of a job are and do while it runs: a recorder next to torchrun that writes into the run folder."""
