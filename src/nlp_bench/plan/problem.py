"""What is planned: a model on a machine, the batch that stays as it is, and what the user fixes."""

import contextlib
from dataclasses import MISSING, field, fields, replace
from typing import Any

import numpy as np

from nlp_bench.config import catalog
from nlp_bench.config.machine import settle
from nlp_bench.config.model import Architecture, Model, Training, model_shape
from nlp_bench.config.request import Request
from nlp_bench.config.run import Run, batch_in_words
from nlp_bench.config.system import Gpu, System
from nlp_bench.config.system import Network as Fabric
from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.layout.rules import METHODS, MODULES, RECOMPUTE, SHARDING
from nlp_bench.plan.configurations import PRECISIONS, Configurations, Machines, Network, Spread, struct
from nlp_bench.plan.constants import Constants, precision_of
from nlp_bench.plan.machines import doubts_of, machine_of

VOCAB_MULTIPLE = 128  # Megatron-LM's default of --make-vocab-size-divisible-by, which the trainer has too


def network_of(family: str, shape: Architecture, training: Training) -> Network:
    """Return the network of one model, every field a number (arrays of shape []); raises UsageError for a family that the planner does not know."""
    if family != "gpt":
        raise UsageError(
            f"model.family: {family!r} is not planned: the planner's formulas are those of decoder-only models (gpt); "
            "`nlp-bench rehearse` runs the trainer's own step of every family"
        )
    known = model_shape(family, shape)
    own = {
        "head_width": known.width_per_head,
        "vocab_size": shape.vocab_size + shape.vocab_extra_ids,
        "vocab_multiple": VOCAB_MULTIPLE,
        "dropout": training.hidden_dropout > 0 or training.attention_dropout > 0,
    }
    return struct(Network, vars(known) | own)


UPSTREAM = "Megatron-LM"  # framework of a run whose trainer is Megatron-LM's own


def configuration_of(run: Run, constants: Constants) -> Configurations:
    """Return a run as N = 1 configurations, shape [1] in its spread; raises UsageError for what the planner does not know."""
    trainer = UPSTREAM if run.tuning.trainer == "megatron-lm" else FRAMEWORK
    precision, sizes, parallel = run.training.precision, run.sizes, run.parallel
    own = {
        "data": parallel.data,
        "shard_group": parallel.data * parallel.context if sizes.sharding else 1,
        "recompute": RECOMPUTE.index(run.training.recompute),
        "recompute_modules": _modules_of(run),
    }
    return Configurations(
        network=network_of(run.model.family, run.model.architecture, run.training),
        spread=struct(Spread, {name: [value] for name, value in (vars(sizes) | own).items()}),
        machines=machine_of(run.system, constants, precision),
        framework=np.asarray(_place(constants.frameworks, trainer, "tuning.trainer")),
        precision=np.asarray(_place(PRECISIONS, precision, "training.precision")),
    )


def _modules_of(run: Run) -> int:
    """Return the place in MODULES of what selective recompute covers; raises UsageError where its memory is not counted.

    Transformer Engine's normalisations are a part of the product behind them, and megatron-core makes none of them again.
    """
    asked = set(run.tuning.recompute_modules if run.training.recompute == "selective" else ())
    asked -= {"layernorm"} if run.tuning.kernels == "te" else set()
    modules = tuple(name for name in MODULES[-1] if name in asked)
    if modules and run.tuning.trainer == "megatron-lm":
        raise UsageError(
            f"tuning.recompute_modules: {' '.join(modules)} is not predicted for Megatron-LM's trainer; leave it out, or "
            "`nlp-bench rehearse` says whether it fits this package's"
        )
    return MODULES.index(modules)


def _place(known: tuple[str, ...], word: str, field: str) -> int:
    if word not in known:
        raise UsageError(f"{field}: {word!r} is not planned (known: {', '.join(known)})")
    return known.index(word)


