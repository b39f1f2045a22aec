"""The driver of the mutants, on a made-up module: what tests see, what they do not, and what was looked at."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HOUSE = Path(__file__).resolve().parents[2]
AGE = "def is_of_age(age):\n    return age >= 18\n"
TESTS = "from made.up import is_of_age\n\ndef test_it():\n    assert is_of_age(30) and not is_of_age(5)\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for name, text in {
        "src/made/up.py": AGE,
        "tests/test_up.py": TESTS,
        "tests/support/callers.py": (HOUSE / "tests/support/callers.py").read_text(),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def mutate(root: Path, *words: str) -> tuple[int, list[str], str]:
    command = [sys.executable, HOUSE / "tests/mutation.py", "--root", root, "--state", root.parent / "state"]
    made = ["--module", "src/made/up.py", "--tests", "tests/test_up.py", "--num", "0"]
    done = subprocess.run([*command, *made, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_what_tests_do_not_see_survives_until_somebody_has_looked(checkout: Path) -> None:
    code, said, _ = mutate(checkout)
    # Noticed: age < 18 and no value. Not: age > 18, 19 and 17.
    changed = {line for line in said if line.startswith("+")}
    assert (code, changed) == (1, {"+    return (age > 18)", "+    return age >= 19", "+    return age >= 17"})
    score = "2 of 5 mutants noticed (40%; 0 by a timeout), 0 equivalent ones not counted; seed 1"
    assert said[-1] == f"src/made/up.py: {score}"
    assert said[0] == "survived: src/made/up.py:2 comparison"
    assert (checkout / "src/made/up.py").read_text() == AGE
    line = {"file": "src/made/up.py", "before": "return age >= 18", "after": "return (age > 18)", "reason": "made up"}
    (checkout / "tests/equivalent_mutants.json").write_text(json.dumps([line]))
    code, said, done_again = mutate(checkout)
    assert (code, done_again) == (1, ""), "what was found before is not tried again"
    assert said[-1].startswith("src/made/up.py: 2 of 4 mutants noticed (50%; 0 by a timeout), 1 equivalent")


def test_tests_that_fail_by_themselves_notice_nothing(checkout: Path) -> None:
    (checkout / "tests/test_up.py").write_text(TESTS.replace("5)", "50)"))
    code, said, error = mutate(checkout)
    assert (code, said) == (1, [])
    assert "the tests fail without any change" in error
