"""A short test on every node at once: which ones are slow, which ones say nothing."""

PLAN_SCHEMA = "nlp-bench/doctor-plan/1"
NODE_SCHEMA = "nlp-bench/doctor-node/1"
PLAN = "plan.json"
EXPECTED = "nodes.txt"
"""The nodes that Slurm gave, one per line: written by the job script."""
RECORDS = "nodes"
"""Folder of the nodes' records, NODE.json each."""
