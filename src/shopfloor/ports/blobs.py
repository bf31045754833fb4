"""Blobs: named bytes that are durable in their own right, such as the artifacts of runs and the memories of workers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from shopfloor.errors import InvalidName
from shopfloor.limits import BLOB_NAME_CHARS
from shopfloor.log import validate_run_id

_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{BLOB_NAME_CHARS - 1}}}")


def validate_name(name: str, subject: str = "the name") -> str:
    """Return `name` if it is safe as a file name, else raise `InvalidName`. `subject` starts the message."""
    if _NAME.fullmatch(name) is None:
        raise InvalidName(
            f"{subject} {name[: 2 * BLOB_NAME_CHARS]!r} is not valid: use letters, digits, `.`, `_` and `-`, "
            f"begin with a letter or digit, at most {BLOB_NAME_CHARS} characters"
        )
    return name


def validate_key(key: str) -> str:
    """Return `key` if it consists of safe names with `/` between them, else raise `InvalidName`."""
    for name in key.split("/"):
        validate_name(name, f"the key {key[:BLOB_NAME_CHARS]!r}: the part")
    return key


def artifacts_folder(run_id: str) -> str:
    """Return the folder of the artifacts of a run. Raises `InvalidRunId`."""
    return f"artifacts/{validate_run_id(run_id)}"


def memory_folder(slug: str, origin: str | None) -> str:
    """Return the folder of the memories of a worker, by its slug and where it comes from."""
    return f"memory/{validate_name(slug)}/{hashlib.sha256((origin or '').encode()).hexdigest()[:16]}"


class BlobInfo(msgspec.Struct, frozen=True):
    """A blob in a list."""

    name: str
    size_bytes: int
    modified_ns: int
    """When the blob was written, in nanoseconds since 1970. Changes with each `put`."""


class Blobs(Protocol):
    """Blobs in folders. A key is `folder/name`; a folder is one or more names with `/` between them.

    Every method raises `InvalidName` for an invalid key, and `StorageError` if the storage cannot be used.
    """

    async def put(self, key: str, content: bytes) -> None:
        """Store a blob durably. Readers see the old or the new content, also after a crash."""
        ...

    async def get(self, key: str) -> bytes | None: ...

    async def list(self, folder: str) -> Sequence[BlobInfo]:
        """List the blobs directly in a folder, newest first."""
        ...

    async def delete(self, key: str) -> None:
        """Delete a blob, or a folder with everything in it. Does nothing if there is none."""
        ...
