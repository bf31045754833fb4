"""From logs to rows."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from random import Random

import anyio
import anyio.lowlevel
import msgspec
import pytest
from tests.ingest_factory import create_ingest
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.adapters.local import LocalBus, LocalLogFeed, LocalLogReader, LocalLogs
from shopfloor.adapters.memory import MemoryStore
from shopfloor.adapters.sqlite import SqliteStore
from shopfloor.cli.list import table
from shopfloor.cli.style import Style
from shopfloor.engine import Ingest, resume_or_end_orphans
from shopfloor.log import (
    FORMAT,
    AssistantMessage,
    Awaits,
    BasedOn,
    Note,
    Payload,
    RunCompleted,
    RunStarted,
    Session,
    StepCompleted,
    StepStarted,
    TextBlock,
    ToolCall,
    ToolResult,
    new_run_id,
)
from shopfloor.ports import RunFilter, RunItem, ViewUpdate
from shopfloor.record import Recorder, Storage
from shopfloor.server.response_models import build_worker_item
from shopfloor.views import search_index
from shopfloor.wiring import local_backend


def begin(storage: Storage, run_id: str) -> Recorder:
    recorder = Recorder(storage.log_path(run_id), run_id)
    recorder.append(RunStarted(name="w", kind="worker", attempt=1, host="h", task="t"))
    return recorder


def append_message(recorder: Recorder, text: str) -> None:
    recorder.append(AssistantMessage(blocks=[TextBlock(fidelity="router", text=text)]), path="s")


def end(recorder: Recorder) -> None:
    recorder.append(RunCompleted(name="w", kind="worker", status="completed"))
    recorder.close()


@pytest.fixture
def few_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_logs_than_open_files_are_ingested(storage: Storage, few_files: None):
    for _ in range(400):
        begin(storage, new_run_id()).close()

    async def main() -> None:
        store = await SqliteStore.open(storage.database)
        await create_ingest(storage, store).catch_up(everything=True)
        assert (await store.list_runs(RunFilter(), limit=1)).total == 400
        await store.close()

    anyio.run(main)


def test_events_are_ingested_live_and_the_run_is_released_at_its_outcome(storage: Storage):
    async def main() -> None:
        store = MemoryStore()
        ingest = create_ingest(storage, store)
        run_id = new_run_id()
        recorder = begin(storage, run_id)
        storage.announce(run_id)
        assert await ingest.catch_up() == 1
        append_message(recorder, "one")
        append_message(recorder, "two")
        assert await ingest.step() == 2
        assert await ingest.step() == 0
        item = await store.get_run(run_id)
        assert item is not None
        assert (item.row.status, item.row.last_seq, item.has_transcript) == ("running", 3, False)
        end(recorder)
        assert await ingest.catch_up() == 1
        item = await store.get_run(run_id)
        assert item is not None
        assert (item.row.status, item.row.last_seq, item.has_transcript) == ("completed", 4, True)
        assert await ingest.catch_up() == 0

    anyio.run(main)


def test_a_log_that_is_announced_too_early_is_ingested_when_it_is_announced_again(storage: Storage):
    async def main() -> None:
        store = MemoryStore()
        ingest = create_ingest(storage, store)
        run_id = new_run_id()
        storage.announce(run_id)
        assert await ingest.catch_up() == 0
        assert await store.get_run(run_id) is None
        recorder = begin(storage, run_id)
        assert await ingest.step() == 0, "nobody said that it is there now"
        storage.announce(run_id)
        assert await ingest.step() == 1
        end(recorder)
        assert await ingest.step() == 1

    anyio.run(main)


def test_a_second_ingest_continues_where_the_first_was_and_both_at_once_are_safe(storage: Storage):
    async def main() -> None:
        store = await SqliteStore.open(storage.database)
        run_id = new_run_id()
        recorder = begin(storage, run_id)
        storage.announce(run_id)
        first, second = create_ingest(storage, store), create_ingest(storage, store)
        await first.catch_up()
        await second.catch_up()
        for number in range(50):
            append_message(recorder, str(number))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(first.step)
                tasks.start_soon(second.step)
        end(recorder)
        await first.catch_up()
        await second.catch_up()
        item = await store.get_run(run_id)
        assert item is not None
        assert (item.row.messages, item.row.last_seq, item.event_count) == (50, 52, 2)
        await store.close()

    anyio.run(main)


def test_listeners_get_the_newest_state_of_changes_only(storage: Storage):
    async def main() -> None:
        ingest = create_ingest(storage, MemoryStore())
        run_id = new_run_id()
        recorder = begin(storage, run_id)
        storage.announce(run_id)
        async with ingest.subscribe() as changes:
            await ingest.catch_up()
            append_message(recorder, "one")
            await ingest.catch_up()
            (item,) = await anext(changes)
            assert isinstance(item, RunItem)
            assert item.row.last_seq == 2
            end(recorder)
            await ingest.catch_up()
            (item,) = await anext(changes)
            assert isinstance(item, RunItem)
            assert item.row.status == "completed"

    anyio.run(main)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("kept_events", [0, 1, 3])
def test_the_views_of_a_log_that_lost_its_end_are_rebuilt(storage: Storage, kind: str, kept_events: int):
    async def main() -> None:
        store = MemoryStore() if kind == "memory" else await SqliteStore.open(storage.database)
        run_id = new_run_id()
        recorder = begin(storage, run_id)
        storage.announce(run_id)
        recorder.append(StepStarted(name="s", kind="command", try_=1), path="s")
        for number in range(5):
            append_message(recorder, str(number))
        recorder.close()
        await create_ingest(storage, store).catch_up()
        await store.pin(run_id, pinned=True)

        path = storage.log_path(run_id)
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:kept_events]))
        ingest = create_ingest(storage, store)
        await ingest.catch_up()
        item = await store.get_run(run_id)
        assert (item.row.last_seq if item else 0) == kept_events

        with Recorder(path, run_id) as recorder:
            recorder.append(RunStarted(name="w", kind="worker", attempt=2, host="h"))
            append_message(recorder, "once more")
            end(recorder)
        await ingest.catch_up()
        item = await store.get_run(run_id)
        assert item is not None
        assert (item.row.status, item.row.last_seq, item.row.messages) == (
            "completed",
            kept_events + 3,
            max(0, kept_events - 2) + 1,
        )
        assert (item.pinned, item.event_count) == (True, len(await store.timeline(run_id, limit=99)))
        fresh = MemoryStore()
        await create_ingest(storage, fresh).catch_up(everything=True)
        assert [one.data for one in await store.timeline(run_id, limit=99)] == [
            one.data for one in await fresh.timeline(run_id, limit=99)
        ]
        await store.close()

    anyio.run(main)


def test_a_log_that_is_deleted_while_it_is_followed_does_not_disturb_others(storage: Storage):
    async def main() -> None:
        ingest = create_ingest(storage, store := MemoryStore())
        deleted, kept_events = new_run_id(), new_run_id()
        for run_id in (deleted, kept_events):
            storage.announce(run_id)
        begin(storage, deleted).close()
        recorder = begin(storage, kept_events)
        await ingest.catch_up()
        storage.log_path(deleted).unlink()
        end(recorder)
        assert await ingest.catch_up() == 1
        item = await store.get_run(kept_events)
        assert item is not None
        assert item.row.is_ended

    anyio.run(main)


def damaged(storage: Storage, find: bytes, put: bytes) -> str:
    """A log without an outcome and with one defect."""
    run_id = new_run_id()
    with begin(storage, run_id) as recorder:
        append_message(recorder, "one")
    path = storage.log_path(run_id)
    whole = path.read_bytes()
    assert find in whole
    path.write_bytes(whole.replace(find, put, 1))
    return run_id


@pytest.mark.parametrize(
    ("find", "put"),
    [
        (b'"attempt":1', b'"attempt":"1"'),
        (b'"attempt":1', b'"attempt":99999999999999999999999'),
        (b'{"seq":2', b'{"seq":99999999999999999999999'),
        (b'"type":"run.started"', b'"type":"run.begun"'),
    ],
)
def test_a_damaged_log_does_not_affect_other_logs(storage: Storage, find: bytes, put: bytes):
    broken = [damaged(storage, find, put), damaged(storage, find, put)]
    whole = new_run_id()
    end(begin(storage, whole))

    async def main() -> None:
        async with local_backend(storage) as backend:
            await backend.ingest.catch_up(everything=True)
            await resume_or_end_orphans(backend)  # which reads each of them, and failed on all
            assert await backend.store.known_runs() == {*broken, whole}

    anyio.run(main)


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_files_that_are_no_logs_do_not_hide_logs(storage: Storage, kind: str):
    whole, odd = new_run_id(), new_run_id()
    end(begin(storage, whole))
    path = storage.log_path(odd)
    {"link": lambda: path.symlink_to("/nowhere"), "folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}[kind]()
    storage.announce(odd)

    async def main() -> None:
        store = MemoryStore()
        ingest = create_ingest(storage, store)
        await ingest.catch_up(everything=True)
        assert await store.known_runs() == {whole}
        assert await ingest.step() == 0

    anyio.run(main)


def test_announcements_that_were_lost_hide_no_later_run(storage: Storage):
    async def main() -> None:
        store = MemoryStore()
        runs = [new_run_id() for _ in range(4)]
        for run_id in runs[:3]:
            end(begin(storage, run_id))
            storage.announce(run_id)
        await create_ingest(storage, store).catch_up()
        storage.announcements.write_bytes(runs[0].encode()[:20])  # and the rest of a full disk
        end(begin(storage, runs[3]))
        storage.announce(runs[3])
        await create_ingest(storage, store).catch_up()
        assert await store.known_runs() == set(runs)

    anyio.run(main)


def test_an_open_run_with_the_state_of_an_older_version_is_indexed_completely(storage: Storage):
    async def main() -> None:
        store = MemoryStore()
        run_id = new_run_id()
        recorder = begin(storage, run_id)
        append_message(recorder, "early")
        storage.announce(run_id)
        await create_ingest(storage, store).catch_up()
        known = (await store.view_states([run_id]))[run_id]
        await store.truncate_views(run_id, 0)
        await store.apply([ViewUpdate(row=known.row, state=b'{"open_calls":{},"told":null}', timeline=[])])
        assert (await store.list_runs(RunFilter(search="early"), limit=5)).total == 0
        append_message(recorder, "late")
        await create_ingest(storage, store).catch_up()
        for words in ("early", "late"):
            assert (await store.list_runs(RunFilter(search=words), limit=5)).total == 1
        end(recorder)

    anyio.run(main)


def test_a_run_with_too_much_text_knows_where_its_index_stops(storage: Storage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search_index, "SEARCH_RUN_CHARS", 10)

    async def main() -> None:
        store = MemoryStore()
        run_id = new_run_id()
        recorder = begin(storage, run_id)
        append_message(recorder, "early")
        append_message(recorder, "a long text")
        append_message(recorder, "late")
        end(recorder)
        await create_ingest(storage, store).catch_up(everything=True)
        (item,) = (await store.list_runs(RunFilter(search="early"), limit=5)).items
        assert item.search_stopped_at == 3
        assert (await store.list_runs(RunFilter(search="late"), limit=5)).total == 0
        shown = table(
            [msgspec.to_builtins(await build_worker_item(item, LocalLogReader(storage)))], Style(enabled=False), 120
        )
        assert shown[-1].strip() == "only the text up to event 3 is searched: the run has too much text"

    anyio.run(main)


def test_many_announcements_are_cleared_and_none_is_missed(storage: Storage):
    runs = [new_run_id() for _ in range(30)]

    async def follow() -> None:
        store = await SqliteStore.open(storage.database)
        ingest = create_ingest(storage, store, forget_at=400)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ingest.run)
            for run_id in runs:
                recorder = begin(storage, run_id)
                storage.announce(run_id)
                end(recorder)
                await anyio.sleep(0.01)
            with anyio.fail_after(TIMEOUT_SECONDS):
                while await store.known_runs() != set(runs) or storage.announcements.stat().st_size > 400:
                    await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()
        assert await store.feed_position() <= storage.announcements.stat().st_size
        await store.close()
        # A list without a server ingests later events; a new database ingests everything.
        late = new_run_id()
        storage.announce(late)
        end(begin(storage, late))
        for path in (storage.database, storage.root / "new.db"):
            store = await SqliteStore.open(path)
            await create_ingest(storage, store, forget_at=400).catch_up()
            assert await store.known_runs() == {*runs, late}
            await store.close()

    anyio.run(follow)


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_complete_after_ingest_was_cancelled_in_the_middle_of_long_logs(storage: Storage, seed: int) -> None:
    random = Random(seed)

    async def main() -> None:
        bus, store = LocalBus(storage), MemoryStore()
        ingest = Ingest(LocalLogFeed(storage), store, bus)
        run_ids = [new_run_id() for _ in range(4)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ingest.run)
            async with anyio.create_task_group() as writers:
                for run_id in run_ids:
                    writers.start_soon(_write_long, LocalLogs(storage, bus=bus), run_id, random)
            await anyio.sleep(random.random() * 0.06)
            tasks.cancel_scope.cancel()
        with anyio.fail_after(TIMEOUT_SECONDS):
            await ingest.catch_up()
        for run_id in run_ids:
            item = await store.get_run(run_id)
            assert item is not None
            assert (item.row.status, item.row.last_seq, item.has_transcript) == ("completed", 42, True)

    anyio.run(main)


async def _write_long(logs: LocalLogs, run_id: str, random: Random) -> None:
    async with logs.open(run_id) as log:
        await log.append(RunStarted(name="long", kind="agent", attempt=1, host="h", format=FORMAT))
        for _ in range(40):
            text = TextBlock(fidelity="router", text="x" * 900)
            await log.append(AssistantMessage(blocks=[text]), path="step")
            await anyio.sleep(random.random() * 0.002)
        await log.append(RunCompleted(name="long", kind="agent", status="completed"))


def test_a_log_whose_last_line_is_no_event_is_listed_and_ingested_once(storage: Storage) -> None:
    run_id = new_run_id()

    async def main() -> None:
        store = MemoryStore()
        async with LocalLogs(storage).open(run_id) as log:
            await log.append(RunStarted(name="cut", kind="agent", attempt=1, host="h", format=FORMAT))
        with storage.log_path(run_id).open("ab") as file:
            file.write(b'{"seq":2,"type":"nonsense"}\n')
        with anyio.fail_after(TIMEOUT_SECONDS):
            assert await create_ingest(storage, store).catch_up()
            assert await create_ingest(storage, store).catch_up() == 0
        item = await store.get_run(run_id)
        assert item is not None
        assert item.row.last_seq == 1

    anyio.run(main)


class SlowStore(MemoryStore):
    """A store whose transactions take longer than the intervals of a busy writer."""

    async def apply(self, changes: Sequence[ViewUpdate], *, feed_position: int | None = None) -> None:
        await anyio.sleep(0.03)
        await super().apply(changes, feed_position=feed_position)


def test_a_log_that_is_written_all_the_time_holds_back_no_other_row(storage: Storage) -> None:
    async def main() -> None:
        store, busy, quick, is_done = SlowStore(), new_run_id(), new_run_id(), False

        async def write() -> None:
            async with LocalLogs(storage).open(busy) as log:
                await log.append(RunStarted(name="busy", kind="agent", attempt=1, host="h", format=FORMAT))
                while not is_done:
                    text = TextBlock(fidelity="router", text="more")
                    await log.append(AssistantMessage(blocks=[text]), path="step")
                    await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(create_ingest(storage, store).run)
            tasks.start_soon(write)
            await _until_row(store, busy)
            await _write_long(LocalLogs(storage), quick, Random(1))
            await _until_row(store, quick)
            is_done = True
            tasks.cancel_scope.cancel()

    anyio.run(main)


async def _until_row(store: MemoryStore, run_id: str) -> None:
    with anyio.fail_after(TIMEOUT_SECONDS):
        while await store.get_run(run_id) is None:
            await anyio.sleep(0.02)


class UpdatesStore(MemoryStore):
    """A store that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.updates: list[ViewUpdate] = []

    async def apply(self, changes: Sequence[ViewUpdate], *, feed_position: int | None = None) -> None:
        self.updates += changes
        await super().apply(changes, feed_position=feed_position)


