"""Who may ask, and in which role: programs with a token, browsers with a session."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from pathlib import Path
from typing import Literal

import msgspec

from shopfloor.errors import ConflictError, NotFoundError, StorageError, UsageError
from shopfloor.log import now
from shopfloor.server.access_file import Access, AccessFile, LoginCode, Role, Session, Token, digest
from shopfloor.server.limits import (
    LOGIN_CODE_SECONDS,
    LOGIN_CODES_MOST,
    SESSION_RENEW_SECONDS,
    SESSION_SECONDS,
    SESSIONS_MOST,
    TOKEN_CHARS,
)

__all__ = ["Caller", "Role", "Tokens"]

ENVIRONMENT = "SHOPFLOOR_TOKEN"
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


class Tokens:
    """The access to a storage: the file at `path`, and the token that `$SHOPFLOOR_TOKEN` gives."""

    def __init__(self, path: Path) -> None:
        self._file = AccessFile(path)
        self._given = _from_environment()
        self._of_environment = (
            (Token(role="admin", sha256=digest(self._given), name="environment"),) if self._given else ()
        )
        # Cookies ignore ports: two servers on one machine would overwrite each other's under a common name.
        self.cookie = f"shopfloor_session_{hashlib.sha256(os.fsencode(path.parent.resolve())).hexdigest()[:8]}"

    # Tokens

    def role_of(self, token: str) -> Role | None:
        """The role that a token has; None for one that is not known."""
        found = self._find_token(token)
        return found.role if found else None

    def caller_of_token(self, token: str) -> Caller | None:
        found = self._find_token(token)
        return Caller("token", found.id, found.label, found.role) if found else None

    def _tokens(self, access: Access) -> tuple[Token, ...]:
        return (*self._of_environment, *access.tokens)

    def _find_token(self, token: str) -> Token | None:
        wanted = digest(token)
        found: Token | None = None
        # Every one is compared, and in constant time, so that no answer's time tells how near a guess was.
        for kept in self._tokens(self._file.read()):
            if hmac.compare_digest(kept.sha256, wanted):
                found = kept
        return found

    def admin_token(self) -> str:
        """The token of whoever owns the storage: the one that the environment gives, or one made on first use."""
        if self._given:
            return self._given
        found = _owner_token(self._file.read())
        if found:
            return found
        with self._file.changing() as access:
            # Another process may have made it meanwhile.
            return _owner_token(access) or self._add(access, "admin", readable=True)

    def issue(self, role: Role, name: str | None = None) -> str:
        """Make a new token and return it. It cannot be read again: only its digest is kept."""
        with self._file.changing() as access:
            if name is not None and any(kept.label == name for kept in self._tokens(access)):
                raise ConflictError(f"there is a token named {name!r}", hint="choose another name, or revoke it first")
            return self._add(access, role, name=name, readable=False)

    def _add(self, access: Access, role: Role, *, readable: bool, name: str | None = None) -> str:
        token = secrets.token_urlsafe(32)
        made_at = None if readable else now()
        new = Token(role=role, sha256=digest(token), token=token if readable else None, name=name, made_at=made_at)
        self._file.write(msgspec.structs.replace(access, tokens=(*access.tokens, new)))
        return token

    # Browser sessions

    def make_login_code(self) -> str:
        """The secret of a new login link, which logs in once, within a few minutes, as the owner."""
        code = secrets.token_urlsafe(32)
        moment = time.time()
        with self._file.changing() as access:
            valid = [one for one in access.codes if one.expires_at > moment][-LOGIN_CODES_MOST + 1 :]
            new = LoginCode(sha256=digest(code), expires_at=moment + LOGIN_CODE_SECONDS)
            self._file.write(msgspec.structs.replace(access, codes=(*valid, new)))
        return code

    def log_in_by_code(self, code: str, *, address: str | None = None, client: str | None = None) -> str | None:
        """Use a login link up; the secret of the new session, or None where the link is not valid (any more)."""
        wanted, moment = digest(code), time.time()
        if not any(hmac.compare_digest(one.sha256, wanted) for one in self._file.read().codes):
            return None
        with self._file.changing() as access:
            fitting = [one for one in access.codes if one.sha256 == wanted and one.expires_at > moment]
            if not fitting:
                return None
            left = tuple(one for one in access.codes if one.sha256 != wanted)
            new = _Login("admin", OWNER, None, address, client)
            return self._begin(msgspec.structs.replace(access, codes=left), new)

    def log_in_by_token(self, token: str, *, address: str | None = None, client: str | None = None) -> str | None:
        """The secret of a new session, which ends with the token at the latest; None where the token is not known."""
        found = self._find_token(token)
        if found is None:
            return None
        with self._file.changing() as access:
            return self._begin(access, _Login(found.role, found.label, found.sha256, address, client))

    def _begin(self, access: Access, login: _Login) -> str:
        secret, moment = secrets.token_urlsafe(32), time.time()
        new = Session(sha256=digest(secret), made_at=moment, renewed_at=moment, **msgspec.structs.asdict(login))
        valid = [one for one in access.sessions if self._is_valid(one, access, moment)]
        valid.sort(key=lambda one: one.renewed_at)
        self._file.write(msgspec.structs.replace(access, sessions=(*valid[-SESSIONS_MOST + 1 :], new)))
        return secret

    def _is_valid(self, session: Session, access: Access, moment: float) -> bool:
        if moment >= session.renewed_at + SESSION_SECONDS:
            return False
        of = session.token_sha256
        return of is None or any(kept.sha256 == of for kept in self._tokens(access))

    def caller_of_session(self, secret: str) -> Caller | None:
        wanted, moment = digest(secret), time.time()
        access = self._file.read()
        found: Session | None = None
        for one in access.sessions:
            if hmac.compare_digest(one.sha256, wanted):
                found = one
        if found is None or not self._is_valid(found, access, moment):
            return None
        is_old = moment >= found.renewed_at + SESSION_RENEW_SECONDS
        return Caller("session", found.id, found.label, found.role, expires_soon=is_old)

    def renew(self, secret: str) -> bool:
        """Let a session last from now on; False where that cannot be stored. The session still lasts as before then."""
        wanted = digest(secret)
        try:
            with self._file.changing() as access:
                sessions = tuple(
                    msgspec.structs.replace(one, renewed_at=time.time()) if one.sha256 == wanted else one
                    for one in access.sessions
                )
                self._file.write(msgspec.structs.replace(access, sessions=sessions))
        except StorageError:
            return False
        return True

    def log_out(self, secret: str) -> None:
        """End a session."""
        wanted = digest(secret)
        with self._file.changing() as access:
            left = tuple(one for one in access.sessions if one.sha256 != wanted)
            self._file.write(msgspec.structs.replace(access, sessions=left))

    # Both

    def listed(self) -> tuple[list[Token], list[Session]]:
        """The tokens and the sessions that are valid, oldest first."""
        access, moment = self._file.read(), time.time()
        valid = [one for one in access.sessions if self._is_valid(one, access, moment)]
        return [*self._tokens(access)], sorted(valid, key=lambda one: one.made_at)

    def revoke(self, named: str) -> list[str]:
        """Revoke the token with this name or id, with its sessions, or the session with this id; what was revoked."""
        with self._file.changing() as access:
            tokens = [one for one in access.tokens if named in (one.id, one.name)]
            if any(one.token for one in tokens) or named == OWNER:
                raise ConflictError(
                    "the owner's token cannot be revoked while the command line uses it",
                    hint=f"stop the server and delete {self._file.path}: a new token is made",
                )
            of = {one.sha256 for one in tokens}
            sessions = [one for one in access.sessions if one.id == named or one.token_sha256 in of]
            if not tokens and not sessions:
                raise NotFoundError(
                    f"there is no token or session {named!r}", hint="`shopfloor tokens list` lists them"
                )
            self._file.write(
                msgspec.structs.replace(
                    access,
                    tokens=tuple(one for one in access.tokens if one not in tokens),
                    sessions=tuple(one for one in access.sessions if one not in sessions),
                )
            )
        return [f"token {one.label}" for one in tokens] + [f"session {one.id} of {one.label}" for one in sessions]


def _owner_token(access: Access) -> str | None:
    return next((kept.token for kept in access.tokens if kept.role == "admin" and kept.token), None)


def _from_environment() -> str | None:
    given = os.environ.get(ENVIRONMENT) or None
    if given is not None and len(given) < TOKEN_CHARS:
        raise UsageError(
            f"{ENVIRONMENT} has {len(given)} characters, and a token has at least {TOKEN_CHARS}",
            hint="unset it: a token is made; or set a long random one, e.g. of `openssl rand -hex 32`",
        )
    return given
