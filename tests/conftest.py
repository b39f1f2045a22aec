"""What holds for all tests."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from nlp_bench.config.scheduler import get_scheduler

# A shell starts what it puts into the background with Ctrl-C ignored, and programs inherit that: tests that press it would wait.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Several trainings run at once: threads of torch's that wait for each other would spin, and take the cores of the others. (OMP_THREAD_LIMIT=1 does
# not do: oneDNN shares a product out to the threads that it expects, and a part of the result is never computed.)
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Of a terminal in which the environment was activated; tests have working folders of their own.
os.environ.pop("NLP_BENCH_ROOT", None)

pytest_plugins = ("support.timed", "support.command", "support.published", "support.jube_versions", "support.reported")

# How long an example takes depends on what else the machine does.
settings.register_profile("loaded", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loaded")


@pytest.fixture(autouse=True)
def _new_schedulers() -> None:
    """A scheduler keeps why it was silent: that of the test before is not of this one."""
    get_scheduler.cache_clear()
