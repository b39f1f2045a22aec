"""The table that `jube result` prints: published results, not a training log; the refusal quotes its rows."""

import re

from nlp_bench.logs.clean import first_piece
from nlp_bench.logs.dialect import Dialect, Findings, Parser
from nlp_bench.logs.scan import Line

_MAX_ROWS = 16
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,12})?")
_RATES = ("Tokens/sec", "Tokens/second")
_MARKS = ("time_to_report_in_seconds", "Report Time", "Avg_TFLOPs/GPU")
_QUOTED = (
    *("system", "System", "Model_Size (Billion Param)", "Model Size [Billion Param]", "ModelSize"),
    *("Nodes", "Batch_Size", "Batch Size", "GlobalBatchSize"),
)


class _Parser(Parser):
    """Reads the rows below the header."""

    def take(self, line: Line, findings: Findings) -> None:
        text = first_piece(line.text)
        mark = b"|" if b"|" in text else b","
        names = _cells(text, mark)
        rate = next((name for name in _RATES if name in names), None)
        if not rate or not any(name in names for name in _MARKS):
            return
        rows = (_cells(row, mark) for row in line.following(_MAX_ROWS))
        quoted = [_sentence(dict(zip(names, row, strict=True)), rate) for row in rows if len(row) == len(names)]
        quoted = [sentence for sentence in quoted if sentence]
        rows_text = f": {'; '.join(quoted)}" if quoted else ""
        findings.refuse(f"this is a table of results of jube, not a training log{rows_text}")


def _cells(text: bytes, mark: bytes) -> list[str]:
    return [cell.decode(errors="replace").strip() for cell in text.strip().strip(mark).split(mark)]


def _sentence(row: dict[str, str], rate: str) -> str:
    if not _NUMBER.fullmatch(row[rate]):
        return ""
    which = ", ".join(f"{name} {row[name]}" for name in _QUOTED if row.get(name))
    time = next((row[name] for name in _MARKS[:2] if _NUMBER.fullmatch(row.get(name, ""))), None)
    return f"{which}: {row[rate]} tokens/s" + (f", {time} s for 20 million tokens" if time else "")


DIALECTS = (
    Dialect(
        name="jube-table",
        title="Result tables of the JUPITER suite's benchmark and of CARAML (`jube result`)",
        source="FZJ-JSC/jubench-megatron-lm benchmark/jube/nlp_benchmark.yaml, FZJ-JSC/CARAML llm_training/*.yaml (`result`)",
        example="| system | Nodes | Batch_Size | Tokens/sec | time_to_report_in_seconds |",
        trap="its numbers are published results, warm-up included; they are no log and are never measured again",
        needles=tuple(mark.encode() for mark in _MARKS),
        parser=_Parser,
        yields_to=("*",),
    ),
)
