"""Output of Megatron-LM and its forks besides the records: arguments, command lines, settings of engines, the accelerator.

Sources: NVIDIA/Megatron-LM megatron/training/arguments.py (`_print_args`), EleutherAI/gpt-neox
megatron/neox_arguments/arguments.py (`print`), deepspeedai/DeepSpeed deepspeed/runtime/{config.py,pipe/engine.py},
AMD-AGI/Primus primus/modules/module_utils.py (`log_dict_aligned`), nlp_bench/train/logline.py.
"""

from functools import lru_cache

from nlp_bench.logs.clean import stamp_s
from nlp_bench.logs.dialect import REINFORCED, Findings
from nlp_bench.logs.pattern import late
from nlp_bench.logs.scan import Line, slim

NEEDLES = (
    b" ....", b"-- arguments --", b"seq_length", b"seq-length", b"batch_size", b"batch-size", b"world_size",
    b"world size: ", b"GPUs determined", b"nnodes", b"iter time (s)", b"batches to constant", b"Skipping step",
    b"] datetime: ", b" > device: ",
)  # fmt: skip
_RULE = late(rb"-{5} (end of )?arguments -{5}")
# GPT-NeoX appends dots and whether the value is the default: `  seq_length ...... 2048.......updated`.
_ARGUMENT = late(rb"(?:^|[\s:])(\w{2,64}) \.{2,} (\d{1,18}|True|False)\.*(?:default|updated)?\s*$")
_PLAIN = late(rb"(?:\[default\d{1,4}\]:)?\s{0,9}\w{2,64} \.{6,} [\w./+-]{1,80}\s*")
_NO_NUMBER = {
    "vision_model_type": late(rb"(?:^|[\s:])vision_model_type \.{2,} (?!None)\w"),
    "curriculum_learning": late(rb"\scurriculum_learning \.{2,} \{.{0,200}'enabled': True"),
}
_ALIGNED = late(
    rb"(?:^|[\s-])(seq_length|global_batch_size|log_interval)\s*:\s*(\d{1,18})(?: \(int\))?\s*$"
    rb"|(?:-(world_size):\s*(\d{1,18})|\s(world_size)\s*: (\d{1,18}) \(int\))\s*$"
)
_OPTION = late(
    rb"--(seq[-_]length|global[-_]batch[-_]size|log[-_]interval|nnodes|nproc[-_]per[-_]node)[=\s]\s*['\"]?(\d{1,18})(?![\w.:])"
)
_NO_COMMAND = late(
    rb"(?:^|\s)#|\b(?:echo|sbatch)\b|usage:|\[--|\btasks/|(?:eval|infer|convert|preprocess|preflight|check|nccl)\w*\.py\b"
)
"""A comment, a message, a help, or the command of something other than this training."""
_ENGINE = late(rb"\[config\.py:\d+:\w+\]\s+train_batch_size \.+ (\d{1,18})\s*$")
_SENTENCES = (
    (late(rb"using world size: (\d{1,18})(?:,| and )"), "num_devices"),
    (late(rb"number of GPUs determined to be: (\d{1,18})\s*$"), "num_devices"),
    (late(rb"initialized with seq_len: (\d{1,18}) "), "sequence_length"),
    (late(rb"initialized with seq_len: \d{1,18} world_size: (\d{1,18}) "), "num_devices"),
)
_CONSTANT = late(rb"setting number of micro-?batches to constant (\d{1,18})\s*$")
_DATED = late(rb"\[(before the start of|after) training[^\]]{0,20}\] datetime: (.*)")
_DEVICE = late(rb"(?:^|\S ?) > device: (.{1,200}?)\s*$")
"""Our trainer's line, behind whatever a launcher or log collector puts before it."""
_SKIPPED = late(rb"OVERFLOW! Rank 0 Skipping step")
_FACT = {
    "seq_length": "sequence_length",
    "world_size": "num_devices",
    "global_num_gpus": "num_devices",
    "global_batch_size": "global_batch_size",
    "train_batch_size": "global_batch_size",
    "log_interval": "log_interval",
    "train_samples": "train_samples",
}
_PASSES = {
    *("micro_batch_size", "pipeline_model_parallel_size", "num_microbatches_in_minibatch", "pipe_parallel_size", "gas"),
    "gradient_accumulation_steps",
}
_CURRICULA = ("curriculum_learning", "curriculum_learning_legacy", "data_efficiency_curriculum_learning")


@lru_cache(maxsize=4096)  # the arguments of many runs are the same
def dumped(text: bytes) -> tuple[str, bytes] | None:
    """Return name and value of a line that is one argument of the dump and nothing else; no name where it is no number, None for other lines."""
    if not _PLAIN.fullmatch(text):
        return None
    return _argument(text) or ("", b"False")


def _argument(text: bytes) -> tuple[str, bytes] | None:
    if found := _ARGUMENT.search(text):
        return found[1].decode(), found[2]
    other = next((name for name, form in _NO_NUMBER.items() if form.search(text)), None)
    return (other, b"True") if other else None


