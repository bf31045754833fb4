"""The recorder: the single writer of a log."""

import asyncio
import errno
import json
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.sample_events import (
    CHILD_ID,
    PARENT_ID,
    PAYLOADS,
    RUN_ID,
    assistant_message,
    completed,
    location_of,
    rule_violations,
    run_python,
    started,
    tool_call,
)
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.errors import (
    FileMissing,
    InvalidEvent,
    InvalidRunId,
    LogBusy,
    LogClosed,
    LogExists,
    RunEnded,
    StorageFailed,
    StorageUnwritable,
)
from shopfloor.log import Entry, Payload, ToolCall, ToolResult, UnknownPayload, decode
from shopfloor.record import Durability, Recorder, Storage, is_locked, read

EARLY, LATE = "2001-01-01T00:00:00.000Z", "2999-01-01T00:00:00.000Z"
UMASKS = [0, 0o022, 0o777]


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def seqs_in(path: Path) -> list[int]:
    return [json.loads(line)["seq"] for line in path.read_bytes().splitlines()]


def writes_of_this_thread() -> tuple[int, int]:
    """Return the number of write calls and of bytes written by this thread so far, as counted by Linux."""
    counters = dict(line.split(": ") for line in Path("/proc/thread-self/io").read_text().splitlines())
    return int(counters["syscw"]), int(counters["wchar"])


def open_flags(path: Path) -> list[int]:
    """Return the flags of every descriptor that this process has on the file."""
    found = [one.name for one in Path("/proc/self/fd").iterdir() if one.is_symlink() and one.readlink() == path]
    info = [Path(f"/proc/self/fdinfo/{number}").read_text().splitlines() for number in found]
    return [int(line.split()[1], 8) for lines in info for line in lines if line.startswith("flags:")]


@pytest.mark.req("TR-2")
@pytest.mark.parametrize("mask", UMASKS, ids=oct)
def test_the_file_has_mode_0600_whatever_the_umask(log_path: Path, mask: int) -> None:
    log_path.parent.mkdir(parents=True)
    with umask(mask), Recorder(log_path, RUN_ID) as recorder:
        recorder.append(started())
    assert mode_of(log_path) == 0o600


@pytest.mark.parametrize("mask", UMASKS, ids=oct)
def test_a_folder_created_for_the_file_has_mode_0700_whatever_the_umask(log_path: Path, mask: int) -> None:
    log_path.parent.parent.mkdir(parents=True)
    with umask(mask), Recorder(log_path, RUN_ID) as recorder:
        recorder.append(started())
    assert mode_of(log_path.parent) == 0o700


@pytest.mark.req("TR-2")
def test_a_file_with_a_wider_mode_becomes_private_on_reopen(recorder: Recorder, log_path: Path) -> None:
    recorder.append(started())
    recorder.close()
    log_path.chmod(0o644)
    with Recorder(log_path, RUN_ID) as again:
        again.append(assistant_message("x"))
    assert mode_of(log_path) == 0o600


@pytest.mark.req("TR-1")
def test_the_file_is_open_for_appending_and_what_was_written_never_changes(
    recorder: Recorder, storage: Storage
) -> None:
    path = storage.root / "transcripts" / f"{RUN_ID}.jsonl"
    before = b""
    for payload in [started(), *(assistant_message("x" * n) for n in range(20))]:
        recorder.append(payload, **location_of(payload))
        now = path.read_bytes()
        assert now.startswith(before)
        assert len(now) > len(before)
        before = now
    assert [flags & os.O_APPEND for flags in open_flags(path)] == [os.O_APPEND]


@pytest.mark.req("TR-3")
@pytest.mark.parametrize("size", [0, 10, 5_000, 1_000_000])
def test_an_event_is_one_write_of_one_whole_line(log_path: Path, size: int) -> None:
    with Recorder(log_path, RUN_ID, durability=Durability.OS) as recorder:
        recorder.append(started())
        for _ in range(5):
            calls, written = writes_of_this_thread()
            entry = recorder.append(assistant_message("x" * size), path="a")
            calls_after, written_after = writes_of_this_thread()
            assert (calls_after - calls, written_after - written) == (1, len(entry.raw) + 1)
    assert log_path.read_bytes().endswith(b"\n")


