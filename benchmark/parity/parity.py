# ruff: noqa: INP001  # scripts, not a package
"""Does our trainer compute what Megatron-LM computes? Both train the same tiny models from the same weights on the same tokens.

    git clone --branch core_v0.16.1 --depth 1 https://github.com/NVIDIA/Megatron-LM && pip install six regex
    python benchmark/parity/parity.py --megatron-lm Megatron-LM              # CPU ranks over gloo
    python benchmark/parity/parity.py --megatron-lm Megatron-LM --only llama --steps 5
    python benchmark/parity/parity.py --megatron-lm Megatron-LM --write      # and print docs/parity.md anew

A case passes where the losses of all iterations differ by less than its limit, and learning rate and loss scale are equal. Exit code 1 where a case
failed. Megatron-LM is run, never copied: its own model, optimizer and schedule, by its own pretrain_*.py (upstream.py beside this).
"""

import argparse
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from nlp_bench.launch.arguments import WITHOUT_APEX  # noqa: E402  # a script finds the package first

PAGE = ROOT / "docs/parity.md"
BEGIN, END = "<!-- parity -->", "<!-- end of parity -->"
LIMIT_S = 900
VOCABULARY = 1000
LIMITS = {"fp32": 2e-6, "fp16": 1.2e-4, "bf16": 1e-3}
"""Largest relative difference of a loss: of float32 the last printed digits, of the others a quarter of what the format resolves (2^-11, 2^-8)."""
COMMON = (
    "--hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 2 "
    "--global-batch-size 8 --lr 1e-3 --min-lr 1e-4 --lr-decay-style cosine --lr-decay-iters 40 --lr-warmup-iters 4 "
    "--log-interval 1 --attention-dropout 0 --hidden-dropout 0 --seed 1234 --clip-grad 1.0 --weight-decay 0.1 "
    "--adam-beta1 0.9 --adam-beta2 0.95 --split 100,0,0 --tokenizer-type NullTokenizer"
)
UPSTREAM = (
    f"--vocab-size {VOCABULARY - 1} --transformer-impl local --eval-iters 0 --eval-interval 1000000 --distributed-backend gloo "
    + " ".join(WITHOUT_APEX)
)
"""What Megatron-LM has to be told without Apex and Transformer Engine; its NullTokenizer adds the token that ends a document."""
OURS = f"--vocab-size {VOCABULARY}"
LLAMA = (
    "--num-layers 4 --swiglu --disable-bias-linear --normalization RMSNorm --group-query-attention --num-query-groups 2 "
    "--untie-embeddings-and-output-weights --position-embedding-type rope"
)
FAMILIES = {
    "gpt": ("pretrain_gpt.py", "--num-layers 4", "", ""),
    "llama": (
        "pretrain_gpt.py",
        LLAMA,
        "",
        "",
    ),
    "t5": (
        "pretrain_t5.py",
        "--decoder-seq-length 32 --vocab-extra-ids 20 --short-seq-prob 0",
        "--model-family t5 --num-layers 2 --position-embedding-type learned_absolute",
        "--encoder-num-layers 2 --decoder-num-layers 2",
    ),
    "bert": ("pretrain_bert.py", "--num-layers 4", "--model-family bert", "--spec local"),
}
"""Megatron-LM's script; words of both, of ours, of Megatron-LM."""
FORMS = {
    "fp32": "",
    "bf16": "--bf16",
    "fp16": "--fp16 --initial-loss-scale 4096 --min-loss-scale 1 --loss-scale-window 500",
}
LINE = re.compile(
    r"iteration +(\d+)/.*?learning rate: +([\d.E+-]+).*?lm loss: +([\d.E+-]+).*?(?:sop loss: +([\d.E+-]+).*?)?loss scale: +([\d.]+)"
    r"(?:.*?grad norm: +([\d.]+))?"
)


@dataclass(frozen=True)
class Case:
    """One comparison."""

    family: str
    """A word of FAMILIES."""
    form: str
    """Number format: a word of FORMS."""
    words: str = ""
    """Words of both for the layout."""
    ranks: int = 1
    own: str = ""
    """Words of ours alone, for recompute: it changes no loss, so Megatron-LM trains without it."""
    resumed: bool = False
    """Whether Megatron-LM goes on from the checkpoint that our trainer left in the middle, optimizer and place in the data included."""

    @property
    def name(self) -> str:
        """How --only and the table name it."""
        layout = " ".join(word for word in re.sub(r"--([a-z-]+)", _short, f"{self.words} {self.own}").split())
        parts = [f"{self.family} {self.form}", layout, f"{self.ranks} ranks" if self.ranks > 1 else ""]
        return ", ".join(filter(None, [*parts, "from our checkpoint" if self.resumed else ""]))


def _short(word: re.Match[str]) -> str:
    names = {
        "tensor-model-parallel-size": "TP",
        "pipeline-model-parallel-size": "PP",
        "sequence-parallel": "SP",
        "use-distributed-optimizer": "distributed optimizer",
        "recompute-granularity": "recompute",
        "recompute-method": "",
        "recompute-modules": "",
        "recompute-num-layers": "",
    }
    return names.get(word.group(1), word.group(1))


