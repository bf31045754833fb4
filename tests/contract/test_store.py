"""The contract of the port `Store`, for every adapter."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
import pytest
from tests.contract.view_changes import (
    ViewBuilder,
    assistant_message,
    at,
    batched_changes,
    golden,
    run,
    single_change,
    steps,
    tool_call,
    tool_result,
    user_message,
)
from tests.sample_events import GOLDEN_FILES, PARENT_ID, RUN_ID

from shopfloor.errors import InvalidParameter
from shopfloor.limits import SEARCH_CHUNK_CHARS
from shopfloor.log import (
    AssistantMessage,
    Awaits,
    BasedOn,
    CallStarted,
    Cost,
    Event,
    RunError,
    RunStarted,
    Session,
    StepStarted,
    Usage,
    new_run_id,
)
from shopfloor.ports import Channel, LaterRun, RunFilter, RunItem, RunOrder, RunPage, StatsDays, Store, ViewUpdate
from shopfloor.views import (
    HIT_BEGIN,
    HIT_END,
    STARTED,
    Notes,
    RankedRun,
    SearchChunk,
    StatsRange,
    build_stats,
    queued_row,
)

pytestmark = pytest.mark.anyio

ALL = RunFilter()
GOLDEN_NAMES = [path.stem for path in GOLDEN_FILES]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def short(value: object) -> str:
    """Shorten a text to a test id."""
    return repr(value)[:30]


async def apply_runs(store: Store, *runs: Sequence[Event]) -> list[str]:
    """Apply the runs one after the other, each with one change, and return their ids."""
    await store.apply([single_change(events) for events in runs])
    return [events[0].run_id for events in runs]


async def item_of(store: Store, run_id: str) -> RunItem:
    item = await store.get_run(run_id)
    assert item is not None
    return item


async def listed_ids(store: Store, **wanted: Any) -> list[str]:
    """Return the ids of all matching runs, in list order. Checks that `total` is the same number."""
    page = await store.list_runs(RunFilter(**wanted), limit=1000)
    assert page.total == len(page.items)
    assert page.next is None
    return ids(page)


def ids(page: RunPage) -> list[str]:
    return [item.row.id for item in page.items]


async def views_of(store: Store, run_id: str) -> Any:
    """Return all that the store has of a run, without surrogate numbers."""
    item = await item_of(store, run_id)
    timeline = [
        (item.seq, item.event_type, item.data, item.created_at) for item in await store.timeline(run_id, limit=999)
    ]
    return msgspec.structs.replace(item, number=0), timeline, await store.archive(run_id)


# One run


async def test_start_waits_are_the_seconds_in_the_queue_of_the_newest_starts(store: Store) -> None:
    for second, queued_second in ((100, 99), (200, 150), (300, 290), (400, None)):
        queued_at = None if queued_second is None else at(queued_second)
        await store.apply([single_change(run(second=second, queued_at=queued_at))])
    await store.apply([ViewUpdate(row=queued_row(new_run_id(), queued_start(at(350))), state=b"", timeline=[])])
    assert sorted(await store.start_waits(at(0), limit=9)) == [1.0, 10.0, 50.0]
    assert await store.start_waits(at(100), limit=1) == [10.0]
    assert await store.start_waits(at(299), limit=9) == [10.0]
    assert await store.start_waits(at(301), limit=9) == []


def queued_start(queued_at: str) -> RunStarted:
    return RunStarted(name="build", kind="worker", attempt=0, host="", queued_at=queued_at)


async def test_a_missing_run_is_nowhere(store: Store) -> None:
    assert await store.get_run(RUN_ID) is None
    assert await store.view_states([RUN_ID]) == {}
    assert await store.timeline(RUN_ID, limit=10) == []
    assert await store.archive(RUN_ID) is None
    assert await store.pin(RUN_ID, pinned=True) is False
    await store.delete(RUN_ID)
    await store.drop_archive(RUN_ID)
    assert await store.list_runs(ALL, limit=10) == RunPage(items=[], total=0)
    assert (await store.known_runs(), await store.open_runs(), await store.deleted_run_ids()) == (set(), [], set())


@pytest.mark.req("WT-17")
@pytest.mark.parametrize("name", GOLDEN_NAMES)
async def test_the_views_of_a_run_are_those_of_its_log(store: Store, name: str) -> None:
    change = single_change(golden(name))
    await store.apply([change])
    item, timeline, archive = await views_of(store, change.row.id)
    assert item.row == change.row
    assert (item.event_count, item.has_transcript) == (len(change.timeline), change.archive is not None)
    assert (item.pinned, item.channel_name, item.snippet) == (False, change.row.channel_name, None)
    assert timeline == [(item.seq, item.event_type, item.data, item.created_at) for item in change.timeline]
    assert archive == change.archive


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("name", GOLDEN_NAMES)
async def test_a_run_applied_in_batches_equals_a_run_applied_at_once(store: Store, name: str, size: int) -> None:
    events = golden(name)
    for change in batched_changes(events, size):
        await store.apply([change])
    in_pieces = await views_of(store, events[0].run_id)
    await store.delete(events[0].run_id)
    await apply_runs(store, events)
    assert in_pieces == await views_of(store, events[0].run_id)


async def test_a_log_without_messages_has_no_transcript(store: Store) -> None:
    quiet, talking = await apply_runs(store, run("a", *steps(2)), run("b", assistant_message("hello")))
    assert (await item_of(store, quiet)).has_transcript is False
    assert await store.archive(quiet) is None
    assert (await item_of(store, talking)).has_transcript is True
    assert b"hello" in gzip.decompress(await store.archive(talking) or b"")


@pytest.mark.parametrize(
    "text", ["\0 zero", "a\u2028b\r\n", "😀 \x1b[31m", "' OR 1=1 --", '"%_\\', "é" * 100_000], ids=short
)
async def test_any_text_comes_back_as_it_went_in(store: Store, text: str) -> None:
    events = run(
        text, tool_call("c", {text: [text]}), assistant_message(text), result=text, channel_id=text, channel_name=text
    )
    (run_id,) = await apply_runs(store, events)
    item, timeline, _ = await views_of(store, run_id)
    assert item.row == single_change(events).row
    assert item.channel_name == text
    assert [data for _, _, data, _ in timeline] == [item.data for item in single_change(events).timeline]
    assert await listed_ids(store, channel_id=text) == [run_id]


async def test_a_run_has_the_notes_of_its_worker(store: Store) -> None:
    question = {"question": "Which one?"}
    noted = (("update_summary", {"summary": "deciding"}), ("log_question", question))
    calls = [msgspec.structs.replace(tool_call(name, fields), name=name) for name, fields in noted]
    await store.apply([single_change(run("note", *calls, status=None))])
    (item,) = (await store.list_runs(ALL, limit=1)).items
    assert item.row.notes == Notes(summary="deciding", questions=("Which one?",))
    assert (await item_of(store, item.row.id)).row.notes == item.row.notes


async def test_the_runs_based_on_a_run_are_found(store: Store) -> None:
    earlier, later, other = new_run_id(), new_run_id(), new_run_id()
    based_on = BasedOn(run_id=earlier, kind="fork", seq=3, events=2)
    await store.apply([single_change(run("first", run_id=earlier))])
    await store.apply([single_change(run("then", run_id=later, second=1, based_on=based_on))])
    await store.apply([single_change(run("else", run_id=other, second=2))])
    assert await store.later_runs(earlier) == [LaterRun(later, "fork")]
    assert await store.later_runs(later) == []
    assert (await item_of(store, later)).row.based_on == based_on
    assert (await item_of(store, earlier)).row.based_on is None


async def test_a_waiting_run_lists_its_pending_calls(store: Store) -> None:
    events = run("ask", tool_call("q1", {}, awaits=Awaits(kind="question")), tool_result("q1", "yes"), status=None)
    waiting_change, answered = batched_changes(events[:2], 2)[0], batched_changes(events, 3)[0]
    await store.apply([waiting_change])
    assert (await item_of(store, waiting_change.row.id)).row.awaits == ("q1",)
    assert await listed_ids(store, statuses=("waiting",)) == [waiting_change.row.id]
    await store.apply([answered])
    assert await listed_ids(store, statuses=("waiting",)) == []
    assert await listed_ids(store, statuses=("running",)) == [waiting_change.row.id]


async def test_a_waiting_run_has_the_kind_of_its_pending_answer(store: Store) -> None:
    events = run("ask", tool_call("q1", {}, awaits=Awaits(kind="question")), tool_result("q1", "yes"), status=None)
    await store.apply([single_change(events[:2])])
    (item,) = (await store.list_runs(ALL, limit=1)).items
    assert item.row.waits_for == ["question"]
    assert (await item_of(store, item.row.id)).row.waits_for == ["question"]
    await store.apply([single_change(events)])
    assert (await item_of(store, item.row.id)).row.waits_for is None


async def test_a_running_run_has_its_spending_so_far(store: Store) -> None:
    model_message = msgspec.structs.replace(
        assistant_message("hi"), usage=Usage(input=5, output=1), cost=Cost(usd=0.5, source="agent")
    )
    events = run("a", StepStarted(name="s", kind="agent", try_=1), model_message, model_message, status=None)
    await store.apply([single_change(events)])
    (listed,) = (await store.list_runs(ALL, limit=1)).items
    (folded,) = (await store.view_states([listed.row.id])).values()
    for row in (listed.row, (await item_of(store, listed.row.id)).row, folded.row):
        assert (row.spending.settled.usage, row.spending.own.usage, row.spending.own.cost_usd) == (
            Usage(),
            Usage(input=10, output=2),
            1.0,
        )


async def test_a_run_has_its_provider_and_its_number_of_sub_runs(store: Store) -> None:
    child = CallStarted(name="c", kind="call_workflow", try_=1)
    step = StepStarted(name="s", kind="agent", try_=1, session=Session(provider="codex"))
    model_message = msgspec.structs.replace(assistant_message("hi"), model="gpt-5.5")
    await apply_runs(store, run("a", step, model_message, child, child))
    (item,) = (await store.list_runs(ALL, limit=1)).items
    assert (item.row.provider, item.row.model, item.row.children) == ("codex", "gpt-5.5", 2)


# The timeline


async def test_a_timeline_is_paged_by_id_oldest_first(store: Store) -> None:
    events = run("many", *steps(10))
    (run_id,) = await apply_runs(store, events)
    everything = await store.timeline(run_id, limit=100)
    assert [item.data["status"] for item in everything] == ["starting", *(f"step {n}" for n in range(10)), "completed"]
    paged, after = [], 0
    while page := await store.timeline(run_id, limit=5, after=after):
        assert len(page) <= 5
        paged += page
        after = page[-1].id
    assert paged == everything
    assert await store.timeline(run_id, limit=0) == []


async def test_ids_of_timelines_grow_over_the_whole_store(store: Store) -> None:
    one, other = run("one", *steps(3)), run("other", *steps(3))
    for changes in zip(batched_changes(one), batched_changes(other), strict=True):
        await store.apply(changes)
    item = [*await store.timeline(one[0].run_id, limit=99), *await store.timeline(other[0].run_id, limit=99)]
    assert len({item.id for item in item}) == len(item) == 10
    in_order = sorted(item, key=lambda item: item.id)
    assert [item.seq for item in in_order] == [seq for seq in range(1, 6) for _ in "ab"]


async def test_an_id_of_a_timeline_is_never_used_again(store: Store) -> None:
    events = run("gone", *steps(3))
    (run_id,) = await apply_runs(store, events)
    last = (await store.timeline(run_id, limit=99))[-1].id
    await store.delete(run_id)
    (other,) = await apply_runs(store, run("new"))
    assert min(item.id for item in await store.timeline(other, limit=99)) > last


# Applying


async def test_a_change_that_is_applied_twice_is_applied_once(store: Store) -> None:
    for change in batched_changes(golden("claude-code"), 4):
        await store.apply([change])
        before = await views_of(store, change.row.id)
        await store.apply([change])
        await store.apply([change, change])
        assert await views_of(store, change.row.id) == before


async def test_a_change_older_than_the_row_changes_nothing(store: Store) -> None:
    events = golden("claude-code")
    await apply_runs(store, events)
    before = await views_of(store, events[0].run_id)
    for old in batched_changes(events, 3):
        await store.apply([old])
    stranger = msgspec.structs.replace(single_change(events[:2]).row, channel_id="elsewhere", status="waiting")
    chunks = [SearchChunk(1, "stranger")]
    await store.apply([ViewUpdate(row=stranger, state=b"", timeline=[], archive=b"x", search=chunks)])
    assert await views_of(store, events[0].run_id) == before
    assert await listed_ids(store, search="stranger") == []
    assert "elsewhere" not in {channel.id for channel in await store.channels()}


async def test_a_change_that_overlaps_the_row_adds_only_new_items(store: Store) -> None:
    events = golden("parent")
    await store.apply([single_change(events[:5])])
    await store.apply([single_change(events[:9])])
    await store.apply([single_change(events)])
    before = await views_of(store, events[0].run_id)
    await store.delete(events[0].run_id)
    await apply_runs(store, events)
    assert await views_of(store, events[0].run_id) == before


async def test_several_changes_of_one_run_may_come_together(store: Store) -> None:
    events, other = golden("claude-code"), golden("command")
    one, two = batched_changes(events), batched_changes(other)
    await store.apply([change for pair in zip(one, two, strict=False) for change in pair] + one[len(two) :])
    assert (await item_of(store, events[0].run_id)).row == one[-1].row
    assert (await item_of(store, events[0].run_id)).event_count == sum(len(change.timeline) for change in one)
    assert (await item_of(store, other[0].run_id)).row == two[-1].row


async def test_no_change_at_all_is_fine(store: Store) -> None:
    await store.apply([])
    assert await store.known_runs() == set()


async def test_a_run_keeps_its_number(store: Store) -> None:
    first, second = run("first", *steps(2)), run("second", *steps(2))
    await store.apply([batched_changes(first)[0], batched_changes(second)[0]])
    before = [(await item_of(store, events[0].run_id)).number for events in (first, second)]
    await store.apply(batched_changes(first)[1:])
    await store.apply(batched_changes(second)[1:])
    assert [(await item_of(store, events[0].run_id)).number for events in (first, second)] == before
    assert before[0] < before[1]


async def test_totals_follow_a_run_through_its_states(store: Store) -> None:
    events = run("a", *steps(1), agent_id="ada")
    for change, (running, done) in zip(batched_changes(events), [(1, 0), (1, 0), (0, 1)], strict=True):
        await store.apply([change])
        totals = [
            (await store.list_runs(RunFilter(agent_id="ada", statuses=(status,)), limit=1)).total
            for status in ("running", "completed")
        ]
        assert totals == [running, done]
    assert (await store.list_runs(ALL, limit=1)).total == 1
    await store.delete(events[0].run_id)
    assert (await store.list_runs(RunFilter(statuses=("completed",)), limit=1)).total == 0


# Progress of the views


async def test_a_view_state_can_be_continued_after_storing(store: Store) -> None:
    events = golden("claude-code")
    for event in events:
        known = (await store.view_states([event.run_id])).get(event.run_id)
        fold = ViewBuilder(known.row, known.state) if known else ViewBuilder()
        await store.apply([fold.take([event])])
    item, timeline, _ = await views_of(store, events[0].run_id)
    assert item.row == single_change(events).row
    assert timeline == [
        (item.seq, item.event_type, item.data, item.created_at) for item in single_change(events).timeline
    ]


async def test_an_ended_run_still_has_its_last_seq(store: Store) -> None:
    events = run("a")
    await apply_runs(store, events)
    known = (await store.view_states([events[0].run_id])).get(events[0].run_id)
    assert known is not None
    assert known.row == single_change(events).row


async def test_open_runs_are_runs_without_an_outcome(store: Store) -> None:
    waiting = run("w", tool_call("q", {}, awaits=Awaits(kind="question")), status=None)
    ended, failed, running = run("e"), run("f", status="failed"), run("r", status=None)
    await apply_runs(store, ended, failed, running, waiting)
    assert set(await store.open_runs()) == {running[0].run_id, waiting[0].run_id}
    assert await store.known_runs() == {events[0].run_id for events in (ended, failed, running, waiting)}
    root = running[0].run_id
    assert (await store.count_open_in_tree(root), await store.count_open_in_tree(ended[0].run_id)) == (1, 0)


# Lists


async def test_the_newest_is_first_by_its_start_and_then_by_its_number(store: Store) -> None:
    late, early, same, middle = await apply_runs(store, run(second=9), run(second=1), run(second=9), run(second=5))
    assert await listed_ids(store) == [same, late, middle, early]


async def test_a_list_shows_all_of_a_run_but_its_result_which_may_be_long(store: Store) -> None:
    (run_id,) = await apply_runs(store, golden("command"))
    whole_item = await item_of(store, run_id)
    assert whole_item.row.result == "hello\noops\n"
    row = msgspec.structs.replace(whole_item.row, result=None)
    assert (await store.list_runs(ALL, limit=1)).items == [msgspec.structs.replace(whole_item, row=row)]


async def test_an_empty_page_still_has_the_total(store: Store) -> None:
    await apply_runs(store, run("a"), run("b"))
    assert await store.list_runs(ALL, limit=0) == RunPage(items=[], total=2)


async def by_cursor(store: Store, limit: int, **wanted: Any) -> list[RunPage]:
    pages = [await store.list_runs(RunFilter(**wanted), limit=limit)]
    while pages[-1].next is not None:
        assert len(pages[-1].items) == limit
        pages.append(await store.list_runs(RunFilter(**wanted), limit=limit, cursor=pages[-1].next))
    return pages


async def two_hundred(store: Store) -> list[str]:
    """Create 200 runs of two owners, three at a time with the same start, and return their ids in list order."""
    runs = [run("the task", second=n // 3, agent_id="ada" if n % 2 else "bob") for n in range(200)]
    return (await apply_runs(store, *runs))[::-1]


@pytest.mark.parametrize("limit", [1, 7, 50, 199, 200, 201])
async def test_paging_by_cursor_gives_each_run_once(store: Store, limit: int) -> None:
    runs = await two_hundred(store)
    pages = await by_cursor(store, limit)
    assert [run_id for page in pages for run_id in ids(page)] == runs
    assert {page.total for page in pages} == {200}
    assert len(pages) == -(-200 // limit)


@pytest.mark.parametrize("limit", [7, 50, 200])
async def test_paging_by_offset_gives_each_run_once(store: Store, limit: int) -> None:
    runs = await two_hundred(store)
    pages = [await store.list_runs(ALL, limit=limit, offset=offset) for offset in range(0, 200, limit)]
    assert [run_id for page in pages for run_id in ids(page)] == runs
    assert [page.next is None for page in pages] == [False] * (len(pages) - 1) + [True]
    beyond = await store.list_runs(ALL, limit=limit, offset=200)
    assert (beyond.items, beyond.total, beyond.next) == ([], 200, None)


async def test_a_page_by_offset_can_be_continued_by_cursor(store: Store) -> None:
    runs = await two_hundred(store)
    page = await store.list_runs(ALL, limit=10, offset=20)
    rest = await store.list_runs(ALL, limit=10, offset=99, cursor=page.next)
    assert ids(page) + ids(rest) == runs[20:40]


@pytest.mark.parametrize("wanted", [{}, {"search": "task"}], ids=["list", "search"])
async def test_new_runs_during_paging_neither_hide_nor_repeat_old_ones(store: Store, wanted: dict[str, Any]) -> None:
    runs = await two_hundred(store)
    seen: list[str] = []
    page = await store.list_runs(RunFilter(**wanted), limit=9)
    new = 0
    while True:
        seen += ids(page)
        await apply_runs(store, run("the task", second=1000 + new), run("the task", second=67))
        new += 2
        if page.next is None:
            break
        page = await store.list_runs(RunFilter(**wanted), limit=9, cursor=page.next)
    assert [run_id for run_id in seen if run_id in set(runs)] == runs
    assert len(seen) == len(set(seen))
    assert (await store.list_runs(RunFilter(**wanted), limit=1)).total == 200 + new


async def test_a_cursor_outlives_the_run_that_it_names(store: Store) -> None:
    runs = await two_hundred(store)
    page = await store.list_runs(ALL, limit=10)
    await store.delete(runs[9])
    assert ids(await store.list_runs(ALL, limit=10, cursor=page.next)) == runs[10:20]


async def test_a_filter_holds_on_every_page(store: Store) -> None:
    runs = await two_hundred(store)
    pages = await by_cursor(store, 30, agent_id="ada")
    assert [run_id for page in pages for run_id in ids(page)] == runs[::2]
    assert {page.total for page in pages} == {100}


def cursor_of(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        *("", "nonsense", "…", "\0", "====", "MQ", "W" * 10_000),
        *map(cursor_of, (b"{}", b"[]", b'["x"]', b"null", b'[1, "a", 2]', b"[[1], [2]]", b"\xff\xfe")),
    ],
    ids=short,
)
@pytest.mark.parametrize("search", [None, "task"])
async def test_an_unreadable_cursor_is_refused(store: Store, cursor: str, search: str | None) -> None:
    await apply_runs(store, run("the task"))
    with pytest.raises(InvalidParameter):
        await store.list_runs(RunFilter(search=search), limit=5, cursor=cursor)


# Filters

FILTERED: dict[str, dict[str, Any]] = {
    "a": {"agent_id": "ada", "worker_type": "plugin", "channel_id": "cli", "second": 1},
    "b": {"agent_id": "ada", "worker_type": "command", "channel_id": "api", "second": 2, "status": "failed"},
    "c": {
        "agent_id": "bob",
        "worker_type": "command",
        "channel_id": "cli",
        "second": 3,
        "status": None,
        "name": "check",
    },
    "d": {
        "agent_id": "bob",
        "name": "check",
        "channel_id": "api",
        "second": 4,
        "status": "cancelled",
        "parent": PARENT_ID,
    },
    "e": {"second": 5, "parent": RUN_ID, "status": "failed"},
}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, "edcba"),
        ({"agent_id": "ada"}, "ba"),
        ({"agent_id": "build"}, "e"),
        ({"agent_id": "nobody"}, ""),
        ({"agent_id": ""}, ""),
        ({"statuses": ("failed",)}, "eb"),
        ({"statuses": ("failed", "running")}, "ecb"),
        ({"statuses": ("completed", "failed", "cancelled", "running", "waiting", "queued")}, "edcba"),
        ({"statuses": ("failed", "failed")}, "eb"),
        ({"statuses": ("odd",)}, ""),
        ({"statuses": ()}, ""),
        ({"worker_type": "command"}, "cb"),
        ({"worker_type": "builtin"}, "ed"),
        ({"channel_id": "api"}, "db"),
        ({"channel_id": ""}, ""),
        ({"parent_run_id": PARENT_ID}, "d"),
        ({"parent_run_id": new_run_id()}, ""),
        ({"roots": True}, "cba"),
        ({"roots": False}, "ed"),
        ({"roots": True, "agent_id": "bob"}, "c"),
        ({"roots": True, "statuses": ("failed",)}, "b"),
        ({"roots": True, "started_after": at(1)}, "cb"),
        ({"roots": True, "parent_run_id": PARENT_ID}, ""),
        ({"roots": True, "search": "shared"}, "cba"),
        ({"name": "check"}, "dc"),
        ({"name": "chec"}, ""),
        ({"name": ""}, ""),
        ({"name": "check", "roots": True, "channel_id": "cli"}, "c"),
        ({"started_after": at(2)}, "edc"),
        ({"started_before": at(2)}, "a"),
        ({"started_after": at(1), "started_before": at(5)}, "dcb"),
        ({"started_after": at(3), "started_before": at(3)}, ""),
        ({"agent_id": "ada", "statuses": ("failed",)}, "b"),
        ({"agent_id": "ada", "worker_type": "command", "channel_id": "api", "statuses": ("failed",)}, "b"),
        ({"channel_id": "api", "parent_run_id": PARENT_ID, "started_after": at(3)}, "d"),
        ({"agent_id": "bob", "worker_type": "plugin"}, ""),
        ({"search": "shared"}, "edcba"),
        ({"search": "shared", "agent_id": "bob", "started_before": at(4)}, "c"),
        ({"search": "b shared", "statuses": ("failed",)}, "b"),
        ({"search": "a", "statuses": ("failed",)}, "eb"),
    ],
)
async def test_a_list_has_the_runs_that_match_every_filter(store: Store, wanted: dict[str, Any], found: str) -> None:
    run_ids = await apply_runs(store, *(run(f"{name} shared", **fields) for name, fields in FILTERED.items()))
    named = dict(zip(run_ids, FILTERED, strict=True))
    assert "".join(named[run_id] for run_id in await listed_ids(store, **wanted)) == found


# Search


async def test_words_are_found_in_task_result_messages_and_tools(store: Store) -> None:
    events = run(
        "sharpen the saw",
        user_message("with patience"),
        assistant_message("I will begin"),
        tool_call("c", {"command": "grindstone --fast", "depth": [{"angle": "shallow"}]}),
        tool_result("c", {"lines": ["sparks everywhere"]}),
        result="gleaming edge",
    )
    run_id, _ = await apply_runs(store, events, run("something else"))
    for words in ["sharpen", "patience", "begin", "grindstone", "shallow", "sparks", "gleaming"]:
        assert await listed_ids(store, search=words) == [run_id], words
    assert await listed_ids(store, search="saw sparks gleaming patience") == [run_id]
    assert await listed_ids(store, search="saw nowhere") == []
    assert await listed_ids(store, search="something saw") == []


async def test_the_hint_of_an_error_is_stored_with_it(store: Store) -> None:
    error = RunError(code="storage_full", message="no room", hint="free some space")
    hinted, without_hint = await apply_runs(
        store, run("a", status="failed", error=error), run("b", status="failed", error=RunError(code="x", message="y"))
    )
    hints = {item.row.id: item.row.error_hint for item in (await store.list_runs(RunFilter(), limit=9)).items}
    assert hints == {hinted: "free some space", without_hint: None}
    found = await store.get_run(hinted)
    assert found is not None
    assert (found.row.error_code, found.row.error_hint) == ("storage_full", "free some space")


async def test_words_are_found_in_error_messages(store: Store) -> None:
    error = RunError(code="command_failed", message="disk melted")
    failed = run("a", status="failed", error=error)
    (run_id, _) = await apply_runs(store, failed, run("b"))
    assert await listed_ids(store, search="melted") == [run_id]


@pytest.mark.req("WT-39")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("quick", True),
        ("QUICK Brown", True),
        ("brown quick", True),
        ("  quick\n\tbrown ", True),
        ("quic", True),
        ("brown quic", True),
        ("quic brown", True),
        ("uick", True),
        ("uick, bro", True),
        ('"uick, bro"', True),
        ('"quick brown"', True),
        ('"brown quick"', False),
        ('"quick fox"', False),
        ("quickbrown", False),
        ("quicker", False),
        ("ÄPFEL", True),
        ("äpf", True),
        ("прив", True),
        ("北", True),
        ("京", True),
        ("京北", False),
        ("äpfel", True),
        ("привет", True),
        ("北京", True),
        ("٣", True),
        ("42", True),
        ("4", True),
        ("q", True),
        ("z", False),
        ("zq", False),
        ('"k, b"', True),
        (";", True),
        ("+", False),
        ("apfel", True),
        ("snake", True),
        ("snake_case", True),
        ("snake_ca", True),
        ("sna_case", True),
        ('"sna_case"', False),
        ("case-snake", True),
        ("fox-quick", True),
        ("fox.jumps/quick", True),
    ],
)
async def test_any_part_of_a_task_is_found_whatever_its_case_its_order_and_its_punctuation(
    store: Store, query: str, found: bool
) -> None:
    task = "The quick, brown fox; jumps! Äpfel Привет 北京 ٣ 42 snake_case"
    (run_id,) = await apply_runs(store, run(task))
    assert await listed_ids(store, search=query) == ([run_id] if found else [])


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ('"', ""),
        ('""', ""),
        ("", ""),
        (" ", ""),
        ("***", ""),
        ("- : ( ) ^ + { } , . ; ' ` ~ % & | \\ / ? # @ !", ""),
        ("\0", ""),
        ("🚀", ""),
        ("alpha", "ab"),
        ('"alpha', "ab"),
        ('alpha"', "ab"),
        ('"beta alpha"', ""),
        ('"alpha beta"', "a"),
        ('"alpha bet', "a"),
        ('"alpha beta" near', ""),
        ('"beta near" alpha', "b"),
        ('"a" "b"', "ab"),
        ("alpha*", "ab"),
        ("alph*", "ab"),
        ("alph* beta", "ab"),
        ("*alpha", "ab"),
        ("^beta", "ab"),
        ("-alpha", "ab"),
        ("alpha - beta", "ab"),
        ("alpha + beta", "ab"),
        ("(alpha", "ab"),
        ("{alpha beta} : alpha", "ab"),
        ("alpha\0beta", "ab"),
        ("alpha'; DROP TABLE worker_runs; --", ""),
        ("alpha AND beta", "b"),
        ("AND", "b"),
        ("alpha OR gamma", ""),
        ("OR", ""),
        ("alpha NOT beta", ""),
        ("NOT alpha", ""),
        ("NEAR(alpha beta)", "b"),
        ("NEAR(alpha beta, 1)", ""),
        ("NEAR(", "b"),
        ("body:alpha", ""),
        ("body : alpha", ""),
        ("task:alpha", ""),
        ("alpha " * 500, "ab"),
    ],
    ids=short,
)
async def test_operators_of_search_engines_are_plain_words_and_punctuation(
    store: Store, query: str, found: str
) -> None:
    a, b = await apply_runs(store, run("alpha beta"), run("alpha and beta near"))
    names = {a: "a", b: "b"}
    assert {names[run_id] for run_id in await listed_ids(store, search=query)} == set(found)


async def test_a_snippet_shows_the_words_in_context(store: Store) -> None:
    long = " ".join(["hay"] * 2000)
    await apply_runs(store, run("find it", assistant_message(f"{long} the Needle in {long}")))
    (item,) = (await store.list_runs(RunFilter(search="needle"), limit=5)).items
    assert item.snippet is not None
    assert f"{HIT_BEGIN}Needle{HIT_END}" in item.snippet
    assert "hay" in item.snippet
    assert len(item.snippet) < 1000


@pytest.mark.parametrize(
    ("query", "hit"),
    [("task", "task"), ("WORD", "word"), ("outcome", "Outcome"), ("größe", "Größe"), ("outc", "Outcome")],
)
async def test_a_snippet_is_of_any_text_of_the_run(store: Store, query: str, hit: str) -> None:
    await apply_runs(store, run("the task", assistant_message("a word of Größe"), result="Outcome good"))
    (item,) = (await store.list_runs(RunFilter(search=query), limit=5)).items
    assert f"{HIT_BEGIN}{hit}{HIT_END}" in (item.snippet or "")


async def test_a_snippet_keeps_the_brackets_of_the_text_and_has_no_marks_but_its_own(store: Store) -> None:
    await apply_runs(store, run(f'["hit", [1]] {HIT_BEGIN} {HIT_END} [x](y)'))
    (item,) = (await store.list_runs(RunFilter(search="hit"), limit=5)).items
    marked = f'["{HIT_BEGIN}hit{HIT_END}", [1]]   [x](y)'
    assert (item.snippet or "").startswith(marked)


async def test_a_run_is_found_by_a_prefix_of_its_id(store: Store) -> None:
    a, b, c = await apply_runs(store, run("x"), run("y"), run("z", assistant_message(f"look at {RUN_ID}")))
    for begin in (a[:8], a[:13], a, f" {a[:8].upper()} "):
        assert await listed_ids(store, search=begin) == [a], begin
    (item,) = (await store.list_runs(RunFilter(search=a[:8]), limit=5)).items
    assert item.snippet is None
    assert await listed_ids(store, search=a[:3]) == []
    assert await listed_ids(store, search=a[4:]) == []
    assert await listed_ids(store, search=b[:8], agent_id="nobody") == []
    assert await listed_ids(store, search=RUN_ID[:8]) == [c]
    assert await listed_ids(store, search="----") == []


async def test_runs_found_by_words_and_by_id_are_one_list(store: Store) -> None:
    named = run("a")
    begin = named[0].run_id[:8]
    run_ids = await apply_runs(store, run(f"see {begin}"), named, run("b"), run(f"again {begin}-and-so-on"))
    wanted = [run_ids[3], run_ids[1], run_ids[0]]
    assert await listed_ids(store, search=begin) == wanted
    pages = await by_cursor(store, 1, search=begin)
    assert [run_id for page in pages for run_id in ids(page)] == wanted
    assert {page.total for page in pages} == {3}
    snippets = [item.snippet for page in pages for item in page.items]
    assert [snippet and f"{HIT_BEGIN}{begin}{HIT_END}" in snippet for snippet in snippets] == [True, None, True]


async def test_only_a_search_has_snippets(store: Store) -> None:
    (run_id,) = await apply_runs(store, run("the task"))
    assert [item.snippet for item in (await store.list_runs(ALL, limit=5)).items] == [None]
    assert (await item_of(store, run_id)).snippet is None


async def test_a_search_goes_by_the_number_of_a_run(store: Store) -> None:
    late, early, middle = await apply_runs(store, run("x", second=9), run("x", second=1), run("x", second=5))
    assert await listed_ids(store, search="x") == [middle, early, late]


async def test_a_search_is_paged_by_cursor_and_by_offset(store: Store) -> None:
    runs = await two_hundred(store)
    pages = await by_cursor(store, 30, search="task", agent_id="bob")
    assert [run_id for page in pages for run_id in ids(page)] == runs[1::2]
    assert {page.total for page in pages} == {100}
    page = await store.list_runs(RunFilter(search="task"), limit=30, offset=180)
    assert (ids(page), page.total, page.next) == (runs[180:], 200, None)


async def test_a_run_that_has_not_ended_is_found_by_its_task(store: Store) -> None:
    events = run("sharpen the saw", assistant_message("hello"), result="gleaming")
    for change in batched_changes(events):
        await store.apply([change])
        assert await listed_ids(store, search="saw") == [change.row.id]
    assert await listed_ids(store, search="saw hello gleaming") == [events[0].run_id]


@pytest.mark.req("WT-56")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("quick", True),
        ("QUICK Brown", True),
        ("brown quick", True),
        ("quic", True),
        ("brown quic", True),
        ("quic brown", False),
        ("uick", False),
        ("q", False),
        ("4", False),
        ("42", True),
        ('"quick brown"', True),
        ('"QUICK, brown"', True),
        ('"quick\nbrown fo', True),
        ('"quick brown fo"', False),
        ('"brown quick"', False),
        ('"quick fox"', False),
        ('"brown fox" quick', True),
        ("snake_case", True),
        ('"snake_case"', True),
        ('"case snake"', False),
        ("apfel", True),
        ("ÄPFEL", True),
        ("北", True),
        ("京", True),
        ("北京市", True),
        ('"京市"', True),
        ("市京", False),
        (";", False),
    ],
)
async def test_words_and_phrases_are_found_outside_the_task(store: Store, query: str, found: bool) -> None:
    text = "The quick, brown fox; jumps! Äpfel 北京市 42 snake_case"
    runs = {
        "message": run("-", assistant_message(text)),
        "result": run("-", result=text),
        "tool": run("-", tool_call("c", {"deep": [{"er": text}]})),
        "output": run("-", tool_call("c", 1), tool_result("c", text)),
        "error": run("-", status="failed", error=RunError(code="x", message=text)),
        "open": run("-", assistant_message(text), status=None),
    }
    run_ids = await apply_runs(store, *runs.values())
    assert await listed_ids(store, search=query) == (run_ids[::-1] if found else [])


async def test_the_terms_of_a_query_may_be_far_apart_in_a_run(store: Store) -> None:
    filler = " ".join(["hay"] * SEARCH_CHUNK_CHARS)
    texts = ["needle one", filler, "needle two", filler, "thread"]
    run_id, other = await apply_runs(
        store, run("sew", *map(assistant_message, texts)), run("knit", *map(assistant_message, texts[:-1]))
    )
    assert await listed_ids(store, search="needle") == [other, run_id]
    for query in ("thread needle", 'sew "needle one" "needle two" thread', "sew hay thread"):
        assert await listed_ids(store, search=query) == [run_id], query
    assert await listed_ids(store, search="knit thread") == []


@pytest.mark.req("WT-57")
async def test_a_long_run_is_found_by_its_last_message_and_while_it_is_running(store: Store) -> None:
    filler = " ".join(["hay"] * SEARCH_CHUNK_CHARS)
    events = run(
        "sew",
        *(assistant_message(f"needle{number} {filler}") for number in range(5)),
        assistant_message("the very last"),
        status=None,
    )
    for number, change in enumerate(batched_changes(events)):
        await store.apply([change])
        words = [f"needle{one}" for one in range(5) if await listed_ids(store, search=f"needle{one}")]
        assert words == [f"needle{one}" for one in range(min(number, 5))]
    assert await listed_ids(store, search='"very last" needle0 needle4 hay') == [events[0].run_id]
    (item,) = (await store.list_runs(RunFilter(search="last"), limit=5)).items
    assert f"very {HIT_BEGIN}last{HIT_END}" in (item.snippet or "")


@pytest.mark.req("WT-57")
async def test_the_point_where_indexing_stopped_is_stored_with_the_run(store: Store) -> None:
    (whole_run, _) = await apply_runs(store, run("a", assistant_message("x")), run("b"))
    long = ViewUpdate(
        row=single_change(events := run("c", assistant_message("y"), assistant_message("z"))).row,
        state=b"",
        timeline=[],
        search=[SearchChunk(1, "y")],
        search_stopped_at=3,
    )
    await store.apply([long])
    stopped = {item.row.id: item.search_stopped_at for item in (await store.list_runs(ALL, limit=9)).items}
    assert stopped == {
        whole_run: None,
        events[0].run_id: 3,
        **{one: None for one in stopped if one not in (whole_run, events[0].run_id)},
    }
    assert (await item_of(store, events[0].run_id)).search_stopped_at == 3
    (found,) = (await store.list_runs(RunFilter(search="y"), limit=9)).items
    assert found.search_stopped_at == 3


@pytest.mark.req("WT-62")
async def test_terminal_colors_are_not_indexed(store: Store) -> None:
    coloured = "\x1b[1;31mred\x1b[0ms \x1b]8;;https://example.org\x07link\x1b]8;;\x07s \x1b(Bplain"
    runs = [run(f"t{coloured}"), run("-", assistant_message(coloured)), run("-", result=coloured)]
    run_ids = await apply_runs(store, *runs)
    for query in ("reds", "links", "plain", '"reds links plain"'):
        assert await listed_ids(store, search=query) == ([*run_ids[:0:-1], run_ids[0]]), query
    for query in ("31mred", "8", "example", "bplain", "0ms"):
        assert await listed_ids(store, search=query) == [], query
    snippets = [item.snippet or "" for item in (await store.list_runs(RunFilter(search="links"), limit=9)).items]
    assert all(f"{HIT_BEGIN}links{HIT_END} plain" in one and "\x1b" not in one for one in snippets)


async def test_a_changed_task_is_found_by_its_new_text(store: Store) -> None:
    events = run("second thoughts", status=None)
    queued = msgspec.structs.replace(single_change(events[:1]).row, task="first thoughts", last_seq=0, status="queued")
    await store.apply([ViewUpdate(row=queued, state=b"", timeline=[])])
    assert await listed_ids(store, search="irst thou") == [queued.id]
    await apply_runs(store, events)
    assert (await listed_ids(store, search="irst"), await listed_ids(store, search="econ")) == ([], [queued.id])
    await store.delete(queued.id)
    assert await listed_ids(store, search="thoughts") == []


# Pins and retention


async def test_a_pin_can_be_set_and_taken_away_again_and_again(store: Store) -> None:
    (run_id,) = await apply_runs(store, run("a"))
    for pinned in (True, True, False, False, True):
        assert await store.pin(run_id, pinned=pinned) is True
        assert (await item_of(store, run_id)).pinned is pinned
        assert (await store.list_runs(ALL, limit=1)).items[0].pinned is pinned


async def test_expired_runs_ended_long_ago_and_are_not_pinned(store: Store) -> None:
    third, first, second, pinned, open_, recent = await apply_runs(
        store,
        run("3", second=3),
        run("1", second=1),
        run("2", second=2, status="failed"),
        run("p", second=1),
        run("o", second=1, status=None),
        run("r", second=90),
    )
    await store.pin(pinned, pinned=True)
    assert [run_id for run_id, _ in await store.expired(at(50), limit=10)] == [first, second, third]
    found = await store.expired(at(50), limit=2)
    assert [run_id for run_id, _ in found] == [first, second]
    # `since` is inclusive: other runs may have ended at the same moment.
    rest = await store.expired(at(50), since=found[-1][1], limit=10)
    assert [run_id for run_id, _ in rest] == [second, third]
    assert await store.expired(at(0), limit=10) == []
    assert [run_id for run_id, _ in await store.expired(at(500), limit=10)] == [first, second, third, recent]
    assert open_ in await store.known_runs()
    await store.pin(pinned, pinned=False)
    assert {run_id for run_id, _ in await store.expired(at(50), limit=2)} == {first, pinned}


async def test_a_run_that_ended_at_the_limit_has_not_expired(store: Store) -> None:
    (run_id,) = await apply_runs(store, run("a"))
    ended = (await item_of(store, run_id)).row.completed_at
    assert ended is not None
    assert await store.expired(ended, limit=10) == []


async def test_an_archive_can_be_dropped_by_itself(store: Store) -> None:
    run_id, other = await apply_runs(store, run("a", assistant_message("hello")), run("b", assistant_message("hello")))
    before = await item_of(store, run_id)
    await store.drop_archive(run_id)
    await store.drop_archive(run_id)
    assert await store.archive(run_id) is None
    assert await item_of(store, run_id) == msgspec.structs.replace(before, has_transcript=False)
    assert len(await store.timeline(run_id, limit=99)) == before.event_count
    assert await listed_ids(store, search="hello") == [other, run_id]
    assert (await item_of(store, other)).has_transcript is True


# Channels


async def test_a_channel_has_its_latest_name(store: Store) -> None:
    old, new, unnamed = await apply_runs(
        store,
        run("a", channel_id="discord:1", channel_name="#old"),
        run("b", channel_id="discord:1", channel_name="#new"),
        run("c", channel_id="discord:1"),
    )
    assert [(await item_of(store, run_id)).channel_name for run_id in (old, new, unnamed)] == ["#new"] * 3
    assert {item.channel_name for item in (await store.list_runs(ALL, limit=9)).items} == {"#new"}
    assert await store.channels() == [Channel(id="discord:1", name="#new")]


async def test_a_channel_may_have_no_name_and_a_run_no_channel(store: Store) -> None:
    unnamed, nowhere = await apply_runs(store, run("a", channel_id="x"), run("b"))
    assert [(await item_of(store, run_id)).channel_name for run_id in (unnamed, nowhere)] == [None, None]
    assert await store.channels() == [Channel(id="x", name=None)]


async def test_channels_are_identified_by_their_ids(store: Store) -> None:
    await apply_runs(
        store, run("a", channel_id="1", channel_name="#general"), run("b", channel_id="2", channel_name="#general")
    )
    channels = await store.channels()
    assert sorted(channel.id for channel in channels) == ["1", "2"]
    assert {channel.name for channel in channels} == {"#general"}


# Deleting and rebuilding


async def test_a_tombstone_alone_deletes_nothing(store: Store) -> None:
    run_id, other = await apply_runs(store, run("a", assistant_message("hello")), run("b"))
    before = await views_of(store, run_id)
    await store.add_tombstone(run_id)
    await store.add_tombstone(run_id)
    assert await store.deleted_run_ids() == {run_id}
    assert await views_of(store, run_id) == before
    assert await listed_ids(store) == [other, run_id]


@pytest.mark.req("WT-24")
async def test_a_deleted_run_is_nowhere(store: Store) -> None:
    run_id, other = await apply_runs(
        store, run("alpha", assistant_message("hello")), run("alpha", assistant_message("hello"))
    )
    await store.delete(run_id)
    await store.delete(run_id)
    assert await store.get_run(run_id) is None
    assert await store.view_states([run_id]) == {}
    assert await store.timeline(run_id, limit=9) == []
    assert await store.archive(run_id) is None
    assert await listed_ids(store, search="alpha hello") == [other]
    assert await listed_ids(store) == [other]
    assert await store.known_runs() == {other}
    assert await store.pin(run_id, pinned=True) is False
    assert [run_id for run_id, _ in await store.expired(at(999), limit=9)] == [other]
    assert (await item_of(store, other)).has_transcript is True


async def test_a_run_with_a_tombstone_never_comes_back(store: Store) -> None:
    events = run("a", assistant_message("hello"), channel_id="grave", channel_name="#grave")
    early, late = batched_changes(events, 2)
    await store.apply([early])
    await store.add_tombstone(early.row.id)
    await store.apply([late])
    assert (await item_of(store, early.row.id)).row == early.row
    await store.delete(early.row.id)
    stranger = run("b", channel_id="other")
    await store.apply([early, single_change(stranger), late])
    assert await store.known_runs() == {stranger[0].run_id}
    assert await store.deleted_run_ids() == {early.row.id}


async def test_a_run_with_a_tombstone_leaves_no_channel(store: Store) -> None:
    events = run("a", channel_id="grave")
    await store.add_tombstone(events[0].run_id)
    await apply_runs(store, events)
    assert await store.channels() == []


async def test_a_rebuild_gives_the_same_views_and_keeps_other_data(store: Store) -> None:
    runs = [golden(name) for name in GOLDEN_NAMES] + [run("open", assistant_message("x"), status=None, channel_id="c")]
    pinned, *_, deleted = run_ids = await apply_runs(store, *runs, run("gone"))
    await store.pin(pinned, pinned=True)
    await store.add_tombstone(deleted)
    await store.delete(deleted)
    before = [await views_of(store, run_id) for run_id in run_ids[:-1]]
    channels = await store.channels()
    await store.clear_views()
    assert await store.list_runs(ALL, limit=9) == RunPage(items=[], total=0)
    assert await listed_ids(store, search="hello") == []
    assert (await store.known_runs(), await store.open_runs()) == (set(), [])
    assert await store.timeline(pinned, limit=9) == []
    assert await store.archive(pinned) is None
    assert (await store.deleted_run_ids(), await store.channels()) == ({deleted}, channels)
    await apply_runs(store, *runs, run("gone", run_id=deleted))
    assert [await views_of(store, run_id) for run_id in run_ids[:-1]] == before
    assert (await item_of(store, pinned)).pinned is True
    assert await store.known_runs() == set(run_ids[:-1])


async def test_only_views_past_the_end_of_a_log_are_deleted(store: Store) -> None:
    first, second = run("one", *steps(3), assistant_message("hello")), run("two", *steps(3))
    run_ids = await apply_runs(store, first, second)
    await store.pin(run_ids[0], pinned=True)
    before = await views_of(store, run_ids[1])
    await store.truncate_views(run_ids[1], second[-1].seq)
    assert await views_of(store, run_ids[1]) == before
    await store.truncate_views(run_ids[0], 2)
    assert (await store.get_run(run_ids[0]), await store.timeline(run_ids[0], limit=9)) == (None, [])
    assert await listed_ids(store, search="hello") == []
    await apply_runs(store, first[:2])
    item = await item_of(store, run_ids[0])
    assert (item.row.last_seq, item.pinned) == (2, True)


# Other


async def test_the_mark_is_stored(store: Store) -> None:
    assert await store.feed_position() == 0
    for place in (17, 2**40, 5):
        await store.apply([], feed_position=place)
        assert await store.feed_position() == place


async def test_a_rebuild_resets_the_mark(store: Store) -> None:
    await store.apply([], feed_position=17)
    await store.clear_views()
    assert await store.feed_position() == 0


async def test_compaction_changes_no_data(store: Store) -> None:
    run_ids = await apply_runs(store, *(run("the task", assistant_message("x" * 10_000)) for _ in range(20)))
    for run_id in run_ids[::2]:
        await store.delete(run_id)
    before = [await store.get_run(run_id) for run_id in run_ids]
    await store.compact()
    await store.compact()
    assert [await store.get_run(run_id) for run_id in run_ids] == before
    assert await listed_ids(store, search="task") == run_ids[1::2][::-1]


async def test_concurrent_writes_and_reads_work(store: Store) -> None:
    runs = [run(f"task {n}", *steps(5), assistant_message("hello"), second=n) for n in range(20)]

    async def work(events: list[Event]) -> None:
        for change in batched_changes(events, 2):
            await store.apply([change])
            page = await store.list_runs(ALL, limit=100)
            assert len(page.items) == page.total
            assert change.row.id in ids(page)
            known = (await store.view_states([change.row.id])).get(change.row.id)
            assert known is not None
            assert known.row == change.row

    async with anyio.create_task_group() as tasks:
        for events in runs:
            tasks.start_soon(work, events)
    assert await listed_ids(store) == [events[0].run_id for events in reversed(runs)]
    for events in runs:
        item, timeline, _ = await views_of(store, events[0].run_id)
        assert item.row == single_change(events).row
        assert item.event_count == len(timeline) == len(single_change(events).timeline)


async def test_two_processes_that_update_one_run_do_not_count_it_twice(store: Store) -> None:
    events = golden("claude-code")

    async def work(size: int) -> None:
        for change in batched_changes(events, size):
            await store.apply([change])

    async with anyio.create_task_group() as tasks:
        for size in (1, 2, 3, 4, 5):
            tasks.start_soon(work, size)
    in_the_race = await views_of(store, events[0].run_id)
    await store.delete(events[0].run_id)
    await apply_runs(store, events)
    assert in_the_race == await views_of(store, events[0].run_id)


async def test_closing_twice_is_closing_once(store: Store) -> None:
    await apply_runs(store, run("a"))
    await store.close()
    await store.close()


# Orders, filters, counts and statistics


def spending_message(model: str, usd: float | None, tokens: int = 10) -> AssistantMessage:
    cost = None if usd is None else Cost(usd=usd, source="agent")
    return AssistantMessage(model=model, usage=Usage(input=tokens), cost=cost, blocks=[])


def agent(provider: str) -> StepStarted:
    return StepStarted(name="s", kind="agent", try_=1, session=Session(provider=provider))


async def costly_runs(store: Store) -> list[str]:
    """Apply runs that cost 1, nothing known, 3 and 2 dollars, in this order, and the last one failed."""
    failed = {"status": "failed", "error": RunError(code="tool_failed", message="exit code 3")}
    runs = [
        run("a", agent("codex"), spending_message("gpt", 1.0), second=1),
        run("b", agent("codex"), spending_message("gpt", None), second=2),
        run("c", agent("claude-code"), spending_message("opus", 3.0), second=3),
        run("d", agent("claude-code"), spending_message("opus", 2.0), second=4, name="other", **failed),
    ]
    return await apply_runs(store, *runs)


async def all_pages(store: Store, order: RunOrder, **wanted: Any) -> list[str]:
    """Return the ids of all pages of one run each."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.list_runs(RunFilter(**wanted), limit=1, order=order, cursor=cursor)
        found += ids(page)
        cursor = page.next
        if cursor is None:
            return found


