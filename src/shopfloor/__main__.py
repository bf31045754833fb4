"""`python -m shopfloor` is `shopfloor`."""

from shopfloor.cli import entry

entry()
