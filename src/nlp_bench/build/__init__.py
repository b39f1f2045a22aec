"""The fused kernels of this machine: built once per combination of versions and GPU, used by every rank."""

from nlp_bench.build.environment import build_environment

__all__ = ["build_environment"]