@pytest.mark.req("TR-4", "TR-5", "TR-6", "TR-7")
def test_every_line_is_a_json_object_with_the_envelope_and_the_next_seq(recorder: Recorder, log_path: Path) -> None:
    payloads: list[Payload] = [started(), assistant_message("\0\u2028\r\n✂😀"), tool_call({"a": "\x85"}), completed()]
    entries = [recorder.append(payload, **location_of(payload)) for payload in payloads]
    content = log_path.read_bytes()
    assert content == b"".join(entry.raw + b"\n" for entry in entries)
    assert b"\r" not in content
    lines = [json.loads(line) for line in content.decode().removesuffix("\n").split("\n")]
    assert [line["seq"] for line in lines] == [1, 2, 3, 4]
    assert {line["run_id"] for line in lines} == {log_path.stem} == {RUN_ID}
    assert [line["type"] for line in lines] == [payload.event_type for payload in payloads]
    assert all(line.keys() == {"seq", "run_id", "type", "path", "iteration", "timestamp", "payload"} for line in lines)
    assert rule_violations(log_path) == []


@pytest.mark.req("TR-9")
def test_every_kind_of_event_is_written_unchanged(recorder: Recorder, log_path: Path) -> None:
    order = [started(), *(payload for name, payload in PAYLOADS.items() if not name.startswith("run."))]
    order.append(PAYLOADS["run.completed"])
    for payload in order:
        recorder.append(payload, iteration=2, **location_of(payload))
    events = [decode(entry.raw) for entry in read(log_path)]
    assert [event.payload for event in events] == order
    assert {event.iteration for event in events} == {2}


def test_append_returns_the_entry_in_the_file(recorder: Recorder, log_path: Path) -> None:
    entries = [recorder.append(started()), recorder.append(assistant_message("x"), path="a", iteration=3)]
    assert entries == list(read(log_path))
    assert [(entry.seq, entry.type) for entry in entries] == [(1, "run.started"), (2, "message.assistant")]
    assert recorder.seq == 2


@pytest.mark.req("TR-14")
def test_the_prompt_and_the_system_prompt_are_in_the_log_unchanged(recorder: Recorder, log_path: Path) -> None:
    recorder.append(started())
    recorder.append(PAYLOADS["message.user"], path="a")
    payload = json.loads(log_path.read_bytes().splitlines()[1])["payload"]
    assert (payload["role"], payload["system_prompt"], payload["blocks"][0]["text"]) == ("user", "be kind", "out\n")


@pytest.mark.req("TR-15")
def test_a_reply_is_in_the_log_as_its_blocks_in_their_order(recorder: Recorder, log_path: Path) -> None:
    recorder.append(started())
    recorder.append(PAYLOADS["message.assistant"], path="a")
    payload = json.loads(log_path.read_bytes().splitlines()[1])["payload"]
    kinds = [block["type"] for block in payload["blocks"]]
    assert (payload["role"], kinds) == (
        "assistant",
        ["text", "thinking", "tool_use", "tool_result", "command", "stream"],
    )


@pytest.mark.req("TR-16")
@pytest.mark.parametrize("fidelity", ["router", "agent_emitted"])
def test_a_tool_has_a_call_and_a_result_of_either_fidelity(recorder: Recorder, log_path: Path, fidelity: Any) -> None:
    recorder.append(started())
    recorder.append(ToolCall(**_tool_fields(fidelity, input={"a": 1}, output=None)), path="a")
    recorder.append(ToolResult(**_tool_fields(fidelity, input=None, output="ok")), path="a")
    events = [json.loads(line) for line in log_path.read_bytes().splitlines()[1:]]
    assert [event["type"] for event in events] == ["tool.call", "tool.result"]
    assert {(event["payload"]["call_id"], event["payload"]["fidelity"]) for event in events} == {("c1", fidelity)}


def _tool_fields(fidelity: Any, **more: Any) -> dict[str, Any]:
    return {"name": "Bash", "call_id": "c1", "fidelity": fidelity} | more


