"""The vocabulary of training logs that nobody has described: words, and which of them together name which quantity.

Data only; `meaning` reads it. A phrase is written in canonical words: `tokens_per_sec`, `Tokens/s` and `tok / second` are all
`tok / s`, and X stands for whatever a program calls an iteration.
"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _phrases(text: str) -> frozenset[str]:
    return frozenset(text.split("|"))


_VARIANTS = {
    "tok": "tok toks token tokens tk tks",
    "sample": "sample samples example examples sequence sequences seq seqs sentence sentences",
    "step": "step steps update updates",
    "it": "it its itr iter iters iteration iterations",
    "batch": "batch batches",
    "s": "s sec secs second seconds",
    "ms": "ms msec msecs millis millisecond milliseconds",
    "us": "us usec usecs microsecond microseconds",
    "minute": "mins minute minutes",
    "hour": "hours hour hr hrs",
    "dev": "gpu device chip npu rank worker core card accelerator tpu hpu xpu gcd process proc processor each apiece",
    "devs": "gpus devices chips npus ranks cores cards accelerators tpus hpus xpus gcds processes processors",
    "node": "node host",
    "nodes": "nodes hosts",
    "/": "per",
    "time": "time timing duration latency runtime",
    "len": "len length",
    "num": "num number nr count",
    "grad": "grad gradient",
    "accum": "accum accumulation accumulate acc",
    "average": "avg average mean running moving rolling smoothed ema smooth cumulative overall averaged",
    "throughput": "throughput speed rate",
}
CANONICAL = {variant: word for word, variants in _VARIANTS.items() for variant in variants.split()}
CANONICAL["dev"] = "devset"
"""Word of a log, in lower case, to canonical word; a word that is not here stands for itself."""

TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "minute": 60.0, "hour": 3600.0}
"""Canonical word to seconds."""
SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
"""Letter behind a number to factor."""
THOUSANDS = {"k": 1e3, "m": 1e6, "g": 1e9, "thousand": 1e3, "million": 1e6, "billion": 1e9}
"""Word of a rate's name to factor: `tokens_per_second(M)`."""
GLUED = {
    **dict.fromkeys(("ktok", "ktoks", "ktokens", "kt"), ("k", "tok")),
    **dict.fromkeys(("mtok", "mtoks", "mtokens"), ("m", "tok")),
}
"""Word of thousands or millions of tokens to the two words in it."""

ITERATIONS = frozenset({"step", "it", "batch"})
"""What X of a phrase may be."""
DEVICE = frozenset({"dev", "devs"})
"""Words that make a rate one of a single device."""
WHOLE = frozenset({"total", "global", "world", "cluster", "all", "machine", "system", "aggregate", "aggregated", "job"})
"""Words that make a rate one of the whole machine."""
PLAIN = _words(
    "train training perf performance metric metrics stat stats trainer current cur curr inst instant instantaneous interval "
    "actual this latest last new log the is are was will be in at on for a model lm llm approx approximate est estimated "
    "reduced taken info full whole entire debug warning warn notice root main logger stdout stderr"
)
"""Words that change nothing about what a quantity is."""
VARIANTS = _words("real effective padded unpadded non pad nonpad padding label target loss active raw")
"""Words that say which of the tokens are counted."""
EXTREMES = _words("max min peak best worst highest lowest median std stddev var p percentile")
"""Words of statistics that are no rate of a step."""
FOREIGN = _words(
    "eval evaluation evaluate evaluating evaluated val valid validation validate validating test testing inference infer "
    "generate generating generation generated gen decode decoding decoded prefill prompt completion request requests req "
    "rollout sampling tokenize tokenizing tokenized tokenization tokenizer download downloading downloaded upload preprocess "
    "preprocessing prepare preparing compile compiling compilation loading save saving saved checkpoint checkpoints "
    "checkpointing ckpt warmup warming warm map filter packing grouping shard shards document documents doc docs actor critic "
    "ppo reward policy devset harness serving server serve chat query queries kv cache image images img imgs imagenet resnet frame frames "
    "video audio pixel pixels bleu top encoding"
)
"""Words that say that a line is not one of a language model's training step."""
PARTS = _words(
    "data dataloader loader load io read reader fetch forward fwd backward bwd bw fw optim optimizer opt comm communication "
    "allreduce reduce gather scatter sync wait idle gc kernel remaining eta left remain finish input output scale fwdbwd h2d "
    "queue copy clip free other others first ttft tpot bubble"
)
"""Words that make a time or rate one of a part of the step, or of something else."""
EVIDENCE = _words(
    "loss nll xent train training trainer lr norm gnorm ppl perplexity mfu tflop tflops flops optimizer grad gradient"
)
"""Words that say that a line is about training."""

