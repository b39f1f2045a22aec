"""Runs of one workload by configuration and size: what scaling curves and sweeps are made of."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from nlp_bench.analysis.repeats import NAMES, Doubted, Observation, Pool, doubt_lines, grouped, pooled
from nlp_bench.escape import one_line
from nlp_bench.immutable import immutable
from nlp_bench.measure.contradiction import Code
from nlp_bench.measure.estimate import Estimate
from nlp_bench.measure.result import Published, RunResult, Supplied, supplied_lines
from nlp_bench.measure.workload import FREE, SHAPE, Setting, Value
from nlp_bench.show.table import Style

SPEED = (*SHAPE, "precision", "optimizer", "attention_dropout", "hidden_dropout")
"""Frozen settings that change the work of a step. The learning rate and its schedule do not; weak scaling changes them."""
PASSED_OVER = frozenset(
    {
        "train_iters", "train_samples", "log_interval", "seed", "data_path", "mock_data", "variable_seq_lengths", "tokenizer_type", "num_parameters",
        "padded_vocab_size", "make_vocab_size_divisible_by", "max_position_embeddings", "group_query_attention", "kv_channels",
        "num_gpus", "world_size", "nodes", "gpus_per_node", "params_dtype", "bf16", "fp16", "fp4", "num_layers_per_virtual_pipeline_stage",
        "run_sha256", "clock_spread_s",
    }
)  # fmt: skip
"""What a log prints that is no choice of configuration (what it is sealed with, what was measured at its start), or is the same choice
under a second name."""
LOG_INTERVAL = 10  # iterations per logged line of the benchmark's runs, for a published row that does not say
LAYOUT = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "micro_batch_size")
"""Logs that do not print these may differ in them: they are never repeats."""
FOLLOWS = ("global_batch_size", "data_parallel_size", "gradient_accumulation_steps")  # settings that follow from others
_WHERE = ("model", "system", "gpu", "accelerator")
MAX_CELL = 30


def workload_key(entry: RunResult) -> object:
    """Return what was trained and where, as far as it is known; different keys never share a curve. A published table, whose rates are not ours, is one of its own."""
    settings = _known(entry)
    found: dict[str, Value | None] = {name: settings[name].value for name in SPEED if name in settings}
    if not found.keys() & {"num_layers", "hidden_size"} and "num_parameters" in settings:
        found["num_parameters"] = settings["num_parameters"].value
    found["seq_length"] = entry.sequence_length or found.get("seq_length")
    found |= {"model": _model_of(entry), "machine": _machine_of(entry)}
    found["table"] = entry.published.table if entry.published else None
    # Two programs that name no model had hardly the same one.
    found["dialect"] = None if says_model(entry) else entry.dialect
    return tuple(sorted((name, value) for name, value in found.items() if value is not None))


def title(entry: RunResult) -> str:
    """Return a heading for the runs that share the workload of `entry`."""
    layers, hidden = entry.workload.count("num_layers"), entry.workload.count("hidden_size")
    shape = f"model of {layers} layers, hidden size {hidden}" if layers and hidden else "unknown model"
    machine = _machine_of(entry)
    return f"{_model_of(entry) or shape}{f' on {machine}' if machine else ''}"


def says_model(entry: RunResult) -> bool:
    """Return whether name, shape or number of parameters identifies the model that was trained."""
    return bool(_model_of(entry) or _known(entry).keys() & {"num_layers", "hidden_size", "num_parameters"})


def is_cpu(entry: RunResult) -> bool:
    """Return whether CPU ranks ran and no GPUs."""
    return (entry.accelerator or entry.workload.value("accelerator")) == "cpu"


def num_gpus_of(entry: RunResult) -> int | None:
    """Return the GPUs (or CPU ranks) of a run, None where they are not known."""
    return entry.num_gpus or entry.workload.count("world_size")


def _known(entry: RunResult) -> dict[str, Setting]:
    # run.json where there is one: a run that failed early prints less than its neighbours.
    return dict(entry.workload.asked or entry.workload.logged)


def _model_of(entry: RunResult) -> str | None:
    name = entry.model or entry.workload.value("model")
    return one_line(name) if name is not None else None


def _machine_of(entry: RunResult) -> str | None:
    name = _known(entry).get("system") or _known(entry).get("gpu")
    return one_line(name.value) if name else "CPU" if is_cpu(entry) else None


def words_of(value: Value | None) -> str:
    """Return a setting as text; missing is empty."""
    return "" if value is None else f"{value:g}" if isinstance(value, float) else one_line(value)


@immutable
class Point:
    """What is known of one configuration at one size."""

    entries: tuple[RunResult, ...]  # all of its runs, those with a number first; at least one
    pool: Pool = Pool(runs=())  # those that were measured; empty: published, failed, or against their run.json
    contradictions: tuple[str, ...] = ()  # where the log is against run.json; such a run is never ranked

    @cached_property
    def settings(self) -> dict[str, Setting]:
        """Every setting that may make a difference: run.json's, overridden by what the log says."""
        workload = self.entries[0].workload
        return {name: found for name, found in {**workload.asked, **workload.logged}.items() if name not in PASSED_OVER}

    @property
    def num_gpus(self) -> int:
        """GPUs or CPU ranks, 0 where they are not known."""
        return num_gpus_of(self.entries[0]) or 0

    @property
    def batch(self) -> int | None:
        """Samples per iteration."""
        return self.entries[0].global_batch_size or self.entries[0].workload.count("global_batch_size")

    @property
    def published(self) -> Published | None:
        """What a published table says of it."""
        return self.entries[0].published

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """The codes of the doubts about the runs behind its number, each once: the rate is shown, and proves nothing."""
        return tuple(dict.fromkeys(doubt.code for run in self.counted for doubt in run.doubts))

    @property
    def counted(self) -> Sequence[Doubted]:
        """The runs behind its number."""
        return () if self.contradictions else self.pool.runs or self.entries

    @cached_property
    def supplied(self) -> tuple[Supplied, ...]:
        """The sizes that a person gave and the logs do not state, each once."""
        return tuple(dict.fromkeys(each for entry in self.entries if entry.has_number for each in entry.sizes_supplied))

    def starred(self, cell: str, name: str | None = None, *, is_rate: bool = True) -> str:
        """Return a cell with a star where it rests on what was supplied: the size called `name`, or the rate."""
        rests = any(each.name == name or (is_rate and each.changes_rate) for each in self.supplied)
        return f"{cell}*" if cell and rests else cell

    @property
    def tokens_per_second(self) -> float | None:
        """The steady rate (harmonic mean over runs), or the published one; None where no run may be counted."""
        if self.contradictions:
            return None
        return self.pool.tokens_per_second or self.entries[0].published_tokens_per_second

    @property
    def estimate(self) -> Estimate | None:
        """The rate with its uncertainty: over runs where there are several, else within the run."""
        return self.pool.estimate

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the rate."""
        return self.estimate.interval() if self.estimate else None

    @property
    def num_runs(self) -> int:
        """All of its runs, each once."""
        return len(self.entries) - len(self.pool.copies)

    @property
    def num_counted(self) -> int:
        """Runs behind the number."""
        return len(self.pool.runs) or int(self.tokens_per_second is not None)

    @property
    def outcome(self) -> str:
        """How the runs ended: the first run's outcome where there is a number, else every outcome, each once."""
        if self.tokens_per_second or self.contradictions:
            return self.entries[0].outcome.value
        return ", ".join(dict.fromkeys(entry.outcome.value for entry in self.entries))

    @property
    def cause(self) -> str | None:
        """The `remark`, and the doubts about its runs."""
        lines = doubt_lines(self.counted, self.pool.shared)
        return "; ".join(filter(None, (self.remark, *lines))) or None

    @property
    def remark(self) -> str | None:
        """Why runs of it have no number, each cause once; next to a number also which runs these are, which stopped early, end slower or are copies."""
        lost = [entry for entry in self.entries if not entry.has_number]
        failed = [": ".join((entry.outcome.value, *entry.reason_texts[:1])) for entry in lost]
        if self.tokens_per_second:
            failed = [f"{entry.source}: {why}" for entry, why in zip(lost, failed, strict=True)]
        failed += [f"{run.source}: {run.stopped}" for run in self.pool.runs if run.stopped]
        failed += [*self.pool.copy_lines, *(f"{self.entries[0].source}: {line}" for line in self.pool.end_lines)]
        return "; ".join(dict.fromkeys(self.contradictions or failed)) or None

    @property
    def one_sample(self) -> str | None:
        """Return that a single logged interval is behind the number, None where there are more or it is not known."""
        if self.pool.runs:
            is_single = all(run.num_intervals == 1 for run in self.pool.runs)
            return "its window is a single logged interval" if is_single else None
        iterations = self.published.iterations if self.published else None
        every = (self.published.log_interval if self.published else None) or LOG_INTERVAL
        if not iterations or iterations > every:
            return None
        return f"{iterations} iterations with a log line every {every} are one line, and that line holds the warm-up"