@immutable
class Setting:
    """The sizes and switches of one configuration."""

    num_gpus: int
    tp: int
    pp: int
    vpp: int  # virtual stages of each pipeline rank; 1 without interleaving
    cp: int
    dp: int  # data-parallel size; rounded down where the GPUs do not divide
    micro_batch_size: int
    gas: int  # micro-batches of one iteration and pipeline; rounded down where the batch does not divide
    global_batch_size: int
    first_layers: int  # layers of the first stage where it differs, else 0
    last_layers: int  # layers of the last stage where it differs, else 0
    recompute: str
    recompute_method: str  # of full: uniform or block
    recompute_num_layers: int  # of full: layers of a group (uniform) or of a virtual stage (block); else 0
    recompute_modules: tuple[str, ...]  # of selective: mlp, layernorm
    sequence_parallel: bool
    distributed_optimizer: bool
    overlap_grad_reduce: bool
    overlap_param_gather: bool
    num_layers: int
    num_heads: int
    num_groups: int
    ffn_hidden_size: int
    sequence_length: int

    @property
    def layout(self) -> str:
        """The sizes in one line."""
        found = self.words | {"dp": f"DP {self.dp}", "gas": f"GAS {self.gas}"}
        first = [name for name in ("tp", "pp", "vpp", "cp", "dp", "micro_batch_size", "gas") if name in found]
        return ", ".join(found[name] for name in dict.fromkeys([*first, *found]))

    @property
    def words(self) -> dict[str, str]:
        """The sizes by name, without those that are as in a run without their options."""
        sizes = [(name, axis, getattr(self, name)) for name, axis in AXES.items() if not axis.values]
        return {name: one.text.format(n) for name, one, n in sizes if one.default is MISSING or n != one.usual}

    @property
    def partial_recompute(self) -> dict[str, str | int]:
        """The options of recompute beyond the granularity; none where they are as in a run without them."""
        if self.recompute == "selective" and self.recompute_modules:
            return {"recompute_modules": " ".join(self.recompute_modules)}
        method, layers = self.recompute_method, self.recompute_num_layers
        usual = self.recompute != "full" or (method, layers) == ("uniform", 1)
        return {} if usual else {"recompute_method": method, "recompute_num_layers": layers}

    @property
    def recompute_words(self) -> str:
        """What is computed again."""
        own = self.partial_recompute
        if "recompute_method" in own:
            layers = f"{self.recompute_num_layers} layer{'s' * (self.recompute_num_layers > 1)}"
            return f"{self.recompute} ({self.recompute_method} of {layers})"
        return f"{self.recompute} ({' and '.join(self.recompute_modules)})" if own else self.recompute

    @property
    def switches(self) -> dict[str, str]:
        """What is on or off, in words, by what it is about; with one tensor-parallel rank nothing is split along the sequence."""
        single = {name: axis.text for name, axis in SWITCHES.items() if not axis.aspect}
        if self.tp == 1:
            del single["sequence_parallel"]
        found = {name: text if getattr(self, name) else f"no {text}" for name, text in single.items()}
        both = [axis.text for name, axis in SWITCHES.items() if axis.aspect == "overlap" and getattr(self, name)]
        overlap = f"overlapped {' and '.join(both)}" if both else "no overlap"
        return {"recompute": SWITCHES["recompute"].text.format(self.recompute_words), **found, "overlap": overlap}


_OF_RUN = {one.name: one.metadata for one in fields(Request)}


@immutable
class Axis:
    """A size or switch in which configurations of one problem differ."""

    array: str  # the array of Spread that holds it
    option: str  # its option: a field of config/request.py and of `nlp-bench plan`
    absent: Any = 1  # its value where the option is not given and has no default
    text: str  # its words: of a size with {} for its value, of a switch where it is on
    word: str = ""  # its option in a command, where that differs from JUBE's parameter
    aspect: str = ""  # topic of a change of it, where another one shares it
    values: tuple[Any, ...] = ()  # values of a switch that are searched; none for a size
    is_coded: bool = False  # whether the array holds places in `values`

    @property
    def jube(self) -> str:
        """JUBE's parameter."""
        return str(_OF_RUN[self.option]["jube"])

    @property
    def default(self) -> Any:
        """The option's default: None for a size that is left to the trainer, MISSING for one that every run names."""
        return _OF_RUN[self.option]["default"]

    @property
    def usual(self) -> Any:
        """Its value in a run without the option."""
        return self.absent if self.default in {None, MISSING} else self.default

    def code(self, value: Any) -> Any:
        """Return what the array holds for a value of Setting or Fixed; an array stays."""
        return self.values.index(value) if self.is_coded and isinstance(value, str | tuple) else value


