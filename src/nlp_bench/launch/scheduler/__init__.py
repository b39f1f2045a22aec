"""The schedulers: each a subclass of `nlp_bench.config.scheduler.Scheduler`."""
