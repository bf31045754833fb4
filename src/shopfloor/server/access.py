"""Who may send requests, and in which role: programs with a token, browsers with a session."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from typing import Literal

import msgspec

from shopfloor.errors import ConflictError, NotFoundError, StorageError, UsageError
from shopfloor.log import now
from shopfloor.ports import Access, LoginCode, Role, Session, Token, Tokens
from shopfloor.server.limits import (
    LOGIN_CODE_SECONDS,
    LOGIN_CODES_MAX,
    SESSION_RENEW_SECONDS,
    SESSION_SECONDS,
    SESSIONS_MAX,
    TOKEN_CHARS,
)

OWNER_ENVIRONMENT = "SHOPFLOOR_TOKEN"
OWNER = "owner"


class Caller(msgspec.Struct, frozen=True):
    """Who sent a request."""

    kind: Literal["token", "session"]
    id: str
    label: str
    role: Role
    expires_soon: bool = False
    """A session that is to be renewed."""

    def __str__(self) -> str:
        return f"token {self.label}" if self.kind == "token" else f"session {self.id} of {self.label}"


class _Login(msgspec.Struct, frozen=True):
    """What is known of a browser that logs in."""

    role: Role
    label: str
    token_sha256: str | None
    address: str | None
    client: str | None


class AccessControl:
    """The rules of access to a storage, over its `Tokens` and the token that `$SHOPFLOOR_TOKEN` gives."""

    def __init__(self, tokens: Tokens) -> None:
        self._stored = tokens
        self._given = _from_environment()
        self._of_environment = (
            (Token(role="admin", sha256=_digest(self._given), name="environment"),) if self._given else ()
        )
        # Cookies ignore ports: two servers on one machine would overwrite each other's under a common name.
        self.cookie = f"shopfloor_session_{tokens.storage_name}"

    # Tokens

    async def find_token_role(self, token: str) -> Role | None:
        """The role that a token has; None for one that is not known."""
        found = await self._find_token(token)
        return found.role if found else None

    async def authenticate_token(self, token: str) -> Caller | None:
        found = await self._find_token(token)
        return Caller("token", found.id, found.label, found.role) if found else None

    def _tokens(self, access: Access) -> tuple[Token, ...]:
        return (*self._of_environment, *access.tokens)

    async def _find_token(self, token: str) -> Token | None:
        wanted = _digest(token)
        found: Token | None = None
        # Every one is compared, and in constant time, so that no answer's time tells how near a guess was.
        for kept in self._tokens(await self._stored.read()):
            if hmac.compare_digest(kept.sha256, wanted):
                found = kept
        return found

    async def admin_token(self) -> str:
        """The token of whoever owns the storage: the one that the environment gives, or one made on first use."""
        if self._given:
            return self._given
        found = _owner_token(await self._stored.read())
        if found:
            return found
        token = secrets.token_urlsafe(32)
        new = Token(role="admin", sha256=_digest(token), token=token)

        def change(access: Access) -> tuple[Access, str]:
            # Another process may have made one meanwhile.
            known = _owner_token(access)
            return (access, known) if known else (_with_token(access, new), token)

        return await self._stored.update(change)

    async def issue_token(self, role: Role, name: str | None = None) -> str:
        """Make a new token and return it. It cannot be read again: only its digest is kept."""
        token = secrets.token_urlsafe(32)
        new = Token(role=role, sha256=_digest(token), name=name, made_at=now())

        def change(access: Access) -> tuple[Access, str]:
            if name is not None and any(kept.label == name for kept in self._tokens(access)):
                raise ConflictError(f"there is a token named {name!r}", hint="choose another name, or revoke it first")
            return _with_token(access, new), token

        return await self._stored.update(change)

    # Browser sessions

    async def make_login_code(self) -> str:
        """The secret of a new login link, which logs in once, within a few minutes, as the owner."""
        code = secrets.token_urlsafe(32)
        moment = time.time()
        new = LoginCode(sha256=_digest(code), expires_at=moment + LOGIN_CODE_SECONDS)

        def change(access: Access) -> tuple[Access, str]:
            valid = [kept for kept in access.codes if kept.expires_at > moment][-LOGIN_CODES_MAX + 1 :]
            return msgspec.structs.replace(access, codes=(*valid, new)), code

        return await self._stored.update(change)

    async def log_in_by_code(self, code: str, *, address: str | None = None, client: str | None = None) -> str | None:
        """Use a login link up; the secret of the new session, or None where the link is not valid (any more)."""
        wanted, moment = _digest(code), time.time()
        if not any(hmac.compare_digest(kept.sha256, wanted) for kept in (await self._stored.read()).codes):
            return None
        secret, login = secrets.token_urlsafe(32), _Login("admin", OWNER, None, address, client)

        def change(access: Access) -> tuple[Access, str | None]:
            if not any(kept.sha256 == wanted and kept.expires_at > moment for kept in access.codes):
                return access, None
            left = tuple(kept for kept in access.codes if kept.sha256 != wanted)
            return self._with_session(msgspec.structs.replace(access, codes=left), secret, login, moment), secret

        return await self._stored.update(change)

    async def log_in_by_token(self, token: str, *, address: str | None = None, client: str | None = None) -> str | None:
        """The secret of a new session, which ends with the token at the latest; None where the token is not known."""
        found = await self._find_token(token)
        if found is None:
            return None
        secret, moment = secrets.token_urlsafe(32), time.time()
        login = _Login(found.role, found.label, found.sha256, address, client)
        return await self._stored.update(lambda access: (self._with_session(access, secret, login, moment), secret))

    def _with_session(self, access: Access, secret: str, login: _Login, moment: float) -> Access:
        new = Session(sha256=_digest(secret), made_at=moment, renewed_at=moment, **msgspec.structs.asdict(login))
        valid = [kept for kept in access.sessions if self._is_valid(kept, access, moment)]
        valid.sort(key=lambda kept: kept.renewed_at)
        return msgspec.structs.replace(access, sessions=(*valid[-SESSIONS_MAX + 1 :], new))

    def _is_valid(self, session: Session, access: Access, moment: float) -> bool:
        if moment >= session.renewed_at + SESSION_SECONDS:
            return False
        of = session.token_sha256
        return of is None or any(kept.sha256 == of for kept in self._tokens(access))

    async def authenticate_session(self, secret: str) -> Caller | None:
        wanted, moment = _digest(secret), time.time()
        access = await self._stored.read()
        found: Session | None = None
        for kept in access.sessions:
            if hmac.compare_digest(kept.sha256, wanted):
                found = kept
        if found is None or not self._is_valid(found, access, moment):
            return None
        return Caller("session", found.id, found.label, found.role, expires_soon=_is_old(found, moment))

    async def renew_session(self, secret: str) -> bool:
        """Let a session last from now on; False where that cannot be stored. The session still lasts as before then."""
        wanted, moment = _digest(secret), time.time()

        def renewed(session: Session) -> Session:
            # Of the requests that a page sends at once, the first renews the session.
            is_due = session.sha256 == wanted and _is_old(session, moment)
            return msgspec.structs.replace(session, renewed_at=moment) if is_due else session

        def change(access: Access) -> tuple[Access, bool]:
            return msgspec.structs.replace(access, sessions=tuple(map(renewed, access.sessions))), True

        try:
            return await self._stored.update(change)
        except StorageError:
            return False

    async def log_out(self, secret: str) -> None:
        """End a session."""
        wanted = _digest(secret)

        def change(access: Access) -> tuple[Access, None]:
            left = tuple(kept for kept in access.sessions if kept.sha256 != wanted)
            return msgspec.structs.replace(access, sessions=left), None

        await self._stored.update(change)

    # Both

    async def list_credentials(self) -> tuple[list[Token], list[Session]]:
        """The tokens and the sessions that are valid, oldest first."""
        access, moment = await self._stored.read(), time.time()
        valid = [kept for kept in access.sessions if self._is_valid(kept, access, moment)]
        return [*self._tokens(access)], sorted(valid, key=lambda kept: kept.made_at)

    async def revoke(self, named: str) -> list[str]:
        """Revoke the token with this name or id, with its sessions, or the session with this id; what was revoked."""
        return await self._stored.update(lambda access: _without(access, named))


def _without(access: Access, named: str) -> tuple[Access, list[str]]:
    tokens = [kept for kept in access.tokens if named in (kept.id, kept.name)]
    if any(kept.token for kept in tokens) or named == OWNER:
        raise ConflictError("the owner's token cannot be revoked while the command line uses it")
    of = {kept.sha256 for kept in tokens}
    sessions = [kept for kept in access.sessions if kept.id == named or kept.token_sha256 in of]
    if not tokens and not sessions:
        raise NotFoundError(f"there is no token or session {named!r}", hint="`shopfloor tokens list` lists them")
    changed = msgspec.structs.replace(
        access,
        tokens=tuple(kept for kept in access.tokens if kept not in tokens),
        sessions=tuple(kept for kept in access.sessions if kept not in sessions),
    )
    gone = [f"token {kept.label}" for kept in tokens] + [f"session {kept.id} of {kept.label}" for kept in sessions]
    return changed, gone


def _with_token(access: Access, new: Token) -> Access:
    return msgspec.structs.replace(access, tokens=(*access.tokens, new))


def _is_old(session: Session, moment: float) -> bool:
    return moment >= session.renewed_at + SESSION_RENEW_SECONDS


def _owner_token(access: Access) -> str | None:
    return next((kept.token for kept in access.tokens if kept.role == "admin" and kept.token), None)


def _digest(secret: str) -> str:
    # Secrets that we make are 32 random bytes: there is nothing to guess that a slower digest would protect.
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _from_environment() -> str | None:
    given = os.environ.get(OWNER_ENVIRONMENT) or None
    if given is not None and len(given) < TOKEN_CHARS:
        raise UsageError(
            f"{OWNER_ENVIRONMENT} has {len(given)} characters, and a token has at least {TOKEN_CHARS}",
            hint="unset it: a token is made; or set a long random one, e.g. of `openssl rand -hex 32`",
        )
    return given
