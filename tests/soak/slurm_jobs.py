"""Many small jobs through a real Slurm and random faults: every one is accounted for, none is lost, none runs twice, none lies.

    python tests/soak/slurm_jobs.py --num 200 --seed 1

A private Slurm of four virtual nodes; the training is a stand-in of 1 to 4 s that tells a file outside of its run folder (the oracle)
when it begins and when its last iteration is done. The jobs are handed over by `nlp-bench submit` (forked, so that it can be killed
like a program), a part of them by the real `jube run`; two `nlp-bench watch`, one of them with --continue, bring them to their end. A
schedule by the seed does the faults of slurm_plan.py to them. What a killed controller has forgotten is given up after 60 s in the
place of 300, for no record is late here. Prints a table of faults against outcomes, what is off, and one line with
the figure; exits with 1 if anything is off. Needs Debian's slurm-wlm, munge and jube; the small disk needs the right to mount.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this checkout, whatever is installed

from support.sandbox import Sandbox, sandbox

from soak import slurm_accounts as accounts
from soak.slurm_drive import Drive
from soak.slurm_faults import Injector
from soak.slurm_plan import base_run, events, plans, run_of
from soak.slurm_state import Going

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "tests/faults/endings.yaml"
LINES = """\
KillWait=3
SlurmdTimeout=10
MinJobAge=100000
MaxJobCount=20000
SelectTypeParameters=CR_Core
PartitionName=booster Nodes=node[1-4] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8 LLN=YES
"""
DISK_SIZE = "6m"
LEFT_S = 60.0  # seconds that Slurm has to end what is left in its queue; then an operator would look after its nodes


def mounted(folder: Path) -> Path | None:
    """Return a small disk of its own, None where mounts are not allowed."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "tmpfs", str(folder)]
    done = subprocess.run(words, check=False, capture_output=True)
    return folder if done.returncode == 0 else None


def prepared(top: Path, num: int, seed: int, disk: Path | None) -> list[Going]:
    """Write run.json for every job, and JUBE's file."""
    base, jobs = base_run(), []
    (top / "oracle").mkdir()
    (top / "given").mkdir()
    jube: list[str] = []
    for plan in plans(num, seed, has_disk=disk is not None):
        oracle, given = top / "oracle" / plan.name, top / "given" / plan.name
        given.mkdir()
        (given / "before").write_text("true\n")
        run_of(plan, oracle, base).write(given)
        run_dir = (disk if plan.place == "disk" and disk else top / "runs") / plan.name
        if plan.place == "jube":
            run_dir = top / f"given/runs/000000/{len(jube):06d}_train/work"
            jube.append(plan.name)
        jobs.append(Going(plan=plan, run_dir=run_dir, oracle=oracle))
    text = TEMPLATE.read_text(encoding="utf-8")
    for token, value in {"CASES": ",".join(jube), "FOLDER": str(top / "given"), "PYTHON": sys.executable}.items():
        text = text.replace(f"#{token}#", value)
    (top / "given/jobs.yaml").write_text(text, encoding="utf-8")
    (top / "runs").mkdir()
    return jobs


def table(jobs: list[Going], injector: Injector) -> list[str]:
    """Return the lines of the table: fault, how often it was done, what became of the jobs that it met."""
    kinds = sorted({kind for job in jobs for kind in job.met} | set(injector.num_done))
    lines = [f"  {'fault':20} {'done':>5} {'met':>5}  outcomes"]
    for kind in ["", *kinds]:
        met = [job for job in jobs if (kind in job.met if kind else not job.met)]
        words = Counter(str(job.record("outcome.json").get("outcome", "none")) for job in met)
        done = injector.num_done.get(kind, 0)
        said = ", ".join(f"{count} {word}" for word, count in words.most_common())
        lines.append(f"  {kind or 'none':20} {done:>5} {len(met):>5}  {said or 'all jobs, above'}")
    return lines


