"""The contract of the port `FleetEvents`, for every adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
from tests.contract.storages import StorageUnderTest
from tests.contract.view_changes import ViewBuilder, run, single_change

from shopfloor.adapters.limits import FLEET_CHUNK_BYTES
from shopfloor.limits import FLEET_EVENT_TEXT_BYTES
from shopfloor.log import Event, Payload, Session, StepCompleted, StepStarted, ToolCall, ToolResult, new_run_id
from shopfloor.ports import FleetEventPage, FleetEvents, FleetFilter, Store, StoredFleetEvent, ViewUpdate
from shopfloor.views import FleetEvent, FleetEventState, fleet_event_step

pytestmark = pytest.mark.anyio
ALL = FleetFilter()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def opened(storage_under_test: StorageUnderTest) -> AsyncIterator[tuple[Store, FleetEvents]]:
    async with storage_under_test.fleet() as opened:
        yield opened


@pytest.fixture
def store(opened: tuple[Store, FleetEvents]) -> Store:
    return opened[0]


@pytest.fixture
def fleet(opened: tuple[Store, FleetEvents]) -> FleetEvents:
    return opened[1]


def session(*calls: str, provider: str = "claude-code", ended: bool = True) -> list[Payload]:
    """Return the events of a step that is a session with these tool calls: spawned, two per call, and completed."""
    payloads: list[Payload] = [StepStarted(name="s", kind="agent", try_=1, session=Session(provider=provider))]
    for name in calls:
        fields: dict[str, Any] = {"name": name, "call_id": name, "fidelity": "agent_emitted"}
        payloads.append(ToolCall(input={"command": name}, output=None, **fields))
        payloads.append(ToolResult(input=None, output=f"{name} is done", duration_ms=5, **fields))
    return [*payloads, StepCompleted(name="s", kind="agent", try_=1)] if ended else payloads


def update(builder: ViewBuilder, events: Sequence[Event], state: FleetEventState | None = None) -> ViewUpdate:
    """Return the update for the next events of a run, with their fleet events."""
    state, fleet_events = state or FleetEventState(), list[FleetEvent]()
    for event in events:
        state, more = fleet_event_step(state, event)
        fleet_events += more
    return msgspec.structs.replace(builder.take(events), fleet_events=fleet_events)


async def apply(store: Store, *runs: Sequence[Event]) -> None:
    await store.apply([update(ViewBuilder(), events) for events in runs])


def host_event(number: int = 0, **more: Any) -> FleetEvent:
    payload = {"workerId": "host-1", "previous": "idle", "current": "busy", "reason": f"number {number}"}
    return FleetEvent(type="worker.status_changed", payload=payload, timestamp="2026-02-23T10:30:00.000Z", **more)


def provider_event(provider: str) -> FleetEvent:
    payload = {"providerId": provider, "name": provider, "reason": "disabled"}
    return FleetEvent(
        type="provider.unavailable", payload=payload, timestamp="2026-02-23T10:30:00.000Z", provider=provider
    )


async def read_all(fleet: FleetEvents, wanted: FleetFilter = ALL, *, after: int = 0, limit: int = 1_000) -> list[Any]:
    return [decoded(event) for event in (await fleet.read(wanted, after=after, limit=limit)).events]


def decoded(event: StoredFleetEvent) -> Any:
    return msgspec.json.decode(event.body)


def names(bodies: list[Any]) -> list[str]:
    """Return the type of each event; for calls also the tool."""
    return [f"{body['type']} {body['payload'].get('tool', {}).get('name', '')}".strip() for body in bodies]


def reasons(bodies: list[Any]) -> list[str]:
    return [body["payload"]["reason"] for body in bodies]


TWO_CALLS = ["agent.spawned", *(f"agent.tool_{part} {name}" for name in "ab" for part in ("call", "result"))]


@pytest.mark.req("FE-7", "FE-42")
async def test_events_of_a_log_are_stored_with_its_rows_and_read_in_order(store: Store, fleet: FleetEvents) -> None:
    events = run("one", *session("a", "b"))
    await apply(store, events)
    page = await fleet.read(ALL, after=0, limit=100)
    assert names([decoded(event) for event in page.events]) == [*TWO_CALLS, "agent.completed"]
    assert {event.run_id for event in page.events} == {events[0].run_id}
    assert {(event.stream, event.provider) for event in page.events} == {("agent", "claude-code")}
    assert decoded(page.events[0]).keys() == {"type", "payload", "timestamp"}
    cursors = [event.cursor for event in page.events]
    assert cursors == sorted(set(cursors))
    assert (page.cursor, page.has_gap) == (cursors[-1], False)
    assert await fleet.cursor() == cursors[-1]


async def test_an_empty_store_has_a_cursor_and_no_events(fleet: FleetEvents) -> None:
    cursor = await fleet.cursor()
    assert await fleet.read(ALL, after=cursor, limit=10) == FleetEventPage([], cursor)
    assert await fleet.read(ALL, after=0, limit=10) == FleetEventPage([], cursor)
    assert await fleet.newest(ALL, limit=10) == FleetEventPage([], cursor)


@pytest.mark.req("FE-42")
async def test_a_reader_continues_after_its_cursor_without_loss_or_repetition(store: Store, fleet: FleetEvents) -> None:
    await apply(store, *(run(str(number), *session("a", "b")) for number in range(5)))
    complete = (await fleet.read(ALL, after=0, limit=1_000)).events
    for limit in (1, 2, 7, 100):
        found, cursor = list[StoredFleetEvent](), 0
        while (page := await fleet.read(ALL, after=cursor, limit=limit)).events:
            assert len(page.events) <= limit
            found += page.events
            cursor = page.cursor
        assert found == complete
    await fleet.append([host_event(1)])
    assert reasons(await read_all(fleet, after=complete[-1].cursor)) == ["number 1"]


async def test_a_page_ends_at_a_given_cursor(fleet: FleetEvents) -> None:
    for number in range(6):
        await fleet.append([host_event(number)])
    cursors = [event.cursor for event in (await fleet.read(ALL, after=0, limit=10)).events]
    page = await fleet.read(ALL, after=cursors[1], until=cursors[3], limit=10)
    assert ([event.cursor for event in page.events], page.cursor) == (cursors[2:4], cursors[3])


async def test_a_page_without_matches_moves_the_cursor_on(store: Store, fleet: FleetEvents) -> None:
    before = await fleet.cursor()
    await apply(store, run("one", *session("a")))
    page = await fleet.read(FleetFilter(provider="codex"), after=before, limit=10)
    assert page == FleetEventPage([], await fleet.cursor())


@pytest.mark.req("FE-42")
async def test_the_same_events_applied_twice_are_stored_once(store: Store, fleet: FleetEvents) -> None:
    events = run("one", *session("a", "b"))
    change = update(ViewBuilder(), events)
    await store.apply([change])
    await store.apply([change])
    await store.apply([update(ViewBuilder(), events[:3])])
    assert names(await read_all(fleet)) == [*TWO_CALLS, "agent.completed"]


async def test_a_change_that_overlaps_the_stored_row_adds_only_the_new_events(store: Store, fleet: FleetEvents) -> None:
    events = run("one", *session("a", "b", ended=False), status=None)
    await store.apply([update(ViewBuilder(), events[:3])])
    await store.apply([update(ViewBuilder(), events)])
    assert names(await read_all(fleet)) == TWO_CALLS


@pytest.mark.req("FE-2", "FE-3")
async def test_events_are_filtered_by_stream_provider_and_run(store: Store, fleet: FleetEvents) -> None:
    first, second = run("one", *session("a")), run("two", *session("b", provider="codex"))
    await apply(store, first, second)
    await fleet.append([host_event(run_id=first[0].run_id), provider_event("codex")])
    by_claude = await read_all(fleet, FleetFilter(provider="claude-code"))
    assert {name.partition(" ")[2] for name in names(by_claude)} == {"", "a"}
    assert len(by_claude) == 4
    assert len(await read_all(fleet, FleetFilter(provider="codex"))) == 5
    assert len(await read_all(fleet, FleetFilter(provider="codex", stream="agent"))) == 4
    assert len(await read_all(fleet, FleetFilter(run_id=first[0].run_id))) == 5
    assert len(await read_all(fleet, FleetFilter(run_id=first[0].run_id, stream="agent"))) == 4
    assert names(await read_all(fleet, FleetFilter(stream="worker"))) == ["worker.status_changed"]
    assert names(await read_all(fleet, FleetFilter(stream="provider"))) == ["provider.unavailable"]
    assert await read_all(fleet, FleetFilter(run_id=new_run_id())) == []


@pytest.mark.req("FE-43")
async def test_a_tree_includes_the_sub_runs_at_every_depth(store: Store, fleet: FleetEvents) -> None:
    top = run("top", *session("a"))
    middle = run("middle", *session("b"), parent=top[0].run_id)
    bottom = run("bottom", *session("c"), parent=middle[0].run_id)
    await apply(store, top, middle, bottom, run("other", *session("d")))

    async def tools(run_id: str, *, tree: bool) -> set[str]:
        bodies = await read_all(fleet, FleetFilter(run_id=run_id, tree=tree))
        return {name.partition(" ")[2] for name in names(bodies)} - {""}

    assert await tools(top[0].run_id, tree=True) == {"a", "b", "c"}
    assert await tools(middle[0].run_id, tree=True) == {"b", "c"}
    assert await tools(bottom[0].run_id, tree=True) == {"c"}
    assert await tools(top[0].run_id, tree=False) == {"a"}
    ids = [events[0].run_id for events in (top, middle, bottom)]
    assert await fleet.ancestors([*ids, new_run_id()]) == {ids[1]: (ids[0],), ids[2]: (ids[1], ids[0])}


async def test_the_newest_events_come_oldest_first(store: Store, fleet: FleetEvents) -> None:
    await apply(store, run("one", *session("a", "b")))
    await fleet.append([host_event(1), host_event(2)])
    page = await fleet.newest(ALL, limit=3)
    assert names([decoded(event) for event in page.events]) == ["agent.completed", *["worker.status_changed"] * 2]
    assert page.cursor == page.events[-1].cursor
    page = await fleet.newest(FleetFilter(stream="agent"), limit=2)
    assert names([decoded(event) for event in page.events]) == ["agent.tool_result b", "agent.completed"]


async def test_events_are_filtered_by_their_type_before_they_are_counted(store: Store, fleet: FleetEvents) -> None:
    await apply(store, run("one", *session("agent.completed", "b")))
    await fleet.append([host_event(number) for number in range(30)])
    wanted = FleetFilter(type="agent.tool_call")
    newest = await fleet.newest(wanted, limit=1)
    assert names([decoded(event) for event in newest.events]) == ["agent.tool_call b"]
    first = await fleet.read(wanted, after=0, limit=1)
    assert names([decoded(event) for event in first.events]) == ["agent.tool_call agent.completed"]
    rest = await fleet.read(wanted, after=first.cursor, limit=10)
    assert names([decoded(event) for event in rest.events]) == ["agent.tool_call b"]
    assert rest.cursor == newest.cursor == await fleet.cursor()


@pytest.mark.req("FE-44")
async def test_only_the_newest_events_are_kept_and_an_older_cursor_has_a_gap(
    storage_under_test: StorageUnderTest,
) -> None:
    async with storage_under_test.fleet(kept=10) as (_, fleet):
        start = await fleet.cursor()
        for number in range(25):
            await fleet.append([host_event(number)])
        stored = await fleet.read(ALL, after=0, limit=100)
        assert reasons([decoded(event) for event in stored.events]) == [f"number {number}" for number in range(15, 25)]
        assert not stored.has_gap, "a reader that has nothing yet misses nothing"
        old = await fleet.read(ALL, after=start + 3, limit=100)
        assert (old.has_gap, old.events, old.cursor) == (True, stored.events, stored.cursor)
        exact = await fleet.read(ALL, after=stored.events[0].cursor - 1, limit=100)
        assert (exact.has_gap, exact.events) == (False, stored.events)


@pytest.mark.req("FE-44")
async def test_a_cursor_that_was_never_given_out_has_a_gap(fleet: FleetEvents) -> None:
    await fleet.append([host_event(1)])
    page = await fleet.read(ALL, after=await fleet.cursor() + 1, limit=100)
    assert (page.has_gap, reasons([decoded(event) for event in page.events])) == (True, ["number 1"])


@pytest.mark.req("FE-45")
async def test_deleting_a_run_deletes_its_events_and_no_cursor_is_used_again(store: Store, fleet: FleetEvents) -> None:
    kept, deleted = run("kept", *session("a")), run("deleted", *session("b"))
    await apply(store, kept, deleted)
    await fleet.append([host_event(run_id=deleted[0].run_id)])
    newest = await fleet.cursor()
    await store.add_tombstone(deleted[0].run_id)
    await store.delete(deleted[0].run_id)
    assert {event.run_id for event in (await fleet.read(ALL, after=0, limit=100)).events} == {kept[0].run_id}
    assert await fleet.cursor() == newest
    page = await fleet.read(ALL, after=newest, limit=100)
    assert (page.events, page.has_gap) == ([], False)
    assert await fleet.append([host_event(2)]) == newest + 1
    await apply(store, deleted)
    assert names(await read_all(fleet, after=newest)) == ["worker.status_changed"]


@pytest.mark.req("FE-46")
async def test_a_rebuild_keeps_events_and_cursors(store: Store, fleet: FleetEvents) -> None:
    ended, opened = run("one", *session("a", "b")), run("two", *session("c", ended=False), status=None)
    await apply(store, ended, opened)
    before = await fleet.read(ALL, after=0, limit=100)
    for _ in range(2):
        await store.clear_views()
        # The log of the second run has grown meanwhile, and the first is read in two parts.
        builder = ViewBuilder()
        await store.apply([update(builder, ended[:3])])
        await store.apply([update(ViewBuilder(), ended)])
        await apply(store, opened)
    assert await fleet.read(ALL, after=0, limit=100) == before
    more = run("two", *session("c", "d", ended=False), status=None, run_id=opened[0].run_id)
    await store.clear_views()
    await apply(store, more)
    assert names(await read_all(fleet, after=before.cursor)) == ["agent.tool_call d", "agent.tool_result d"]


@pytest.mark.req("FE-46")
async def test_views_that_are_made_again_store_no_event_twice(store: Store, fleet: FleetEvents) -> None:
    events = run("one", *session("a", "b", ended=False), status=None)
    await apply(store, events[:4])
    cursor = await fleet.cursor()
    await store.discard_views(events[0].run_id)
    assert await store.get_run(events[0].run_id) is None
    await apply(store, events)
    assert names(await read_all(fleet, after=cursor)) == ["agent.tool_call b", "agent.tool_result b"]


async def test_a_log_that_lost_its_end_gives_the_events_that_are_written_instead(
    store: Store, fleet: FleetEvents
) -> None:
    lost = run("one", *session("a", "b", ended=False), status=None)
    await apply(store, lost)
    cursor = await fleet.cursor()
    await store.truncate_views(lost[0].run_id, 4)
    again = run("one", *session("a", "c", ended=False), status=None, run_id=lost[0].run_id)
    await apply(store, again)
    assert names(await read_all(fleet, after=cursor)) == ["agent.tool_call c", "agent.tool_result c"]


@pytest.mark.req("FE-47")
async def test_long_texts_are_truncated_and_no_field_is_lost(store: Store, fleet: FleetEvents) -> None:
    fields: dict[str, Any] = {"name": "Write", "call_id": "1", "fidelity": "agent_emitted"}
    long_text = "ž" * 2 * FLEET_EVENT_TEXT_BYTES
    await apply(
        store,
        run(
            "one",
            *session(ended=False),
            ToolCall(input={"path": "a", "content": long_text, "many": [long_text] * 300}, output=None, **fields),
            ToolResult(input=None, output=long_text, duration_ms=5, **fields),
            status=None,
        ),
    )
    _, call, result = (await fleet.read(ALL, after=0, limit=10)).events
    assert len(call.body) < 40 * FLEET_EVENT_TEXT_BYTES
    tool = decoded(call)["payload"]["tool"]
    assert (tool["name"], tool["input"]["path"], tool["startedAt"]) == ("Write", "a", decoded(call)["timestamp"])
    assert long_text.startswith(tool["input"]["content"])
    assert len(result.body) < 2 * FLEET_EVENT_TEXT_BYTES
    assert "cut:" in decoded(result)["payload"]["tool"]["output"]


async def test_many_and_large_events_are_stored_completely(store: Store, fleet: FleetEvents) -> None:
    size = FLEET_EVENT_TEXT_BYTES // 2
    calls = [f"{number:0{size}}" for number in range(3 * FLEET_CHUNK_BYTES // size)]
    await apply(store, run("one", *session(*calls, ended=False), status=None))
    found, cursor = list[Any](), 0
    while (page := await fleet.read(ALL, after=cursor, limit=5)).events:
        found += [decoded(event) for event in page.events]
        cursor = page.cursor
    assert [body["payload"]["tool"]["name"] for body in found[1::2]] == calls


async def test_line_breaks_in_texts_do_not_divide_events(fleet: FleetEvents) -> None:
    texts = ["one\ntwo", "\r\n", "\u2028", '"\\\n"']
    await fleet.append(
        [msgspec.structs.replace(host_event(), payload={"workerId": "h", "reason": text}) for text in texts]
    )
    assert reasons(await read_all(fleet)) == texts


async def test_runs_without_sessions_have_no_events(store: Store, fleet: FleetEvents) -> None:
    await store.apply([single_change(run("one"))])
    assert await read_all(fleet) == []