@pytest.mark.req("SF-51")
async def test_lists_have_orders_and_their_cursors_reach_every_run(store: Store) -> None:
    a, b, c, d = await costly_runs(store)
    assert await all_pages(store, "newest") == [d, c, b, a]
    assert await all_pages(store, "oldest") == [a, b, c, d]
    assert await all_pages(store, "cost") == [c, d, a, b]
    assert await all_pages(store, "cost", provider="claude-code") == [c, d]
    assert await all_pages(store, "cost", search="build") == []
    assert set(await all_pages(store, "duration")) == {a, b, c, d}


async def test_runs_are_ordered_by_duration_and_those_without_one_come_last(store: Store) -> None:
    slow, quick, open_run = run("slow"), run("quick"), run("open", status=None)
    for events, duration_ms in ((slow, 9_000), (quick, 10)):
        ended = msgspec.structs.replace(events[-1].payload, duration_ms=duration_ms)
        events[-1] = msgspec.structs.replace(events[-1], payload=ended)
    expected = [slow[0].run_id, quick[0].run_id, open_run[0].run_id]
    await apply_runs(store, quick, open_run, slow)
    assert await all_pages(store, "duration") == expected
    assert await listed_ids(store, min_duration_ms=10, max_duration_ms=8_999) == [quick[0].run_id]
    assert await listed_ids(store, min_duration_ms=11) == [slow[0].run_id]
    assert set(await listed_ids(store, max_duration_ms=9_000)) == {slow[0].run_id, quick[0].run_id}