@pytest.mark.req("TR-3", "TR-5")
def test_eight_threads_at_once_leave_whole_lines_and_no_gap(recorder: Recorder, log_path: Path) -> None:
    recorder.append(started())
    sizes = [0, 100, 5_000, 200_000]
    entries: list[list[Entry]] = [[] for _ in range(8)]
    gate = threading.Barrier(8)

    def work(number: int) -> None:
        gate.wait()
        for turn in range(100):
            text = f"{number}.{turn} " + "x" * sizes[turn % 4]
            entries[number].append(recorder.append(assistant_message(text), path="a"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seqs_in(log_path) == list(range(1, 802))
    assert rule_violations(log_path) == []
    # The events of each thread are in order, and in the file as `append` returned them.
    assert all(mine == sorted(mine, key=lambda entry: entry.seq) for mine in entries)
    assert sorted((entry for mine in entries for entry in mine), key=lambda entry: entry.seq) == list(
        read(log_path, after=1)
    )


@pytest.mark.req("TR-5")
def test_many_tasks_at_once_leave_whole_lines_and_no_gap(recorder: Recorder, log_path: Path) -> None:
    recorder.append(started())

    async def work(number: int) -> None:
        for turn in range(5):
            await asyncio.sleep(0)
            if number % 2:
                recorder.append(assistant_message(f"{number}.{turn}"), path="a")
            else:
                await asyncio.to_thread(recorder.append, assistant_message(f"{number}.{turn}"), path="a")

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(work(number))

    asyncio.run(main())
    assert seqs_in(log_path) == list(range(1, 1_002))
    assert rule_violations(log_path) == []


@pytest.mark.req("TR-45")
def test_closing_twice_is_fine(recorder: Recorder, log_path: Path) -> None:
    recorder.append(started())
    recorder.close()
    recorder.close()
    assert seqs_in(log_path) == [1]
    assert not is_locked(log_path)


def test_nothing_can_be_appended_after_close(recorder: Recorder, log_path: Path) -> None:
    recorder.append(started())
    recorder.close()
    with pytest.raises(LogClosed):
        recorder.append(assistant_message("x"))
    assert seqs_in(log_path) == [1]


def test_exiting_the_with_block_closes_even_on_an_error(log_path: Path) -> None:
    with pytest.raises(InvalidEvent), Recorder(log_path, RUN_ID) as recorder:
        recorder.append(assistant_message("too early"))
    assert not is_locked(log_path)
    with pytest.raises(LogClosed):
        recorder.append(assistant_message("x"))


@pytest.mark.req("TR-10")
@pytest.mark.parametrize("payload", [payload for name, payload in PAYLOADS.items() if name != "run.started"])
def test_a_log_begins_with_run_started(recorder: Recorder, log_path: Path, payload: Payload) -> None:
    with pytest.raises(InvalidEvent, match=r"a log begins with run\.started"):
        recorder.append(payload, **location_of(payload))
    assert log_path.read_bytes() == b""
    assert recorder.append(started()).seq == 1


@pytest.mark.req("TR-10")
@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_nothing_follows_the_outcome_not_even_after_a_reopen(log_path: Path, status: Any) -> None:
    with Recorder(log_path, RUN_ID) as recorder:
        recorder.append(started())
        recorder.append(completed(status))
        for late in (assistant_message("x"), completed(), started(2)):
            with pytest.raises(RunEnded):
                recorder.append(late, **location_of(late))
    with Recorder(log_path, RUN_ID) as again:
        for late in (assistant_message("x"), completed(), started(2)):
            with pytest.raises(RunEnded):
                again.append(late, **location_of(late))
    assert [entry.type for entry in read(log_path)] == ["run.started", "run.completed"]


def test_a_reopened_log_goes_on_where_it_was(log_path: Path) -> None:
    for attempt in range(1, 6):
        with Recorder(log_path, RUN_ID) as recorder:
            recorder.append(started(attempt))
            recorder.append(assistant_message("x"), path="a")
            assert recorder.repaired is None
    assert seqs_in(log_path) == list(range(1, 11))
    assert rule_violations(log_path) == []


def test_a_new_log_is_rejected_if_one_exists(recorder: Recorder, log_path: Path) -> None:
    recorder.append(started())
    recorder.close()
    with pytest.raises(LogExists):
        Recorder(log_path, RUN_ID, new=True)
    assert seqs_in(log_path) == [1]


def test_the_log_of_another_run_is_refused_and_left_as_it_is(recorder: Recorder, log_path: Path) -> None:
    recorder.append(started())
    recorder.close()
    before = log_path.read_bytes()
    with pytest.raises(InvalidEvent, match=f"is the log of {RUN_ID}"):
        Recorder(log_path, CHILD_ID)
    assert log_path.read_bytes() == before
    assert not is_locked(log_path)


@pytest.mark.parametrize("bad", ["", "../x", "last"])
def test_only_a_run_id_names_a_run_or_its_parent(log_path: Path, bad: str) -> None:
    with pytest.raises(InvalidRunId):
        Recorder(log_path, bad)
    with pytest.raises(InvalidRunId):
        Recorder(log_path, RUN_ID, parent_run_id=bad or "x")
    assert not log_path.exists()


_RIVAL = """
import sys
from pathlib import Path
from shopfloor.errors import LogBusy
from shopfloor.record import Recorder, is_locked, read
path, run_id = Path(sys.argv[1]), sys.argv[2]
try:
    Recorder(path, run_id).close()
    print("opened", end=" ")
except LogBusy as error:
    print(error.code, end=" ")
print(is_locked(path), [entry.seq for entry in read(path)])
"""


def test_a_second_process_may_read_the_log_but_not_write_it(recorder: Recorder, log_path: Path) -> None:
    recorder.append(started())
    recorder.append(assistant_message("x"), path="a")
    assert run_python(_RIVAL, log_path, RUN_ID) == "log_busy True [1, 2]\n"
    recorder.append(assistant_message("y"), path="a")
    recorder.close()
    assert run_python(_RIVAL, log_path, RUN_ID) == "opened False [1, 2, 3]\n"
    assert rule_violations(log_path) == []


def test_a_second_writer_in_the_same_process_is_refused_too(recorder: Recorder, log_path: Path) -> None:
    recorder.append(started())
    with pytest.raises(LogBusy):
        Recorder(log_path, RUN_ID)
    assert recorder.append(assistant_message("x"), path="a").seq == 2
    assert rule_violations(log_path) == []


@pytest.mark.req("TR-13", "TR-36", "TR-37")
def test_parent_and_child_link_both_ways_and_each_has_a_file_and_a_seq_of_its_own(storage: Storage) -> None:
    call, done = PAYLOADS["step.call_workflow.started"], PAYLOADS["step.call_workflow.completed"]
    parent = Recorder(storage.log_path(PARENT_ID), PARENT_ID)
    child = Recorder(storage.log_path(CHILD_ID), CHILD_ID, parent_run_id=PARENT_ID)
    with parent, child:
        parent.append(started())
        parent.append(call, path="titles", child_run_id=CHILD_ID)
        for payload in (
            started(),
            PAYLOADS["step.started"],
            assistant_message("x"),
            PAYLOADS["step.completed"],
            completed(),
        ):
            child.append(payload, **location_of(payload))
        parent.append(done, path="titles", child_run_id=CHILD_ID)
        parent.append(completed())
    above = [decode(entry.raw) for entry in read(parent.path)]
    below = [decode(entry.raw) for entry in read(child.path)]
    assert [event.child_run_id for event in above] == [None, CHILD_ID, CHILD_ID, None]
    assert [event.parent_run_id for event in above] == [None] * 4
    assert [event.parent_run_id for event in below] == [PARENT_ID] * 5
    assert [event.seq for event in above] == [1, 2, 3, 4]
    assert [event.seq for event in below] == [1, 2, 3, 4, 5]
    assert rule_violations(child.path) == []


@pytest.mark.req("TR-36")
def test_a_reopened_child_still_knows_its_parent(log_path: Path) -> None:
    with Recorder(log_path, RUN_ID, parent_run_id=PARENT_ID) as recorder:
        recorder.append(started())
    with Recorder(log_path, RUN_ID) as again:
        again.append(started(2))
        assert again.parent_run_id == PARENT_ID
    assert [decode(entry.raw).parent_run_id for entry in read(log_path)] == [PARENT_ID, PARENT_ID]


@pytest.mark.parametrize("durability", Durability)
def test_at_every_level_of_durability_an_event_is_readable_once_append_returns(
    log_path: Path, durability: Durability
) -> None:
    with Recorder(log_path, RUN_ID, durability=durability) as recorder:
        for payload in (
            started(),
            PAYLOADS["step.started"],
            assistant_message("x"),
            PAYLOADS["step.completed"],
            completed(),
        ):
            entry = recorder.append(payload, **location_of(payload))
            assert log_path.read_bytes().endswith(entry.raw + b"\n")
    assert seqs_in(log_path) == [1, 2, 3, 4, 5]
    assert rule_violations(log_path) == []


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        (tool_call(object()), {"path": "a"}),
        (UnknownPayload({}), {"path": "a"}),
        (assistant_message("x"), {"path": "a", "iteration": -1}),
        (assistant_message("x"), {"path": "a", "child_run_id": CHILD_ID}),
        (PAYLOADS["step.call_workflow.started"], {"path": "a"}),
        (PAYLOADS["step.started"], {"path": ""}),
    ],
)
def test_a_rejected_event_uses_no_seq_and_reaches_no_subscriber(
    recorder: Recorder, log_path: Path, payload: Any, place: dict[str, Any]
) -> None:
    recorder.append(started())
    with recorder.subscribe() as live:
        with pytest.raises(InvalidEvent):
            recorder.append(payload, **place)
        entry = recorder.append(assistant_message("x"), path="a")
        assert live.drain() == [entry]
    assert entry.seq == 2
    assert rule_violations(log_path) == []