TP2 = "--tensor-model-parallel-size 2"
PP2 = "--pipeline-model-parallel-size 2"
RECOMPUTE = (
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
    "--recompute-granularity selective --recompute-modules mlp",
    "--recompute-granularity selective",
    "--recompute-granularity full --recompute-method block --recompute-num-layers 2",
)
CASES = [
    *(Case(family, form) for family in ("gpt", "llama") for form in FORMS),
    Case("gpt", "fp32", TP2, 2),
    Case("gpt", "fp32", f"{TP2} --sequence-parallel --use-distributed-optimizer", 4),
    Case("gpt", "fp32", PP2, 2),
    Case("llama", "fp32", f"{TP2} {PP2} --sequence-parallel", 4),
    Case("gpt", "bf16", f"{TP2} --sequence-parallel --use-distributed-optimizer", 4),
    *(Case("gpt", "fp32", own=words) for words in RECOMPUTE),
    *(Case("llama", "fp32", f"{TP2} --sequence-parallel", 2, own=words) for words in RECOMPUTE),
    *(Case(family, form) for family in ("t5", "bert") for form in ("fp32", "bf16")),
    Case("t5", "fp32", TP2, 2),
    Case("bert", "fp32", TP2, 2),
    Case("gpt", "fp32", resumed=True),
    Case("llama", "bf16", PP2, 2, resumed=True),
]
LOADING = "--ckpt-format torch_dist --use-dist-ckpt --no-load-rng --override-opt_param-scheduler"
"""How Megatron-LM reads our checkpoint; its random states are not ours, and ours keeps no copy of its arguments."""


@dataclass(frozen=True)
class Trained:
    """What one of the two printed."""

    losses: list[float]
    norms: list[float]
    rates: list[float]
    scales: list[float]
    text: str
    code: int | None

    def behind(self, steps: int) -> "Trained":
        """Return what follows these iterations."""
        return replace(
            self,
            losses=self.losses[steps:],
            norms=self.norms[steps:],
            rates=self.rates[steps:],
            scales=self.scales[steps:],
        )


OWN = ["-m", "nlp_bench.train"]


