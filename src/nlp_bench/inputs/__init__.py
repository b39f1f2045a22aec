"""The PATHs of a command line to runs."""
