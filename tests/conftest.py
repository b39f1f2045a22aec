"""What holds for all tests."""

import signal

# A shell starts what it puts into the background with Ctrl-C ignored, and programs inherit that: tests that press it would wait.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ("support.timed", "support.jube_versions")
