"""Graphcore's language model examples in PopTorch, PopXL and PopART; its image models are told apart and refused."""

import re

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.forms import quantities
from nlp_bench.logs.scan import Line

_RATE = rb"(?P<samples_per_second>[\d.]{1,30}) (?:samples|sequences)/s(?:ec)?\b"
_GPT2 = re.compile(
    rb"\bstep (?P<iteration>\d{1,18}) of epoch (?P<epoch>\d{1,9}), loss: [^\r\n]{0,200}?, lr: [-+\d.eE]{1,40}, "
    rb"throughput: " + _RATE
)
_FORMS = (
    # PopTorch BERT, as a bar or as a line.
    re.compile(
        rb"\bStep: (?P<iteration>\d{1,18}) / (?P<total_iterations>\d{1,18}) - LR: [-+\d.eE]{1,40} - Loss: "
        rb"(?P<lm_loss>[-+\d.]{1,30}|nan|inf) - [^\r\n]{0,400}?" + _RATE
    ),
    # PopXL.
    re.compile(
        rb"\bStep: (?P<iteration>\d{1,18})/(?P<total_iterations>\d{1,18}) Loss: {1,9}(?P<lm_loss>[-+\d.]{1,30}|nan|inf) "
        rb"Duration: {1,9}[\d.]{1,30} s [Tt]hroughput: {1,9}" + _RATE
    ),
    # PopART BERT; inference has no learning rate.
    re.compile(
        rb"\bIteration: {1,9}(?P<iteration>\d{1,18})(?:/(?P<total_iterations>\d{1,18}))? [^\r\n]{0,300}?"
        rb"Learning Rate: [-+\d.eE]{1,40} Duration: {1,9}[\d.]{1,30} s Throughput: {1,9}" + _RATE
    ),
)
_PLAIN_RATE = re.compile(rb"\[INFO\] throughput: [\d.]{1,30} samples/sec")
_ACCURACY = re.compile(rb"\[INFO\] accuracy: [\d.]{1,30} %")


class _Parser:
    """Joins the epochs of GPT-2, whose steps begin anew in each."""

    def __init__(self) -> None:
        self.offset = self.last = -1.0
        self.has_plain_rate = self.has_accuracy = False

    def take(self, line: Line, findings: Findings) -> None:
        """Read a step of any of the examples."""
        for text in pieces(line.text):
            self.has_plain_rate = self.has_plain_rate or _PLAIN_RATE.search(text) is not None
            self.has_accuracy = self.has_accuracy or _ACCURACY.search(text) is not None
            for found in (match for form in (_GPT2, *_FORMS) for match in form.finditer(text)):
                values, is_whole = quantities(found)
                if found.re is _GPT2:
                    values["iteration"] = self._joined(values["iteration"], values.pop("epoch"))
                findings.record(line, values, label=label_of(text[: found.start()]), is_whole=is_whole)

    def _joined(self, step: float, epoch: float) -> float:
        if epoch > 0 and step <= self.last:
            self.offset += self.last + 1
        self.last = step
        return self.offset + 1 + step

    def finish(self, findings: Findings) -> None:
        """Refuse a classification."""
        if self.has_plain_rate and self.has_accuracy and not findings.num_records:
            findings.refuse(
                "not an LLM training log: samples per second beside an accuracy in percent are those of a classification"
            )


DIALECTS = (
    Dialect(
        name="graphcore",
        title="Graphcore examples (GPT-2, GPT-J, BERT)",
        source="graphcore/examples nlp/gpt2/pytorch/train_gpt2.py, nlp/gpt_j/popxl/run_finetuning.py, "
        "nlp/bert/pytorch/run_pretraining.py, nlp/bert/popart/utils/iteration.py",
        example="step 20 of epoch 0, loss: 7.5, acc: 0.1, lr: 0.0001, throughput: 64.0 samples/sec",
        trap="the rate is of samples of the machine, for image models just the same; their length is not printed",
        needles=(b" samples/s", b" sequences/s", b"[INFO] accuracy: "),
        parser=_Parser,
        counts_from=0,
    ),
)
