"""modded-nanogpt: a cumulative clock that pauses for validation, after the source code of the program.

The batch size is in that source, in one of these forms: sequences and their length; tokens; a length for each GPU; a
schedule of several batch sizes, which the lines of the steps do not state.
"""

from math import prod

from nlp_bench.logs.clean import label_of
from nlp_bench.logs.dialect import Dialect, Parser
from nlp_bench.logs.dialects.hf_trainer import is_joined
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.pattern import Match, late, take_facts
from nlp_bench.logs.quantity import number, numbers
from nlp_bench.logs.scan import Line, slim

_STEP = late(
    rb"\bstep:(\d{1,18})/(\d{1,18})((?: [a-z][a-z_]{0,29}:\S{1,40}){0,6}) train_time:(\d[\d.]{0,30})(ms|s)(?=\s|$)"
)
_NAME, _NAMES = late(rb" ([a-z_]+):"), (b"train_loss", b"val_loss", b"train_time", b"step_avg")
_LOSS = late(rb" train_loss:([-+\d.eE]{1,40}|nan|inf)")
_PRODUCT = rb"(\d[\d_]{0,15}(?: ?\* ?\d[\d_]{0,15}){0,6})"
_FIELD = late(
    rb"^\s{1,16}(batch_size|sequence_length|seq_len|train_seq_len|train_batch_size)(?: ?: ?int)? ?= ?"
    + _PRODUCT
    + rb"\s{0,8}(#.*)?$"
)
_COUNTED_IN = late(rb"\bin (tokens|sequences)\b")
_TOKENS_AT_TOP = late(rb"^batch_size = " + _PRODUCT + rb"\s*$")
_SCHEDULE = late(rb"\b(?:train_)?bs_schedule\b.{0,40}=|^def get_bs\(|\bTrainingStage\(.{0,200}\bbatch_size=")
_ASSERTED = late(rb"^assert world_size == (\d{1,4})(?![\w-])")
_ACCUMULATED = late(rb"^grad_accum_steps = (\d{1,4}) // world_size\b")
_PER_DEVICE = late(rb"\bworld_size \* args\.(?:train_)?seq_len\b")
_MEAN = late(rb" step_avg:(\d[\d.]{0,30})(?:ms)?(?=\s|$)")
_OTHER_MEAN = late(rb"[a-z_]{1,30}:\S")
_UNTIMED_STEPS = (0, 9, 10, 11)  # early versions leave the first ones out
_FACTS = (
    rb"\btrain_batch_tokens:(?P<tokens>\d{1,18})(?=\s|$)(?: (?:train_)?seq_len:(?P<sequence_length>\d{1,9}))?",
    rb"^world_size:(?P<num_devices>\d{1,9}) grad_accum_steps:",
)
_GPU = late(rb"^\|\s{1,4}(\d{1,3})\s{1,4}(\w[\w ./+-]{2,40}?)\s{1,40}(?:On|Off|N/A) ")
_MEMORY = late(rb"\|\s{1,12}(\d{1,9})MiB / {0,9}\d{1,9}MiB \|")
_IN_USE_MIB = 500  # a GPU that no program uses holds a few MiB
_CLASS_LINES, _TABLE_LINES, _TOP_LINES, _MAX_KEPT = 60, 90, 4, 100_000
SCHEDULED = (
    "the batch size changes by a schedule inside the printed source, and the lines of the steps do not say which batch was "
    "theirs"
)