async def test_a_cursor_of_another_order_is_refused(store: Store) -> None:
    await costly_runs(store)
    cursor = (await store.list_runs(ALL, limit=1, order="cost")).next
    for order in ("newest", "oldest", "duration"):
        with pytest.raises(InvalidParameter):
            await store.list_runs(ALL, limit=1, order=order, cursor=cursor)


@pytest.mark.req("SF-51")
async def test_runs_can_be_found_by_model_provider_error_and_cost(store: Store) -> None:
    a, b, c, d = await costly_runs(store)
    assert await listed_ids(store, model="opus") == [d, c]
    assert await listed_ids(store, provider="codex") == [b, a]
    assert await listed_ids(store, error_code="tool_failed") == [d]
    assert await listed_ids(store, min_cost_usd=2.0) == [d, c]
    assert await listed_ids(store, max_cost_usd=2.0) == [d, a]
    assert await listed_ids(store, min_cost_usd=2.0, max_cost_usd=2.5, model="opus") == [d]
    counts = await store.count_by_status(RunFilter(min_cost_usd=2.0, statuses=("queued",)))
    assert {status: count for status, count in counts.items() if count} == {"completed": 1, "failed": 1}
    assert sum((await store.count_by_status(RunFilter(provider="codex", name="build"))).values()) == 2


