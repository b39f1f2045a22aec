"""Everything that watches a training without being part of it: one file per watcher."""