def points_of(entries: Iterable[RunResult], *, allow_measured: bool) -> list[Point]:
    """Return runs of one workload by configuration: repeats are pooled (MEASURED ones where allowed), a failure joins the configuration that its run.json requested."""
    sound, failed, alone = list[RunResult](), list[RunResult](), list[Point]()
    for entry in entries:
        wrong = tuple(found.text for found in entry.contradictions if found.code is Code.ARGUMENTS_VS_RUN)
        if wrong or entry.published:
            alone.append(Point(entries=(entry,), contradictions=wrong))
        else:
            (sound if entry.throughput else failed).append(entry)
    lost = {_request(group[0]) or id(group): group for group in grouped(failed, lambda one: _request(one) or id(one))}
    points = []
    for group in grouped(sound, _alike):
        for each in pooled(map(Observation.of, group), allow_measured=allow_measured):
            pool = each.without_shared()
            measured = [run.entry for run in (*pool.runs, *pool.shared, *pool.copies) if run.entry]
            points.append(Point(entries=(*measured, *lost.pop(_request(measured[0]), [])), pool=pool))
    return [*points, *(Point(entries=tuple(group)) for group in lost.values()), *alone]


def varying_in(points: Sequence[Point]) -> tuple[str, ...]:
    """Return the names of the settings in which configurations differ, the usual ones first; what follows from others is left out.

    A value that is not stated is a value of its own only where the run was measured: one that failed early prints less.
    """
    usual = [name for name in FREE if name not in PASSED_OVER]
    settings = [(point.settings, bool(point.pool.runs)) for point in points]
    others = dict.fromkeys(name for known, is_measured in settings if is_measured for name in known)
    found = []
    for name in (*usual, *(name for name in others if name not in usual and name not in _WHERE)):
        values = {words_of(known[name].value) for known, _ in settings if name in known}
        is_missing = any(name not in known for known, is_measured in settings if is_measured)
        if len(values) + is_missing > 1:
            found.append(name)
    is_split = {"tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"} & set(found)
    return tuple(name for name in found if not (is_split and name == "data_parallel_size"))