def let_nodes_end(injector: Injector) -> None:
    """Wait until nothing is left in the queue: a node whose slurmd was killed ends its jobs late, or is given back by hand."""
    for _ in range(2):
        end = time.monotonic() + LEFT_S
        while (
            left := injector.slurm("squeue", "--noheader", "--format=%T %N").splitlines()
        ) and time.monotonic() < end:
            time.sleep(0.5)
        injector.cancel_again()
        injector.free({node for state, _, node in (line.partition(" ") for line in left) if state == "COMPLETING"})


def account(jobs: list[Going], injector: Injector, drive: Drive) -> Counter[str]:
    """Print what is off; return how many jobs are lost, twice or false."""
    of_slurm, off = accounts.jobs_of(injector), Counter[str]()
    for job in jobs:
        found = accounts.problems(job, of_slurm.get(job.comment, []))
        for kind, said in found.items():
            off[kind] += 1
            print(
                f"  OFF {kind}: {job.plan.name} ({job.plan.place}, fault {job.plan.fault or 'none'}, met {sorted(job.met)}): {said}"
            )
        print(accounts.seen(job) + "\n" if found else "", end="")
    paths = [path for path in (injector.disk, drive.top / "runs", drive.jube_runs) if path and any(path.iterdir())]
    wrong = accounts.wrong_rows(accounts.report(paths), jobs)
    in_jube = [job for job in jobs if job.plan.place == "jube"]
    if in_jube:
        wrong += accounts.wrong_table(drive.jube_runs, in_jube)
    still = injector.slurm("squeue", "--noheader", "--format=%i %T %r").splitlines()
    wrong += [f"left in Slurm's queue: {still}"] if still else []
    off["report"] = len(wrong)
    print("".join(f"  OFF report: {line}\n" for line in wrong), end="")
    return off


def soak(top: Path, slurm: Sandbox, options: argparse.Namespace) -> Counter[str]:
    disk = mounted(top / "disk")
    try:
        jobs = prepared(top, options.num, options.seed, disk)
        injector = Injector(slurm=slurm, jobs=jobs, disk=disk)
        drive = Drive(
            top=top, injector=injector, jobs=jobs, events=events(options.num, options.seed), at_once=options.at_once
        )
        drive.to_the_end(options.bound)
        let_nodes_end(injector)
        drive.finish_jube()
        injector.note_away()
        print("\n".join(table(jobs, injector)))
        off = account(jobs, injector, drive)
        off["faults"] = sum(injector.num_done.values())
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", str(top), str(slurm.folder / "log"), str(options.keep)], check=False)
        return off
    finally:
        if disk is not None:
            subprocess.run(["umount", "--lazy", str(disk)], check=False)
        else:
            print("  the fault disk_full is left out: mounts are not allowed here")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=200, help="jobs (default 200)")
    parser.add_argument("--seed", type=int, default=1, help="for jobs, faults and their moments (default 1)")
    parser.add_argument(
        "--bound", type=float, default=900.0, help="seconds after which a job without an outcome is lost (default 900)"
    )
    parser.add_argument(
        "--at-once", type=int, default=8, help="jobs that are on their way at the same time (default 8)"
    )
    parser.add_argument("--keep", type=Path, help="copy all files into this folder, to look at them")
    options = parser.parse_args(words)
    start = time.perf_counter()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with sandbox(4, LINES) as slurm, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        slurm.environment |= {
            "NLP_BENCH_VENV": sys.prefix,
            "NLP_BENCH_ROOT": str(ROOT),
            "PYTHONPATH": str(ROOT / "src"),
        }
        os.environ.update(slurm.environment)
        off = soak(Path(folder).resolve(), slurm, options)
    accounted = options.num - off["lost"]
    print(
        f"slurm_jobs: {options.num} jobs, {off['faults']} faults (seed {options.seed}), {accounted} accounted for, {off['lost']} lost, "
        f"{off['twice']} twice, {off['false']} false, {off['report']} wrong in the report, {time.perf_counter() - start:.0f} s"
    )
    return int(any(off[kind] for kind in ("lost", "twice", "false", "report")))


if __name__ == "__main__":
    sys.exit(main())
