"""The words that put the ranks into a container image."""

from pathlib import Path

from nlp_bench.config.run import Run
from nlp_bench.errors import UsageError


def container_words(run: Run, root: Path, run_dir: Path) -> list[str]:
    """Return what stands before `nlp-bench launch`: nothing, srun's pyxis options, or `apptainer exec ...`.

    Sources of the options: pyxis's README and wiki page Usage (--container-image, -mounts, -writable, -entrypoint, -mount-home),
    Apptainer's `exec --help` (--nv, --bind, --writable-tmpfs, --no-home). Raises UsageError for a mount that they would misread.
    """
    container = run.system.container
    if not container.image:
        return []
    if container.image.endswith((".sqsh", ".sif")) and not container.image.startswith("/"):
        raise UsageError(
            f"system.container.image: {container.image!r} is a file without its folder, which pyxis would take for an image's "
            "name; write its absolute path"
        )
    mounts = ",".join(_mounts(run, root, run_dir))
    if container.runtime == "pyxis":
        return [
            f"--container-image={container.image}",
            f"--container-mounts={mounts}",
            "--container-mount-home" if container.home else "--no-container-mount-home",
            *(["--container-writable"] if container.writable else []),
            *_entrypoint(container.entrypoint),
            *container.args,
        ]
    nv = ["--nv"] if run.system.accelerator == "cuda" else []
    home = [] if container.home else ["--no-home"]
    writable = ["--writable-tmpfs"] if container.writable else []
    return ["apptainer", "exec", *nv, *home, *writable, "--bind", mounts, *container.args, container.image]


def _mounts(run: Run, root: Path, run_dir: Path) -> list[str]:
    """Return "outside:inside" of each mount: repository, run folder, data, a checkout of Megatron-LM, the system's own.

    A folder inside another one needs no mount of its own: the cache of the index, which may not exist yet, stands beside its data.
    """
    data = [
        Path(word).parent for word in run.data.words if word.startswith("/")
    ]  # a blend has weights between its prefixes
    cache = [Path(run.data.cache)] if data and run.data.cache else []
    upstream = [Path(run.tuning.megatron_lm_repo)] if run.tuning.megatron_lm_repo else []
    folders = list(dict.fromkeys([root, run_dir, *data, *cache, *upstream]))
    outermost = [str(folder) for folder in folders if not set(folder.parents) & set(folders)]
    for folder in outermost:
        if "," in folder or ":" in folder:
            raise UsageError(
                f"system.container: {folder} cannot be mounted: a comma or colon divides mounts; rename it"
            )
    for mount in run.system.container.mounts:
        if "," in mount or not mount.startswith("/"):
            raise UsageError(
                f"system.container.mounts: {mount!r} is no absolute path or outside:inside; one mount is one word of the list"
            )
    own = [mount if ":" in mount else f"{mount}:{mount}" for mount in run.system.container.mounts]
    return [*(f"{folder}:{folder}" for folder in outermost), *own]


def _entrypoint(wish: bool | None) -> list[str]:
    if wish is None:
        return []
    return ["--container-entrypoint" if wish else "--no-container-entrypoint"]
