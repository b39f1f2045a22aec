"""verl's console: `step:N - name:value - name:value`; NeMo-RL's, which is refused."""

from nlp_bench.logs.clean import label_of
from nlp_bench.logs.dialect import REINFORCED, Dialect, Findings, Parser
from nlp_bench.logs.pattern import Pattern, is_cut, late
from nlp_bench.logs.scan import Line
from nlp_bench.logs.table import Vocabulary, reinforced


class _Console(Parser):
    """Reads the metrics of a step with the vocabulary of the tables."""

    reads_each_line = True
    _record = late(rb"(?<![\w/])step:(\d{1,15}) - (?=[\w/]{1,80}[:(])")

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        """Read a record; a reinforcement learning prints its own metrics in the same form."""
        found = self._record.search(text)
        if not found:
            return
        written = text[found.end() :].rstrip().decode(errors="replace")
        pairs = [pair.rpartition(":")[::2] for pair in written.split(" - ")]
        if reinforced(name for name, _ in pairs):
            findings.refuse(REINFORCED)
            return
        is_whole = not is_cut(line, text, len(text))
        cells = dict(pairs if is_whole else pairs[:-1])
        values = Vocabulary.of(cells).values(cells) | {"iteration": float(found[1])}
        if len(values) > 1:
            label = label_of(text[: found.start()])
            findings.record(line, values, label=label, is_whole=is_whole)


DIALECTS = (
    Dialect(
        name="verl",
        title="verl's supervised fine-tuning",
        source="verl-project/verl verl/utils/logger/aggregate_logger.py, verl/trainer/sft_trainer.py",
        example="step:2 - train/loss:2.8 - train/global_tokens:40000 - train/time(s):1.0",
        trap="global_tokens are those of one step of all ranks, padding left out; a reinforcement"
        " learning prints the same form, and is refused",
        needles=(b" - train/", b" - actor/", b" - critic/", b" - timing_s/"),
        parser=_Console,
        tokens_vary=True,
    ),
    Dialect(
        name="nemo-rl",
        title="NeMo-RL (GRPO and others), which is refused",
        source="NVIDIA-NeMo/RL nemo_rl/algorithms/grpo.py",
        example="  • Mean Generation Length: 512.0000",
        trap="its tokens per second are of generation and training together",
        needles=(b"Mean Generation Length: ",),
        parser=Pattern(record=rb"Mean Generation Length: <iteration>", refusal=REINFORCED),
    ),
)
