"""Megatron-LM's own words: the line of an interval, and the dump of its arguments."""

FIELDS = {
    "samples": ("consumed samples", "12d"), "tokens": ("consumed tokens", ".0f"), "s": ("elapsed time per iteration (s)", ".4f"),
    "ms": ("elapsed time per iteration (ms)", ".1f"), "flops": ("throughput per GPU (TFLOP/s/GPU)", ".1f"),
    "energy": ("energy per GPU (J/iter/GPU)", ".1f"), "power": ("power per GPU (W/GPU)", ".1f"), "lr": ("learning rate", ".3E"),
    "batch": ("global batch size", "5d"), "loss": ("lm loss", ".6E"), "scale": ("loss scale", ".1f"), "norm": ("grad norm", ".3f"),
    "skipped": ("number of skipped iterations", "3d"), "nan": ("number of nan iterations", "3d"), "rate": ("samples per second", ".3f"),
    "tflops": ("TFLOPs", ".2f"), "stamp": ("unix time", ".3f"),
}  # fmt: skip
"""By a short name: the words before the number, and how it is printed; in the order in which they stand in a line."""


def line(iteration: int, total: int, front: str = " ", **given: float | str) -> str:
    """Return the line of an interval with the given FIELDS; a text stands as it is."""
    words = [f"{front}iteration {iteration:8d}/{total:8d}"]
    for name, (key, form) in FIELDS.items():
        if name in given:
            value = given[name]
            words.append(f" {key}: {value if isinstance(value, str) else format(value, form)}")
    assert given.keys() <= FIELDS.keys()
    return " |".join([*words, "\n"])


def dump(*, end: bool = False, **arguments: object) -> str:
    """Return the arguments as they are printed before the first line."""
    rule = "-" * 24
    lines = [f"  {name} {'.' * max(3, 48 - len(name))} {value}\n" for name, value in arguments.items()]
    return "".join([f"{rule} arguments {rule}\n", *lines, *([f"{rule} end of arguments {rule}\n"] if end else [])])
