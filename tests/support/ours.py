"""Records as our own trainer prints them, and a run folder with five of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.published import write_run

from nlp_bench import marker, seal
from nlp_bench.evidence.hashes import line_digests
from nlp_bench.evidence.make import Made, make_bundle
from nlp_bench.evidence.manifest import Options
from nlp_bench.files import sha256_of
from nlp_bench.launch.submission import Submission
from nlp_bench.train.logline import Interval, format_line

Bundle = Callable[..., Made]  # makes a bundle by its name, PATHs and options


def bundled(
    path: Path, *runs: Path, with_ranks: bool = False, force: bool = False, key: Path | None = None, **options: Any
) -> Made:
    """Make a bundle of these runs at `path`."""
    words = [str(run) for run in runs]
    return make_bundle(words, path, Options(**options), with_ranks=with_ranks, force=force, key=key)


def sealed_again(folder: Path, *, sizes: int = 0) -> None:
    """Do what a forger does: make all hashes of a bundle fit; `sizes` is added to the sizes."""
    for path in sorted((folder / "lines").rglob("*")):
        if path.is_file():
            path.write_text(line_digests(folder / path.relative_to(folder / "lines")))
    manifest = json.loads((folder / "manifest.json").read_text())
    for file in manifest["files"]:
        path = folder / file["path"]
        file["sha256"], file["size"] = sha256_of(path), path.stat().st_size + sizes
    (folder / "manifest.json").write_text(json.dumps(manifest))
    names = [*(file["path"] for file in manifest["files"]), "manifest.json"]
    (folder / "SHA256SUMS").write_text("".join(f"{sha256_of(folder / name)}  {name}\n" for name in sorted(names)))


SECONDS = (7.23104, 5.35513, 5.61918, 5.32907, 5.32472)  # the published times with a digit more than the log prints


def line_of_ours(number: int, seconds: float) -> str:
    """Return record `number` of the run of `support.published`, 10 iterations each."""
    interval = Interval(
        iteration=10 * number, train_iters=50, consumed_samples=960 * number, elapsed_s=seconds, learning_rate=1e-3,
        global_batch_size=96, loss=7.0, loss_scale=1.0, grad_norm=1.0, num_skipped=0, num_nan=0, legacy_flops=2.819e17,
        model_flops=2.114e17, sequence_length=2048, num_gpus=384, peak_bytes=2**35,
        unix_time_s=1.8e9 + 10 * sum(SECONDS[:number]),
    )  # fmt: skip
    return f"[default3]: {format_line(interval).strip()}\n"


def log_of_ours() -> str:
    return "start\n" + "".join(line_of_ours(number, seconds) for number, seconds in enumerate(SECONDS, start=1))


def write_our_run(folder: Path) -> Path:
    """Write a finished run whose lines hold every field that the trainer prints."""
    return write_run(folder, log=log_of_ours())


def seal_run(folder: Path) -> None:
    """Put every link of the chain of evidence into the run, as its submission, its trainer and its end do."""
    Submission().write(folder)
    opening = seal.opening_line(seal.sha256_of(folder / "run.json"), None)
    (folder / "job.out").write_text(f"{opening}\n{(folder / 'job.out').read_text()}")
    (part,) = seal.sealed_log_of(folder / "job.out").parts
    with (folder / "job.out").open("a") as log:
        log.write(f"{part.seal.closing_line()}\n")
    path = folder / "outcome.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "sealed": seal.at_end(folder)}))
    marker.write_marker(folder)
