"""The one part of nlp-bench that is compiled; everything else about the package is in pyproject.toml."""

from setuptools import Extension, setup

# A plain shared object that ctypes loads. Without a compiler the engine in Python does its work, more slowly.
SCAN = Extension(
    "nlp_bench.logs._scan",
    sources=["src/nlp_bench/logs/scan.c"],
    extra_compile_args=["-O3", "-std=c11", "-Wall", "-Wextra"],
    optional=True,
)

setup(ext_modules=[SCAN])
