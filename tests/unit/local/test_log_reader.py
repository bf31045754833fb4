"""Batches and byte copies of local logs."""

from __future__ import annotations

import pytest
from tests.sample_events import RUN_ID

from shopfloor.adapters.local import LocalLogReader
from shopfloor.limits import READ_CHUNK_BYTES
from shopfloor.log import RunStarted, TextBlock, UserMessage
from shopfloor.record import Recorder, Storage

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def reader(storage: Storage) -> LocalLogReader:
    return LocalLogReader(storage)


def write_log(storage: Storage, *sizes: int) -> bytes:
    """Write a log with texts of these sizes, and return its bytes."""
    with Recorder(storage.log_path(RUN_ID), RUN_ID) as recorder:
        recorder.append(RunStarted(name="w", kind="worker", attempt=1, host="h"))
        for size in sizes:
            recorder.append(UserMessage(blocks=[TextBlock(fidelity="router", text="x" * size)]), path="s")
    return storage.log_path(RUN_ID).read_bytes()


async def seqs(reader: LocalLogReader, after: int = 0) -> list[list[int]]:
    return [[entry.seq for entry in batch] async for batch in reader.batches(RUN_ID, after=after)]


async def test_batches_have_every_event_once_and_none_is_much_longer_than_a_chunk(
    storage: Storage, reader: LocalLogReader
) -> None:
    write_log(storage, *[READ_CHUNK_BYTES // 3] * 20)
    batches = await seqs(reader)
    assert [seq for batch in batches for seq in batch] == list(range(1, 22))
    assert max(map(len, batches)) <= 4
    assert [seq for batch in await seqs(reader, after=17) for seq in batch] == [18, 19, 20, 21]


async def test_batches_after_the_end_are_empty(storage: Storage, reader: LocalLogReader) -> None:
    write_log(storage, 1)
    assert await seqs(reader, after=2) == []
    assert await seqs(reader, after=99) == []


@pytest.mark.parametrize("size", [0, 10, READ_CHUNK_BYTES * 3])
async def test_a_copy_has_the_bytes_of_the_log(storage: Storage, reader: LocalLogReader, size: int) -> None:
    content = write_log(storage, size)
    copy = await reader.copy(RUN_ID)
    assert copy is not None
    with storage.log_path(RUN_ID).open("ab") as file:
        file.write(b"what came later\n")
    pieces = [piece async for piece in copy.chunks()]
    assert (copy.size, b"".join(pieces)) == (len(content), content)
    assert max(map(len, pieces)) <= READ_CHUNK_BYTES


async def test_a_copy_ends_with_a_complete_line(storage: Storage, reader: LocalLogReader) -> None:
    content = write_log(storage, 5)
    storage.log_path(RUN_ID).write_bytes(content + b'{"seq":3')
    copy = await reader.copy(RUN_ID)
    assert copy is not None
    assert b"".join([piece async for piece in copy.chunks()]) == content


async def test_a_copy_of_an_empty_log_is_empty(storage: Storage, reader: LocalLogReader) -> None:
    write_log(storage)
    storage.log_path(RUN_ID).write_bytes(b"torn")
    copy = await reader.copy(RUN_ID)
    assert copy is not None
    assert (copy.size, [piece async for piece in copy.chunks()]) == (0, [])
