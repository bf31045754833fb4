"""The file of a storage that says who has access: tokens, browser sessions, and login links that are not used yet."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from shopfloor.decoding import decode_json
from shopfloor.errors import StorageFailed, StorageLost, storage_error
from shopfloor.record import lock_file, make_folder, write_private

Role = Literal["viewer", "operator", "admin", "host"]

_MODE = 0o600
_ID_CHARS = 8
_log = logging.getLogger("shopfloor.server")


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
    tokens: tuple[Token, ...] = ()
    sessions: tuple[Session, ...] = ()
    codes: tuple[LoginCode, ...] = ()


def digest(secret: str) -> str:
    # Secrets that we make are 32 random bytes: there is nothing to guess that a slower digest would protect.
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


class AccessFile:
    """Reads the file again whenever it has changed, so that what another process adds or revokes counts at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = path.with_suffix(".lock")
        self._cached: tuple[tuple[int, int, int] | None, Access] = (None, Access())
        self._folder: int | None = None
        """The inode of the folder in which the file was found first."""

    def read(self) -> Access:
        try:
            status = self.path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp == self._cached[0]:
                return self._cached[1]
            if status.st_mode & 0o077:
                _log.warning("%s could be read by others; now it cannot", self.path)
                self.path.chmod(_MODE)
            access = decode_json(self.path.read_bytes(), Access)
        except FileNotFoundError as error:
            if self._folder not in (None, _inode(self.path.parent)):
                raise StorageLost(
                    f"the storage folder {self.path.parent} was deleted or replaced",
                    hint="put it back or name another --storage, then `shopfloor rebuild`",
                ) from error
            return Access()
        except OSError as error:
            raise storage_error(error, f"cannot read {self.path}") from error
        except msgspec.MsgspecError as error:
            raise StorageFailed(
                f"{self.path} is not a list of tokens: {error}", hint="remove it: a new one is made"
            ) from error
        self._cached = (stamp, access)
        self._folder = self._folder or _inode(self.path.parent)
        return access

    @contextmanager
    def changing(self) -> Generator[Access]:
        """Hold the file's lock for a change: what is yielded stays true until `write`."""
        make_folder(self.path.parent)
        try:
            with lock_file(self._lock):
                yield self.read()
        except OSError as error:
            raise storage_error(error, f"cannot write {self.path}") from error

    def write(self, access: Access) -> None:
        """Replace the file. Only within `changing`."""
        write_private(self.path, msgspec.json.format(msgspec.json.encode(access), indent=2) + b"\n")


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