@pytest.mark.req("SF-51")
async def test_runs_can_be_found_by_their_end_the_group_of_their_error_and_the_start_of_their_id(store: Store) -> None:
    lost = [
        run("x", status="failed", error=RunError(code="lost", message=message), second=60 * minute)
        for minute, message in enumerate(("job 5f3a9c11 is lost", "job 77aa0b2e is lost", "exit code 3"))
    ]
    first, second, third = await apply_runs(store, *lost)
    (unended,) = await apply_runs(store, run("open", status=None, second=1))
    ends = [(await item_of(store, run_id)).row.completed_at for run_id in (first, second, third)]
    assert await listed_ids(store, ended_after=ends[0]) == [third, second]
    assert await listed_ids(store, ended_after=ends[0], ended_before=ends[2]) == [second]
    assert await listed_ids(store, ended_before=ends[1]) == [first]
    assert await listed_ids(store, ended_after=ends[0], statuses=("failed",), error_code="lost", name="build") == [
        third,
        second,
    ]
    (one, other) = (await store.stats(ALL, FIRST_DAY)).newest_failures
    assert one[1] == "job # is lost"
    assert await listed_ids(store, error_group=one[1]) == [second, first]
    assert await listed_ids(store, error_group=other[1], error_code="lost") == [third]
    assert await listed_ids(store, error_group=one[1], error_code="another") == []
    assert await listed_ids(store, id_prefix=unended) == [unended]
    assert await listed_ids(store, id_prefix=unended[:20]) == [unended]
    assert await listed_ids(store, id_prefix="0" * 36) == []
    assert (await store.count_by_status(RunFilter(ended_after=ends[0])))["failed"] == 2
    stored = await store.stats(RunFilter(error_group=one[1]), FIRST_DAY)
    assert sum(line.amount for line in stored.lines[STARTED]) == 2
    assert await listed_ids(store, model="none") == []


