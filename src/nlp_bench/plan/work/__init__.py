"""What one rank of a configuration holds, computes and sends: exact counts of this package's trainer."""
