"""docs/bids.md shows what is printed. After a change: NLP_BENCH_WRITE_DOCS=1 pytest tests/plan/bid/test_docs.py."""

import pytest
from support.pages import ROOT, same_words

from nlp_bench.cli.main import main
from nlp_bench.plan.bid.bid import POINTS


def test_the_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "--model", "13", "--system", "juwels-booster", "--tp", "1", "--pp", "1", "--print"]) == 0
    assert same_words("bids.md", "warning", capsys.readouterr().err)


@pytest.mark.skipif(not (ROOT / POINTS).exists(), reason="no published points in this checkout")
def test_the_bid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "175", "--system", "juwels-booster", "--nodes", "96", "--bid"]) == 0
    assert same_words("bids.md", "bid", capsys.readouterr().out)
