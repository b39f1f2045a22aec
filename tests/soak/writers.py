"""Every writer of the program with a small work: what stands before, what it writes, and how its files are read."""

from soak import writers_data, writers_results, writers_run

WRITERS = (*writers_run.WRITERS, *writers_results.WRITERS, *writers_data.WRITERS)