AGENT_SESSION = Session(provider="claude-code", session_id="a")
MODEL_SESSION = Session(provider="anthropic", session_id="start:0")
QUESTION = ToolCall(
    name="ask", call_id="q", input={"question": "?"}, output=None, fidelity="router", awaits=Awaits(kind="question")
)
COPIES: list[tuple[str, Payload]] = [
    ("work", StepStarted(name="Work", kind="agent", try_=1, session=AGENT_SESSION)),
    ("work", ToolCall(name="Bash", call_id="b", input={}, output=None, fidelity="agent_emitted")),
    ("work", ToolResult(name="Bash", call_id="b", input=None, output="", error="no", fidelity="agent_emitted")),
    ("work", StepCompleted(name="Work", kind="agent", try_=1, session=AGENT_SESSION)),
    ("ask", StepStarted(name="ask", kind="ask", try_=1)),
    ("ask", QUESTION),
    ("ask", ToolResult(name="ask", call_id="q", input=None, output="yes", fidelity="router")),
    ("ask", StepCompleted(name="ask", kind="ask", try_=1)),
    ("talk", StepStarted(name="Talk", kind="next-message", try_=1, session=MODEL_SESSION)),
    ("talk", AssistantMessage(model="m", provider="anthropic", blocks=[TextBlock(fidelity="router", text="hm")])),
]
"""What a fork copied: an agent, a question, and the beginning of a conversation with a model."""


