"""The contract of the port `Queue`, for every adapter."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.contract.view_changes import assistant_message, at, batched_changes, run

from shopfloor.adapters.sqlite import SqliteQueue, SqliteStore
from shopfloor.errors import ConflictError
from shopfloor.log import BasedOn, ClientInfo, Requirements, RunStarted, new_run_id
from shopfloor.ports import Channel, ControlMessage, HostOffer, Queue, QueuedRun, RunFilter, Store, ViewUpdate
from shopfloor.views import RunRow, WaitState

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def dispatch(task: str = "build it", **more: Any) -> QueuedRun:
    run_id = more.pop("run_id", None) or new_run_id()
    fields: dict[str, Any] = {
        "name": "builder",
        "kind": "worker",
        "attempt": 0,
        "host": "",
        "worker_type": "worker",
        "input": {"what": task},
        "task": task,
        "agent_id": "ada",
        "channel_id": "chat:1",
        "channel_name": "#general",
        "client": ClientInfo(name="claude-code", version="2.1.0", session_id="s1"),
        "queued_at": at(1),
        "definition": {"slug": "builder", "steps": [{"id": "s", "ünï": [1, 2.5, None]}]},
        "definition_hash": "abc",
        "root_run_id": run_id,
    }
    return QueuedRun(run_id=run_id, started=RunStarted(**fields | more))


def answer(run_id: str, call_id: str = "c1", result: Any = "yes") -> ControlMessage:
    return ControlMessage(
        id=f"answer:{call_id}",
        run_id=run_id,
        kind="answer",
        body={"call_id": call_id, "result": result},
        created_at=at(2),
    )


async def queued(queue: Queue, count: int) -> list[QueuedRun]:
    orders = [dispatch(str(number)) for number in range(count)]
    for order in orders:
        assert await queue.dispatch(order) == order.run_id
    return orders


async def statuses(store: Store, **wanted: Any) -> dict[str, str]:
    page = await store.list_runs(RunFilter(**wanted), limit=1000)
    assert page.total == len(page.items)
    return {item.row.id: item.row.status for item in page.items}


# Claims


async def test_the_oldest_is_claimed_first_and_comes_back_as_it_went_in(queue: Queue) -> None:
    orders = await queued(queue, 5)
    assert await queue.claim("h1", 2, HostOffer()) == orders[:2]
    assert await queue.claim("h2", 10, HostOffer()) == orders[2:]
    assert await queue.claim("h1", 10, HostOffer()) == []
    hosts = dict(await queue.claimed())
    assert hosts == {order.run_id: "h1" if number < 2 else "h2" for number, order in enumerate(orders)}


async def test_claims_of_an_empty_queue_are_empty(queue: Queue) -> None:
    assert await queue.claim("h1", 10, HostOffer()) == []
    assert await queue.claim_one(new_run_id(), "h1") is None
    assert (await queue.claimed(), await queue.control_messages()) == ([], [])
    await queue.mark_started([])
    await queue.release([])
    await queue.acknowledge([])
    await queue.forget([])
    await queue.restore_queued_rows()


async def test_concurrent_claims_never_return_a_run_twice(queue: Queue) -> None:
    orders = await queued(queue, 60)
    got: dict[str, list[QueuedRun]] = {f"h{n}": [] for n in range(6)}

    async def claim(host: str) -> None:
        while taken := await queue.claim(host, 3, HostOffer()):
            got[host] += taken

    async with anyio.create_task_group() as tasks:
        for host in got:
            tasks.start_soon(claim, host)
    claimed = [order.run_id for taken in got.values() for order in taken]
    assert sorted(claimed) == sorted(order.run_id for order in orders)
    assert sorted(await queue.claimed()) == sorted(
        (order.run_id, host) for host, taken in got.items() for order in taken
    )


# Placement


GPU = Requirements(labels={"gpu": "yes"})
CODEX = Requirements(providers=["codex"])
FULL_OFFER = HostOffer(labels={"gpu": "yes", "zone": "a"}, providers=frozenset({"codex", "gemini"}))


async def add(queue: Queue, *runs: QueuedRun) -> None:
    for each in runs:
        await queue.dispatch(each)


@pytest.mark.req("FE-55")
async def test_a_claim_returns_only_runs_that_the_host_can_execute(queue: Queue) -> None:
    any_host, gpu, codex = dispatch("any"), dispatch("gpu", requires=GPU), dispatch("codex", requires=CODEX)
    both = dispatch("both", requires=Requirements(labels={"gpu": "yes"}, providers=["codex"]))
    await add(queue, gpu, codex, both, any_host)
    assert await queue.claim("plain", 9, HostOffer(labels={"gpu": "no"}, providers=frozenset())) == [any_host]
    assert await queue.claim("unknown providers", 9, HostOffer(labels={"gpu": "yes"})) == [gpu]
    disabled = HostOffer(labels={"gpu": "yes"}, providers=frozenset({"codex"}), disabled=frozenset({"codex"}))
    assert await queue.claim("disabled", 9, disabled) == []
    assert await queue.claim("agents", 9, HostOffer(providers=frozenset({"codex"}))) == [codex]
    assert await queue.claim("full", 9, FULL_OFFER) == [both]


@pytest.mark.req("FE-57")
async def test_the_highest_priority_starts_first_and_then_the_oldest(queue: Queue) -> None:
    low, first, gpu = dispatch("low", priority=-3), dispatch("first"), dispatch("gpu", requires=GPU)
    high, second, last = dispatch("high", priority=7, requires=CODEX), dispatch("second"), dispatch("last", priority=-3)
    await add(queue, low, first, gpu, high, second, last)
    assert await queue.claim("h", 4, FULL_OFFER) == [high, first, gpu, second]
    # A released run keeps its place.
    await queue.release([(first.run_id, "h"), (high.run_id, "h")])
    assert await queue.claim("h", 9, FULL_OFFER) == [high, first, low, last]


async def test_groups_have_the_totals_and_the_next_runs_of_each_requirement(queue: Queue) -> None:
    gpus = [dispatch(str(n), requires=GPU, priority=n, queued_at=at(10 + n)) for n in range(4)]
    plain, claimed = dispatch("plain", queued_at=at(5)), dispatch("claimed")
    await add(queue, *gpus, plain)
    await queue.dispatch(claimed, host="caller")
    found = {str(group.requires): group for group in await queue.groups(limit=2)}
    assert found.keys() == {str(None), str(GPU)}
    assert (found[str(None)].total, found[str(None)].first, found[str(None)].oldest_queued_at) == (1, [plain], at(5))
    assert found[str(GPU)].total == 4
    assert found[str(GPU)].first == [gpus[3], gpus[2]]
    assert found[str(GPU)].oldest_queued_at == at(10)


async def test_a_started_run_is_no_longer_in_the_queue(queue: Queue) -> None:
    first, second, third = await queued(queue, 3)
    await queue.claim("h1", 2, HostOffer())
    await queue.mark_started([first.run_id, new_run_id()])
    assert await queue.claimed() == [(second.run_id, "h1")]
    await queue.release([(first.run_id, "h1")])
    assert await queue.claim("h2", 9, HostOffer()) == [third]


async def test_a_released_run_is_claimed_again_in_its_old_order(queue: Queue) -> None:
    first, second, third = await queued(queue, 3)
    await queue.claim("h1", 2, HostOffer())
    await queue.release({(first.run_id, "h1")})
    assert await queue.claimed() == [(second.run_id, "h1")]
    assert await queue.claim("h2", 9, HostOffer()) == [first, third]


async def test_only_the_claim_of_the_named_host_is_released(queue: Queue) -> None:
    first, second = await queued(queue, 2)
    await queue.claim("gone", 2, HostOffer())
    claims = await queue.claimed()
    # Another process claims one of them first.
    assert await queue.claim_one(first.run_id, "alive", previous_host="gone") == first
    await queue.release(claims)
    assert await queue.claimed() == [(first.run_id, "alive")]
    assert await queue.claim("other", 9, HostOffer()) == [second]


async def test_an_unclaimed_run_can_be_claimed_by_id(queue: Queue) -> None:
    first, second = await queued(queue, 2)
    assert await queue.claim_one(second.run_id, "h1") == second
    assert await queue.claim_one(second.run_id, "h2") is None
    assert await queue.claim("h2", 9, HostOffer()) == [first]
    assert await queue.claim_one(first.run_id, "h1") is None
    assert await queue.claim_one(first.run_id, "h3", previous_host="h1") is None
    assert await queue.claim_one(first.run_id, "h3", previous_host="h2") == first
    assert dict(await queue.claimed()) == {first.run_id: "h3", second.run_id: "h1"}
    assert await queue.find(first.run_id) == first
    await queue.mark_started([first.run_id])
    assert await queue.find(first.run_id) is None


async def test_a_run_can_be_dispatched_to_one_host(queue: Queue) -> None:
    order = dispatch()
    await queue.dispatch(order, host="h1")
    assert await queue.claim("h2", 9, HostOffer()) == []
    assert await queue.claimed() == [(order.run_id, "h1")]
    await queue.release([(order.run_id, "h1")])
    assert await queue.claim("h2", 9, HostOffer()) == [order]


# Dispatches


async def test_a_repeated_key_returns_the_first_run(queue: Queue, store: Store) -> None:
    first = dispatch("a", idempotency_key="k1", input={"a": 1, "b": [2]})
    again = dispatch("a", idempotency_key="k1", input={"b": [2], "a": 1})
    assert await queue.dispatch(first) == first.run_id
    assert await queue.dispatch(again) == first.run_id
    assert await queue.claim("h1", 9, HostOffer()) == [first]
    await queue.mark_started([first.run_id])
    assert await queue.dispatch(again) == first.run_id
    assert await queue.claim("h1", 9, HostOffer()) == []
    assert set(await statuses(store)) == {first.run_id}


@pytest.mark.req("SF-54")
@pytest.mark.parametrize("keys", [(None, None), ("k1", "k2")], ids=["no keys", "keys"])
async def test_of_concurrent_replies_to_a_session_that_cannot_be_copied_one_is_stored(
    queue: Queue, keys: tuple[str | None, str | None]
) -> None:
    based_on = BasedOn(run_id=new_run_id(), kind="reply")
    first, second = (
        msgspec.structs.replace(dispatch(task, idempotency_key=key, based_on=based_on), is_only_reply=True)
        for task, key in zip("ab", keys, strict=True)
    )
    results: list[str | ConflictError] = []

    async def reply(queued: QueuedRun) -> None:
        try:
            results.append(await queue.dispatch(queued))
        except ConflictError as error:
            results.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reply, first)
        tasks.start_soon(reply, second)
    (stored,) = await queue.claim("h1", 9, HostOffer())
    (refused,) = [result for result in results if isinstance(result, ConflictError)]
    assert refused.message == f"the session of the run {based_on.run_id} continues in the run {stored.run_id}"
    # The same request again is no other reply.
    if stored.started.idempotency_key is not None:
        again = msgspec.structs.replace(stored, run_id=new_run_id())
        assert await queue.dispatch(again) == stored.run_id


@pytest.mark.parametrize("change", [{"name": "other"}, {"input": {"what": "else"}}], ids=["worker", "input"])
async def test_a_key_used_for_another_request_is_a_conflict(queue: Queue, change: dict[str, Any]) -> None:
    first = dispatch("a", idempotency_key="k1")
    await queue.dispatch(first)
    with pytest.raises(ConflictError, match=f"'k1'.*{first.run_id}") as refused:
        await queue.dispatch(dispatch("a", idempotency_key="k1", **change))
    assert refused.value.hint
    assert await queue.claim("h1", 9, HostOffer()) == [first]


async def test_concurrent_dispatches_with_one_key_get_one_run(queue: Queue) -> None:
    got: list[str] = []

    async def one() -> None:
        got.append(await queue.dispatch(dispatch("a", idempotency_key="k1")))

    async with anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(one)
    assert len(got) == 30
    assert [order.run_id for order in await queue.claim("h1", 99, HostOffer())] == list(set(got))


async def test_a_failed_dispatch_among_many_fails_alone(queue: Queue, store: Store) -> None:
    taken = dispatch("taken", idempotency_key="k1")
    await queue.dispatch(taken)
    refused: list[ConflictError] = []
    orders = [
        dispatch(str(n), run_id=taken.run_id, idempotency_key=f"bad {n}") if n % 7 == 3 else dispatch(str(n))
        for n in range(50)
    ]

    async def one(order: QueuedRun) -> None:
        try:
            await queue.dispatch(order)
        except ConflictError as error:
            refused.append(error)

    async with anyio.create_task_group() as tasks:
        for order in orders:
            tasks.start_soon(one, order)
    assert len(refused) == 7
    good = {order.run_id for order in orders} | {taken.run_id}
    assert {order.run_id for order in await queue.claim("h1", 99, HostOffer())} == good == set(await statuses(store))
    # The failed dispatch left nothing behind: its key is free.
    another = dispatch("else", idempotency_key="bad 3")
    assert await queue.dispatch(another) == another.run_id


async def test_a_run_is_listed_as_queued_from_its_dispatch_on(queue: Queue, store: Store) -> None:
    order = dispatch("polish the brass", parent={"run_id": new_run_id(), "depth": 1})
    await queue.dispatch(order)
    item = await store.get_run(order.run_id)
    assert item is not None
    assert (item.row.status, item.row.name, item.row.task) == ("queued", "builder", "polish the brass")
    assert (item.row.queued_at, item.row.started_at, item.row.last_seq) == (at(1), at(1), 0)
    assert (item.row.parent_run_id, item.event_count, item.has_transcript) == (order.parent_run_id, 0, False)
    assert item.channel_name == "#general"
    assert item.row.client == order.started.client
    assert await store.channels() == [Channel(id="chat:1", name="#general")]
    for wanted in ({"statuses": ("queued",)}, {"search": "brass"}, {"channel_id": "chat:1"}, {"agent_id": "ada"}):
        assert await statuses(store, **wanted) == {order.run_id: "queued"}
    assert await store.open_runs() == [order.run_id]


async def test_the_first_events_of_a_run_replace_its_queued_row_and_leave_its_number(
    queue: Queue, store: Store
) -> None:
    order, other = dispatch("polish the brass"), dispatch()
    await queue.dispatch(order)
    await queue.dispatch(other)
    before = await store.get_run(order.run_id)
    first, *_, last = changes = batched_changes(
        run("polish the brass", assistant_message("all done"), run_id=order.run_id, second=9)
    )
    await store.apply([first])
    assert await statuses(store) == {order.run_id: "running", other.run_id: "queued"}
    await store.apply(changes[1:])
    after = await store.get_run(order.run_id)
    assert before is not None
    assert after is not None
    assert (after.number, after.row) == (before.number, last.row)
    assert await statuses(store, search="brass") == await statuses(store, search="all done")
    assert await statuses(store, statuses=("queued",)) == {other.run_id: "queued"}


async def test_queued_runs_are_listed_again_after_a_rebuild(queue: Queue, store: Store) -> None:
    started, waiting = dispatch("started"), dispatch("polish the brass")
    await queue.dispatch(started)
    await queue.dispatch(waiting)
    await store.clear_views()
    assert await statuses(store) == {}
    await store.apply(batched_changes(run(run_id=started.run_id, status=None)))
    for _ in range(2):
        await queue.restore_queued_rows()
        assert await statuses(store) == {started.run_id: "running", waiting.run_id: "queued"}
        assert await statuses(store, search="brass") == {waiting.run_id: "queued"}


async def test_a_run_that_is_forgotten_leaves_nothing_behind(queue: Queue) -> None:
    forgotten, other = dispatch("a", idempotency_key="k1"), dispatch("b", idempotency_key="k2")
    for order in (forgotten, other):
        await queue.dispatch(order)
        await queue.put_control_message(answer(order.run_id))
    await queue.forget([forgotten.run_id])
    assert await queue.claim("h1", 9, HostOffer()) == [other]
    assert [order for _, order in await queue.control_messages()] == [answer(other.run_id)]
    again = dispatch("c", idempotency_key="k1")
    assert await queue.dispatch(again) == again.run_id
    assert await queue.dispatch(dispatch("b", idempotency_key="k2")) == other.run_id


async def test_thousands_of_concurrent_dispatches_are_all_stored(queue: Queue, store: Store) -> None:
    orders = [dispatch(str(number)) for number in range(2_000)]
    async with anyio.create_task_group() as tasks:
        for order in orders:
            tasks.start_soon(queue.dispatch, order)
    assert {order.run_id for order in await queue.claim("h1", 9_999, HostOffer())} == {order.run_id for order in orders}
    assert (await store.list_runs(RunFilter(statuses=("queued",)), limit=1)).total == 2_000


# Control messages


async def test_a_waiting_run_lists_its_answered_calls(queue: Queue, store: Store) -> None:
    run_id, other = new_run_id(), new_run_id()
    waits = WaitState(calls={"c1": "ask", "c2": "ask"})
    for one in (run_id, other):
        row = RunRow(id=one, status="waiting", started_at=at(0), waits=waits, last_seq=3)
        await store.apply([ViewUpdate(row=row, state=b"", timeline=[])])
    await queue.put_control_message(answer(run_id, "c2"))
    await queue.put_control_message(
        ControlMessage(id="cancel", run_id=run_id, kind="cancel", body={}, created_at=at(0))
    )
    seen, unseen = await store.get_run(run_id), await store.get_run(other)
    assert (seen and seen.answered, unseen and unseen.answered) == (("c2",), ())
    await queue.acknowledge([number for number, _ in await queue.control_messages()])
    taken = await store.get_run(run_id)
    assert taken is not None
    assert taken.answered == ()


async def test_control_messages_come_oldest_first_and_once(queue: Queue) -> None:
    one, other = new_run_id(), new_run_id()
    put = [answer(one), answer(other), answer(one, "c2", {"ünï": [1, None]})]
    for order in put:
        assert await queue.put_control_message(order) is True
    assert await queue.put_control_message(answer(one, result="something else")) is False
    messages = await queue.control_messages()
    assert [order for _, order in messages] == put
    numbers = [number for number, _ in messages]
    assert numbers == sorted(set(numbers))
    assert await queue.control_messages(after=numbers[0]) == messages[1:]
    assert await queue.control_messages(after=numbers[-1]) == []


async def test_a_processed_control_message_is_removed_and_numbers_only_grow(queue: Queue) -> None:
    run_id = new_run_id()
    cancel = ControlMessage(id="cancel", run_id=run_id, kind="cancel", body={"reason": "enough"}, created_at=at(1))
    await queue.put_control_message(answer(run_id))
    await queue.put_control_message(cancel)
    (_, _), (last, messages) = await queue.control_messages()
    assert messages == cancel
    await queue.acknowledge([last, 999])
    assert [order for _, order in await queue.control_messages()] == [answer(run_id)]
    assert await queue.put_control_message(cancel) is True
    assert [order for number, order in await queue.control_messages(after=last)] == [cancel]


# In a file


async def test_the_queue_outlives_the_program(tmp_path: Path) -> None:
    path = tmp_path / "shopfloor.db"
    first, second = dispatch("a", idempotency_key="k1"), dispatch("b")
    store = await SqliteStore.open(path)
    queue = SqliteQueue(store)
    await queue.dispatch(first)
    await queue.dispatch(second)
    await queue.claim("h1", 1, HostOffer())
    await queue.put_control_message(answer(first.run_id))
    await store.close()

    store = await SqliteStore.open(path)
    queue = SqliteQueue(store)
    assert await queue.claimed() == [(first.run_id, "h1")]
    assert await queue.dispatch(dispatch("a", idempotency_key="k1")) == first.run_id
    assert await queue.claim("h2", 9, HostOffer()) == [second]
    assert [order for _, order in await queue.control_messages()] == [answer(first.run_id)]
    assert set((await statuses(store)).values()) == {"queued"}
    await store.close()


async def test_hosts_of_several_processes_never_get_a_run_twice(tmp_path: Path) -> None:
    path = tmp_path / "shopfloor.db"
    store = await SqliteStore.open(path)
    orders = await queued(SqliteQueue(store), 100)
    await store.close()
    got: list[str] = []

    async def host(name: str) -> None:
        own = await SqliteStore.open(path)
        while taken := await SqliteQueue(own).claim(name, 3, HostOffer()):
            got.extend(order.run_id for order in taken)
        await own.close()

    # Each host has its own store, connection and writing thread, as in another process.
    threads = [threading.Thread(target=anyio.run, args=(host, f"h{n}")) for n in range(4)]
    for thread in threads:
        thread.start()
    await anyio.to_thread.run_sync(lambda: [thread.join() for thread in threads])
    assert sorted(got) == sorted(order.run_id for order in orders)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (
            "SELECT rank, num FROM dispatches WHERE host IS NULL AND needs = ? ORDER BY rank, num LIMIT 9",
            "SEARCH dispatches USING COVERING INDEX idx_dispatches_free (needs=?)",
        ),
        (
            "SELECT min(needs) FROM dispatches WHERE host IS NULL AND needs > ?",
            "SEARCH dispatches USING COVERING INDEX idx_dispatches_free (needs>?)",
        ),
        ("SELECT num, run_id, host FROM dispatches WHERE host IS NOT NULL", "idx_dispatches_claimed"),
        ("SELECT id FROM worker_runs WHERE wake_at <= ?", "idx_worker_runs_wake"),
    ],
)
async def test_frequent_queries_use_an_index(tmp_path: Path, query: str, index: str) -> None:
    path = tmp_path / "shopfloor.db"
    await (await SqliteStore.open(path)).close()
    with sqlite3.connect(path) as connection:
        plan = " ".join(
            str(row[-1]) for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", ["x"][: query.count("?")])
        )
    connection.close()
    assert index in plan
