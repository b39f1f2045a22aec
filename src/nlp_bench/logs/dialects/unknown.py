"""The log of a program that nobody has described; what reads it is in `logs/unknown/`."""

from nlp_bench.logs.dialect import Dialect, Parser


def _parser() -> Parser:
    from nlp_bench.logs.unknown.parser import UnknownParser  # noqa: PLC0415  # only a log that nobody else knows pays for it

    return UnknownParser()


DIALECTS = (
    Dialect(
        name="unknown",
        title="any other program: read by the names and units on its lines",
        source="none: the vocabulary of nlp_bench/logs/unknown/words.py",
        example="[train] update 100 | loss 2.310 | 0.512 s/update | 256.0k tokens/s",
        trap="a rate may be of a device or of all, a time of a step or of an interval: believed only where the numbers agree",
        needles=tuple(
            b"tok Tok step Step iter Iter loss Loss ample batch Batch BATCH seq Seq SEQ world World WORLD gpus GPUs evices "
            b"nodes NODES nproc arallel valid Valid VALID evalu Evalu EVALU _eval raining".split()
        ),
        parser=_parser,
        yields_to=("*",),
    ),
)