REINFORCED = _words(
    "ppo actor critic rollout reward policy generate generation decode prefill prompt request requests req"
)
"""Words that, as a name anywhere on a line, say that its step is none of training, or more."""
LEARNED = _words("ppo actor critic rollout reward rewards policy")
"""Those of them that make the whole log one of reinforcement learning."""
EVALUATED = _words("devset eval evaluation evaluate evaluating evaluated val valid validation validate validating")
"""Words of a line behind which a step may hold an evaluation."""
PAUSES = (b"valid", b"Valid", b"evalu", b"Evalu")
"""Likewise, of a line without numbers."""
TALES = (b"tok", b"Tok", b"/s", b"sec", b"ample", b"ms", b"tps", b"wps", b"time")
"""A line with a measure of a training holds one of these."""
PICTURES = _words(
    "image images img imgs frame frames resnet imagenet top pixel pixels video audio mel wer spectrogram spectrograms phoneme phonemes vocoder speech utterance utterances"
)
"""Words that, anywhere on a line, say that its samples are no texts."""

RATES = {
    "tok / s": "tokens_rate",
    "tok s": "tokens_rate",
    "sample / s": "samples_rate",
    "sample s": "samples_rate",
    "X / s": "steps_rate",
    "ups": "steps_rate",
}
"""Phrase without its place words to kind; a phrase with another unit of time is turned into `s` first."""
SHORT = {"tps": "", "wps": "", "ips": "", "tgs": "device"}
"""Short names of tokens per second, and the place they name ("" is none: some programs mean a device, some the machine)."""
STEP_TIMES = _phrases(
    "X time|time / X|elapsed time / X|elapsed / X|X elapsed|X elapsed time|wall time / X|X wall time|wall / X|/ X time|dt|"
    "took / X|X cost|time for X|X time / X|time X"
)
"""Phrases, without their unit, of the seconds that an iteration takes."""
BARE_TIMES = _phrases("time|elapsed|elapsed time|time elapsed|wall time|wall|took|wall clock|wall clock time|in")
"""Phrases of a time that may be that of a step, of a logging interval, or since the start."""
STAMPS = frozenset({"timestamp", "ts", "time stamp", "time ms", "unix time"})
"""Phrases of the time at which the line was written, in seconds or milliseconds since 1970."""