def test_no_line_leaves_bytes_in_the_next(recorder: Recorder, log_path: Path) -> None:
    texts = ["x" * 200_000, "short", "odd \udcff", "", "x" * 5_000, "last"]
    entries = [recorder.append(started())]
    for text in texts:
        with pytest.raises(InvalidEvent):
            recorder.append(tool_call(["y" * 300, object()]), path="a")
        entries.append(recorder.append(assistant_message(text), path="a"))
    assert log_path.read_bytes() == b"".join(entry.raw + b"\n" for entry in entries)
    written = [json.loads(entry.raw)["payload"]["blocks"][0]["text"] for entry in entries[1:]]
    assert written == [text.replace("\udcff", "\ufffd") for text in texts]
    assert rule_violations(log_path) == []


def test_the_stats_count_events_and_bytes(recorder: Recorder, log_path: Path) -> None:
    recorder.append(started())
    recorder.append(assistant_message("✂"), path="a")
    with recorder.subscribe("page"):
        stats = recorder.stats()
    assert (stats.events, stats.size) == (2, log_path.stat().st_size)
    assert [one.name for one in stats.subscribers] == ["page"]


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageFailed, match="cannot create the folder") as refused:
        Recorder(tmp_path / "file" / "transcripts" / f"{RUN_ID}.jsonl", RUN_ID)
    assert refused.value.hint