def train(program: list[str], words: str, ranks: int, folder: Path, environment: dict[str, str]) -> Trained:
    """Train with torchrun; the second line of Megatron-LM holds the mean loss of two iterations, which is undone."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
    command = [*torchrun, "--master-addr=127.0.0.1", f"--master-port={port}", *program, *shlex.split(words)]
    try:
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        text, code = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired:
        text, code = f"not done within {LIMIT_S} s", None
    found = LINE.findall(text)
    losses = [float(loss) + float(second or 0) for _, _, loss, second, _, _ in found]
    if "upstream.py" in program[0] and len(losses) > 1:
        losses[1] = 2 * losses[1] - losses[0]
    norms = [float(one[5] or "nan") for one in found]
    return Trained(losses, norms, [float(one[1]) for one in found], [float(one[4]) for one in found], text, code)


def compared(case: Case, repository: Path, folder: Path, steps: int) -> dict[str, object]:
    """Train with both; return the first and last losses, the largest relative differences, and whether it passed."""
    script, both, ours, theirs = FAMILIES[case.family]
    places = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "MEGATRON_LM_REPO": str(repository),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    }
    begin = time.monotonic()
    kept = folder / "logs" / re.sub(r"\W+", "-", case.name)
    kept.mkdir(parents=True, exist_ok=True)
    common = f"{COMMON} {both} {FORMS[case.form]} {case.words} --data-path {folder / 'tokens'}"
    own_words = f"{common} {OURS} {ours} {case.own} --train-iters"
    own = train(OWN, f"{own_words} {steps}", case.ranks, folder, environment)
    if case.family in {"t5", "bert"}:
        environment["NLP_BENCH_PARITY_WORDS"] = f"{own_words} {steps}"
    if case.resumed:
        store = kept / "checkpoint"
        shutil.rmtree(store, ignore_errors=True)  # of an earlier call
        train(OWN, f"{own_words} {steps // 2} --save {store}", case.ranks, folder, environment)
        theirs, own = f"{LOADING} --load {store}", own.behind(steps // 2)
    program = [str(Path(__file__).with_name("upstream.py")), script]
    other = train(program, f"{common} {UPSTREAM} {theirs} --train-iters {steps}", case.ranks, folder, environment)
    result: dict[str, object] = {
        "case": case.name,
        "elapsed_s": round(time.monotonic() - begin, 1),
        "limit": LIMITS[case.form],
    }
    for name, one in (("ours", own), ("Megatron-LM", other)):
        (kept / f"{name}.log").write_text(one.text, encoding="utf-8")
        if one.code != 0 or len(one.losses) != len(own.losses) or not one.losses:
            errors = re.findall(r"^(?:\[rank\d+\]: )?(\w+Error\b.*|.*error: .*)$", one.text, re.MULTILINE)
            said = (errors or one.text.strip().splitlines()[-1:] or [""])[0]
            return result | {
                "passed": False,
                "error": f"{name}: exit {one.code}, {len(one.losses)} lines: {said[:300]}",
            }
    loss = max(abs(a - b) / abs(b) for a, b in zip(own.losses, other.losses, strict=True))
    norm = max(abs(a - b) / abs(b) for a, b in zip(own.norms, other.norms, strict=True) if a == a and b == b)  # noqa: PLR0124  # NaN
    same = own.scales == other.scales and all(
        abs(a - b) <= 6e-4 * abs(b) for a, b in zip(own.rates, other.rates, strict=True)  # ours prints four digits
    )  # fmt: skip
    return result | {
        "ours": [own.losses[0], own.losses[-1]],
        "upstream": [other.losses[0], other.losses[-1]],
        "loss": loss,
        "grad_norm": norm,
        "same_schedule": same,
        "passed": loss <= LIMITS[case.form] and same,
    }


def make_tokens(folder: Path) -> None:
    """Write tokens.bin and tokens.idx: 400 documents of 300 tokens, frequent and rare ones as in a text, with a seed."""
    import numpy as np  # noqa: PLC0415  # --help is light
    import torch  # noqa: PLC0415
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder  # noqa: PLC0415

    builder = IndexedDatasetBuilder(str(folder / "tokens.bin"), dtype=np.uint16)
    random = np.random.default_rng(1)
    for _ in range(400):
        builder.add_document(torch.from_numpy(random.zipf(1.3, 300) % (VOCABULARY - 30)), [300])
    builder.finalize(str(folder / "tokens.idx"))


def checkout(path: Path, folder: Path) -> Path:
    """Return the folder of Megatron-LM: `path`, or what its archive holds."""
    if path.is_file():
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
        path = next(folder.glob("*/pretrain_gpt.py")).parent
    if not (path / "pretrain_gpt.py").is_file():
        raise SystemExit(f"parity: error: --megatron-lm {path}: no pretrain_gpt.py there; see --help for how to get it")
    return path.resolve()


def table(results: list[dict[str, object]], steps: int) -> str:
    """Return the results in markdown."""
    lines = [
        f"| case | loss of iteration 1 and {steps}: ours | Megatron-LM | largest difference: loss | gradient norm | limit |",
        "|---|---|---|---|---|---|",
    ]
    for one in results:
        if "error" in one:
            lines.append(f"| {one['case']} | FAILED: {one['error']} | | | | {one['limit']:.0e} |")
            continue
        ours, upstream = ("  ".join(f"{loss:.6f}" for loss in one[name]) for name in ("ours", "upstream"))  # type: ignore[attr-defined]
        word = "" if one["passed"] else " FAILED"
        lines.append(
            f"| {one['case']} | {ours} | {upstream} | {one['loss']:.1e}{word} | {one['grad_norm']:.1e} | {one['limit']:.0e} |"
        )
    return "\n".join(lines) + "\n"


def write_page(text: str, results: list[dict[str, object]], steps: int) -> None:
    """Put the table between the marks of the page, with versions and day."""
    import torch  # noqa: PLC0415  # --help is light

    day = datetime.now(tz=timezone.utc).date().isoformat()
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    said = f"{sum(bool(one['passed']) for one in results)} of {len(results)} cases pass; {steps} iterations, CPU ranks, torch {torch.__version__}, {day}, commit {commit}."
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{said}\n\n{table(results, steps)}{END}{after}", encoding="utf-8")


def main() -> int:
    """Compare the chosen cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--megatron-lm", type=Path, default=os.environ.get("MEGATRON_LM_REPO"), metavar="PATH",
        help="checkout or .tar.gz of Megatron-LM core_v0.16.1 (default: MEGATRON_LM_REPO)",
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", metavar="WORD", help="cases whose name contains one of these words")
    parser.add_argument("--steps", type=int, default=20, help="iterations (default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="keep results.json, the tokens and every log there"
    )
    parser.add_argument("--write", action="store_true", help="put the table into docs/parity.md")
    options = parser.parse_args()
    if options.megatron_lm is None:
        parser.error("--megatron-lm PATH: say where Megatron-LM is, or set MEGATRON_LM_REPO; --help says how to get it")
    with tempfile.TemporaryDirectory(prefix="nlp-bench-parity-") as name:
        folder = (options.output or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        repository = checkout(Path(options.megatron_lm), folder)
        make_tokens(folder)
        chosen = [case for case in CASES if not options.only or any(word in case.name for word in options.only)]
        results = []
        for case in chosen:
            results.append(compared(case, repository, folder, options.steps))
            last = results[-1]
            word = "ok" if last["passed"] else f"FAILED {last.get('error', '')}"
            print(
                f"{case.name}: {word}, loss {last.get('loss', '-')}, {last['elapsed_s']} s", file=sys.stderr, flush=True
            )
    print(table(results, options.steps), end="")
    if options.output:
        (options.output / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.write:
        write_page(PAGE.read_text(encoding="utf-8"), results, options.steps)
    return int(not all(one["passed"] for one in results))


if __name__ == "__main__":
    sys.exit(main())
