"""torchtitan and its derivatives (flame, Primus' torchtitan backend, forks): a coloured line per step, the rate of one device."""

from nlp_bench.logs.clean import label_of, unwrapped
from nlp_bench.logs.dialect import Dialect, Findings, Parser
from nlp_bench.logs.pattern import Match, late, take_facts
from nlp_bench.logs.quantity import number, numbers
from nlp_bench.logs.record import NO_LOSS
from nlp_bench.logs.scan import Line, slim

_RECORD = late(
    rb"(?<![\w/])(?i:step):\s*(?P<iteration>\d{1,12})\s+(?P<fields>(?:(?!(?i:step):)[^\r\n]){0,400}?)"
    rb"(?<!\w)(?i:[tw]ps):\s*(?P<rate>[\d,]+(?:\.\d+)?)(?:/[\d,.]+)?(?=\s|$)"
)
_BEHIND = late(rb" (?:mfu|tflops|MFU): ")  # the rate; most versions end with `mfu`
_LOSS = late(rb"(?<!\w)(?i:loss):\s*([-+\w.]+|\S*)")  # ***, [REDACTED]: a number or not
_NORM = late(rb"(?<!\w)grad_norm:\s*([-+\w.]+)")
_TFLOPS = late(rb"\s*tflops:\s*([\d,.]+)")
# Other programs with the same keys: Meta's lingua counts micro-steps, torchax prints the rate of the whole machine.
_OTHERS = late(rb"(?<!\w)(?:acc|flops|iter|data|step_time):")
_NOT_TRAINING = late(rb"(?i:valid\w*|eval\w*|\bval)\W*$")
_TRAINS = rb"[\s/.][\w-]*(?:train|tune)[\w-]*(?:\.py)?(?:\s|$)"  # a job may test its nodes by torchrun before
_MESH = rb"".join(rb"(?:(?:, )?(?P<num_devices__%b>\d+))?" % axis for axis in (b"a", b"b", b"c", b"d", b"e", b"f"))
_FACTS = (
    (
        rb"local batch size [\d,]+, global batch size (?P<global_batch_size>[\d,]+),"
        rb"(?: gradient accumulation steps \d+,)? sequence length (?P<sequence_length>[\d,]+),"
    ),
    rb"Number of tokens per sequence = (?P<sequence_length>[\d,]+)\s*$",
    (
        rb"Global batch size \(w\. parallel, distributed & accumulation\) = (?P<global_batch_size>[\d,]+) "
        rb"\((?P<tokens>[\d,]+) tokens\)"
    ),
    rb" capacity: (?P<device>[^\r\n]{1,80}?) with [\d.]+GiB memory",
    rb" size: (?P<parameters>[\d,]+) total parameters",
    # The devices of the whole run: the product of the mesh, or of what torchrun was started with.
    rb"Building \d+-D device mesh with \[[^\]]*\], \[" + _MESH + rb"\]",
    (
        rb"device mesh with parallelism: pp=(?P<num_devices__pp>\d+), dp_replicate=(?P<num_devices__replicate>\d+), "
        rb"dp_shard=(?P<num_devices__shard>\d+), cp=(?P<num_devices__cp>\d+), tp=(?P<num_devices__tp>\d+)(?=[,\s]|$)"
    ),
    (
        rb"^\++ (?!echo\b)(?=.*\b(?:torchrun|torch\.distributed\.(?:run|launch))\b.*" + _TRAINS + rb")"
        rb"(?=.*--nnodes[= ](?P<num_devices__nodes>\d+)\s).*--nproc[-_]per[-_]node[= ](?P<num_devices__gpus>\d+)(?=\s)"
    ),
)
_FLOAT8 = (b"Float8 training active", b"Float8 tensorwise scaled training active", b"Swapped to Float8")
_RANK = late(rb"\[rank-\d{1,9}/(\d{1,9})\]")
_RATES = (b"tps: ", b"wps: ", b"TPS: ", b"WPS: ")
_SETTINGS = (
    b"Starting job: ", b"device mesh with ", b"with local batch size ", b"Number of tokens per sequence = ",
    b"Global batch size (w. parallel", b" capacity: ", b" total parameters", b"--nproc",
    *_FLOAT8,
)  # fmt: skip
_LONGEST = 4096  # bytes of a line that is searched for settings


