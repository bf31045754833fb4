"""Tokens: who has access to a storage. Secrets are kept as digests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeVar

import msgspec

Role = Literal["viewer", "operator", "admin", "host"]
T = TypeVar("T")

_ID_CHARS = 8


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token. Only the owner's is kept as it is, for the command line of this machine to read."""

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
    """A login link that was made and not used."""

    sha256: str
    expires_at: float


class Access(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that gives access to a storage."""

    tokens: tuple[Token, ...] = ()
    sessions: tuple[Session, ...] = ()
    codes: tuple[LoginCode, ...] = ()


class Tokens(Protocol):
    @property
    def storage_name(self) -> str:
        """A short name of this storage, the same in every process that uses it. Cookies are named after it."""
        ...

    async def read(self) -> Access:
        """The access as it is now, whichever process changed it last."""
        ...

    async def update(self, change: Callable[[Access], tuple[Access, T]]) -> T:
        """Replace the access by the first of what `change` returns, and return the second.

        No other change comes in between. `change` may be called again where another process was faster, so it must do
        nothing else; what it raises changes nothing. Where it returns the access it was given, nothing is stored.
        """
        ...
