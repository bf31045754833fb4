"""The address of a server: from the environment, or from the file that the server writes into its storage folder."""

from __future__ import annotations

import os
from urllib.parse import parse_qs, urlsplit, urlunsplit

import msgspec

from shopfloor.decoding import decode_json
from shopfloor.errors import UsageError
from shopfloor.record import Storage, is_locked, require_private_folder

_LOGIN = "/login"


class Address(msgspec.Struct, frozen=True):
    """The URL of a server, and a token for it."""

    url: str
    token: str
    pid: int | None = None
    """The process of the storage's own server; None if the server is a part of another program."""
    public_url: str | None = None
    """The URL for other machines, if it is another one and known."""
    is_shared: bool = False
    """Whether the server listens on more than the loopback interface."""

    @property
    def link_url(self) -> str:
        """The URL of links for people."""
        return self.public_url or self.url

    def run_link(self, run_id: str) -> str:
        """Return the link to the page of a run."""
        return f"{self.link_url}/runs/{run_id}"


def parse_server_url(url: str, token: str | None = None) -> Address:
    """Return the address in a server's URL, or in `…/login?token=…`, whose token is used if `token` is None.

    Raises UsageError for a login link with a code, which works in a browser only.
    """
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if path.endswith(_LOGIN):
        if "code" in parse_qs(parts.query) and not token:
            raise UsageError(
                "a login link works only once, in a browser",
                hint="`shopfloor tokens new NAME` creates a token for programs; pass it with the URL",
            )
        token = token or next(iter(parse_qs(parts.query).get("token", [])), None)
        url = urlunsplit((parts.scheme, parts.netloc, path.removesuffix(_LOGIN), "", ""))
    return Address(url.rstrip("/"), token or "")


def server_from_environment() -> Address | None:
    """Return the address in `$SHOPFLOOR_URL` and `$SHOPFLOOR_TOKEN`, or None if the former is not set."""
    url = os.environ.get("SHOPFLOOR_URL")
    return parse_server_url(url, os.environ.get("SHOPFLOOR_TOKEN")) if url else None


def find_server(storage: Storage) -> Address | None:
    """Return the server in the environment, or else the running server of the storage; None if there is neither."""
    return server_from_environment() or find_storage_server(storage)


def find_storage_server(storage: Storage) -> Address | None:
    """Return the running server of the storage, or None if no server runs there."""
    # Check the folder's permissions before trusting its content, such as the server's address.
    require_private_folder(storage.root)
    # A running server holds its lock; the address file alone may be left over from a crash.
    if not is_locked(storage.server_lock):
        return None
    try:
        return decode_json(storage.server_address.read_bytes(), Address)
    except (OSError, msgspec.MsgspecError):
        return None