_ON_OFF, _OFF_ON = (True, False), (False, True)
AXES = {
    "tp": Axis(array="tensor", option="tensor", text="TP {}", word="tp"),
    "pp": Axis(array="pipeline", option="pipeline", text="PP {}", word="pp"),
    "vpp": Axis(array="virtual", option="num_virtual_stages_per_pipeline_rank", text="VPP {}"),
    "cp": Axis(array="context", option="context", text="CP {}"),
    "first_layers": Axis(array="first_layers", option="decoder_first_pipeline_num_layers", text="first stage {} layers", absent=0, aspect="ends"),
    "last_layers": Axis(array="last_layers", option="decoder_last_pipeline_num_layers", text="last stage {} layers", absent=0, aspect="ends"),
    "micro_batch_size": Axis(array="micro_batch_size", option="micro_batch_size", text="micro batch {}"),
    "recompute": Axis(array="recompute", option="recompute", text="recompute {}", values=RECOMPUTE, is_coded=True, aspect="recompute"),
    "recompute_method": Axis(array="recompute_method", option="recompute_method", text="", absent="uniform", aspect="recompute", values=METHODS, is_coded=True),
    "recompute_num_layers": Axis(array="recompute_num_layers", option="recompute_num_layers", text="", absent=0, aspect="recompute", values=(0, 1)),
    "recompute_modules": Axis(array="recompute_modules", option="recompute_modules", text="", aspect="recompute", values=MODULES, is_coded=True),
    "sequence_parallel": Axis(array="sequence_parallel", option="sequence_parallel", text="sequence parallel", values=_ON_OFF),
    "distributed_optimizer": Axis(array="sharding", option="use_distributed_optimizer", text="distributed optimizer", values=_ON_OFF),
    "overlap_grad_reduce": Axis(array="overlap_grad_reduce", option="overlap_grad_reduce", text="gradients", values=_OFF_ON, aspect="overlap"),
    "overlap_param_gather": Axis(array="overlap_param_gather", option="overlap_param_gather", text="parameters", values=_OFF_ON, aspect="overlap"),
}  # fmt: skip
"""In what configurations of one problem may differ, by name in Setting and Fixed: sizes, then switches."""
ENDS = ("first_layers", "last_layers")  # sizes that a sentence may say together
SWITCHES = {name: axis for name, axis in AXES.items() if axis.values}
OPTIONS = {name: axis.option for name, axis in AXES.items()} | {"gas": "gradient_accumulation_steps"}
"""What can be fixed, by name, with its option."""
_OTHERS = {"dp": "data", "num_heads": "num_attention_heads", "num_groups": "num_query_groups"}


