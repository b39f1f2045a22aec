"""The command as a person calls it."""

from support.command import report

__all__ = ["report"]
