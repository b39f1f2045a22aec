"""One configuration at one size: all of its runs, with those that failed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nlp_bench.analysis.observation import NAMES, Observation, batch_of, digest, known, num_gpus_of, varying
from nlp_bench.analysis.repeats import Pool, pooled
from nlp_bench.measure.contradiction import Code
from nlp_bench.measure.entry import RunResult
from nlp_bench.measure.estimate import Estimate
from nlp_bench.measure.workload import FREE, Setting

PASSED_OVER = frozenset(
    {
        "train_iters", "train_samples", "log_interval", "seed", "data_path", "mock_data", "tokenizer_type", "num_parameters",
        "padded_vocab_size", "make_vocab_size_divisible_by", "max_position_embeddings", "group_query_attention", "kv_channels",
        "num_gpus", "world_size", "nodes", "gpus_per_node", "params_dtype", "bf16", "fp16", "num_layers_per_virtual_pipeline_stage",
    }
)  # fmt: skip
"""What a log prints that is no choice of configuration, or is the same choice under a second name."""
LOG_INTERVAL = 10
"""Iterations per logged line of the benchmark's runs, for a published row that does not say."""
_WHERE = ("model", "system", "gpu", "accelerator")
LAYOUT = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "micro_batch_size")
"""Logs that do not print these may differ in them: they are never taken for repeats."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """What is known of one configuration at one size."""

    entries: tuple[RunResult, ...]
    """All of its runs, those with a number first; at least one."""
    pool: Pool | None
    """Those that were measured; None for published rows, failures, and logs that contradict their run.json."""
    settings: dict[str, Setting]
    """What is known of the configuration."""
    contradictions: tuple[str, ...] = ()
    """Where the log says something else than run.json; such a run is shown and never ranked."""

    @property
    def num_gpus(self) -> int | None:
        """GPUs or CPU ranks."""
        return num_gpus_of(self.entries[0])

    @property
    def nodes(self) -> int | None:
        """Nodes."""
        return self.entries[0].workload.count("nodes")

    @property
    def batch(self) -> int | None:
        """Samples per iteration."""
        return batch_of(self.entries[0])

    @property
    def tokens_per_second(self) -> float | None:
        """The steady rate (harmonic mean over runs), or the published one; None where no run may be counted."""
        if self.contradictions:
            return None
        return self.pool.tokens_per_second if self.pool else self.entries[0].published_tokens_per_second

    @property
    def estimate(self) -> Estimate | None:
        """The rate with its uncertainty: over runs where there are several, else within the run."""
        return self.pool.estimate if self.pool else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the rate."""
        return self.estimate.interval() if self.estimate else None

    @property
    def num_counted(self) -> int:
        """Runs behind the number."""
        return len(self.pool.runs) if self.pool else int(self.tokens_per_second is not None)

    @property
    def failed(self) -> tuple[RunResult, ...]:
        """Runs that ended without a number."""
        return tuple(entry for entry in self.entries if not entry.has_number)

    @property
    def outcome(self) -> str:
        """How the runs ended: VALID where there is a number, else every other end, each once."""
        if self.tokens_per_second or self.contradictions:
            return self.entries[0].outcome.value
        return ", ".join(dict.fromkeys(entry.outcome.value for entry in self.entries))

    @property
    def cause(self) -> str | None:
        """Why runs of it have no number, each cause once; beside a number also which runs these are."""
        if self.contradictions:
            return "; ".join(self.contradictions)
        whose = "{}: " if self.tokens_per_second else ""
        causes = dict.fromkeys(
            whose.format(e.source) + (f"{e.outcome.value}: {e.reason_texts[0]}" if e.reason_texts else e.outcome.value)
            for e in self.failed
        )
        return "; ".join(causes) or None

    @property
    def digest(self) -> str:
        """Short name of the identity: workload, configuration and machine."""
        return digest(self.entries[0])

    @property
    def one_sample(self) -> str | None:
        """Say that a single logged interval is behind the number, None where there are more or it is not known."""
        entry = self.entries[0]
        if self.pool:
            single = all((run.num_intervals or 0) == 1 for run in self.pool.runs)
            return "its window is a single logged interval" if single and self.tokens_per_second else None
        found = entry.published
        if not found or not found.iterations or found.iterations > (found.log_interval or LOG_INTERVAL):
            return None
        every = found.log_interval or LOG_INTERVAL
        return (
            f"{found.iterations} iterations with a log line every {every} are one line, and that line holds the warm-up"
        )


