"""What a log of any program may say of its model and its accelerators: not needed for a rate, but to doubt one.

Read are totals only: what one rank or shard holds says nothing about the model. A mixture of experts computes with a part of
its parameters, so a log that speaks of experts tells no number of parameters here.
"""

import re

from nlp_bench.logs.clean import pieces
from nlp_bench.logs.dialect import Dialect, Parser
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.quantity import number
from nlp_bench.logs.scan import Line

_N = rb"(\d[\d,]{0,18}(?:\.\d{1,6})?) ?([KMBT]|billion|million)?\b"
_PARAMETERS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rb"total number of parameters in (billions): (\d{1,6}(?:\.\d{1,6})?)",
        rb"(?:number of |num(?:ber)? |total |model )(?:trainable |model )?param(?:eter)?s(?: \(total\))?\s?[:=] ?" + _N,
        rb"size: " + _N + rb" total parameters",
    )
)
_ARGUMENT = re.compile(rb"(?:^|[\s:])(num_layers|hidden_size) \.{2,} (\d{1,9})\s*$")
PARAMETERS_PER_LAYER = 8
"""Times hidden size squared; 12 in GPT (4 for the attention, 8 for the feed-forward of width 4h), less only where it is narrow."""
_PART = re.compile(rb"rank|shard|stage|per[ _]|embedding|layer|active|lora|adapter", re.IGNORECASE)
_EXPERTS = re.compile(rb"(?:num|number of|moe)[_ ](?:moe[_ ])?experts\W{1,40}[1-9]|mixture of experts", re.IGNORECASE)
_DEVICE = re.compile(
    rb"\b(NVIDIA (?:DGX )?[ABGHVL]{1,2}\d{2,3}\w{0,2}(?:[- ]\w{1,12}){0,3}|AMD Instinct MI\d{3}\w?|Tesla V100\S{0,16}|MI\d{3}X)\b"
)
_FACTORS = {b"": 1.0, b"k": 1e3, b"m": 1e6, b"million": 1e6, b"b": 1e9, b"billion": 1e9, b"billions": 1e9, b"t": 1e12}


_SETTINGS = {
    "sequence_length": re.compile(
        rb"(?<![\w.])(?:model\.)?(?:encoder_)?seq_length\s{0,2}[:=]\s{0,2}(\d{2,8})(?![\w.])"
    ),
    "num_devices": re.compile(rb"MEMBER: \d{1,6}/(\d{1,6})\b|Starting with (\d{1,6}) processes"),
}


class _Parser(Parser):
    """Remembers whether the log speaks of experts, and the shape of the model."""

    def __init__(self) -> None:
        self.parameters: tuple[float, Line] | None = None
        self.has_experts = False
        self.shape: dict[bytes, tuple[float, Line]] = {}
        self.settings: dict[str, dict[int, Line]] = {name: {} for name in _SETTINGS}

    def take(self, line: Line, findings: Findings) -> None:
        """Read the first total of parameters and the first name of an accelerator."""
        for text in pieces(line.text[:4096]):
            self.has_experts = self.has_experts or bool(_EXPERTS.search(text))
            for name, form in _SETTINGS.items():
                for found in form.findall(text):
                    digits = found if isinstance(found, bytes) else max(found)
                    self.settings[name].setdefault(int(digits), line)
            argument = _ARGUMENT.search(text)
            if argument:
                self.shape.setdefault(argument[1], (float(argument[2]), line))
            device = _DEVICE.search(text)
            if device:
                findings.fact("device", device[1].decode(errors="replace").strip(), line)
            if self.parameters is None and b"aram" in text and not _PART.search(text):
                self._parameters(text, line)

    def _parameters(self, text: bytes, line: Line) -> None:
        for form in _PARAMETERS:
            found = form.search(text)
            if found:
                unit, digits = sorted((group or b"" for group in found.groups()), key=lambda g: g[:1].isdigit())
                value = (number(digits) or 0.0) * _FACTORS[unit.lower()]
                self.parameters = (value, line) if value >= 1e6 else None
                return

    def finish(self, findings: Findings) -> None:
        """Tell the parameters, unless only a part of them computes, and the settings that have one value alone."""
        for name, values in self.settings.items():
            if len(values) == 1:
                findings.fact(name, *next(iter(values.items())))
        if self.has_experts:
            return
        if self.parameters:
            findings.fact("parameters", *self.parameters)
        elif len(self.shape) == 2:
            (layers, _), (hidden, line) = self.shape[b"num_layers"], self.shape[b"hidden_size"]
            findings.fact("least_parameters", PARAMETERS_PER_LAYER * layers * hidden**2, line)


MACHINE = Dialect(
    name="machine",
    title="any program",
    source="none",
    example="number of parameters: 124.34M",
    trap="what one rank or shard holds is not the model",
    needles=(
        b"aram",
        b"NVIDIA ",
        b"AMD Instinct",
        b"Tesla V100",
        b"MI300X",
        b"MI250X",
        b"xperts",
        b"num_layers .",
        b"hidden_size .",
        b"seq_length",
        b"MEMBER: ",
        b"Starting with ",
    ),
    parser=_Parser,
)