@pytest.mark.req("SF-55")
@pytest.mark.parametrize("is_live", [False, True])
def test_what_a_fork_copied_did_not_happen_again(storage: Storage, is_live: bool) -> None:
    async def main() -> None:
        store, run_id = UpdatesStore(), new_run_id()
        ingest = create_ingest(storage, store)
        recorder = Recorder(storage.log_path(run_id), run_id)
        storage.announce(run_id)
        based_on = BasedOn(run_id=new_run_id(), kind="fork", seq=20, events=len(COPIES))
        started = RunStarted(name="w", kind="worker", attempt=1, host="h", task="t", based_on=based_on)
        note = AssistantMessage(note=Note(kind="warning", message="slow"), synthetic=True, blocks=[])
        new: list[tuple[str, Payload]] = [
            ("talk", ToolCall(name="look", call_id="l", input={}, output=None, fidelity="router")),
            ("talk", ToolResult(name="look", call_id="l", input=None, output="", fidelity="router")),
            ("talk", StepCompleted(name="Talk", kind="next-message", try_=1)),
            ("", RunCompleted(name="w", kind="worker", status="completed")),
        ]
        for path, payload in [("", started), *COPIES[:3], ("", note), *COPIES[3:], *new]:
            recorder.append(payload, path=path)
            if is_live:
                await ingest.step()
        recorder.close()
        await ingest.catch_up()
        updates = store.updates
        # Only what the fork did itself: the end of its conversation with a model.
        assert [(seen.provider, seen.answered) for update in updates for seen in update.observations] == [
            (MODEL_SESSION.provider, True)
        ]
        counted = [(change.metric, change.label) for update in updates for change in update.stats]
        assert counted == [("started", ""), ("tool", "look"), ("ended", "completed")]
        assert [found.kind for update in updates for found in update.notifications] == ["outcome"]
        assert [event.type for update in updates for event in update.fleet_events] == [
            "agent.spawned",
            "agent.tool_call",
            "agent.tool_result",
            "agent.completed",
        ]

    anyio.run(main)
