"""Watchers of a training: start-up time, timers, memory, profiler, progress, and writers of its numbers."""
