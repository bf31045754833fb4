"""Access control: tokens for programs, sessions for browsers, and the role of each."""

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

OWNER_ENV_VAR = "SHOPFLOOR_TOKEN"
OWNER = "owner"


class Caller(msgspec.Struct, frozen=True):
    """The sender of a request."""

    kind: Literal["token", "session"]
    id: str
    label: str
    role: Role
    expires_soon: bool = False
    """True for a session that should be renewed."""

    def __str__(self) -> str:
        return f"token {self.label}" if self.kind == "token" else f"session {self.id} of {self.label}"


class _Login(msgspec.Struct, frozen=True):
    """A browser that logs in, and the role it gets."""

    role: Role
    label: str
    token_sha256: str | None
    address: str | None
    client: str | None


class AccessControl:
    """The tokens and sessions of a storage: those in its `Tokens`, and the token in `$SHOPFLOOR_TOKEN`."""

    def __init__(self, tokens: Tokens) -> None:
        self._stored = tokens
        self._environment_token = _read_environment_token()
        self._environment_tokens = (
            (Token(role="admin", sha256=_digest(self._environment_token), name="environment"),)
            if self._environment_token
            else ()
        )
        # Cookies ignore ports: with one name for all, two servers on one machine would overwrite each other's cookie.
        self.cookie = f"shopfloor_session_{tokens.storage_name}"

    # Tokens

    async def find_token_role(self, token: str) -> Role | None:
        """Return the role of a token, or None for an unknown token."""
        found = await self._find_token(token)
        return found.role if found else None

    async def authenticate_token(self, token: str) -> Caller | None:
        """Return the caller that a token identifies, or None for an unknown token."""
        found = await self._find_token(token)
        return Caller("token", found.id, found.label, found.role) if found else None

    def _tokens(self, access: Access) -> tuple[Token, ...]:
        return (*self._environment_tokens, *access.tokens)

    async def _find_token(self, token: str) -> Token | None:
        digest = _digest(token)
        found: Token | None = None
        # Compare with every token, each in constant time: the response time must not reveal how close a guess was.
        for stored in self._tokens(await self._stored.read()):
            if hmac.compare_digest(stored.sha256, digest):
                found = stored
        return found

    async def admin_token(self) -> str:
        """Return the token of the storage's owner: the one in the environment, or one created on first use."""
        if self._environment_token:
            return self._environment_token
        found = _owner_token(await self._stored.read())
        if found:
            return found
        token = secrets.token_urlsafe(32)
        new = Token(role="admin", sha256=_digest(token), token=token)

        def change(access: Access) -> tuple[Access, str]:
            # Another process may have created a token meanwhile.
            known = _owner_token(access)
            return (access, known) if known else (_with_token(access, new), token)

        return await self._stored.update(change)

    async def issue_token(self, role: Role, name: str | None = None) -> str:
        """Create a token and return it. It cannot be read again: only its digest is stored.

        Raises ConflictError if the name is taken.
        """
        token = secrets.token_urlsafe(32)
        new = Token(role=role, sha256=_digest(token), name=name, made_at=now())

        def change(access: Access) -> tuple[Access, str]:
            if name is not None and any(stored.label == name for stored in self._tokens(access)):
                raise ConflictError(
                    f"a token named {name!r} already exists", hint="choose another name, or revoke that token first"
                )
            return _with_token(access, new), token

        return await self._stored.update(change)

    # Browser sessions

    async def make_login_code(self) -> str:
        """Create the secret of a login link. The link logs in as the owner, once, within `LOGIN_CODE_SECONDS`."""
        code = secrets.token_urlsafe(32)
        moment = time.time()
        new = LoginCode(sha256=_digest(code), expires_at=moment + LOGIN_CODE_SECONDS)

        def change(access: Access) -> tuple[Access, str]:
            valid = [stored for stored in access.codes if stored.expires_at > moment][-LOGIN_CODES_MAX + 1 :]
            return msgspec.structs.replace(access, codes=(*valid, new)), code

        return await self._stored.update(change)

    async def log_in_by_code(self, code: str, *, address: str | None = None, client: str | None = None) -> str | None:
        """Use up a login link. Return the secret of the new session, or None if the link is not valid any more."""
        digest, moment = _digest(code), time.time()
        if not any(hmac.compare_digest(stored.sha256, digest) for stored in (await self._stored.read()).codes):
            return None
        secret, login = secrets.token_urlsafe(32), _Login("admin", OWNER, None, address, client)

        def change(access: Access) -> tuple[Access, str | None]:
            if not any(stored.sha256 == digest and stored.expires_at > moment for stored in access.codes):
                return access, None
            left = tuple(stored for stored in access.codes if stored.sha256 != digest)
            return self._with_session(msgspec.structs.replace(access, codes=left), secret, login, moment), secret

        return await self._stored.update(change)

    async def log_in_by_token(self, token: str, *, address: str | None = None, client: str | None = None) -> str | None:
        """Start a session and return its secret, or None for an unknown token.

        The session ends when the token is revoked, or earlier.
        """
        found = await self._find_token(token)
        if found is None:
            return None
        secret, moment = secrets.token_urlsafe(32), time.time()
        login = _Login(found.role, found.label, found.sha256, address, client)
        return await self._stored.update(lambda access: (self._with_session(access, secret, login, moment), secret))

    def _with_session(self, access: Access, secret: str, login: _Login, moment: float) -> Access:
        new = Session(sha256=_digest(secret), made_at=moment, renewed_at=moment, **msgspec.structs.asdict(login))
        valid = [session for session in access.sessions if self._is_valid(session, access, moment)]
        valid.sort(key=lambda session: session.renewed_at)
        return msgspec.structs.replace(access, sessions=(*valid[-SESSIONS_MAX + 1 :], new))

    def _is_valid(self, session: Session, access: Access, moment: float) -> bool:
        if moment >= session.renewed_at + SESSION_SECONDS:
            return False
        token_sha256 = session.token_sha256
        return token_sha256 is None or any(token.sha256 == token_sha256 for token in self._tokens(access))

    async def authenticate_session(self, secret: str) -> Caller | None:
        """Return the caller that a session's secret identifies, or None if no such session is valid."""
        digest, moment = _digest(secret), time.time()
        access = await self._stored.read()
        found: Session | None = None
        for session in access.sessions:
            if hmac.compare_digest(session.sha256, digest):
                found = session
        if found is None or not self._is_valid(found, access, moment):
            return None
        return Caller("session", found.id, found.label, found.role, expires_soon=_is_old(found, moment))

    async def renew_session(self, secret: str) -> bool:
        """Restart the lifetime of a session. Return False, with the lifetime unchanged, if that cannot be stored."""
        digest, moment = _digest(secret), time.time()

        def renewed(session: Session) -> Session:
            # A page sends several requests at once; only the first renews the session.
            is_due = session.sha256 == digest and _is_old(session, moment)
            return msgspec.structs.replace(session, renewed_at=moment) if is_due else session

        def change(access: Access) -> tuple[Access, bool]:
            return msgspec.structs.replace(access, sessions=tuple(map(renewed, access.sessions))), True

        try:
            return await self._stored.update(change)
        except StorageError:
            return False

    async def log_out(self, secret: str) -> None:
        """End a session."""
        digest = _digest(secret)

        def change(access: Access) -> tuple[Access, None]:
            left = tuple(session for session in access.sessions if session.sha256 != digest)
            return msgspec.structs.replace(access, sessions=left), None

        await self._stored.update(change)

    # Tokens and sessions

    async def list_credentials(self) -> tuple[list[Token], list[Session]]:
        """Return the valid tokens and the valid sessions, oldest first."""
        access, moment = await self._stored.read(), time.time()
        valid = [session for session in access.sessions if self._is_valid(session, access, moment)]
        return [*self._tokens(access)], sorted(valid, key=lambda session: session.made_at)

    async def revoke(self, name: str) -> list[str]:
        """Revoke the token with this name or id and its sessions, or the session with this id.

        Return labels of the revoked tokens and sessions. Raises NotFoundError if there is none, and ConflictError for
        the owner's token.
        """
        return await self._stored.update(lambda access: _without(access, name))


