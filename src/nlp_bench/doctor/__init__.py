"""What is wrong with this machine before a job is submitted: a table of checks, and a test of every node."""
