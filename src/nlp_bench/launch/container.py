"""The words that put the ranks into a container image."""

from pathlib import Path

from nlp_bench.config.run import Run


def container_words(run: Run, root: Path, run_dir: Path) -> list[str]:
    """Return what stands before `nlp-bench launch`: nothing, srun's pyxis options, or `apptainer exec …`.

    The repository, the run folder and the data are mounted under their own paths. Sources of the options: pyxis's
    README (--container-image, --container-mounts, --no-container-mount-home), Apptainer's `exec --help` (--nv, --bind).
    """
    container = run.system.container
    if not container.image:
        return []
    folders = dict.fromkeys([str(root), str(run_dir), *([str(Path(run.data.path).parent)] if run.data.path else [])])
    mounts = ",".join([*(f"{folder}:{folder}" for folder in folders), *container.mounts])
    if container.runtime == "pyxis":
        return [f"--container-image={container.image}", f"--container-mounts={mounts}", "--no-container-mount-home"]
    nv = ["--nv"] if run.system.accelerator == "cuda" else []
    return ["apptainer", "exec", *nv, "--bind", mounts, container.image]
