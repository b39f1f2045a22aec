"""Which versions of other packages are installed."""

from importlib.metadata import PackageNotFoundError, version


def installed_version(package: str) -> str | None:
    """Return the version of `package`, None where it is not installed; nothing is imported."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
