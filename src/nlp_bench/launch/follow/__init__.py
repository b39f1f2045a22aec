"""From the submission to the end: progress, outcome, retries, JUBE's next step."""
