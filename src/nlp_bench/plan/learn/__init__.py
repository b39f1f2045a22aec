"""From measured runs of a machine to constants that predict it better."""