def _request(entry: RunResult) -> object:
    """Return the configuration that run.json requested, None for a log of others."""
    requested = entry.workload.asked
    return tuple(sorted((name, requested[name].value) for name in requested if name in NAMES)) or None


def _alike(entry: RunResult) -> object:
    """Return what the log says beyond the names of an identity: another library or kernel is no repeat."""
    if not all(entry.workload.setting(name) for name in LAYOUT):
        return id(entry)
    logged = entry.workload.logged.items()
    return tuple(sorted((name, said.value) for name, said in logged if name not in PASSED_OVER and name not in NAMES))


def below_tables(
    style: Style, unplaced: Iterable[RunResult], legend: Iterable[str], points: Iterable[Point]
) -> list[list[str]]:
    """Return what stands below the tables: a sentence for each run whose GPUs are not known; the legend, and what stars in the cells mean."""
    why = "the number of GPUs is not in the log"
    lost = (f"{e.source}: not placed, {why if e.has_number else '; '.join(e.reason_texts) or why}" for e in unplaced)
    entries = (entry for point in points for entry in point.entries if entry.has_number)
    stars = supplied_lines((entry.source, entry.sizes_supplied) for entry in entries)
    return [[*map(style.sentence, lines)] for lines in (lost, (*legend, *stars))]


def doubts_of(points: Sequence[Point]) -> list[str]:
    """Return the doubts about the runs of all points: `doubt_lines`."""
    counted = chain.from_iterable(point.counted for point in points)
    return doubt_lines(counted, chain.from_iterable(point.pool.shared for point in points))


def unplaced_json(entries: Iterable[RunResult]) -> list[dict[str, Any]]:
    """Return the runs whose GPUs are not known as both records have them."""
    return [{"source": e.source, "outcome": e.outcome.value, "reasons": list(e.reason_texts)} for e in entries]
