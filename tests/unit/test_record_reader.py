"""Reading a log: lazily, from any position, while it is written, with any content."""

import json
import os
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest
from tests.sample_events import ROOT, RUN_ID, assistant_message, completed, raw_log, rule_violations, started

from shopfloor.errors import FileMissing
from shopfloor.limits import LOG_LINE_BYTES, PROBE_CHUNK_BYTES, READ_CHUNK_BYTES
from shopfloor.log import Entry, Reset, decode
from shopfloor.record import Cursor, Problem, ReadCache, Recorder, follow, is_locked, last_entry, read

TEN = raw_log("abcdefghi")
MIXED = raw_log("x" * size for size in [10, 60_000, 0, 0, 5_000, 300_000, 1, 2, 4_095, 4_096, 4_097, 70_000, 3])


def write(path: Path, lines: list[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines))
    return path


def lines_of(entries: list[Entry]) -> list[bytes]:
    return [entry.raw + b"\n" for entry in entries]


def seqs(items: list[Entry | Reset]) -> list[int | Reset]:
    return [item if isinstance(item, Reset) else item.seq for item in items]


def bytes_read_by_this_thread() -> int:
    lines = Path("/proc/thread-self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


@pytest.mark.parametrize("lines", [TEN, MIXED], ids=["short lines", "lines of all sizes"])
def test_reading_starts_after_any_seq(log_path: Path, lines: list[bytes]) -> None:
    write(log_path, lines)
    for after in range(len(lines) + 2):
        assert lines_of(list(read(log_path, after=after))) == lines[after:]


def test_an_entry_has_the_seq_the_type_and_the_bytes_of_its_line(log_path: Path) -> None:
    write(log_path, TEN[:2])
    assert list(read(log_path)) == [
        Entry(1, "run.started", TEN[0][:-1]),
        Entry(2, "message.assistant", TEN[1][:-1]),
    ]


@pytest.mark.parametrize(
    ("after", "before", "limit", "wanted"),
    [
        (0, 4, None, [1, 2, 3]),
        (3, 6, None, [4, 5]),
        (3, 4, None, []),
        (3, 3, None, []),
        (0, 1, None, []),
        (8, 100, None, [9, 10]),
        (0, None, 0, []),
        (0, None, 2, [1, 2]),
        (9, None, 5, [10]),
        (2, 9, 3, [3, 4, 5]),
        (2, 4, 3, [3]),
        (10, None, None, []),
        (99, None, None, []),
        (-5, 3, None, [1, 2]),
    ],
)
def test_a_page_has_the_events_between_after_and_before_up_to_its_limit(
    log_path: Path, after: int, before: int | None, limit: int | None, wanted: list[int]
) -> None:
    write(log_path, TEN)
    assert [entry.seq for entry in read(log_path, after=after, before=before, limit=limit)] == wanted


def test_lines_that_are_no_events_are_reported_with_their_place_and_passed_over(log_path: Path) -> None:
    garbage = [b"oops\n", b"\n", b"[1,2]\n", b'{"seq":4}\n', b"\0\0\0\n", b"\xff\xfe\n", TEN[3][:50] + b"\n"]
    write(log_path, [*TEN[:3], *garbage, *TEN[3:]])
    problems: list[Problem] = []
    assert lines_of(list(read(log_path, on_problem=problems.append))) == TEN
    offset = len(b"".join(TEN[:3]))
    places = [offset + len(b"".join(garbage[:number])) for number in range(len(garbage))]
    assert [problem.offset for problem in problems] == places
    assert all(problem.reason.startswith("not an event: ") for problem in problems)


def test_a_place_is_found_also_in_a_log_that_is_half_garbage(log_path: Path) -> None:
    garbage = [b"x" * size + b"\n" for size in (0, 5_000, 100_000, 10)]
    write(log_path, [part for number, line in enumerate(MIXED) for part in (line, garbage[number % 4])])
    for after in range(len(MIXED)):
        assert lines_of(list(read(log_path, after=after, on_problem=lambda problem: None))) == MIXED[after:]


def test_problems_in_a_log_are_warnings_by_default(log_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(log_path, [b"oops\n", *TEN])
    assert lines_of(list(read(log_path))) == TEN
    assert [(record.name, record.levelname) for record in caplog.records] == [("shopfloor.record", "WARNING")]
    assert "at byte 0: not an event" in caplog.text


@pytest.mark.req("TR-17")
def test_an_event_of_an_unknown_type_is_passed_on_intact_and_reported(log_path: Path) -> None:
    later = TEN[1].replace(b'"message.assistant"', b'"message.system"')
    write(log_path, [TEN[0], later, TEN[2]])
    problems: list[Problem] = []
    entries = list(read(log_path, on_problem=problems.append))
    assert lines_of(entries) == [TEN[0], later, TEN[2]]
    assert (entries[1].type, decode(entries[1].raw).type) == ("message.system", "message.system")
    assert problems == [Problem(len(TEN[0]), "unknown event type 'message.system'")]


def test_an_event_with_an_unknown_block_is_passed_on_intact(log_path: Path) -> None:
    later = TEN[1].replace(b'"type":"text"', b'"type":"image"')
    write(log_path, [TEN[0], later])
    entries = list(read(log_path))
    assert lines_of(entries) == [TEN[0], later]
    assert decode(entries[1].raw).problems == ("unknown block type 'image'",)


def test_keys_may_be_in_any_order(log_path: Path) -> None:
    turned: list[bytes] = []
    for raw in MIXED:
        fields = json.loads(raw)
        turned.append(json.dumps({key: fields[key] for key in reversed(fields)}).encode() + b"\n")
    write(log_path, turned)
    for after in range(len(turned)):
        assert lines_of(list(read(log_path, after=after))) == turned[after:]


@pytest.mark.parametrize("size", [1, 10, 100, READ_CHUNK_BYTES + 10, 599_000])
def test_a_half_line_at_the_end_is_not_read(log_path: Path, size: int) -> None:
    write(log_path, [*TEN, raw_log(["x" * 600_000])[1][:size]])
    problems: list[Problem] = []
    assert lines_of(list(read(log_path, on_problem=problems.append))) == TEN
    assert problems == []


@pytest.mark.parametrize("size", [100, 2 * READ_CHUNK_BYTES])
def test_a_half_line_is_read_once_its_end_has_come(log_path: Path, size: int) -> None:
    lines = raw_log(["x" * size])
    write(log_path, [lines[0], lines[1][:-10]])
    with Cursor(log_path) as cursor, log_path.open("ab") as file:
        assert seqs(cursor.poll()) == [1]
        assert cursor.poll() == []
        file.write(lines[1][-10:-1])
        file.flush()
        assert cursor.poll() == []
        file.write(b"\n")
        file.flush()
        assert cursor.poll() == [Entry(2, "message.assistant", lines[1][:-1])]


def test_a_partial_line_that_is_removed_leaves_no_trace(log_path: Path) -> None:
    write(log_path, [*TEN[:4], TEN[4][:-20]])
    problems: list[Problem] = []
    with Cursor(log_path, on_problem=problems.append) as cursor:
        assert seqs(cursor.poll()) == [1, 2, 3, 4]
        os.truncate(log_path, len(b"".join(TEN[:4])))
        assert cursor.poll() == []
        with log_path.open("ab") as file:
            file.write(b"".join(TEN[4:]))
        assert seqs(cursor.poll()) == [5, 6, 7, 8, 9, 10]
    assert problems == []


@pytest.mark.parametrize("torn", [0, 5], ids=["at a line end", "in a line"])
@pytest.mark.parametrize("last_seq", [0, 1, 4, 9])
def test_a_reader_of_a_log_that_shrank_is_notified_and_continues_from_its_new_end(
    log_path: Path, last_seq: int, torn: int
) -> None:
    write(log_path, TEN)
    with Cursor(log_path) as cursor:
        assert seqs(cursor.poll()) == list(range(1, 11))
        os.truncate(log_path, len(b"".join(TEN[:last_seq])) + torn)
        assert cursor.poll() == [Reset(last_seq)]
        assert cursor.seq == last_seq
        assert cursor.poll() == []
        write(log_path, TEN)
        assert seqs(cursor.poll()) == list(range(last_seq + 1, 11))


def test_a_reader_that_had_not_come_so_far_need_not_know_that_the_log_shrank(log_path: Path) -> None:
    write(log_path, [*TEN, b"oops\n" * 100])
    with Cursor(log_path, on_problem=lambda problem: None) as cursor:
        assert seqs(cursor.poll()) == list(range(1, 11))
        os.truncate(log_path, len(b"".join(TEN)))
        assert cursor.poll() == []


def test_a_reader_that_starts_past_the_end_is_notified_of_the_end(log_path: Path) -> None:
    """After a power failure: the reader has a `seq` that the log has lost."""
    write(log_path, TEN[:4])
    with Cursor(log_path, after=7) as cursor:
        assert cursor.poll() == [Reset(4)]
        write(log_path, TEN)
        assert seqs(cursor.poll()) == [5, 6, 7, 8, 9, 10]


def test_a_follower_loses_no_event_after_a_repair_removed_lines_that_it_had_read(log_path: Path) -> None:
    write(log_path, [*TEN[:3], b"oops\n"])
    with Cursor(log_path, on_problem=lambda problem: None) as cursor:
        assert seqs(cursor.poll()) == [1, 2, 3]
        with Recorder(log_path, RUN_ID) as recorder:
            recorder.append(assistant_message("x"), path="a")
            recorder.append(assistant_message("y"), path="a")
        assert seqs(cursor.poll()) == [4, 5]


def test_following_returns_a_reset_and_then_the_rewritten_events(log_path: Path) -> None:
    write(log_path, TEN)
    events = follow(log_path)
    assert seqs([next(events) for _ in range(10)]) == list(range(1, 11))
    os.truncate(log_path, len(b"".join(TEN[:4])))
    assert next(events) == Reset(4)
    write(log_path, TEN[:6])
    assert seqs([next(events), next(events)]) == [5, 6]
    events.close()  # type: ignore[attr-defined]


def test_following_a_log_that_a_thread_writes_returns_every_event_up_to_the_outcome(
    recorder: Recorder, log_path: Path
) -> None:
    recorder.append(started())

    def work() -> None:
        for size in [0, 10, 5_000, 300_000] * 25:
            recorder.append(assistant_message("x" * size), path="a")
        recorder.append(completed())

    thread = threading.Thread(target=work)
    thread.start()
    followed = list(follow(log_path))
    thread.join()
    assert followed == list(read(log_path))
    assert seqs(followed) == list(range(1, 103))


_WRITER = """
import sys
from pathlib import Path
from shopfloor.record import Recorder
from tests.sample_events import RUN_ID, completed, assistant_message
with Recorder(Path(sys.argv[1]), RUN_ID) as recorder:
    print("open", flush=True)
    sys.stdin.read(1)
    for size in [0, 10, 5_000, 300_000] * 25:
        recorder.append(assistant_message("x" * size), path="a")
    if sys.argv[2] == "outcome":
        recorder.append(completed())
"""


@pytest.mark.parametrize(("ending", "events"), [("outcome", 101), ("none", 100)])
def test_following_a_log_that_another_process_writes_ends_with_the_outcome_or_with_the_writer(
    log_path: Path, ending: str, events: int
) -> None:
    write(log_path, TEN[:1])
    command = [sys.executable, "-c", _WRITER, str(log_path), ending]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as writer:
        assert writer.stdout is not None
        assert writer.stdin is not None
        assert writer.stdout.readline() == b"open\n"
        writer.stdin.write(b"!")
        writer.stdin.flush()
        followed = list(follow(log_path, after=1, done=lambda: not is_locked(log_path)))
    assert writer.returncode == 0
    assert followed == list(read(log_path, after=1))
    assert len(followed) == events
    assert rule_violations(log_path) == []


def test_following_stops_on_request_and_still_returns_existing_events(log_path: Path) -> None:
    write(log_path, TEN)
    assert seqs(list(follow(log_path, after=3, done=lambda: True))) == [4, 5, 6, 7, 8, 9, 10]


def test_following_from_the_outcome_on_ends_by_itself(log_path: Path) -> None:
    with Recorder(log_path, RUN_ID) as recorder:
        recorder.append(started())
        recorder.append(completed())
    polls = 0

    def keep_waiting() -> bool:
        nonlocal polls
        polls += 1
        assert polls < 5, "it waits for events after the outcome"
        return False

    assert list(follow(log_path, after=2, done=keep_waiting)) == []


def test_a_log_that_is_locked_is_one_that_a_writer_has_open(recorder: Recorder, log_path: Path) -> None:
    assert is_locked(log_path)
    recorder.close()
    assert not is_locked(log_path)
    log_path.unlink()
    assert not is_locked(log_path)


def test_a_file_that_is_not_there_is_a_clear_error(log_path: Path) -> None:
    with pytest.raises(FileMissing):
        next(follow(log_path))
    with pytest.raises(FileMissing):
        last_entry(log_path)


def test_a_folder_in_the_place_of_a_log_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FileMissing, match="is a folder"):
        list(read(tmp_path))


def test_closing_a_cursor_twice_is_fine(log_path: Path) -> None:
    cursor = Cursor(write(log_path, TEN))
    cursor.close()
    cursor.close()
    assert cursor.descriptor == -1


def test_a_page_far_into_a_long_log_is_found_without_reading_the_log(log_path: Path) -> None:
    write(log_path, raw_log(["x" * 10_000] * 5_000))
    before = bytes_read_by_this_thread()
    page = list(read(log_path, after=4_990, limit=5))
    spent = bytes_read_by_this_thread() - before
    assert [entry.seq for entry in page] == [4_991, 4_992, 4_993, 4_994, 4_995]
    assert log_path.stat().st_size > 50_000_000
    assert spent < 4 * READ_CHUNK_BYTES
    before = bytes_read_by_this_thread()
    last = last_entry(log_path)
    assert last is not None
    assert last.seq == 5_001
    assert bytes_read_by_this_thread() - before < 4 * READ_CHUNK_BYTES


def peak_of_reading(path: Path) -> tuple[int, int]:
    """Return the number of events read and the peak memory."""
    tracemalloc.start()
    try:
        count = sum(1 for _ in read(path, on_problem=lambda problem: None))
        return count, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_log_that_is_read(log_path: Path) -> None:
    write(log_path, raw_log(["x" * 10_000] * 2_000))
    count, peak = peak_of_reading(log_path)
    assert count == 2_001
    assert peak < 8 * READ_CHUNK_BYTES < log_path.stat().st_size


def test_memory_does_not_grow_with_a_tail_of_zeros_that_is_longer_than_any_line(log_path: Path) -> None:
    write(log_path, TEN)
    os.truncate(log_path, 6 * LOG_LINE_BYTES)
    count, peak = peak_of_reading(log_path)
    assert count == 10
    assert peak < 3 * LOG_LINE_BYTES


def test_any_amount_of_garbage_is_passed_over(log_path: Path) -> None:
    """The line has more chunks than Python has stack frames."""
    write(log_path, TEN[:3])
    chunks = sys.getrecursionlimit() + 100
    with log_path.open("r+b") as file:
        for number in range(1, chunks + 1):
            file.seek(number * READ_CHUNK_BYTES)
            file.write(b"\n")
        file.write(b"".join(TEN[3:]))
    assert lines_of(list(read(log_path, on_problem=lambda problem: None))) == TEN


@pytest.mark.req("TR-3")
def test_lines_of_ten_megabytes_are_written_read_and_verified(recorder: Recorder, log_path: Path) -> None:
    text = "✂\0\n" * 1_000_000
    recorder.append(started())
    written = [recorder.append(assistant_message(text), path="a"), recorder.append(assistant_message("x"), path="a")]
    written.append(recorder.append(assistant_message(text[::-1]), path="a"))
    recorder.append(completed())
    recorder.close()
    assert len(written[0].raw) > 10_000_000 > PROBE_CHUNK_BYTES
    assert list(read(log_path, after=1, before=5)) == written
    assert list(read(log_path, after=3, before=5)) == written[2:]
    assert decode(written[2].raw).payload == assistant_message(text[::-1])
    assert [entry.seq for entry in follow(log_path) if isinstance(entry, Entry)] == [1, 2, 3, 4, 5]
    assert rule_violations(log_path) == []
    with Recorder(log_path, RUN_ID) as again:
        assert (again.seq, again.repaired) == (5, None)


def test_cursors_with_a_shared_cache_read_the_same_as_cursors_without(recorder: Recorder, log_path: Path) -> None:
    recorder.append(started())
    for number in range(3_000):
        recorder.append(assistant_message(f"{number} " + "x" * (number % 700)), path="a")
    alone = list(read(log_path))
    read_cache = ReadCache()
    for after in (0, 0, 700, 0, 2_990):
        with Cursor(log_path, after, read_cache=read_cache) as cursor:
            got = [one for batch in iter(cursor.poll, []) for one in batch]
        assert got == alone[after:]


def test_a_shared_chunk_is_not_used_after_the_log_was_truncated(log_path: Path) -> None:
    with Recorder(log_path, RUN_ID) as recorder:
        recorder.append(started())
        for number in range(1_000):
            recorder.append(assistant_message(f"first {number} " + "x" * 300), path="a")
    read_cache = ReadCache()
    with Cursor(log_path, read_cache=read_cache) as cursor:
        assert len([one for batch in iter(cursor.poll, []) for one in batch]) == 1_001
    os.truncate(log_path, len(next(read(log_path, limit=1)).raw) + 1)
    with Recorder(log_path, RUN_ID) as recorder:
        for number in range(1_000):
            recorder.append(assistant_message(f"again {number} " + "x" * 300), path="a")
    with Cursor(log_path, read_cache=read_cache) as cursor:
        got = [one for batch in iter(cursor.poll, []) for one in batch]
    assert got == list(read(log_path))


def test_the_number_of_shared_chunks_is_limited(recorder: Recorder, log_path: Path) -> None:
    recorder.append(started())
    for _ in range(40):
        recorder.append(assistant_message("x" * 200_000), path="a")
    read_cache = ReadCache(max_chunks=3)
    with Cursor(log_path, read_cache=read_cache) as cursor:
        places = [cursor.seq for _ in iter(cursor.poll, [])]
    assert len(places) > 10
    assert len(read_cache) == 3
