"""Tokens: who may ask, and in which role."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
from pathlib import Path
from typing import Literal

import msgspec

from shopfloor.errors import StorageFailed, storage_error
from shopfloor.record import lock_file, make_folder, write_private

Role = Literal["viewer", "operator", "admin", "host"]

ENVIRONMENT = "SHOPFLOOR_TOKEN"
_MODE = 0o600
_log = logging.getLogger("shopfloor.server")


class _Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token as the file has it. Only the first one is kept as it is, for the command line of this machine to read."""

    role: Role
    sha256: str
    token: str | None = None


class _File(msgspec.Struct, frozen=True):
    tokens: tuple[_Kept, ...] = ()


_Stamp = tuple[int, int, int]


class Tokens:
    """The tokens of a storage folder, in `path`, and the one that `$SHOPFLOOR_TOKEN` gives.

    The file is looked at again whenever it has changed, so that a token that another process adds or takes away
    counts at once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = path.with_suffix(".lock")
        self._given = os.environ.get(ENVIRONMENT) or None
        self._of_environment = (_Kept(role="admin", sha256=_digest(self._given)),) if self._given else ()
        self._read: tuple[_Stamp | None, _File] = (None, _File())

    def role_of(self, token: str) -> Role | None:
        """The role that a token has; None for one that is not known."""
        digest = _digest(token)
        found: Role | None = None
        # Every one is compared, and in constant time, so that no answer's time tells how near a guess was.
        for kept in (*self._of_environment, *self._load().tokens):
            if hmac.compare_digest(kept.sha256, digest):
                found = kept.role
        return found

    def admin_token(self) -> str:
        """The token of whoever owns the storage: the one that the environment gives, or one made on first use."""
        if self._given:
            return self._given
        found = self._find_admin()
        if found:
            return found
        make_folder(self._path.parent)
        with lock_file(self._lock):
            # Somebody else may have made it while we waited.
            return self._find_admin() or self._add("admin", readable=True)

    def issue(self, role: Role) -> str:
        """A new token in that role. It can be had only here: what is kept is what it is known by."""
        make_folder(self._path.parent)
        with lock_file(self._lock):
            return self._add(role, readable=False)

    def _find_admin(self) -> str | None:
        return next((kept.token for kept in self._load().tokens if kept.role == "admin" and kept.token), None)

    def _add(self, role: Role, *, readable: bool) -> str:
        token = secrets.token_urlsafe(32)
        new = _Kept(role=role, sha256=_digest(token), token=token if readable else None)
        self._write(_File((*self._load().tokens, new)))
        return token

    def _load(self) -> _File:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp == self._read[0]:
                return self._read[1]
            if status.st_mode & 0o077:
                _log.warning("%s could be read by others; now it cannot", self._path)
                self._path.chmod(_MODE)
            data = msgspec.json.decode(self._path.read_bytes(), type=_File)
        except FileNotFoundError:
            return _File()
        except OSError as error:
            raise storage_error(error, f"cannot read {self._path}") from error
        except msgspec.MsgspecError as error:
            raise StorageFailed(
                f"{self._path} is not a list of tokens: {error}", hint="remove it: a new one is made"
            ) from error
        self._read = (stamp, data)
        return data

    def _write(self, file: _File) -> None:
        write_private(self._path, msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n")


def _digest(token: str) -> str:
    # Tokens are 32 random bytes: there is nothing to guess that a slower digest would protect.
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