async def test_runs_are_counted_by_status_whatever_the_filter_is(store: Store) -> None:
    await costly_runs(store)
    await apply_runs(store, run("e", status=None))
    nothing = dict.fromkeys(("queued", "running", "waiting", "completed", "failed", "cancelled"), 0)
    assert await store.count_by_status(ALL) == nothing | {"running": 1, "completed": 3, "failed": 1}
    assert await store.count_by_status(RunFilter(model="opus")) == nothing | {"completed": 1, "failed": 1}
    assert await store.count_by_status(RunFilter(statuses=("failed",), name="build")) == nothing | {
        "running": 1,
        "completed": 3,
    }
    assert await store.count_by_status(RunFilter(started_after=at(3))) == nothing | {"failed": 1}
    assert await store.count_by_status(RunFilter(search="d")) == nothing | {"failed": 1}


FIRST_DAY = StatsDays((96, 192, 288), (96, 192))
"""The day of `at(0)`, which is also today, and the day after it."""


@pytest.mark.req("SF-50")
async def test_statistics_have_top_runs_failures_and_what_has_no_price(store: Store) -> None:
    a, _, c, d = await costly_runs(store)
    stored = await store.stats(ALL, FIRST_DAY)
    stats = build_stats(stored, StatsRange("", "", "UTC"), ["1970-01-02", "1970-01-03"])
    assert [run.run_id for run in stats.costliest] == [c, d, a]
    assert stats.costliest[0] == RankedRun(
        run_id=c, title="c", worker="build", status="completed", cost_usd=3.0, duration_ms=None
    )
    assert stats.tiles.unpriced_today == 1
    assert (stats.tiles.spent_today_usd, stats.tiles.failed_today, stats.tiles.ended_today) == (6.0, 1, 4)
    assert stats.totals.unpriced_tokens == 10
    assert stats.days[0].by.model == {"gpt": 1.0, "opus": 5.0}
    assert stats.days[0].by.provider == {"codex": 1.0, "claude-code": 5.0}
    assert stats.days[0].by.worker == {"build": 4.0, "other": 2.0}
    assert (stats.days[1].runs, stats.days[1].cost_usd) == (0, 0.0)
    (failure,) = stats.failures
    assert (failure.code, failure.message, failure.total) == ("tool_failed", "exit code 3", 1)
    assert (failure.workers, failure.per_day) == (["other"], [1, 0])
    assert failure.last_at == (await item_of(store, d)).row.completed_at
    only = build_stats(await store.stats(RunFilter(model="gpt"), FIRST_DAY), stats.range, ["1970-01-02", "1970-01-03"])
    assert (only.totals.runs, only.totals.cost_usd, only.failures) == (2, 1.0, [])
    unknown = build_stats(await store.stats(RunFilter(search="b"), FIRST_DAY), stats.range, ["a", "b"])
    assert (unknown.totals.cost_usd, unknown.days[0].by.model) == (None, {"gpt": None})


