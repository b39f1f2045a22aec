"""Builds the fused kernels of this machine, once per combination of versions and GPU, for all ranks."""

from nlp_bench.build.environment import build_environment

__all__ = ["build_environment"]
