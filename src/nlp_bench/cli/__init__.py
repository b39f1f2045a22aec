"""One file per subcommand, each with `add_arguments`, `run` and `EXAMPLE`; `main.py` imports only the one asked for."""
