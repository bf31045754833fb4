"""Repair: the torn end that a crash left is moved out of the log, and the log continues."""

import logging
import stat
from pathlib import Path

import pytest
from tests.sample_events import RUN_ID, assistant_message, completed, line_of, raw_log, rule_violations, started

from shopfloor.errors import RunEnded
from shopfloor.limits import PROBE_CHUNK_BYTES
from shopfloor.log import encode
from shopfloor.record import Recorder, last_entry, read

THREE = raw_log(["a", "b"])
HALF = raw_log(["a", "b", "c"])[3][:60]

TAILS = {
    "one byte": b"{",
    "half a line": HALF,
    "a whole line without its end": raw_log(["a", "b", "c"])[3][:-1],
    "a long half line": raw_log(["a", "b", "c" * 3 * PROBE_CHUNK_BYTES])[3][:-20],
    "zeros": b"\0" * 10,
    "pages of zeros": b"\0" * 3 * PROBE_CHUNK_BYTES,
    "half a line and zeros": HALF + b"\0" * 5_000,
    "zeros and a line end": b"\0" * 5_000 + b"\n",
    "a half line with a line end": HALF + b"\n",
    "several lines that are none": b"oops\n\n\0\0\n[]\n",
    "lines that are none and a half one": b"oops\n" + HALF,
}


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
def test_a_torn_tail_is_moved_and_reported_and_seq_continues(
    log_path: Path, tail: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    write(log_path, b"".join(THREE) + tail)
    with caplog.at_level(logging.WARNING, "shopfloor.record"), Recorder(log_path, RUN_ID) as recorder:
        assert log_path.read_bytes() == b"".join(THREE)
        entry = recorder.append(assistant_message("after"), path="a")
    assert entry.seq == 4
    assert recorder.repaired is not None
    assert recorder.repaired.size == len(tail)
    assert recorder.repaired.torn_path.read_bytes() == tail
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert recorder.repaired.torn_path.name in caplog.text
    assert f"an incomplete line of {len(tail)} bytes" in caplog.text
    assert log_path.read_bytes() == b"".join(THREE) + entry.raw + b"\n"
    assert rule_violations(log_path) == []


def test_a_torn_tail_is_beside_the_log_under_a_name_that_is_not_a_log(log_path: Path) -> None:
    write(log_path, b"".join(THREE) + HALF)
    with Recorder(log_path, RUN_ID) as recorder:
        assert recorder.repaired is not None
    torn_path = recorder.repaired.torn_path
    assert torn_path.parent == log_path.parent
    assert torn_path.name.startswith(RUN_ID)
    assert [path.name for path in log_path.parent.glob("*.jsonl")] == [log_path.name]
    assert stat.S_IMODE(torn_path.stat().st_mode) == 0o600


def test_each_torn_tail_of_a_log_gets_a_name_of_its_own(log_path: Path) -> None:
    write(log_path, b"".join(THREE))
    asides: list[Path] = []
    for tail in (b"first", b"second", b"third"):
        with log_path.open("ab") as file:
            file.write(tail)
        with Recorder(log_path, RUN_ID) as recorder:
            assert recorder.repaired is not None
            asides.append(recorder.repaired.torn_path)
    assert len(set(asides)) == 3
    assert [torn_path.read_bytes() for torn_path in asides] == [b"first", b"second", b"third"]
    assert not any(torn_path.name.endswith(".jsonl") for torn_path in asides)
    assert log_path.read_bytes() == b"".join(THREE)


def test_an_intact_log_is_not_repaired(log_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(log_path, b"".join(THREE))
    with Recorder(log_path, RUN_ID) as recorder:
        assert recorder.repaired is None
    assert caplog.records == []
    assert [path.name for path in log_path.parent.iterdir()] == [log_path.name]


@pytest.mark.parametrize("content", [THREE[0][:-1], b"\0" * 10_000, b"oops\n"])
def test_a_log_without_a_complete_line_starts_again(log_path: Path, content: bytes) -> None:
    write(log_path, content)
    with Recorder(log_path, RUN_ID) as recorder:
        assert recorder.repaired is not None
        assert recorder.repaired.torn_path.read_bytes() == content
        assert recorder.append(started()).seq == 1
    assert rule_violations(log_path) == []


def test_an_empty_file_is_a_log_without_events(log_path: Path) -> None:
    write(log_path, b"")
    with Recorder(log_path, RUN_ID) as recorder:
        assert recorder.repaired is None
        assert recorder.append(started()).seq == 1


def test_a_torn_tail_after_the_outcome_does_not_open_the_run_again(log_path: Path) -> None:
    outcome = encode(line_of(completed(), 4)) + b"\n"
    write(log_path, b"".join(THREE) + outcome + b"\0\0")
    with Recorder(log_path, RUN_ID) as recorder, pytest.raises(RunEnded):
        recorder.append(assistant_message("x"), path="a")
    assert log_path.read_bytes() == b"".join(THREE) + outcome


def test_a_torn_outcome_leaves_the_run_open(log_path: Path) -> None:
    write(log_path, b"".join(THREE) + encode(line_of(completed(), 4)))
    with Recorder(log_path, RUN_ID) as recorder:
        assert recorder.append(completed()).seq == 4
    assert rule_violations(log_path) == []


def test_an_event_of_a_later_version_at_the_end_is_not_torn(log_path: Path) -> None:
    later = THREE[2].replace(b'"message.assistant"', b'"message.system"').replace(b'"seq":3', b'"seq":4')
    write(log_path, b"".join(THREE) + later)
    with Recorder(log_path, RUN_ID) as recorder:
        assert recorder.repaired is None
        assert recorder.append(assistant_message("x"), path="a").seq == 5


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
def test_reading_a_torn_log_returns_its_complete_events_and_changes_nothing(log_path: Path, tail: bytes) -> None:
    content = b"".join(THREE) + tail
    write(log_path, content)
    assert [entry.raw + b"\n" for entry in read(log_path, on_problem=lambda problem: None)] == THREE
    last = last_entry(log_path)
    assert last is not None
    assert last.raw + b"\n" == THREE[-1]
    assert log_path.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"\0" * 10, b"oops\n", THREE[0][:-1]])
def test_a_log_without_a_complete_event_has_no_last_entry(log_path: Path, content: bytes) -> None:
    write(log_path, content)
    assert last_entry(log_path) is None
