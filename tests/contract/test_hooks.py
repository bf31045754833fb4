"""The contract of the port `Hooks`, for every adapter, and delivery from it to a real receiver."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import httpx
import msgspec
import pytest
from tests.contract.view_changes import run as run_events
from tests.contract.view_changes import single_change, tool_call, tool_result
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.adapters.local import NotificationSender
from shopfloor.adapters.memory import MemoryStore
from shopfloor.adapters.sqlite import SqliteHooks, SqliteStore
from shopfloor.engine import HookDelivery
from shopfloor.limits import HOOK_BATCH
from shopfloor.log import Awaits, Event, RunError, now
from shopfloor.ports import Hook, Hooks, Store, ViewUpdate
from shopfloor.views import NOTIFICATION_KINDS, notifications_of, outcome_notification

pytestmark = pytest.mark.anyio
SECRET = base64.b64encode(b"a key of 24 bytes, maybe").decode()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["memory", "sqlite"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Store, Hooks]]:
    if request.param == "memory":
        store = MemoryStore()
        yield store, store.hooks
        return
    database = await SqliteStore.open(tmp_path / "shopfloor.db")
    yield database, SqliteHooks(database)
    await database.close()


def hook(name: str = "h", **more: Any) -> Hook:
    fields = {"origin": "api", "created_at": "2000", "url": "http://127.0.0.1:9/", "secret": SECRET, **more}
    return Hook(id=name, **fields)


def change(*, asks: bool = False, answered: bool = False, **more: Any) -> ViewUpdate:
    """Return the update of a run that happened just now."""
    question = {"question": "Which?", "options": ["a", "b"]}
    inside = [tool_call("c", question, awaits=Awaits(kind="question"))] if asks else []
    inside += [tool_result("c", "a")] if answered else []
    at = now()
    events: list[Event] = [
        msgspec.structs.replace(event, timestamp=at) for event in run_events("build it", *inside, **more)
    ]
    made = single_change(events)
    return msgspec.structs.replace(made, notifications=notifications_of(made.row, events))


def happening_later(update: ViewUpdate) -> ViewUpdate:
    later = [msgspec.structs.replace(item, at=now(60)) for item in update.notifications]
    return msgspec.structs.replace(update, notifications=later)


async def kinds(hooks: Hooks) -> list[str]:
    return [json.loads(delivery.body)["type"] for delivery in await hooks.due(now(1), limit=100)]


@pytest.mark.req("SF-59")
async def test_rows_and_deliveries_are_stored_together_and_once(opened: tuple[Store, Hooks]) -> None:
    store, hooks = opened
    await hooks.add(hook())
    update = change()
    await store.apply([update])
    await store.apply([update])
    assert await kinds(hooks) == ["shopfloor.run.outcome"]
    # A rebuild makes the rows again, but no notification twice.
    await store.clear_views()
    await store.apply([update])
    (delivery,) = await hooks.due(now(1), limit=100)
    assert delivery.event_id == f"{update.row.id}.{update.row.last_seq}.outcome"
    await hooks.complete(delivery, at=now())
    assert [(status.delivered, status.pending) for status in await hooks.all()] == [(1, 0)]


async def test_a_hook_gets_the_kinds_it_wants_and_nothing_from_before_it_was_added(opened: tuple[Store, Hooks]) -> None:
    store, hooks = opened
    await hooks.add(hook("questions", kinds=("question",)))
    await hooks.add(hook("budgets", kinds=("budget",)))
    await hooks.add(hook("later", created_at=now(60)))
    await hooks.add(hook("long", min_seconds=3600))
    await hooks.add(hook("impatient", retry_seconds=-1))
    await store.apply([change(asks=True, status=None)])
    await store.apply([change(asks=True, answered=True)])
    await store.apply([change(status="failed", error=RunError(code="budget_exceeded", message="all is spent"))])
    found = [(one.hook.id, json.loads(one.body)["type"]) for one in await hooks.due(now(1), limit=100)]
    assert sorted(found) == [
        ("budgets", "shopfloor.run.budget"),
        ("long", "shopfloor.run.question"),
        ("questions", "shopfloor.run.question"),
    ]


async def test_a_sub_run_sends_its_questions_but_not_its_outcome(opened: tuple[Store, Hooks]) -> None:
    store, hooks = opened
    await hooks.add(hook())
    parent = change()
    await store.apply([change(parent=parent.row.id)])
    assert await kinds(hooks) == []
    await store.apply([change(parent=parent.row.id, asks=True, status=None)])
    assert await kinds(hooks) == ["shopfloor.run.question"]


async def test_a_postponed_delivery_is_due_later_and_a_removed_hook_has_none(opened: tuple[Store, Hooks]) -> None:
    store, hooks = opened
    await hooks.add(hook())
    await store.apply([change()])
    (delivery,) = await hooks.due(now(1), limit=1)
    assert await hooks.due(now(1), limit=1, exclude=["h"]) == []
    await hooks.postpone(delivery, at=now(), until=now(60), error="down")
    assert await hooks.due(now(1), limit=1) == []
    (again,) = await hooks.due(now(61), limit=1)
    assert (again.tries, again.body) == (1, delivery.body)
    # Adding it again keeps the deliveries and the time from which on it is notified.
    await hooks.add(hook(created_at=now(60), kinds=("outcome",)))
    (status,) = await hooks.all()
    assert (status.pending, status.last_error, status.hook.created_at) == (1, "down", "2000")
    assert await hooks.remove("h")
    assert not await hooks.remove("h")
    assert await hooks.due(now(61), limit=1) == []


async def test_the_hook_of_one_run_ends_with_its_delivery(opened: tuple[Store, Hooks]) -> None:
    store, hooks = opened
    wanted = change()
    await hooks.add(hook(origin="run", run_id=wanted.row.id, created_at=now(60)))
    await store.apply([change(), wanted])
    (delivery,) = await hooks.due(now(1), limit=10)
    assert delivery.event_id.startswith(wanted.row.id)
    await hooks.complete(delivery, at=now())
    assert await hooks.all() == []


async def test_the_hook_of_a_run_that_ended_too_long_ago_is_removed(opened: tuple[Store, Hooks]) -> None:
    store, hooks = opened
    ended = change()
    await store.apply([ended])
    # With a negative time, any event is too old.
    await hooks.add(hook(origin="run", run_id=ended.row.id, retry_seconds=-1))
    await hooks.enqueue("h", [outcome_notification(change().row)])
    assert [status.hook.id for status in await hooks.all()] == ["h"]
    await hooks.enqueue("h", [outcome_notification(ended.row)])
    assert await hooks.all() == []


async def test_a_spent_budget_is_one_notification_by_default(opened: tuple[Store, Hooks]) -> None:
    store, hooks = opened
    await hooks.add(hook("default"))
    await hooks.add(hook("all", kinds=NOTIFICATION_KINDS))
    await store.apply([change(status="failed", error=RunError(code="budget_exceeded", message="all is spent"))])
    found = [(one.hook.id, json.loads(one.body)["type"]) for one in await hooks.due(now(1), limit=100)]
    assert found == [
        ("default", "shopfloor.run.outcome"),
        ("all", "shopfloor.run.budget"),
        ("all", "shopfloor.run.outcome"),
    ]


async def test_a_deleted_run_has_no_hooks_and_no_deliveries(opened: tuple[Store, Hooks]) -> None:
    store, hooks = opened
    deleted, kept = change(), change()
    await hooks.add(hook())
    for update in (deleted, kept):
        await hooks.add(hook(f"run-{update.row.id}", origin="run", run_id=update.row.id))
    await store.apply([deleted, kept])
    await store.delete(deleted.row.id)
    assert [status.hook.id for status in await hooks.all()] == ["h", f"run-{kept.row.id}"]
    left = [(one.hook.id, one.event_id) for one in await hooks.due(now(1), limit=10)]
    (event,) = kept.notifications
    assert left == [("h", event.id), (f"run-{kept.row.id}", event.id)]


# Delivery to real receivers.


class Receiver:
    """A receiver that answers with each of `answers` in turn, then with 200. `None` hangs, then breaks off."""

    def __init__(self, *answers: int | None) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.closed = threading.Event()
        waiting = [*answers]
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = self.rfile.read(length)
                if len(body) < length:
                    # The sender gave up in the middle, because the machine is slow.
                    return
                outer.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                answer = waiting.pop(0) if waiting else 200
                if answer is None:
                    outer.closed.wait(TIMEOUT_SECONDS)
                    return
                self.send_response(answer)
                self.send_header("location", "http://127.0.0.1:9/elsewhere")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def receiver(*answers: int | None) -> Iterator[Receiver]:
    made = Receiver(*answers)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.req("SF-59", "SF-60")
async def test_deliveries_are_signed_and_repeated_until_the_receiver_takes_them(opened: tuple[Store, Hooks]) -> None:
    store, hooks = opened
    # It fails, redirects, hangs, and then works; another one works at once.
    with receiver(500, 302, None) as broken, receiver() as working:
        await hooks.add(hook("broken", url=broken.url))
        await hooks.add(hook("working", url=working.url))
        await hooks.add(hook("refusing", url="http://127.0.0.1:9/"))
        await store.apply([change()])
        send = NotificationSender(timeout_seconds=0.5)
        delivery = HookDelivery(hooks, send, first_backoff_seconds=0.01, poll_seconds=0.02)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(delivery.run)
            with anyio.fail_after(TIMEOUT_SECONDS):
                while len(working.got) < 1:
                    await anyio.sleep(0.01)
                while len(broken.got) < 4:
                    await anyio.sleep(0.01)
                while (await hooks.all())[0].pending:
                    await anyio.sleep(0.01)
            # Taken deliveries are not repeated.
            await store.apply([change()])
            with anyio.fail_after(TIMEOUT_SECONDS):
                while len(broken.got) < 5 or len(working.got) < 2 or (await hooks.all())[0].pending:
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    ids = [headers["webhook-id"] for headers, _ in broken.got]
    assert len(set(ids[:4])) == 1
    assert ids[4] not in ids[:4]
    assert len({body for _, body in broken.got[:4]}) == 1
    for headers, body in (*broken.got, *working.got):
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        digest = hmac.new(base64.b64decode(SECRET), signed, hashlib.sha256).digest()
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
        assert headers["content-type"] == "application/cloudevents+json"
        event = json.loads(body)
        assert (event["specversion"], event["type"]) == ("1.0", "shopfloor.run.outcome")
        assert (event["id"], event["subject"]) == (headers["webhook-id"], event["data"]["run_id"])
    states = {status.hook.id: status for status in await hooks.all()}
    assert states["broken"].delivered == 2
    assert states["refusing"].delivered == 0
    assert states["refusing"].pending == 2


@pytest.mark.req("SF-60")
async def test_a_receiver_that_is_down_with_many_deliveries_does_not_hide_another(opened: tuple[Store, Hooks]) -> None:
    store, hooks = opened
    await hooks.add(hook("refusing"))
    await store.apply([change() for _ in range(HOOK_BATCH + 1)])
    with receiver() as working:
        await hooks.add(hook("working", url=working.url))
        await store.apply([change()])
        # Only the first reading counts here.
        delivery = HookDelivery(hooks, NotificationSender(), poll_seconds=2 * TIMEOUT_SECONDS)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(delivery.run)
            with anyio.fail_after(TIMEOUT_SECONDS):
                while not working.got:
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()


@pytest.mark.req("SF-60")
async def test_a_receiver_that_is_down_gets_one_request_per_pause_and_its_events_in_order(
    opened: tuple[Store, Hooks],
) -> None:
    store, hooks = opened
    with receiver(500) as broken, receiver() as working:
        await hooks.add(hook("broken", url=broken.url))
        await hooks.add(hook("working", url=working.url))
        updates = [change() for _ in range(HOOK_BATCH + 1)]
        await store.apply(updates)
        delivery = HookDelivery(hooks, NotificationSender(), first_backoff_seconds=3600, poll_seconds=0.01)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(delivery.run)
            with anyio.fail_after(TIMEOUT_SECONDS):
                while len(working.got) <= HOOK_BATCH:
                    await anyio.sleep(0.01)
            await store.apply([change()])
            with anyio.fail_after(TIMEOUT_SECONDS):
                while len(working.got) <= HOOK_BATCH + 1:
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        assert len(broken.got) == 1
        assert [one for one in await hooks.due(now(1), limit=10) if one.hook.id == "broken"] == []
        found = await hooks.due(now(7200), limit=3)
        assert [(one.event_id, one.tries) for one in found] == [
            (f"{update.row.id}.{update.row.last_seq}.outcome", tries)
            for update, tries in zip(updates, (1, 0, 0), strict=False)
        ]


async def test_a_delivery_is_given_up_after_its_time(opened: tuple[Store, Hooks]) -> None:
    store, hooks = opened
    await hooks.add(hook(retry_seconds=2.0, url="http://127.0.0.1:9/"))
    await store.apply([change()])
    delivery = HookDelivery(hooks, NotificationSender(), first_backoff_seconds=0.05, poll_seconds=0.02)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(delivery.run)
        with anyio.fail_after(TIMEOUT_SECONDS):
            while not (await hooks.all())[0].dropped:
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    (status,) = await hooks.all()
    assert (status.pending, status.delivered) == (0, 0)
    assert "ConnectError" in str(status.last_error)


@pytest.mark.req("SF-60")
async def test_a_receiver_that_was_down_gets_no_expired_events(opened: tuple[Store, Hooks]) -> None:
    store, hooks = opened

    async def deliver_until(delivered: int, dropped: int) -> None:
        # The first pause is longer than the time of the first events.
        delivery = HookDelivery(hooks, NotificationSender(), first_backoff_seconds=3600, poll_seconds=0.01)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(delivery.run)
            with anyio.fail_after(TIMEOUT_SECONDS):
                while [(one.delivered, one.dropped) for one in await hooks.all()] != [(delivered, dropped)]:
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    await hooks.add(hook(retry_seconds=60))
    await store.apply([change() for _ in range(20)])
    await hooks.add(hook(retry_seconds=7200))
    kept, new = change(), change()
    await store.apply([kept])
    await deliver_until(0, 20)
    (status,) = await hooks.all()
    assert status.pending == 1
    assert "ConnectError" in str(status.last_error)
    with receiver() as working:
        await hooks.add(hook(url=working.url))
        await store.apply([new])
        await deliver_until(2, 20)
        got = [headers["webhook-id"] for headers, _ in working.got]
    assert got == [f"{update.row.id}.{update.row.last_seq}.outcome" for update in (kept, new)]


@pytest.mark.req("SF-60")
async def test_deliveries_that_expired_while_no_server_ran_are_dropped_and_counted(
    opened: tuple[Store, Hooks],
) -> None:
    store, hooks = opened
    with receiver() as working:
        # With a negative time, the deliveries of later events have expired when they are stored.
        await hooks.add(hook(retry_seconds=-1, url=working.url))
        await store.apply([happening_later(change()) for _ in range(20)])
        ended = happening_later(change())
        await hooks.add(hook("run", origin="run", run_id=ended.row.id, retry_seconds=-1, url=working.url))
        await hooks.enqueue("run", ended.notifications)
        await hooks.add(hook(url=working.url))
        new = change()
        await store.apply([new])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(HookDelivery(hooks, NotificationSender(), poll_seconds=0.01).run)
            with anyio.fail_after(TIMEOUT_SECONDS):
                while [(one.delivered, one.dropped) for one in await hooks.all()] != [(1, 20)]:
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        assert [headers["webhook-id"] for headers, _ in working.got] == [f"{new.row.id}.{new.row.last_seq}.outcome"]
    (status,) = await hooks.all()
    assert (status.pending, status.last_error) == (0, None)


async def test_a_sender_creates_one_http_client_and_not_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[threading.Thread] = []

    class Client(httpx.AsyncClient):
        def __init__(self, **options: Any) -> None:
            created.append(threading.current_thread())
            super().__init__(**options)

    monkeypatch.setattr(httpx, "AsyncClient", Client)
    with receiver(200, 302) as working:
        async with NotificationSender() as send, anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(send, hook(url=working.url), f"event-{number}", b"{}")
        assert sorted(headers["webhook-id"] for headers, _ in working.got) == ["event-0", "event-1", "event-2"]
    assert len(created) == 1
    assert created[0] is not threading.current_thread()