def points_of(entries: Iterable[RunResult], *, allow_measured: bool = False) -> list[Point]:
    """Return runs of one workload by configuration: repeats are pooled (MEASURED ones where allowed), a failure joins what it was asked for."""
    sound: list[RunResult] = []
    alone: list[Point] = []
    failed: list[RunResult] = []
    for entry in entries:
        wrong = tuple(found.text for found in entry.contradictions if found.code is Code.ARGUMENTS_VS_RUN)
        if wrong or entry.published:
            alone.append(Point(entries=(entry,), pool=None, settings=settings_of(entry), contradictions=wrong))
        else:
            (sound if entry.throughput else failed).append(entry)
    joined: dict[object, list[RunResult]] = {}
    for number, entry in enumerate(failed):
        joined.setdefault(_asked(entry) or number, []).append(entry)
    points = [
        _measured(runs, joined) for group in _alike(sound) for runs in _pools(group, allow_measured=allow_measured)
    ]
    points += [Point(entries=tuple(runs), pool=None, settings=settings_of(runs[0])) for runs in joined.values()]
    return points + alone


def settings_of(entry: RunResult) -> dict[str, Setting]:
    """Return every setting that may make a difference: run.json's, and what the log says beside it."""
    return {
        name: setting
        for name, setting in {**entry.workload.asked, **entry.workload.logged}.items()
        if name not in PASSED_OVER
    }


def varying_in(points: Sequence[Point]) -> tuple[str, ...]:
    """Return the names of the settings in which configurations differ, the usual ones first."""
    usual = [name for name in FREE if name not in PASSED_OVER]
    others = dict.fromkeys(name for point in points if point.pool for name in point.settings)
    names = (*usual, *(name for name in others if name not in usual and name not in _WHERE))
    return varying([point.settings for point in points], names, [point.pool is not None for point in points])


def _asked(entry: RunResult) -> tuple[object, ...] | None:
    """Return the configuration that run.json asked for, None for a log of others."""
    asked = known(entry) if entry.workload.asked else {}
    return tuple(sorted((name, asked[name].value) for name in asked if name in NAMES)) or None


def _alike(entries: Iterable[RunResult]) -> list[list[RunResult]]:
    """Split by what logs say beyond the names of an identity: another library or kernel is no repeat."""
    groups: dict[object, list[RunResult]] = {}
    for number, entry in enumerate(entries):
        logged = entry.workload.logged.items()
        more = {name: said.value for name, said in logged if name not in PASSED_OVER and name not in NAMES}
        has_layout = all(entry.workload.setting(name) for name in LAYOUT)
        groups.setdefault(tuple(sorted(more.items())) if has_layout else number, []).append(entry)
    return list(groups.values())


def _pools(entries: Sequence[RunResult], *, allow_measured: bool) -> list[tuple[Pool, list[RunResult]]]:
    observations = [Observation.of(entry) for entry in entries]
    by_id = {id(observation): entry for observation, entry in zip(observations, entries, strict=True)}
    found = pooled(observations, allow_measured=allow_measured)
    return [(each, [by_id[id(run)] for run in (*each.runs, *each.copies)]) for each in found]


def _measured(runs: tuple[Pool, list[RunResult]], failed: dict[object, list[RunResult]]) -> Point:
    found, entries = runs
    asked = _asked(entries[0])
    more = failed.pop(asked, []) if asked else []
    return Point(entries=(*entries, *more), pool=found, settings=settings_of(entries[0]))


def unplaced_json(entries: Iterable[RunResult]) -> list[dict[str, Any]]:
    """Return runs whose number of GPUs nobody states, as both records have them."""
    return [
        {"source": entry.source, "outcome": entry.outcome.value, "reasons": list(entry.reason_texts)}
        for entry in entries
    ]
