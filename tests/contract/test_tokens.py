"""The contract of the port `Tokens`, for every adapter."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.contract.storages import StorageUnderTest
from tests.sample_events import ROOT

from shopfloor.adapters.local import LocalTokens
from shopfloor.errors import ConflictError, StorageError, StorageFailed, StorageLost
from shopfloor.ports import Access, LoginCode, Session, Token, Tokens

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "storage" / "tokens.json"


@pytest.fixture
def tokens(storage_under_test: StorageUnderTest) -> Tokens:
    return storage_under_test.tokens()


def token(name: str) -> Token:
    return Token(role="viewer", sha256=hashlib.sha256(name.encode()).hexdigest(), name=name)


def add(name: str, access: Access) -> tuple[Access, int]:
    changed = msgspec.structs.replace(access, tokens=(*access.tokens, token(name)))
    return changed, len(changed.tokens)


async def names(tokens: Tokens) -> list[str | None]:
    return [storage_under_test.name for storage_under_test in (await tokens.read()).tokens]


async def test_a_new_storage_grants_no_access(tokens: Tokens) -> None:
    assert await tokens.read() == Access()


async def test_stored_access_is_read_unchanged(tokens: Tokens) -> None:
    full = Access(
        tokens=(Token(role="admin", sha256="1" * 64, token="secret", name="ä", made_at="2026-01-01T00:00:00.000Z"),),
        sessions=(
            Session(
                role="host",
                sha256="2" * 64,
                made_at=1.25,
                renewed_at=2.5,
                label="owner",
                token_sha256="1" * 64,
                address="127.0.0.1",
                client="a browser",
            ),
        ),
        codes=(LoginCode(sha256="3" * 64, expires_at=3.75),),
    )
    assert await tokens.update(lambda _: (full, "done")) == "done"
    assert await tokens.read() == full


async def test_a_change_gets_the_stored_access(tokens: Tokens) -> None:
    assert [await tokens.update(partial(add, name)) for name in "abc"] == [1, 2, 3]
    assert await names(tokens) == ["a", "b", "c"]


async def test_changes_of_many_tasks_are_made_one_after_another(tokens: Tokens) -> None:
    counts: list[int] = []

    async def change(name: str) -> None:
        counts.append(await tokens.update(partial(add, name)))

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(change, str(number))
    assert sorted(counts) == list(range(1, 51))
    assert sorted(map(str, await names(tokens))) == sorted(map(str, range(50)))


async def test_a_change_that_raises_changes_nothing(tokens: Tokens) -> None:
    await tokens.update(partial(add, "a"))

    def refuse(access: Access) -> tuple[Access, int]:
        raise ConflictError(f"there are {len(access.tokens)}")

    with pytest.raises(ConflictError, match="there are 1"):
        await tokens.update(refuse)
    assert await names(tokens) == ["a"]
    assert await tokens.update(partial(add, "b")) == 2


async def test_the_name_of_a_storage_is_short_and_constant(
    storage_under_test: StorageUnderTest, other: StorageUnderTest
) -> None:
    tokens = storage_under_test.tokens()
    assert 4 <= len(tokens.storage_name) <= 16
    assert tokens.storage_name.isalnum()
    name = tokens.storage_name
    await tokens.update(partial(add, "a"))
    assert (tokens.storage_name, storage_under_test.tokens().storage_name) == (name, name)
    assert other.tokens().storage_name != name


# The file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_reading_creates_no_file(path: Path) -> None:
    assert await LocalTokens(path).read() == Access()
    assert not path.parent.exists()


async def test_only_its_owner_can_read_the_file(path: Path) -> None:
    await LocalTokens(path).update(partial(add, "a"))
    assert mode(path) == 0o600
    (storage_under_test,) = json.loads(path.read_text())["tokens"]
    assert set(storage_under_test) == {"role", "sha256", "name"}


async def test_another_process_gives_the_same_storage_the_same_name(path: Path, tmp_path: Path) -> None:
    await LocalTokens(path).update(partial(add, "a"))
    link = tmp_path / "link"
    link.symlink_to(path.parent)
    assert LocalTokens(link / "tokens.json").storage_name == LocalTokens(path).storage_name
    # Cookies of logged-in browsers have this name.
    expected = hashlib.sha256(os.fsencode(path.parent.resolve())).hexdigest()[:8]
    assert LocalTokens(path).storage_name == expected


async def test_a_change_of_another_process_takes_effect_at_once(path: Path) -> None:
    here, there = LocalTokens(path), LocalTokens(path)
    assert await names(here) == []
    await there.update(partial(add, "a"))
    assert await names(here) == ["a"]
    await there.update(lambda access: (Access(), None))
    assert await names(here) == []
    assert await here.update(partial(add, "b")) == 1


async def test_an_empty_change_stores_nothing(path: Path) -> None:
    tokens = LocalTokens(path)
    assert await tokens.update(lambda access: (access, 7)) == 7
    assert not path.exists()
    await tokens.update(partial(add, "a"))
    before = path.stat()
    assert await tokens.update(lambda access: (access, 8)) == 8
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


PROGRAM = """
import hashlib, sys
from pathlib import Path
import anyio, msgspec
from shopfloor.adapters.local import LocalTokens
from shopfloor.ports import Token

