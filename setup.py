"""What pyproject.toml cannot say: the files of the checkout that an installed package carries along, and the compiled scanner of logs."""

import os
import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

# They come to nlp_bench/shipped/, under the names that they have here (nlp_bench.config.catalog finds them there).
SHIPPED = (
    ".gitignore",
    "LICENSE",
    "benchmark/*.toml",
    "benchmark/containers/*",
    "benchmark/env/*",
    "benchmark/jube/*.yaml",
    "benchmark/models/*.toml",
    "benchmark/rules/*.toml",
    "benchmark/run.sh",
    "benchmark/systems/*.toml",
    "jube/*",
    "pyproject.toml",
    "reports/reference/published_points/points.csv",
    "setup.py",
    "src/compile_build.sh",
)


class BuildPy(build_py):
    """setuptools' step, and the shipped files; an editable install finds them in the checkout."""

    def run(self) -> None:
        """Build the package, then copy; nothing of an earlier build stays, which setuptools would leave: a file may be gone, or an older one be back."""
        built = Path(self.build_lib, "nlp_bench")
        if not self.editable_mode and built.resolve() != Path("src/nlp_bench").resolve():
            shutil.rmtree(built, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            for path in (path for pattern in SHIPPED for path in sorted(Path().glob(pattern)) if path.is_file()):
                target = Path(self.build_lib, "nlp_bench", "shipped", path)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)


# A plain shared object that ctypes loads, of every Python from 3.10 on. Without a compiler the engine in Python does its work, more
# slowly; `nlp-bench build --scanner` makes it later, and NLP_BENCH_SCANNER=0 leaves it out of a wheel for every machine.
SCAN = Extension(
    "nlp_bench.logs._scan",
    sources=["src/nlp_bench/logs/scan.c"],
    extra_compile_args=["-O3", "-std=c11", "-Wall", "-Wextra", "-fno-fast-math"],  # whatever CFLAGS of a site say
    optional=True,
    py_limited_api=True,
)

setup(
    cmdclass={"build_py": BuildPy},
    ext_modules=[] if os.environ.get("NLP_BENCH_SCANNER") == "0" else [SCAN],
    options={"bdist_wheel": {} if os.environ.get("NLP_BENCH_SCANNER") == "0" else {"py_limited_api": "cp310"}},
)
