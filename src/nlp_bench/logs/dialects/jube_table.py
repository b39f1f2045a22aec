"""The table that `jube result` prints: published results, not a training log; the refusal quotes its rows."""

from nlp_bench.logs.clean import first_piece
from nlp_bench.logs.dialect import Dialect, Findings, Parser
from nlp_bench.logs.scan import Line

_MAX_ROWS = 16
_RATES = ("Tokens/sec", "Tokens/second")
_MARKS = ("time_to_report_in_seconds", "Report Time", "Avg_TFLOPs/GPU")
_QUOTED = {
    *("system", "System", "Model_Size (Billion Param)", "Model Size [Billion Param]", "ModelSize"),
    *("Nodes", "Batch_Size", "Batch Size", "GlobalBatchSize", *_RATES, *_MARKS[:2]),
}


class _Parser(Parser):
    """Reads the rows below the header."""

    def take(self, line: Line, findings: Findings) -> None:
        text = first_piece(line.text)
        mark = b"|" if b"|" in text else b","
        names = _cells(text, mark)
        if not ({*_RATES} & {*names} and {*_MARKS} & {*names}):
            return
        rows = [dict(zip(names, _cells(row, mark), strict=False)) for row in line.following(_MAX_ROWS)]
        quoted = [
            ", ".join(f"{name} {cell}" for name, cell in row.items() if name in _QUOTED and cell)
            for row in rows
            if any(row.get(rate, "")[:1].isdigit() for rate in _RATES)
        ]
        findings.refuse(
            ": ".join(filter(None, ("this is a table of results of jube, not a training log", "; ".join(quoted))))
        )


def _cells(text: bytes, mark: bytes) -> list[str]:
    return [cell.decode(errors="replace").strip() for cell in text.strip().strip(mark).split(mark)]


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
