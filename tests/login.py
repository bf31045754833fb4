"""Getting into a server that a test has started."""

from __future__ import annotations

from shopfloor.record import Storage
from shopfloor.server import Tokens


def token_of(storage: Storage) -> str:
    """The owner's token, as the command line of the same machine reads it."""
    return Tokens(storage.tokens).admin_token()