class _Parser(Parser):
    """Collects the settings in the source, and derives the facts at the first step."""

    def __init__(self) -> None:
        self.source: dict[str, int] = {}
        self.at: Line | None = None
        self.validations: list[tuple[Line, dict[str, float]]] = []
        self.num_steps = 0
        self.is_scheduled = False

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        found = _STEP.search(text)
        if found and _is_torn(text, found):
            findings.record(line, {}, is_whole=False)
        elif found:
            self._step(line, text, found, findings)
        elif b"class Hyperparameters" in text:
            self._fields(line, findings)
        else:
            self._words(line, text, findings)

    def _step(self, line: Line, text: bytes, found: Match, findings: Findings) -> None:
        self._facts(findings)
        clock = number(found[4])
        values = {"iteration": float(found[1]), "total_iterations": float(found[2])}
        if clock is not None:
            values["clock_s"] = clock / (1000 if found[5] == b"ms" else 1)
        if b" val_" in found[3]:
            if len(self.validations) < _MAX_KEPT:
                self.validations.append((slim(line), values))
            return
        loss = _LOSS.search(found[3])
        values |= numbers([("lm_loss", loss and loss[1])])
        if "per_device" in self.source:
            values["tokens_per_device"] = float(self.source["per_device"])
        self.num_steps += 1
        findings.record(line, values, label=label_of(text[: found.start()]))

    def _fields(self, line: Line, findings: Findings) -> None:
        findings.start(line)
        self.source, self.at = {}, slim(line)
        for text in line.following(_CLASS_LINES):
            if text and not text[:1].isspace():
                break
            found = _FIELD.match(text)
            if found:
                name, comment = found[1].decode(), found[3] or b""
                if comment.count(b"#") > 1:
                    continue  # the halves of two lines
                # The first unit in a comment counts, the rest may be of another line.
                unit = _COUNTED_IN.search(comment) if name == "batch_size" else None
                counts_tokens = unit and unit[1] == b"tokens" and b"batch" in comment[: unit.start()]
                is_tokens = name == "train_batch_size" or counts_tokens
                self.source.setdefault("tokens" if is_tokens else name, _product(found[2]))

    def _words(self, line: Line, text: bytes, findings: Findings) -> None:
        take_facts(_FACTS, text, line, findings)
        if _SCHEDULE.search(text):
            self.is_scheduled = True
        for name, expression in (("asserted", _ASSERTED), ("accumulated", _ACCUMULATED)):
            if found := expression.search(text):
                self.source.setdefault(name, int(found[1]))
        if _PER_DEVICE.search(text):
            self.source.setdefault("is_per_device", 1)
        if text.startswith(b"val_tokens = "):
            for top in filter(None, map(_TOKENS_AT_TOP.match, line.following(_TOP_LINES))):
                findings.start(line)
                self.source["tokens"], self.at = _product(top[1]), slim(line)
        if b"NVIDIA-SMI" in text:
            self._table(line, findings)

    def _table(self, line: Line, findings: Findings) -> None:
        """Count the GPUs that use memory: the program prints the table when all its processes run."""
        lines = line.following(_TABLE_LINES)
        named = [(place, found) for place, found in enumerate(map(_GPU.match, lines)) if found]
        held = [(place, found) for place, found in enumerate(map(_MEMORY.search, lines)) if found]
        used = [found for _, found in held if int(found[1]) > _IN_USE_MIB]
        if named:
            findings.fact("device", named[0][1][2].decode().strip(), line)
        # Each GPU has its number and, after its name, one line of memory, unless lines were lost or repeated.
        is_whole = [int(found[1]) for _, found in named] == list(range(len(named)))
        is_whole = is_whole and len({len(lines[place].rstrip()) for place, _ in named}) == 1
        is_whole = is_whole and all(lines[place].startswith(b"|") for place, _ in held)
        if used and is_whole and [place + 1 for place, _ in named] == [place for place, _ in held]:
            self.source.setdefault("in_use", len(used))

    def _facts(self, findings: Findings) -> None:
        source, line = self.source, self.at
        if not source or not line:
            return
        self.at = None
        length = source.get("train_seq_len", source.get("seq_len"))
        devices = source.get("asserted", source.get("in_use"))
        if devices:
            findings.fact("num_devices", float(devices), line)
            if "asserted" not in source:
                findings.remark("number of GPUs: those that hold memory in the table of nvidia-smi")
        if "tokens" in source:
            findings.fact("tokens", float(source["tokens"]), line)
        elif "batch_size" in source and "sequence_length" in source:
            findings.fact("global_batch_size", float(source["batch_size"]), line)
            findings.fact("sequence_length", float(source["sequence_length"]), line)
        elif length and "is_per_device" in source and "accumulated" in source:
            findings.fact("tokens", float(length * source["accumulated"]), line)
        elif length and "is_per_device" in source:
            source["per_device"] = length

    def finish(self, findings: Findings) -> None:
        """Use the clock between two validations if there is no step; refuse a schedule of batch sizes."""
        if not self.num_steps and len(self.validations) > 1:
            for line, values in self.validations:
                findings.record(line, values)
        if self.is_scheduled and findings.num_records:
            findings.refuse(SCHEDULED)


def _is_torn(text: bytes, found: Match) -> bool:
    """Say whether step and time are of two lines: a duplicate field, or a mean that does not fit the number of steps."""
    if text.count(b" train_time:") > 1 or text.count(b"step:") > 1 or text.count(b"_loss:", found.start()) > 1:
        return True
    if any(key not in _NAMES and is_joined(key, _NAMES) for key in _NAME.findall(found[3])):
        return True
    rest = text[found.end() :].strip()
    if not rest:
        return False
    mean = _MEAN.match(text, found.end())
    if not mean:
        return not _OTHER_MEAN.match(rest)
    clock, average = number(found[4]), number(mean[1])
    if not clock or not average or found[5] != b"ms":
        return False
    untimed, tolerance = int(found[1]) - clock / average, 0.5 + 0.01 * int(found[1])
    return all(abs(untimed - number) > tolerance for number in _UNTIMED_STEPS)


def _product(text: bytes) -> int:
    return prod(int(factor.replace(b"_", b"")) for factor in text.split(b"*"))


_NEEDLES = (
    b" train_time:", b"class Hyperparameters", b"bs_schedule", b"def get_bs(", b"TrainingStage(",
    b"assert world_size == ", b"grad_accum_steps = ", b"world_size * args.", b"train_batch_tokens:", b"world_size:",
    b"val_tokens = ", b"NVIDIA-SMI",
)  # fmt: skip


DIALECTS = (
    Dialect(
        name="modded-nanogpt",
        title="modded-nanogpt speedruns, parameter-golf",
        source="KellerJordan/modded-nanogpt train_gpt.py and records/; openai/parameter-golf train_gpt.py",
        example="step:20/1000 train_loss:6.5000 train_time:1000ms step_avg:100.00ms",
        trap="train_time is cumulative, set to 0 after step 10 in early versions, and pauses for validation",
        needles=_NEEDLES,
        parser=_Parser,
    ),
)