def _without(access: Access, name: str) -> tuple[Access, list[str]]:
    tokens = [token for token in access.tokens if name in (token.id, token.name)]
    if any(token.token for token in tokens) or name == OWNER:
        raise ConflictError("the owner's token cannot be revoked while the command line uses it")
    digests = {token.sha256 for token in tokens}
    sessions = [session for session in access.sessions if session.id == name or session.token_sha256 in digests]
    if not tokens and not sessions:
        raise NotFoundError(f"there is no token or session {name!r}", hint="`shopfloor tokens list` lists them")
    changed = msgspec.structs.replace(
        access,
        tokens=tuple(token for token in access.tokens if token not in tokens),
        sessions=tuple(session for session in access.sessions if session not in sessions),
    )
    revoked = [f"token {token.label}" for token in tokens]
    revoked += [f"session {session.id} of {session.label}" for session in sessions]
    return changed, revoked


def _with_token(access: Access, new: Token) -> Access:
    return msgspec.structs.replace(access, tokens=(*access.tokens, new))


def _is_old(session: Session, moment: float) -> bool:
    return moment >= session.renewed_at + SESSION_RENEW_SECONDS


def _owner_token(access: Access) -> str | None:
    return next((token.token for token in access.tokens if token.role == "admin" and token.token), None)


def _digest(secret: str) -> str:
    # Generated secrets are 32 random bytes, which cannot be guessed: a slower digest would protect nothing.
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _read_environment_token() -> str | None:
    token = os.environ.get(OWNER_ENV_VAR) or None
    if token is not None and len(token) < TOKEN_CHARS:
        raise UsageError(
            f"{OWNER_ENV_VAR} has {len(token)} characters, and a token needs at least {TOKEN_CHARS}",
            hint="unset it to have a token generated, or set a long random one, e.g. from `openssl rand -hex 32`",
        )
    return token
