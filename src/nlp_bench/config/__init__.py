"""From data files and options to one resolved, validated run (run.json)."""
