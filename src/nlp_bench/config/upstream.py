"""The user's own checkout of Megatron-LM, whose trainer can run in place of ours."""

import os
from pathlib import Path

from nlp_bench.config.origin import commit_of
from nlp_bench.errors import UsageError

SCRIPT = "pretrain_gpt.py"
VARIABLE = "MEGATRON_LM_REPO"


def upstream() -> dict[str, str]:
    """Return folder and commit of the checkout; raises UsageError where MEGATRON_LM_REPO names none."""
    named = os.environ.get(VARIABLE, "")
    path = Path(named)
    if not named or not (path / SCRIPT).is_file():
        what = f"{VARIABLE}={named!r} holds no {SCRIPT}" if named else f"{VARIABLE} is not set"
        remedy = f"git clone https://github.com/NVIDIA/Megatron-LM and export {VARIABLE} to its folder"
        raise UsageError(f"tuning.trainer: megatron-lm, but {what}; {remedy}")
    return {"megatron_lm_repo": str(path.resolve()), "megatron_lm_commit": commit_of(path) or ""}
