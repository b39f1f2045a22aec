"""The records that more than one package reads: family and version, as in their field `schema`."""

RUN = "nlp-bench/run/1"  # run.json: written by config, read by launch and measure
RULES = "nlp-bench/rules/1"  # benchmark/rules/*.toml: read by config and rules
OUTCOME = "nlp-bench/outcome/1"  # outcome.json: written by launch, read by measure
