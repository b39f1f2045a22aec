"""The form of the records that the nodes write: machine/NODE.json once, machine/NODE.samples.csv line by line.

A line of the CSV without a line feed was cut; an empty cell is a value that could not be read at that moment.
"""

SCHEMA = "nlp-bench/machine/1"  # of NODE.json
FACTS, SAMPLES, ERROR = ".json", ".samples.csv", ".error.txt"
"""What follows the node's name in a file's name; the last one exists only where recording failed."""
TIME, LOAD = "unix_time_s", "load_1min"
"""The first two columns: seconds since 1970, and Linux's load average over one minute."""
GPU_COLUMNS = ("energy_mj", "power_w", "sm_clock_mhz", "throttle_reasons", "temperature_c")
"""For each GPU, after `gpuN_`: the counter in mJ since the driver was loaded; `throttle_reasons` are bits of `nvml.THROTTLE_REASONS`."""
CPU_COLUMN = "energy_uj"
"""For each CPU package, after `cpuN_`: RAPL's counter in microjoules, which wraps around at its range."""


def header(gpus: list[int], num_packages: int) -> list[str]:
    """Return the names of the columns for the GPUs of these indices and the CPU packages."""
    of_gpus = [f"gpu{index}_{name}" for index in gpus for name in GPU_COLUMNS]
    return [TIME, LOAD, *of_gpus, *(f"cpu{index}_{CPU_COLUMN}" for index in range(num_packages))]
