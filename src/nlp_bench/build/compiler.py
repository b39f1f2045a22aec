"""Is there a C compiler? torch.compile needs one for every kernel that it makes for a GPU."""

import os
import shutil


def has_c_compiler() -> bool:
    """Return whether CC names one, or cc, gcc or clang is on PATH."""
    return "CC" in os.environ or any(shutil.which(name) for name in ("cc", "gcc", "clang"))