def sizes_of(c: Configurations, place: int) -> Setting:
    """Return the configuration at `place`."""
    arrays: dict[str, Any] = vars(c.network) | vars(c.spread)
    found: dict[str, Any] = {}
    for one in fields(Setting):
        axis = AXES.get(one.name)
        values = np.asarray(arrays.get(axis.array if axis else _OTHERS.get(one.name, one.name), 0))
        value = values.reshape(-1)[place if values.ndim else 0].item()
        value = value if isinstance(value, bool) else int(value)
        found[one.name] = axis.values[value] if axis and axis.is_coded else value
    found["distributed_optimizer"] = found["distributed_optimizer"] >= SHARDING.index("optimizer")
    samples = np.asarray(c.spread.data * c.spread.micro_batch_size).reshape(-1)
    each = round(samples[place if len(samples) > 1 else 0].item())
    return Setting(**found | {"gas": found["global_batch_size"] // max(1, each)})


FRAMEWORK = "nlp-bench"
MOST_GPUS = 2**20  # no machine has more; the layouts of a number with thousands of divisors would fill the memory
MOST_SAMPLES = 2**20  # no training has more in an iteration; the micro batch sizes that divide it are searched
RECOMPUTE_WORDS = (*RECOMPUTE, "any")
Columns = dict[str, Any]  # arrays of shape [N] by the names of Fixed


@immutable
class Fixed:
    """What the search leaves as it is; None: free."""

    tp: int | None = None
    pp: int | None = None
    vpp: int | None = None
    cp: int | None = None
    micro_batch_size: int | None = None
    gas: int | None = None
    first_layers: int | None = None  # layers of the first stage; 0: as the others
    last_layers: int | None = None  # layers of the last stage; 0: as the others
    recompute: str | None = None  # none, selective or full
    recompute_method: str | None = None  # of full: uniform or block
    recompute_num_layers: int | None = None  # of full
    recompute_modules: tuple[str, ...] | None = None  # of selective
    sequence_parallel: bool | None = None
    distributed_optimizer: bool | None = None
    overlap_grad_reduce: bool | None = None
    overlap_param_gather: bool | None = None

    @property
    def given(self) -> dict[str, Any]:
        """What is fixed, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @property
    def words(self) -> str:
        """What is fixed, in words."""
        values = {name: " ".join(value) if isinstance(value, tuple) else value for name, value in self.given.items()}
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())


def recompute_of(word: str, fixed: Fixed | None = None) -> dict[str, Any]:
    """Return all that belongs to a word of RECOMPUTE, by the names of AXES: each layer alone and no module but what is fixed."""
    own = fixed or Fixed()
    is_full = word == "full"
    return {
        "recompute": word,
        "recompute_method": (own.recompute_method if is_full else None) or "uniform",
        "recompute_num_layers": (own.recompute_num_layers or 1) if is_full else 0,
        "recompute_modules": own.recompute_modules or () if word == "selective" else (),
    }


def _in_order(fixed: Fixed) -> Fixed:
    """Return it with the modules as MODULES has them; none of them are the same as no option."""
    modules = fixed.recompute_modules
    given = tuple(modules.split()) if isinstance(modules, str) else modules  # a word of a caller's
    if not given:
        return replace(fixed, recompute_modules=None)
    known = tuple(name for name in MODULES[-1] if name in given)
    others = tuple(name for name in given if name not in {*known, "core_attn"})
    return replace(fixed, recompute_modules=known + others or None)


def _check_recompute(fixed: Fixed) -> None:
    """Raise UsageError for a part of the layers or modules without the granularity that has it."""
    for name, granularity in (
        ("recompute_method", "full"), ("recompute_num_layers", "full"), ("recompute_modules", "selective")
    ):  # fmt: skip
        if getattr(fixed, name) is not None and fixed.recompute != granularity:
            raise UsageError(f"plan: --{name.replace('_', '-')} needs --recompute {granularity}; give it, too")
    method, modules = fixed.recompute_method, fixed.recompute_modules
    if method is not None and method not in METHODS:
        raise UsageError(f"--recompute-method: {method!r:.60} is not one of {', '.join(METHODS)}")
    if modules is not None and modules not in MODULES:
        raise UsageError(f"--recompute-modules: {' '.join(modules)} is none of core_attn, mlp, layernorm")


def oversized(global_batch_size: int, sequence_length: int, tokens: float) -> tuple[str, ...]:
    """Return a doubt where one iteration takes more tokens than the whole training: its time is a part of an iteration's, which no training ends in."""
    of_iteration = global_batch_size * sequence_length
    if of_iteration <= tokens:
        return ()
    said = (
        f"one iteration of {global_batch_size:,} samples has {of_iteration:,} tokens, more than the training's {tokens:,.0f}, whose time is that of "
        "a part of an iteration; --global-batch-size counts samples, and --tokens takes 20M or 300B"
    )
    return (said,)


@immutable
class Problem:
    """One question to the planner."""

    model: Model
    system: System
    network: Network  # the model's shape, as arrays of shape []
    machines: Machines  # the machine's data sheet, as arrays of shape []
    constants: Constants
    nodes: int
    gpus_per_node: int
    global_batch_size: int  # samples of one iteration: part of what the benchmark is
    tokens: int
    precision: str
    recompute: tuple[str, ...]  # recompute settings that are searched
    frozen_recompute: bool  # whether the benchmark's rules freeze it
    searched_methods: tuple[str, ...] = ()  # methods of full recompute whose number of layers is searched
    searched_modules: tuple[tuple[str, ...], ...] = ()
    """Modules of selective recompute that are searched besides; not layernorm, which Transformer Engine's layers ignore."""
    fixed: Fixed = field(default_factory=Fixed)  # what the search leaves as it is

    @property
    def num_gpus(self) -> int:
        """Ranks of the job."""
        return self.nodes * self.gpus_per_node

    @property
    def batch(self) -> str:
        """The global batch in words; one that is not the model's own is said to be another."""
        return batch_in_words(self.global_batch_size, self.model.defaults.global_batch_size)

    @property
    def deviations(self) -> tuple[str, ...]:
        """Where the model is not the one that nlp-bench ships under its name: such a run is not the benchmark."""
        return self.deviations_with(self.model.training.recompute)

    def deviations_with(self, recompute: str) -> tuple[str, ...]:
        """Return the same for a run with this recompute."""
        training = replace(self.model.training, recompute=recompute)
        return catalog.deviations(self.model, training)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Where the system file contradicts its GPU's data sheet, where that is not the shipped one, and a batch beyond the whole training."""
        batch = oversized(self.global_batch_size, int(self.network.sequence_length), self.tokens)
        return doubts_of(self.system, self.constants) + batch

    @property
    def other_format(self) -> str | None:
        """That the number format is none that a run trains in; None where it is."""
        own = trained_in(self.model, self.system)
        return None if self.precision == own else f"planned in {self.precision}, but a run trains in {own}"

    def refuse_other_format(self, option: str) -> None:
        """Raise UsageError, which begins with `option`, for a number format that no run trains in."""
        if self.other_format:
            raise UsageError(f"{option}: {self.other_format}; leave --precision out, or write a model file of your own")

    @property
    def tokens_per_iteration(self) -> float:
        """Tokens of one iteration."""
        return self.global_batch_size * float(self.network.sequence_length)

    @property
    def published(self) -> Columns:
        """The sizes and switches that the model file (or the system's layout for it) proposes: what `nlp-bench submit` runs."""
        proposed = proposed_layout(self.model, self.system)
        tensor = proposed["tensor_parallel"]
        return {name: axis.usual for name, axis in AXES.items()} | {
            "tp": tensor,
            "pp": proposed["pipeline_parallel"],
            "micro_batch_size": proposed["micro_batch_size"],
            **recompute_of(self.model.training.recompute),
            "sequence_parallel": tensor > 1,
        }

    def configurations(self, columns: Columns) -> Configurations:
        """Return the configurations that columns of sizes and switches describe; a number applies to all of them, what has no column is as usual."""
        tensor, pipeline, context = (np.asarray(columns[name], dtype=np.float64) for name in ("tp", "pp", "cp"))
        data = self.num_gpus / (tensor * pipeline * context)
        own = {axis.array: axis.code(columns.get(name, axis.usual)) for name, axis in AXES.items()} | {
            "num_gpus": self.num_gpus,
            "data": data,
            "global_batch_size": self.global_batch_size,
            "shard_group": data * context,
        }
        return Configurations(
            network=self.network,
            spread=struct(Spread, own),
            machines=self.machines,
            framework=np.asarray(self.constants.frameworks.index(FRAMEWORK)),
            precision=np.asarray(PRECISIONS.index(self.precision)),
        )


def make_problem(  # noqa: PLR0913  # each is an option of the command line
    model: Model,
    system: System,
    constants: Constants,
    *,
    tokens: int,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    global_batch_size: int | None = None,
    sequence_length: int | None = None,
    precision: str | None = None,
    fixed: Fixed | None = None,
) -> Problem:
    """Put a question together; what is not given is as the model and system files have it. Raises UsageError where they do not go together."""
    if sequence_length is not None:
        model = replace(model, architecture=replace(model.architecture, sequence_length=sequence_length))
    system = _with_gpus(_as_measured(system, constants), gpus_per_node or system.layout_of(model).gpus_per_node)
    precision = precision_of(precision or trained_in(model, system))
    fixed = _in_order(fixed or Fixed())
    _check_recompute(fixed)
    nodes = nodes or proposed_layout(model, system)["nodes"]
    if nodes * int(system.gpus_per_node) > MOST_GPUS:
        raise UsageError(
            f"--nodes: {nodes} nodes x {system.gpus_per_node} GPUs are more than the {MOST_GPUS} that are planned for"
        )
    samples = global_batch_size or model.defaults.global_batch_size
    if samples > MOST_SAMPLES:
        raise UsageError(
            f"batch: {samples} samples in an iteration are more than the {MOST_SAMPLES} that are planned for; --global-batch-size "
            f"counts samples, not tokens: correct it, or the defaults of model {model.name}"
        )
    frozen = catalog.has_rules(model.name)
    return Problem(
        model=model,
        system=system,
        network=network_of(model.family, model.architecture, model.training),
        machines=machine_of(system, constants, precision),
        constants=constants,
        nodes=nodes,
        gpus_per_node=int(system.gpus_per_node),
        global_batch_size=samples,
        tokens=tokens,
        precision=precision,
        recompute=searched_recompute(model.training.recompute, fixed.recompute, frozen=frozen),
        frozen_recompute=frozen,
        searched_methods=searched_methods(fixed),
        searched_modules=(("mlp",),) if fixed.recompute == "any" else (),
        fixed=replace(fixed, recompute=None if fixed.recompute == "any" else fixed.recompute),
    )


def trained_in(model: Model, system: System) -> str:
    """Return the number format of a run: CPU ranks train in fp32 whatever the model file says."""
    return "fp32" if system.accelerator == "cpu" else model.training.precision


def proposed_layout(model: Model, system: System) -> dict[str, Any]:
    """Return the layout of a run without options, by the fields of Layout: the system's for this model, else the model's defaults."""
    layout = system.layout_of(model)
    return vars(layout) | {"gpus_per_node": layout.gpus_per_node or system.gpus_per_node}


def _as_measured(system: System, constants: Constants) -> System:
    """Return the system; one without [gpu] has what `nlp-bench plan calibrate` measured, where the constants hold that."""
    measured = constants.machine
    if measured is None or system.gpu is not None:
        return system
    accelerator, ranks = settle(system)
    peak = measured.peak_tflops.get("bf16", max(measured.peak_tflops.values()))
    gpu = Gpu(name=measured.name, memory_gib=measured.memory_gib, peak_bf16_tflops=peak)
    network = Fabric(links_per_node=1, link_gbit_per_s=8 * measured.link_gb_per_s)
    return replace(system, accelerator=accelerator, gpus_per_node=ranks, gpu=gpu, network=network)


def _with_gpus(system: System, gpus_per_node: int | None) -> System:
    if system.accelerator == "cpu" and system.gpu is None:
        raise UsageError(
            f"system.accelerator: {system.name} trains on CPU ranks, and the planner's formulas are those of GPUs; name a system "
            f"with GPUs ({', '.join(_gpu_systems())}), or measure: tiny takes seconds on a CPU"
        )
    if system.gpu is None:
        raise UsageError(
            f"system.gpu: {system.name} does not say which GPU it has; name another system ({', '.join(_gpu_systems())}), or copy "
            "one of benchmark/systems and write [gpu] name, memory_gib, peak_bf16_tflops and [network] links_per_node, link_gbit_per_s"
        )
    if gpus_per_node is not None:
        return replace(system, gpus_per_node=gpus_per_node)
    if isinstance(system.gpus_per_node, str):
        raise UsageError(
            f"system.gpus_per_node: {system.name} counts the GPUs of the machine it runs on; give --gpus-per-node N"
        )
    return system


def _gpu_systems() -> list[str]:
    found = []
    for name in catalog.names("systems"):
        with contextlib.suppress(UsageError):  # a broken file is no example
            found += [name] if catalog.load_system(name).gpu is not None else []
    return found


def searched_methods(fixed: Fixed) -> tuple[str, ...]:
    """Return the methods of full recompute of which the number of layers is searched."""
    if fixed.recompute == "any":
        return METHODS
    is_free = fixed.recompute_method is not None and fixed.recompute_num_layers is None
    return (str(fixed.recompute_method),) if is_free else ()


def searched_recompute(own: str, fixed: str | None, *, frozen: bool) -> tuple[str, ...]:
    """Return the settings to search: none and selective are the same in this trainer, whose attention kernels store no scores."""
    if fixed == "any":
        return ("none", "selective", "full")
    if fixed is not None:
        return (fixed,)
    if frozen:
        return (own,)
    return ("none", "full") if own == "full" else (own, "full")
