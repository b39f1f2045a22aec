"""The records that more than one room reads: family and version, as their `schema` line has it."""

RUN = "nlp-bench/run/1"
"""run.json: written by config, read by launch and measure."""
OUTCOME = "nlp-bench/outcome/1"
"""outcome.json: written by launch, read by measure."""
