"""Tokens: access to a storage. Secrets are stored as digests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeVar

import msgspec

Role = Literal["viewer", "operator", "admin", "host"]
T = TypeVar("T")

_ID_CHARS = 8


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token. Only the owner's token is stored in clear, for the command line of this machine."""

    role: Role
    sha256: str
    token: str | None = None
    name: str | None = None
    made_at: str | None = None

    @property
    def id(self) -> str:
        return self.sha256[:_ID_CHARS]

    @property
    def label(self) -> str:
        return self.name or ("owner" if self.token else self.id)


class Session(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A browser that has logged in. Times are seconds since 1970."""

    role: Role
    sha256: str
    made_at: float
    renewed_at: float
    label: str
    """Whose session it is: the label of the token, or `owner` where a login link was used."""
    token_sha256: str | None = None
    """The token that was used to log in. The session ends with it."""
    address: str | None = None
    client: str | None = None

    @property
    def id(self) -> str:
        return self.sha256[:_ID_CHARS]


class LoginCode(msgspec.Struct, frozen=True, kw_only=True):
    """A login link that has not been used."""

    sha256: str
    expires_at: float


class Access(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All credentials for a storage."""

    tokens: tuple[Token, ...] = ()
    sessions: tuple[Session, ...] = ()
    codes: tuple[LoginCode, ...] = ()


class Tokens(Protocol):
    """The stored credentials."""

    @property
    def storage_name(self) -> str:
        """A short name of this storage, the same in every process that uses it. Cookies are named after it."""
        ...

    async def read(self) -> Access:
        """Return the current credentials, whichever process changed them last."""
        ...

    async def update(self, change: Callable[[Access], tuple[Access, T]]) -> T:
        """Call `change` with the credentials; store the first value that it returns, and return the second.

        The update is atomic. `change` may be called again if another process was faster, so it must have no side
        effects. Nothing is stored if it raises, or if it returns the credentials unchanged.
        """
        ...
