"""The results of runs as a report: text, data, an HTML page and plots."""