COUNTERS = {
    **dict.fromkeys(("step", "global step", "step num", "num step", "step id", "step idx"), "step"),
    **dict.fromkeys(("it", "global it", "it num", "num it", "it id", "it idx"), "it"),
    **dict.fromkeys(("batch", "batch num", "batch id", "batch idx"), "batch"),
    **dict.fromkeys(
        ("u", "upd", "completed step", "step completed", "optimizer step", "opt step", "optim step"), "step"
    ),
    **dict.fromkeys(("global step / max step", "step / total step", "step / max step"), "step"),
}
"""Phrases of the number of the iteration, and what it counts."""
NO_COUNTER = _words("num max total every from since per until micro skipped nan per accum warm log of / lr")
"""Words in front of a counter's name that make it something else."""
SEEN_TOKENS = _phrases(
    "consumed tok|tok consumed|tok seen|seen tok|total tok|tok total|num consumed tok|num tok seen|num input tok seen|"
    "input tok seen|trained tok|tok trained|processed tok|tok processed|total num tok|total tok seen|tok so far|"
    "num tok|cumulative tok|global tok seen|num tok total|tok"
)
"""Phrases of tokens since the start, which must rise; one that does not is the number of a step."""
STEP_TOKENS = _phrases(
    "tok / X|tok / optimizer X|tok / optim X|tok / opt X|tok / global X|tok / global batch|batch tok|X tok|global batch tok|batch size tok|global batch size tok|total batch size tok|"
    "wpb|tok / X total|global tok / X|total tok / X|tok in batch|num tok / X|global batch num tok|tok / update"
)
"""Phrases of the tokens of one iteration."""
SEEN_SAMPLES = _phrases("consumed sample|sample consumed|sample seen|num sample seen|total sample")
"""Phrases of samples since the start."""
GLOBAL_BATCH = _phrases(
    "global batch size|total batch size|effective batch size|global batch|gbs|effective batch|batch size global|"
    "batch size total|global bs|global bsz|global total batch size"
)
"""Phrases of the samples of one iteration of the whole machine."""
MICRO_BATCH = _phrases(
    "micro batch size|batch size / dev|/ dev batch size|dev batch size|local batch size|mbs|microbatch size|micro bs|"
    "instantaneous batch size / dev|micro batch size / dev|/ dev micro batch size|batch size dev|device microbatch size"
)
"""Phrases of the samples of one pass of one device."""
ACCUMULATION = _phrases(
    "grad accum step|grad accum|accum step|gas|grad accum it|grad accum batch|accum grad batch|update freq|"
    "grad accum factor|num grad accum step|accum grad"
)
"""Phrases of the passes of one iteration."""
DATA_PARALLEL = _phrases("data parallel size|dp size|dp world size|data parallel degree|dp degree")
"""Phrases of the number of model replicas."""
MODEL_PARALLEL = _phrases(
    "tensor parallel size|pipeline parallel size|tp size|pp size|context parallel size|cp size|"
    "tensor model parallel size|pipeline model parallel size|tensor parallel degree|tp degree"
)
"""Phrases of the numbers of devices that share a replica."""
SEQUENCE = _phrases("sample len|context len|ctx len|sample size|seqlen|n ctx|tok / sample|num tok / sample")
"""Phrases of the tokens of one sample."""
SEQUENCE_LIMIT = _phrases("max sample len|max len|max seqlen|block size|context size|context window|max tok / sample")
"""Phrases of an upper limit of the tokens of one sample, which counts where nothing better is said."""
DEVICES = _phrases(
    "world size|num devs|num dev|n devs|n dev|ngpus|ngpu|total devs|num total devs|total num devs|total dev|devs total|devs|"
    "world|nranks|dev num|dev count|devs num"
)
"""Phrases of the devices of the whole run, or of a node where there are several."""
NODES = _phrases("num nodes|num node|nodes|nnodes|nnode|n nodes|n node|nodes num|node num|total nodes")
"""Phrases of the number of machines."""
DEVICES_PER_NODE = _phrases(
    "devs / node|dev / node|num devs / node|num dev / node|nproc / node|n dev / node|n devs / node|devs / node num|"
    "num dev / host|task / node|ntasks / node"
)
"""Phrases of the devices of one machine."""
NO_RATE = _words("loss nll xent lr mfu hfu norm gnorm ppl perplexity grad mem memory epoch acc accuracy")
"""Words of quantities that are no rates, whatever unit seems to stand behind them."""
LOSSES = frozenset({"loss", "total loss", "nll", "nll loss", "xent", "cross entropy", "cross entropy loss"})
"""Phrases of the training loss."""
