"""What is wrong with this machine before a job is submitted: one small check per file, and a test of every node."""
