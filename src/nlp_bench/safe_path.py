"""PYTHONSAFEPATH, by which no Python of ours imports from its current folder (3.11), and which programs of the site do not get."""

from collections.abc import Mapping

NAME, OURS = "PYTHONSAFEPATH", "nlp-bench"
"""Any value but an empty one has that meaning; this one tells that not the user has set it, here and in the job scripts."""


def without_ours(variables: Mapping[str, str]) -> dict[str, str]:
    """Return `variables` for another program: a site's sbatch may be a Python script that imports a module beside it, which ours would forbid."""
    return {name: value for name, value in variables.items() if (name, value) != (NAME, OURS)}
