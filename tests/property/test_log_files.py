"""Properties of any log, truncated anywhere and read from anywhere."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.property.strategies import log_of, payloads, runs, text
from tests.sample_events import CHILD_ID, PARENT_ID, RUN_ID, assistant_message, raw_log, rule_violations, started

from shopfloor.errors import InvalidEvent
from shopfloor.log import Payload, Reset, RunCompleted, decode
from shopfloor.record import Cursor, Durability, Recorder, last_entry, read

Run = list[tuple[Payload, dict[str, Any]]]


@contextmanager
def log_file(content: bytes = b"") -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{RUN_ID}.jsonl"
        path.write_bytes(content)
        yield path


def quiet(_: object) -> None:
    """Ignore warnings about intentional garbage."""


def lines_read(path: Path, **how: Any) -> list[bytes]:
    return [entry.raw + b"\n" for entry in read(path, on_problem=quiet, **how)]


def whole_lines(lines: list[bytes], size: int) -> list[bytes]:
    """Return the lines that end within the first `size` bytes."""
    ends = [len(b"".join(lines[: number + 1])) for number in range(len(lines))]
    return [line for line, end in zip(lines, ends, strict=True) if end <= size]


@given(runs(), st.data())
def test_any_prefix_of_a_log_reads_as_a_prefix_of_its_events(run: Run, data: st.DataObject) -> None:
    lines = log_of(run)
    content = b"".join(lines)
    size = data.draw(st.integers(0, len(content)))
    whole = whole_lines(lines, size)
    with log_file(content[:size]) as path:
        assert lines_read(path) == whole
        last = last_entry(path)
        assert (last.raw + b"\n" if last else None) == (whole[-1] if whole else None)


@given(runs(), st.sampled_from([None, PARENT_ID]), st.data())
def test_any_prefix_of_a_log_can_be_continued(run: Run, parent: str | None, data: st.DataObject) -> None:
    lines = log_of(run, parent)
    content = b"".join(lines)
    size = data.draw(st.integers(0, len(content)))
    zeros = data.draw(st.sampled_from([0, 0, 1, 5_000]))
    whole = whole_lines(lines, size)
    assume(not whole or decode(whole[-1]).type != RunCompleted.event_type)
    torn = content[:size][len(b"".join(whole)) :] + b"\0" * zeros
    with log_file(content[:size] + b"\0" * zeros) as path:
        with Recorder(path, RUN_ID, parent_run_id=parent, durability=Durability.OS) as recorder:
            assert (recorder.repaired.torn_path.read_bytes() if recorder.repaired else b"") == torn
            entries = [recorder.append(started(9)), recorder.append(assistant_message("x"), path="a")]
        assert lines_read(path) == whole + [entry.raw + b"\n" for entry in entries]
        assert rule_violations(path) == []


sizes = st.lists(st.sampled_from([0, 1, 50, 500, 4_000, 5_000, 60_000, 300_000]) | st.integers(0, 9_000), max_size=40)
garbage = st.sampled_from([b"", b"", b"", b"\n", b"oops\n", b"\0" * 5_000 + b"\n", b'{"seq":' + b"9" * 9_000 + b"\n"])


@given(sizes, st.data())
def test_reading_after_any_seq_returns_the_rest_of_the_log(sizes: list[int], data: st.DataObject) -> None:
    lines = raw_log("x" * size for size in sizes)
    with log_file(b"".join(lines)) as path:
        assert lines_read(path) == lines
        for after in data.draw(st.lists(st.integers(-1, len(lines) + 2), min_size=1, max_size=8)):
            assert lines_read(path, after=after) == lines[max(after, 0) :]


@given(sizes, st.data())
def test_any_page_of_any_log_is_a_slice_of_it(sizes: list[int], data: st.DataObject) -> None:
    lines = raw_log("x" * size for size in sizes)
    between = b"".join(data.draw(garbage) + line for line in lines) + data.draw(garbage)
    after, before = data.draw(st.integers(0, len(lines))), data.draw(st.integers(0, len(lines) + 2))
    limit = data.draw(st.none() | st.integers(0, 10))
    with log_file(between) as path:
        wanted = lines[after : max(before - 1, 0)]
        assert lines_read(path, after=after, before=before, limit=limit) == wanted[:limit]


@given(sizes, st.data())
def test_keys_in_another_order_are_found_all_the_same(sizes: list[int], data: st.DataObject) -> None:
    lines = raw_log("x" * size for size in sizes)
    turned: list[bytes] = []
    for raw in lines:
        fields = msgspec.json.decode(raw)
        turned.append(
            msgspec.json.encode({key: fields[key] for key in data.draw(st.permutations(list(fields)))}) + b"\n"
        )
    after = data.draw(st.integers(0, len(lines)))
    with log_file(b"".join(turned)) as path:
        assert lines_read(path, after=after) == turned[after:]


@given(runs(max_steps=2), st.lists(st.integers(0, 400), max_size=20))
def test_a_reader_of_a_log_that_grows_by_any_writes_gets_each_event_once(run: Run, pieces: list[int]) -> None:
    lines = log_of(run)
    content = b"".join(lines)
    got: list[bytes] = []
    with log_file() as path, path.open("ab", buffering=0) as file, Cursor(path) as cursor:
        for size in [*pieces, len(content)]:
            file.write(content[:size])
            content = content[size:]
            got += [item.raw + b"\n" for item in cursor.poll() if not isinstance(item, Reset)]
        while more := cursor.poll():
            got += [item.raw + b"\n" for item in more if not isinstance(item, Reset)]
    assert got == lines


@given(sizes, st.data())
def test_a_reader_of_a_truncated_log_is_notified_of_its_end(sizes: list[int], data: st.DataObject) -> None:
    lines = raw_log("x" * size for size in sizes)
    content = b"".join(lines)
    size = data.draw(st.integers(0, len(content)))
    complete_lines = len(whole_lines(lines, size))
    with log_file(content) as path, Cursor(path) as cursor:
        while cursor.poll():
            pass
        with path.open("r+b") as file:
            file.truncate(size)
        assert cursor.poll() == ([] if complete_lines == len(lines) else [Reset(complete_lines)])
        path.write_bytes(content)
        got: list[bytes] = []
        while items := cursor.poll():
            got += [item.raw + b"\n" for item in items if not isinstance(item, Reset)]
        assert got == lines[complete_lines:]


@pytest.mark.req("TR-4", "TR-5", "TR-6", "TR-8")
@given(runs(), st.sampled_from([None, PARENT_ID]))
def test_any_run_that_is_recorded_in_order_breaks_no_rule(run: Run, parent: str | None) -> None:
    with log_file() as path:
        with Recorder(path, RUN_ID, parent_run_id=parent, durability=Durability.OS) as recorder:
            entries = [recorder.append(payload, **place) for payload, place in run]
        assert rule_violations(path) == []
        assert list(read(path)) == entries
        assert [decode(entry.raw).payload for entry in entries] == [payload for payload, _ in run]


# The engine knows which attempt, step or result comes next; the writer checks each event against the format only.
OF_THE_ENGINE = {"start", "step-once", "step-pair", "tool-pair", "piece"}

places = st.fixed_dictionaries(
    {},
    optional={
        "path": st.sampled_from(["", "a", "a.b"]) | text,
        "iteration": st.integers(-1, 2),
        "child_run_id": st.sampled_from([CHILD_ID, CHILD_ID, None]),
    },
)


@given(st.lists(st.tuples(payloads, places), max_size=12))
def test_the_writer_accepts_no_event_that_breaks_the_format(events: Run) -> None:
    taken = 0
    with log_file() as path:
        with Recorder(path, RUN_ID, durability=Durability.OS) as recorder:
            recorder.append(started())
            for payload, place in events:
                if isinstance(payload, RunCompleted):
                    continue
                try:
                    recorder.append(payload, **place)
                    taken += 1
                except InvalidEvent:
                    continue
        assert {broken.rule for broken in rule_violations(path)} <= OF_THE_ENGINE
        assert len(list(read(path))) == 1 + taken
