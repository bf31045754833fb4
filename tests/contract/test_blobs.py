"""The contract of the port `Blobs`, for every adapter."""

from __future__ import annotations

import stat
from pathlib import Path

import anyio
import pytest
from tests.contract.storages import StorageUnderTest

from shopfloor.adapters.local import LocalBlobs
from shopfloor.errors import InvalidName, StorageError
from shopfloor.limits import BLOB_NAME_CHARS
from shopfloor.ports import Blobs, artifacts_folder, memory_folder

pytestmark = pytest.mark.anyio

BAD_KEYS = [
    "",
    "/",
    "a/",
    "/a",
    "a//b",
    ".",
    "..",
    "a/../b",
    ".hidden",
    "a/.b",
    "-a",
    "a b",
    "a\0b",
    "a\nb",
    "ä",
    "a\\b",
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def blobs(storage_under_test: StorageUnderTest) -> Blobs:
    return storage_under_test.blobs


async def test_an_unknown_blob_is_none_and_an_unknown_folder_is_empty(blobs: Blobs) -> None:
    assert await blobs.get("a/b") is None
    assert list(await blobs.list("a")) == []


@pytest.mark.parametrize("content", [b"", b"text", bytes(range(256)) * 1000], ids=["empty", "text", "bytes"])
async def test_a_blob_comes_back_as_it_was_stored(blobs: Blobs, content: bytes) -> None:
    await blobs.put("a/b.md", content)
    assert await blobs.get("a/b.md") == content
    (info,) = await blobs.list("a")
    assert (info.name, info.size_bytes) == ("b.md", len(content))


async def test_a_second_put_replaces_the_content(blobs: Blobs) -> None:
    await blobs.put("a/b", b"one")
    (before,) = await blobs.list("a")
    await blobs.put("a/b", b"two")
    (after,) = await blobs.list("a")
    assert await blobs.get("a/b") == b"two"
    assert after.modified_ns > before.modified_ns


async def test_a_list_has_the_newest_first_and_no_folders(blobs: Blobs) -> None:
    for name in ("first", "second", "third"):
        await blobs.put(f"a/{name}", b"")
    await blobs.put("a/inside/other", b"")
    await blobs.put("ab/other", b"")
    await blobs.put("a/first", b"again")
    assert [info.name for info in await blobs.list("a")] == ["first", "third", "second"]
    assert [info.name for info in await blobs.list("a/inside")] == ["other"]


async def test_a_blob_or_a_whole_folder_can_be_deleted(blobs: Blobs) -> None:
    for key in ("a/b", "a/c", "a/d/e", "ab/c"):
        await blobs.put(key, b"x")
    await blobs.delete("a/b")
    assert [info.name for info in await blobs.list("a")] == ["c"]
    await blobs.delete("a")
    assert list(await blobs.list("a")) == []
    assert await blobs.get("a/d/e") is None
    assert await blobs.get("ab/c") == b"x"
    await blobs.delete("a")
    await blobs.delete("never/there")


@pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
async def test_a_key_that_is_no_safe_path_is_refused(blobs: Blobs, key: str) -> None:
    for call in (blobs.put(key, b""), blobs.get(key), blobs.list(key), blobs.delete(key)):
        with pytest.raises(InvalidName):
            await call


async def test_a_name_has_a_limit(blobs: Blobs) -> None:
    await blobs.put("a/" + "n" * BLOB_NAME_CHARS, b"")
    with pytest.raises(InvalidName):
        await blobs.put("a/" + "n" * (BLOB_NAME_CHARS + 1), b"")


async def test_blobs_of_many_tasks_are_all_there(blobs: Blobs) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(blobs.put, f"a/{number}", str(number).encode())
    assert {info.name for info in await blobs.list("a")} == {str(number) for number in range(50)}


def test_the_memory_of_a_worker_belongs_to_slug_and_origin() -> None:
    folders = {memory_folder(slug, origin) for slug in ("a", "b") for origin in (None, "/one/a", "/two/a")}
    assert len(folders) == 6
    assert memory_folder("a", "/one/a") in folders


def test_artifacts_belong_to_a_run() -> None:
    run_id = "5f3a1c9e-6d0b-4c55-9a6e-2f8d1b7c4e10"
    assert artifacts_folder(run_id) == f"artifacts/{run_id}"


# The files


async def test_only_their_owner_can_read_the_files(tmp_path: Path) -> None:
    await LocalBlobs(tmp_path / "blobs").put("a/b", b"x")
    assert stat.S_IMODE((tmp_path / "blobs" / "a" / "b").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "blobs" / "a").stat().st_mode) == 0o700


async def test_a_file_that_a_crash_left_half_written_is_no_blob(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path)
    await blobs.put("a/b", b"x")
    (tmp_path / "a" / ".b-half").write_bytes(b"ha")
    assert [info.name for info in await blobs.list("a")] == ["b"]


async def test_a_folder_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("a file")
    with pytest.raises(StorageError):
        await LocalBlobs(tmp_path / "blobs").put("a/b", b"x")
