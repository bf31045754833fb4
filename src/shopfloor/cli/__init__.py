"""The `shopfloor` command."""

from shopfloor.cli.main import entry

__all__ = ["entry"]