class Settings:
    """The settings found so far. The dump of the arguments takes precedence over the output of launchers and engines."""

    def __init__(self) -> None:
        self.is_deepspeed = False
        self.num_overflows = 0
        self._dump: dict[str, int] = {}
        self._lines: dict[str, Line] = {}  # of the numbers in it
        self._is_dumped = False
        self._of_dump: set[str] = set()
        """Facts that the dump states; other statements of them do not count."""
        self._stated: dict[str, dict[int, Line]] = {}
        """Values of each fact outside the dump, before it."""

    def take(self, text: bytes, line: Line, findings: Findings) -> None:
        """Read a line that is no record."""
        rule = _RULE.search(text) if b"arguments --" in text else None
        if rule and rule[1]:
            self._is_dumped = True
            self.finish(findings)
        elif rule:
            findings.start(line)
            self._dump, self._lines, self._is_dumped, self._of_dump = {}, {}, False, set()
        elif b":print]" in text:
            if found := _ENGINE.search(text):
                self.is_deepspeed = True
                self._state("global_batch_size", int(found[1]), line, findings)
        elif b" .." in text and (argument := _argument(text)):
            self.argument(*argument, line, findings)
        elif b" ......" not in text:  # not a line of the dump
            self._sentence(text, line, findings)

    def finish(self, findings: Findings) -> None:
        """Report facts that no dump has stated."""
        dump, lines = self._dump, self._lines
        has_passes = self.is_deepspeed or not dump.keys().isdisjoint(_PASSES)
        if {"batch_size", "model_parallel_size", "world_size"} <= lines.keys() and not has_passes:
            # The dumps of 2019 state the samples of one replica, which had one micro-batch.
            batch = dump["batch_size"] * dump["world_size"] // dump["model_parallel_size"]
            self._fact("global_batch_size", batch, lines["batch_size"], findings)
        if "vision_model_type" in dump and "decoder_seq_length" in lines:
            # Of a vision-language model seq_length is that of an image: two lengths are stated, and neither counts.
            findings.fact("sequence_length", dump["decoder_seq_length"], lines["decoder_seq_length"])
        for name, values in self._stated.items():
            for stated in values.items() if name not in self._of_dump else ():
                findings.fact(name, *stated)
        self._stated = {}

    def argument(self, name: str, value: bytes, line: Line, findings: Findings) -> None:
        """Take an argument of the dump, a whole number, True or False."""
        if value == b"True":
            self._dump[name] = 1
            self.is_deepspeed |= name == "deepspeed"
            if name == "perform_rl_step":
                findings.refuse(REINFORCED)
        elif value.isdigit():
            count = self._dump.setdefault(name, int(value))
            self._lines.setdefault(name, slim(line))
            if name in _FACT and not (name == "seq_length" and any(key in self._dump for key in _CURRICULA)):
                self._fact(_FACT[name], count, line, findings)

    def _fact(self, name: str, count: int, line: Line, findings: Findings) -> None:
        if name not in self._of_dump:
            self._of_dump.add(name)
            findings.fact(name, count, line)

    def _sentence(self, text: bytes, line: Line, findings: Findings) -> None:
        if aligned := _ALIGNED.search(text):
            argument, value = (group for group in aligned.groups() if group)
            self._state(_FACT[argument.decode()], int(value), line, findings)
        for name, count in _options(text):
            # Below the records it is the command of the next job.
            if findings.known(name) or not findings.has_begun(line):
                self._state(name, count, line, findings)
        for expression, name in _SENTENCES:
            if found := expression.search(text):
                self._state(name, int(found[1]), line, findings)
        if found := _CONSTANT.search(text):
            findings.fact("micro_batches", int(found[1]), line)
        if found := _DEVICE.search(text):
            findings.fact("device", found[1].decode(errors="replace"), line)
        self.is_deepspeed |= b"iter time (s): " in text  # of DeepSpeed's pipeline engine
        self.num_overflows += _SKIPPED.search(text) is not None
        if (found := _DATED.search(text)) and (at := stamp_s(found[2])):
            findings.fact("ended_s" if found[1] == b"after" else "begun_s", at, line)

    def _state(self, name: str, count: int, line: Line, findings: Findings) -> None:
        if not self._is_dumped:
            self._stated.setdefault(name, {}).setdefault(count, slim(line))
        elif name not in self._of_dump:
            findings.fact(name, count, slim(line))


def _options(text: bytes) -> list[tuple[str, int]]:
    """Return the settings of a command line; the number of GPUs needs both nodes and processes per node."""
    found = _OPTION.findall(text) if b"--" in text and not _NO_COMMAND.search(text) else []
    options = {name.decode().replace("-", "_"): int(value) for name, value in found}
    known = [(_FACT[option], count) for option, count in options.items() if option in _FACT]
    nodes, processes = options.get("nnodes"), options.get("nproc_per_node")
    return [*known, ("num_devices", nodes * processes)] if nodes and processes else known
