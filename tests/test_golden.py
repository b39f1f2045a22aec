"""What users see stays as it was: the golden corpus. After a wanted change: python tests/golden/corpus.py --write, and say why in the commit."""

import pytest

from golden.corpus import CASES, Case, difference, made

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.torchrun] if case.name == "rehearsals" else [])
        for case in CASES
    ],
)
def test_the_output_is_the_expected_one(case: Case) -> None:
    if not case.needs():
        pytest.skip("the real logs do not lie beside this checkout")
    assert difference(case, made(case)) == ""
