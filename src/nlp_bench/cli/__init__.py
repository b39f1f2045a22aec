"""One dataclass per subcommand: its options, `EXAMPLE` and `run`; `registry` names their files, of which only the one called is imported."""
