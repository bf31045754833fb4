"""Where a server is: said by the environment, or written in the storage folder by the server itself."""

from __future__ import annotations

import os
from urllib.parse import parse_qs, urlsplit, urlunsplit

import msgspec

from shopfloor.decoding import decode_json
from shopfloor.errors import UsageError
from shopfloor.record import Storage, is_locked, require_private_folder

_LOGIN = "/login"


class Address(msgspec.Struct, frozen=True):
    url: str
    token: str
    pid: int | None = None
    """The process of the storage's own server, where it is nothing but a server."""


def address_of(url: str, token: str | None = None) -> Address:
    """The server at a URL, or at `…/login?token=…`, whose token counts where none is given."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if path.endswith(_LOGIN):
        if "code" in parse_qs(parts.query) and not token:
            raise UsageError(
                "a login link works once, in a browser",
                hint="`shopfloor tokens new NAME` makes a token for programs; give it beside the URL",
            )
        token = token or next(iter(parse_qs(parts.query).get("token", [])), None)
        url = urlunsplit((parts.scheme, parts.netloc, path.removesuffix(_LOGIN), "", ""))
    return Address(url.rstrip("/"), token or "")


def named_server() -> Address | None:
    """The server that the environment names."""
    url = os.environ.get("SHOPFLOOR_URL")
    return address_of(url, os.environ.get("SHOPFLOOR_TOKEN")) if url else None


def find_server(storage: Storage, *, named: bool = True) -> Address | None:
    """The server to ask; None where there is none, and the files have to be read instead.

    One that the environment names comes first, unless `named` is False: then only the storage's own counts.
    """
    if named and (address := named_server()) is not None:
        return address
    # Before anything in there is believed, such as where the server is.
    require_private_folder(storage.root)
    # A server holds its lock for life; the file alone may be what a crash left.
    if not is_locked(storage.server_lock):
        return None
    try:
        return decode_json(storage.server_address.read_bytes(), Address)
    except (OSError, msgspec.MsgspecError):
        return None