async def main():
    tokens = LocalTokens(Path(sys.argv[1]))
    for number in range(20):
        name = f"{sys.argv[2]}-{number}"
        new = Token(role="viewer", sha256=hashlib.sha256(name.encode()).hexdigest(), name=name)
        await tokens.update(lambda access: (msgspec.structs.replace(access, tokens=(*access.tokens, new)), None))

anyio.run(main)
"""


def start_process(path: Path, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), name], cwd=ROOT, stderr=subprocess.PIPE)


async def test_changes_of_many_processes_are_made_one_after_another(path: Path) -> None:
    processes = [start_process(path, str(number)) for number in range(3)]
    here = LocalTokens(path)
    for number in range(20):
        await here.update(partial(add, f"here-{number}"))
    for process in processes:
        _, complaints = process.communicate(timeout=120)
        assert (process.returncode, complaints) == (0, b"")
    wanted = {f"{who}-{number}" for who in ("here", 0, 1, 2) for number in range(20)}
    found = await names(here)
    assert set(found) == wanted
    assert len(found) == len(wanted)


async def test_the_loop_keeps_running_while_another_process_holds_the_lock(path: Path) -> None:
    import fcntl

    tokens = LocalTokens(path)
    await tokens.update(partial(add, "a"))
    done: list[int] = []

    async def change(name: str) -> None:
        done.append(await tokens.update(partial(add, name)))

    with path.with_suffix(".lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        async with anyio.create_task_group() as tasks:
            # More changes than there are threads.
            for number in range(100):
                tasks.start_soon(change, str(number))
            try:
                await anyio.wait_all_tasks_blocked()
                assert await names(tokens) == ["a"]
                with anyio.fail_after(30):
                    assert await anyio.to_thread.run_sync(lambda: "a thread is free") == "a thread is free"
                assert done == []
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)
    assert sorted(done) == list(range(2, 102))


async def test_a_file_that_others_could_read_becomes_private(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await LocalTokens(path).update(partial(add, "a"))
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert await names(LocalTokens(path)) == ["a"]
    assert mode(path) == 0o600
    assert "was readable by other users" in caplog.text


@pytest.mark.parametrize("text", ["", "[]", '{"tokens": [{"role": "king", "sha256": "x"}]}'])
async def test_an_invalid_file_is_reported(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    tokens = LocalTokens(path)
    for use in (tokens.read, partial(tokens.update, partial(add, "a"))):
        with pytest.raises(StorageFailed, match="is not a list of tokens"):
            await use()
    assert path.read_text() == text


async def test_an_unusable_path_is_reported(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StorageError):
        await LocalTokens(path).read()
    (path / "file").touch()
    changes: list[Any] = []
    with pytest.raises(StorageError):
        await LocalTokens(path / "file" / "tokens.json").update(lambda access: (access, changes.append(access)))
    assert changes == []


async def test_a_deleted_or_replaced_storage_folder_is_reported(path: Path, tmp_path: Path) -> None:
    tokens = LocalTokens(path)
    await tokens.update(partial(add, "a"))
    assert await names(tokens) == ["a"]
    path.unlink()
    assert await names(tokens) == [], "the file alone may be deleted: a new one is made"
    await tokens.update(partial(add, "b"))
    assert await names(tokens) == ["b"]
    path.parent.rename(tmp_path / "moved")
    with pytest.raises(StorageLost, match="was deleted or replaced"):
        await tokens.read()
    path.parent.mkdir()
    with pytest.raises(StorageLost, match="was deleted or replaced"):
        await tokens.update(partial(add, "c"))