_WITHOUT_RIGHTS = """
import os, sys
from pathlib import Path
from shopfloor.errors import StorageError
from shopfloor.record import Recorder
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    Recorder(Path(sys.argv[1]), sys.argv[2])
except StorageError as error:
    print(error.code, error.hint)
finally:
    os.seteuid(os.getuid())
"""


def test_a_folder_that_may_not_be_written_is_a_clear_error(log_path: Path) -> None:
    log_path.parent.mkdir(parents=True)
    log_path.parent.chmod(0o500)
    answer = run_python(_WITHOUT_RIGHTS, log_path, RUN_ID)
    assert answer.startswith(f"{StorageUnwritable.code} make the folder writable")
    assert not log_path.exists()


def test_reading_a_missing_log_is_a_clear_error(log_path: Path) -> None:
    with pytest.raises(FileMissing):
        list(read(log_path))


def test_a_disk_that_fails_while_an_event_is_being_written_is_noticed(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.append(started())
    written, go_on, write = threading.Event(), threading.Event(), os.write

    def slow(descriptor: int, data: bytes) -> int:
        written.set()
        assert go_on.wait(TIMEOUT_SECONDS)
        return write(descriptor, data)

    def broken(descriptor: int) -> None:
        # Also for a sync in the background: it must not fail before the event is being written.
        assert written.wait(TIMEOUT_SECONDS)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as failing:
        failing.setattr(os, "fdatasync", broken)
        recorder.append(assistant_message("one"))
        failing.setattr(os, "write", slow)
        writing = threading.Thread(target=recorder.append, args=(assistant_message("two"),))
        writing.start()
        assert written.wait(TIMEOUT_SECONDS)
        recorder.sync_pending()
        go_on.set()
        writing.join(TIMEOUT_SECONDS)
        assert not recorder.is_on_disk
    recorder.append(assistant_message("three"))
    recorder.sync_pending()
    assert recorder.is_on_disk
    assert seqs_in(recorder.path) == [1, 2, 3, 4]


@pytest.mark.req("WT-65")
def test_times_never_decrease_in_a_log_whatever_the_clock_shows(log_path: Path) -> None:
    with Recorder(log_path, RUN_ID) as recorder:
        recorder.append(started(), at=EARLY)
        recorder.append(assistant_message("a clock that is ahead"), path="s", at=LATE)
        recorder.append(assistant_message("a clock that is behind"), path="s", at=EARLY)
        recorder.append(assistant_message("our own clock"), path="s")
    with Recorder(log_path, RUN_ID) as recorder:
        recorder.append(started(2))
    times = [json.loads(line)["timestamp"] for line in log_path.read_bytes().splitlines()]
    # A time in the future, or before the last event, is replaced by the clock's time.
    assert (times[0], times) == (EARLY, sorted(times))
    assert times[1] > EARLY
    assert times[-1] < LATE
    assert rule_violations(log_path) == []
