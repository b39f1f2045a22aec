"""Evaluations and checkpoints by the words of the log, and words that only look like them."""

import pytest

from nlp_bench.logs.common import EVENTS
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.scan import Line


def kind_of(text: str) -> str | None:
    parser, findings = EVENTS.parser(), Findings(EVENTS)
    line = text.encode()
    parser.take(Line(1, 0, line, True, lambda _: [line]), findings)
    return findings.events[0].kind if findings.events else None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("saving checkpoint at iteration 20 to /scratch/run", "checkpoint"),
        ("  successfully saved checkpoint at iteration 20", "checkpoint"),
        ("Saving the checkpoint (or staging if async is enabled).", "checkpoint"),
        ("    save-checkpoint .................: (12.0, 13.0)", "checkpoint"),
        (" validation loss at iteration 20 | lm loss value: 8.1E+00 |", "evaluation"),
        ("evaluating on the validation set", "evaluation"),
        ("[default3]: profiling iteration 10 on ranks 0 1", "profiler"),
        ("--profile: profiling iteration by iteration", None),
        ("loading checkpoint from /scratch/run", None),
        ("no checkpoint found in /scratch/saved", None),
        ("--save-checkpoint-interval 100", None),
        ("WARNING: the checkpoint will not be saved", None),
        ("not saving a checkpoint", None),
        ("checkpointing saved activations: full recompute", None),
        ("/scratch/saved/checkpoint_store is mounted", None),
        ("no validation loss is computed", None),
    ],
)
def test_words(text: str, kind: str | None) -> None:
    assert kind_of(text) == kind
