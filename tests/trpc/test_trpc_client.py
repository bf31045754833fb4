"""The stock client of tRPC in Node against a started server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import msgspec
import pytest
from tests.timeouts import TIMEOUT_SECONDS, wait_until
from tests.trpc.fleet_server import FleetServer, Proxy, WrittenRun, fleet_server, host_event, provider_event
from tests.trpc.stock_client import StockClient, stock_client

from shopfloor.record import Storage
from shopfloor.server import ConnectionLimits
from shopfloor.views import FleetEvent, fleet_event_schema

SUBSCRIBERS = 500
SCHEMA = jsonschema.Draft202012Validator(fleet_event_schema())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FleetServer]:
    with fleet_server(Storage(tmp_path / "storage")) as server:
        yield server


@pytest.fixture
def client() -> Iterator[StockClient]:
    with stock_client() as client:
        yield client


def tools(events: list[dict[str, Any]]) -> list[str]:
    """Return the tools of the calls among these events."""
    return [event["payload"]["tool"]["name"] for event in events if event["type"] == "agent.tool_call"]


def hosts(events: list[dict[str, Any]]) -> list[str]:
    return [event["payload"]["workerId"] for event in events]


def names(first: int, last: int) -> list[str]:
    return [f"tool-{number}" for number in range(first, last)]


# Procedures and filters


@pytest.mark.req("FE-1", "FE-7")
def test_a_subscriber_gets_each_agent_event_as_it_is(server: FleetServer, client: StockClient) -> None:
    client.connect(server.url, server.token)
    client.subscribe("all")
    run_id = WrittenRun.write(server.storage, "Bash")
    events = client.collect("all", 4)
    assert [event["type"] for event in events] == [
        "agent.spawned",
        "agent.tool_call",
        "agent.tool_result",
        "agent.completed",
    ]
    for event in events:
        assert event.keys() == {"type", "payload", "timestamp"}
        assert event["payload"]["taskId"] == run_id
        SCHEMA.validate(event)


@pytest.mark.req("FE-2")
def test_a_filter_by_provider_delivers_its_events_only(server: FleetServer, client: StockClient) -> None:
    client.connect(server.url, server.token)
    client.subscribe("codex", input={"providerId": "codex"})
    client.subscribe("all")
    WrittenRun.write(server.storage, "one", provider="claude-code")
    WrittenRun.write(server.storage, "two", provider="codex")
    client.collect("all", 8)
    assert tools(client.collect("codex", 4)) == ["two"]
    assert len(client.events("codex")) == 4


@pytest.mark.req("FE-3", "FE-43")
def test_a_filter_by_task_delivers_one_run_or_its_tree(server: FleetServer, client: StockClient) -> None:
    parent = WrittenRun(server.storage)
    client.connect(server.url, server.token)
    client.subscribe("task", input={"taskId": parent.id, "lastEventId": "0"})
    client.subscribe("tree", input={"taskId": parent.id, "tree": True})
    client.collect("task", 1)
    parent.call("above")
    child = WrittenRun.write(server.storage, "below", parent=parent.id)
    WrittenRun.write(server.storage, "below the child", parent=child)
    WrittenRun.write(server.storage, "elsewhere")
    parent.end()
    events = client.collect("tree", 2 + 4 + 4 + 1)
    assert sorted(tools(events)) == ["above", "below", "below the child"]
    assert tools(client.collect("task", 4)) == ["above"]


@pytest.mark.req("FE-4", "FE-48")
def test_hosts_and_providers_have_procedures_of_their_own(server: FleetServer, client: StockClient) -> None:
    client.connect(server.url, server.token)
    client.subscribe("hosts", "workerEvents")
    client.subscribe("providers", "providerEvents")
    client.subscribe("codex", "providerEvents", input={"providerId": "codex"})
    server.append(host_event(1), provider_event("claude-code"), host_event(2), provider_event("codex"))
    assert hosts(client.collect("hosts", 2)) == ["host-1", "host-2"]
    providers = [event["payload"]["providerId"] for event in client.collect("providers", 2)]
    assert providers == ["claude-code", "codex"]
    assert [event["payload"]["providerId"] for event in client.collect("codex", 1)] == ["codex"]
    for event in [*client.events("hosts"), *client.events("providers")]:
        SCHEMA.validate(event)


@pytest.mark.req("FE-49")
def test_heartbeats_are_sent_live_and_are_not_stored(server: FleetServer, client: StockClient) -> None:
    client.connect(server.url, server.token)
    client.subscribe("hosts", "workerEvents")
    server.append(host_event(1))
    client.collect("hosts", 1)
    server.heartbeat(7)
    assert client.collect("hosts", 2)[1]["type"] == "worker.heartbeat"
    client.subscribe("late", "workerEvents", input={"lastEventId": "0"})
    server.append(host_event(2))
    assert hosts(client.collect("late", 2)) == ["host-1", "host-2"]
    assert hosts(client.collect("hosts", 3)) == ["host-1", "host-7", "host-2"]


@pytest.mark.req("FE-6")
def test_no_event_follows_after_unsubscribing(server: FleetServer, client: StockClient) -> None:
    client.connect(server.url, server.token)
    client.subscribe("one", "workerEvents")
    client.subscribe("two", "workerEvents")
    server.append(host_event(1))
    client.collect("one", 1)
    client.unsubscribe("one")
    server.append(host_event(2))
    assert hosts(client.collect("two", 2)) == ["host-1", "host-2"]
    client.drain()
    assert hosts(client.events("one")) == ["host-1"]
    client.unsubscribe("two")
    client.subscribe("one again", "workerEvents")
    server.append(host_event(3))
    assert hosts(client.collect("one again", 1)) == ["host-3"]


# Resumption


@pytest.mark.req("FE-50")
def test_a_client_resumes_after_a_cut_without_loss_or_repetition(server: FleetServer, client: StockClient) -> None:
    proxy = Proxy(server.url)
    client.connect(proxy.url, server.token)
    run = WrittenRun(server.storage)
    client.subscribe("all", input={"providerId": "claude-code", "lastEventId": "0"})
    client.subscribe("codex", input={"providerId": "codex", "lastEventId": "0"})
    other = WrittenRun(server.storage, provider="codex")
    for first in range(0, 250, 50):
        run.call(*names(first, first + 20))
        other.call(*names(first, first + 3))
        # Somewhere in the middle of these events.
        client.collect("all", 2 * first + 5)
        proxy.cut()
        run.call(*names(first + 20, first + 40))
        other.call(*names(first + 3, first + 5))
        proxy.is_open = True
        run.call(*names(first + 40, first + 50))
        assert tools(client.collect("all", 2 * (first + 50) + 1)) == names(0, first + 50)
    other.end()
    codex = client.collect("codex", 1 + 2 * 25 + 1)
    assert tools(codex) == [name for first in range(0, 250, 50) for name in names(first, first + 5)]
    client.drain()
    assert (len(client.events("all")), len(client.events("codex"))) == (501, 52)
    proxy.close()


@pytest.mark.req("FE-50")
def test_a_client_resumes_at_a_server_that_was_restarted(tmp_path: Path, client: StockClient) -> None:
    storage = Storage(tmp_path / "storage")
    run = WrittenRun(storage)
    with fleet_server(storage) as server:
        client.connect(server.url, server.token)
        client.subscribe("all", input={"lastEventId": "0"})
        run.call(*names(0, 10))
        client.collect("all", 21)
        port = int(server.url.rpartition(":")[2])
    run.call(*names(10, 20))
    with fleet_server(storage, port=port):
        run.call(*names(20, 30))
        assert tools(client.collect("all", 61)) == names(0, 30)


@pytest.mark.req("FE-50")
def test_a_new_subscription_starts_after_a_known_event(server: FleetServer, client: StockClient) -> None:
    cursor = server.append(*(host_event(number) for number in range(5)))
    client.connect(server.url, server.token)
    client.subscribe("late", "workerEvents", input={"lastEventId": str(cursor - 2)})
    assert hosts(client.collect("late", 2)) == ["host-3", "host-4"]
    client.subscribe("now", "workerEvents")
    server.append(host_event(5))
    assert hosts(client.collect("now", 1)) == ["host-5"]
    assert hosts(client.collect("late", 3)) == ["host-3", "host-4", "host-5"]


@pytest.mark.req("FE-44")
@pytest.mark.parametrize("cursor", [1, 2**53 - 1])
def test_a_cursor_that_is_too_old_or_unknown_gets_a_gap_and_then_what_is_there(
    server: FleetServer, client: StockClient, cursor: int
) -> None:
    server.append(host_event(1), host_event(2))
    client.connect(server.url, server.token)
    client.subscribe("late", "workerEvents", input={"lastEventId": cursor})
    gap, *events = client.collect("late", 3)
    assert (gap["type"], gap["payload"]) == ("gap", {"lastEventId": str(cursor)})
    assert hosts(events) == ["host-1", "host-2"]
    server.append(host_event(3))
    assert hosts(client.collect("late", 4)[1:]) == ["host-1", "host-2", "host-3"]


# Access


@pytest.mark.req("FE-5", "FE-51")
@pytest.mark.parametrize("token", ["no such token", "", None])
def test_a_wrong_or_missing_token_is_an_error_of_the_subscription(
    server: FleetServer, client: StockClient, token: str | None
) -> None:
    client.connect(server.url, token)
    client.subscribe("all")
    error = client.error("all")
    assert error["code"] == "UNAUTHORIZED"
    assert error["shape"]["code"] == -32001
    assert error["shape"]["data"]["httpStatus"] == 401
    assert "token" in error["message"]
    assert error["shape"]["data"]["hint"]


@pytest.mark.req("FE-51")
def test_a_token_in_the_request_or_a_session_cookie_is_enough(server: FleetServer, client: StockClient) -> None:
    viewer = server.tokens.issue_token("viewer", "tests")
    client.connect(server.url, name="token", headers={"Authorization": f"Bearer {viewer}"})
    secret = server.tokens.log_in_by_token(viewer)
    cookie = {"Cookie": f"{server.tokens.cookie}={secret}", "Origin": server.url}
    client.connect(server.url, name="cookie", headers=cookie)
    for name in ("token", "cookie"):
        client.subscribe(name, "workerEvents", connection=name)
    server.append(host_event(1))
    for name in ("token", "cookie"):
        assert hosts(client.collect(name, 1)) == ["host-1"]


@pytest.mark.req("FE-51")
def test_pages_of_other_sites_cannot_connect(server: FleetServer, client: StockClient) -> None:
    headers = {"Authorization": f"Bearer {server.token}", "Origin": "https://example.com"}
    client.connect(server.url, headers=headers)
    closed = client.wait(lambda line: line.get("connection") == "main" and line["event"] != "ready")
    assert (closed["event"], closed["code"]) == ("close", 1006)


@pytest.mark.req("FE-51")
def test_a_wrong_token_in_the_request_is_an_error_of_the_subscription(server: FleetServer, client: StockClient) -> None:
    client.connect(server.url, headers={"Authorization": "Bearer wrong"})
    client.subscribe("all")
    assert client.error("all")["code"] == "UNAUTHORIZED"


# Errors


@pytest.mark.req("FE-5")
@pytest.mark.parametrize(
    ("procedure", "input_", "code", "words"),
    [
        ("noSuchEvents", None, "NOT_FOUND", 'no procedure found on path "stream.noSuchEvents"'),
        ("agentEvents", {"provider": "codex"}, "BAD_REQUEST", "provider"),
        ("agentEvents", {"providerId": 7}, "BAD_REQUEST", "expected `str | null`, got `int`"),
        ("agentEvents", {"providerId": ""}, "BAD_REQUEST", "providerId"),
        ("agentEvents", ["codex"], "BAD_REQUEST", "input: expected `object`, got `array`"),
        ("agentEvents", {"taskId": "task-123"}, "NOT_FOUND", "there is no run 'task-123'"),
        ("agentEvents", {"lastEventId": "newest"}, "BAD_REQUEST", "lastEventId: must be the id of an event"),
    ],
)
def test_a_subscription_that_fails_says_so_and_the_others_go_on(
    server: FleetServer, client: StockClient, procedure: str, input_: Any, code: str, words: str
) -> None:
    client.connect(server.url, server.token)
    client.subscribe("other", "workerEvents")
    client.subscribe("wrong", procedure, input=input_)
    error = client.error("wrong")
    assert error["code"] == code
    assert words in error["message"]
    server.append(host_event(1))
    assert hosts(client.collect("other", 1)) == ["host-1"]


def test_a_query_of_a_subscription_is_refused(server: FleetServer, client: StockClient) -> None:
    client.connect(server.url, server.token)
    assert client.query("asked", "stream.agentEvents")["code"] == "METHOD_NOT_SUPPORTED"
    assert client.query("asked more", "stream.nothing")["code"] == "NOT_FOUND"


# Many and slow clients


@pytest.mark.req("FE-52")
def test_a_client_that_does_not_read_delays_nobody_is_closed_and_resumes(tmp_path: Path) -> None:
    # Long enough that the slow client reads again before its connection is aborted without a reason.
    limits = ConnectionLimits(stalled_seconds=5.0)
    events = 3_000
    with (
        fleet_server(Storage(tmp_path / "storage"), limits=limits) as server,
        stock_client() as slow,
        stock_client() as quick,
    ):
        for client in (slow, quick):
            client.connect(server.url, server.token)
            client.subscribe("hosts", "workerEvents", input={"lastEventId": server.cursor()})
        slow.pause()
        long_reason = {"reason": "x" * 5_000}
        for first in range(0, events, 100):
            server.append(*(_with_payload(host_event(number), long_reason) for number in range(first, first + 100)))
        expected = [f"host-{number}" for number in range(events)]
        assert hosts(quick.collect("hosts", events)) == expected
        wait_until(lambda: server.fleet.subscriptions == 1, "the slow client to be closed")
        slow.resume()
        assert hosts(slow.collect("hosts", events)) == expected
        closed = slow.wait(lambda line: line.get("event") == "close")
        assert (closed["code"], closed["reason"]) == (1013, "the client reads too slowly; connect again to resume")


def _with_payload(event: FleetEvent, more: dict[str, Any]) -> FleetEvent:
    return msgspec.structs.replace(event, payload={**event.payload, **more})


@pytest.mark.req("FE-52")
def test_many_subscribers_with_filters_each_get_their_events(server: FleetServer, client: StockClient) -> None:
    client.connect(server.url, server.token)
    providers = ["claude-code", "codex", "gemini"]
    for number in range(0, SUBSCRIBERS, 50):
        client.connect(server.url, server.token, name=f"connection {number}")
        for index in range(number, number + 50):
            client.subscribe(
                f"{index}",
                connection=f"connection {number}",
                input={"providerId": providers[index % 3]},
                wait=False,
            )
    for index in range(SUBSCRIBERS):
        client.wait(lambda line, name=str(index): line.get("name") == name and line["event"] == "started")
    for provider in providers:
        WrittenRun.write(server.storage, f"{provider} 1", f"{provider} 2", provider=provider)
    for index in range(SUBSCRIBERS):
        provider = providers[index % 3]
        assert tools(client.collect(str(index), 6)) == [f"{provider} 1", f"{provider} 2"]


# The same events over HTTP


@pytest.mark.req("FE-53")
def test_the_same_events_are_listed_and_streamed_over_http(server: FleetServer) -> None:
    run_id = WrittenRun.write(server.storage, "one", "two")
    headers = {"Authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False) as http:
        wait_until(lambda: len(http.get("/api/events").json()["events"]) == 6, "the events")
        listed = http.get("/api/events", params={"run": run_id, "limit": 2}).json()
        assert [event["type"] for event in listed["events"]] == ["agent.tool_result", "agent.completed"]
        assert listed["cursor"] == listed["events"][-1]["id"]
        first = http.get("/api/events", params={"after": 0, "limit": 1}).json()
        rest = http.get("/api/events", params={"after": first["cursor"]}).json()
        assert (first["gap"], len(rest["events"])) == (False, 5)
        assert http.get("/api/events", params={"after": 1}).json()["gap"] is True
        for address in ("/api/events", "/api/events/stream"):
            refused = http.get(address, params={"type": "agent.toolcall"})
            error = refused.json()["error"]
            assert (refused.status_code, error["code"]) == (400, "invalid_parameter")
            assert error["message"] == "type: must be a type of event, e.g. agent.error, got 'agent.toolcall'"
        with http.stream("GET", "/api/events/stream", headers={"Last-Event-ID": first["cursor"]}) as stream:
            lines = (line for line in stream.iter_lines() if line.startswith(("id:", "event:")))
            assert [next(lines), next(lines)] == [f"id: {first['cursor']}", "event: ready"]
            assert [next(lines) for _ in range(5)] == [f"id: {event['id']}" for event in rest["events"]]
