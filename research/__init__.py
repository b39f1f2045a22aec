"""What serves whoever works on nlp-bench itself; no part of the package."""