@pytest.mark.req("SF-50")
async def test_statistics_from_too_many_runs_in_the_range_are_refused(store: Store) -> None:
    await costly_runs(store)
    await apply_runs(store, run("days later", second=7 * 24 * 3600), run("weeks later", second=30 * 24 * 3600))
    completed = RunFilter(statuses=("completed",))
    stored = await store.stats(completed, msgspec.structs.replace(FIRST_DAY, max_runs=3))
    assert sum(line.amount for line in stored.lines[STARTED]) == 3
    fewer = msgspec.structs.replace(FIRST_DAY, max_runs=2)
    with pytest.raises(InvalidParameter, match="more than 2 runs match these filters in this range") as refused:
        await store.stats(completed, fewer)
    assert "filter by worker or roots alone" in (refused.value.hint or "")
    for run_filter, count in ((ALL, 4), (RunFilter(roots=True), 4), (RunFilter(name="build"), 3)):
        stored = await store.stats(run_filter, fewer)
        assert sum(line.amount for line in stored.lines[STARTED]) == count


async def test_statistics_count_runs_that_wait_for_a_person_and_since_when(store: Store) -> None:
    asks = run("ask", tool_call("q1", {}, awaits=Awaits(kind="question")), second=7, status=None)
    limited = run("limit", tool_call("q2", {}, awaits=Awaits(kind="rate_limit", until=at(900))), status=None)
    await apply_runs(store, asks, limited)
    stored = await store.stats(ALL, FIRST_DAY)
    assert (stored.waiting, stored.longest_waiting_since) == (1, asks[1].timestamp)
    assert (await store.stats(RunFilter(name="another"), FIRST_DAY)).waiting == 0
    answered = batched_changes([*asks, msgspec.structs.replace(asks[1], seq=3, payload=tool_result("q1", "yes"))], 3)
    await store.apply(answered)
    stored = await store.stats(ALL, FIRST_DAY)
    assert (stored.waiting, stored.longest_waiting_since) == (0, None)


async def test_failures_that_differ_in_ids_are_one_group_with_the_newest_message(store: Store) -> None:
    messages = ["job 5f3a9c11 of 20260101 is lost", "job 77aa0b2e of 20260202 is lost", "exit code 3", "exit code 4"]
    await apply_runs(
        store,
        *(
            run("x", status="failed", error=RunError(code="lost", message=message), second=second)
            for second, message in enumerate(messages)
        ),
    )
    stats = build_stats(await store.stats(ALL, FIRST_DAY), StatsRange("", "", "UTC"), ["a", "b"])
    assert [(failure.message, failure.total) for failure in stats.failures] == [
        (messages[1], 2),
        (messages[2], 1),
        (messages[3], 1),
    ]
