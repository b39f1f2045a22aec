"""A folder that a local run still trains in is not given to a second one."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nlp_bench.errors import UsageError
from nlp_bench.launch.folder import refuse_running


def test_a_running_run_is_not_disturbed_and_an_ended_one_is_repeated(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print(flush=True); input()", "submit"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        submission = {"pid": process.pid, "host": socket.gethostname()}
        with pytest.raises(UsageError, match=rf"--run-dir: .* process {process.pid} is still training"):
            refuse_running(tmp_path, submission)
        refuse_running(tmp_path, submission | {"host": "elsewhere"})
        process.kill()
    refuse_running(tmp_path, submission)
    refuse_running(tmp_path, submission | {"pid": os.getpid()})
