"""Getting into a server that a test has started."""

from __future__ import annotations

from shopfloor.record import Storage
from shopfloor.server import Tokens


def token_of(storage: Storage) -> str:
    """The owner's token, as the command line of the same machine reads it."""
    return Tokens(storage.tokens).admin_token()


def url_of(line: str) -> str:
    """The server's address, from the first line that `shopfloor up` prints."""
    return line.rsplit(maxsplit=1)[-1].partition("/login")[0]