class _Parser(Parser):
    """Remembers the last steps: every rank may print each one, all with the same loss.

    Of a pipeline only the ranks of the last stage have a loss, the others print NO_LOSS: their lines count where there are no others.
    """

    reads_each_line = True

    def __init__(self) -> None:
        self._losses: dict[tuple[int, bool], tuple[bytes, bytes]] = {}
        self._without_loss: list[tuple[Line, dict[str, float], bytes]] = []
        self._has_loss = False

    def finish(self, findings: Findings) -> None:
        """Report the lines without a loss, of this start of the program, where none has one."""
        for line, values, label in () if self._has_loss else self._without_loss:
            findings.record(line, values, label=label)
        self._without_loss, self._has_loss = [], False

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        self.reads_each_line = True
        if b"[rank-" in text and (rank := _RANK.search(text)):
            findings.fact("num_devices", int(rank[1]), line)
        if b"step: " in text or any(word in text for word in _RATES):
            whole = unwrapped(line, text, b"step: ", _BEHIND)
            for found in _RECORD.finditer(whole):
                self._record(whole, found, line, findings)
        elif any(word in text for word in _SETTINGS) and len(text) <= _LONGEST:
            if b"Starting job: " in text:
                self.finish(findings)
                findings.start(line)
            if any(words in text for words in _FLOAT8):
                findings.fact("precision", "fp8", line)
            take_facts(_FACTS, text, line, findings)

    def _record(self, text: bytes, found: Match, line: Line, findings: Findings) -> None:
        fields, rate = found["fields"], number(found["rate"])
        loss = _LOSS.search(fields)
        prefix = text[: found.start()]
        if not loss or _OTHERS.search(fields) or _NOT_TRAINING.search(prefix):
            return
        iteration = int(found["iteration"])
        values = {"iteration": float(iteration)}
        norm = _NORM.search(fields)
        tflops = _TFLOPS.match(text, found.end()) if line.is_ended else None
        written = (("lm_loss", loss), ("grad_norm", norm), ("model_tflops", tflops))
        values |= numbers((name, match and match[1]) for name, match in written)
        label = label_of(prefix)
        if (
            rate is None or not text[found.end() :].strip()
        ):  # `2,0`: a wrapped 2,048; every version prints more after its rate
            findings.record(line, {}, label=label, is_whole=False)
            return
        values["tokens_per_second_per_device"] = rate
        # Lines of ranks without a label differ only in the last digit of the rate.
        printed, has_loss = (label, loss[1]), values.get("lm_loss") != NO_LOSS
        if self._losses.get((iteration, has_loss)) == printed:
            label += b" another rank"
        else:
            self._losses[iteration, has_loss] = printed
        self._has_loss |= has_loss
        if has_loss:
            findings.record(line, values, label=label)
        elif not self._has_loss:
            self._without_loss.append((slim(line), values, label))
        else:  # unless it is of a rank that has a loss, nothing of it is missing
            self.reads_each_line = label in {of for (_, has), (of, _) in self._losses.items() if has}


DIALECTS = (
    Dialect(
        name="torchtitan",
        title="torchtitan, flame, Primus (torchtitan backend)",
        source="pytorch/torchtitan torchtitan/components/metrics.py; fla-org/flame flame/train.py",
        example="[rank0]:[titan] 2026-01-01 10:00:00,000 - root - INFO - step: 20  loss:  6.1384  grad_norm:  0.5  "
        "memory: 49.66GiB(52.28%)  tps: 5,856  tflops: 339.16  mfu: 34.29%",
        trap="tps (wps until November 2024) is of one device, model parallel ones included, and every rank may print",
        needles=(b"step: ", *_RATES, *_SETTINGS),
        parser=_Parser,
    ),
)
