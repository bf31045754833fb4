"""Fleet events in Python and on the command line: `client.events()` and `shopfloor events`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.timeouts import TIMEOUT_SECONDS
from tests.trpc.fleet_server import FleetServer, Proxy, WrittenRun, fleet_server, host_event, provider_event
from tests.unit.client.scripted_server import Answer, scripted_server

from shopfloor.client import Client, FleetUpdate, resumable_stream
from shopfloor.errors import ServerUnreachable, TooManySubscriptions, Unauthorized
from shopfloor.limits import RECONNECT_TRIES
from shopfloor.record import Storage
from shopfloor.server import fleet_feed

pytestmark = pytest.mark.anyio
SHOPFLOOR = str(Path(sys.executable).parent / "shopfloor")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FleetServer]:
    with fleet_server(Storage(tmp_path / "storage")) as server:
        yield server


async def take(events: AsyncIterator[FleetUpdate], count: int) -> list[FleetUpdate]:
    with anyio.fail_after(TIMEOUT_SECONDS):
        return [await anext(events) for _ in range(count)]


def tools(events: list[FleetUpdate]) -> list[str]:
    return [event.payload["tool"]["name"] for event in events if event.type == "agent.tool_call"]


@pytest.mark.req("FE-54")
async def test_a_client_gets_events_of_a_provider_as_they_happen(server: FleetServer) -> None:
    async with Client(server.url, server.token) as client, aclosing(client.events(provider="codex", after=0)) as events:
        WrittenRun.write(server.storage, "one", provider="claude-code")
        WrittenRun.write(server.storage, "two", provider="codex")
        received = await take(events, 4)
    assert [event.type for event in received] == [
        "agent.spawned",
        "agent.tool_call",
        "agent.tool_result",
        "agent.completed",
    ]
    assert tools(received) == ["two"]
    assert [int(event.id) for event in received] == sorted(int(event.id) for event in received)


@pytest.mark.req("FE-54")
async def test_a_client_reconnects_without_loss_or_repetition(server: FleetServer) -> None:
    proxy = Proxy(server.url)
    run = WrittenRun(server.storage)
    async with Client(proxy.url, server.token) as client, aclosing(client.events(run=run.id, after=0)) as events:
        received: list[FleetUpdate] = []
        for number in range(0, 30, 10):
            run.call(*(f"tool {index}" for index in range(number, number + 5)))
            received += await take(events, 3)
            proxy.cut()
            run.call(*(f"tool {index}" for index in range(number + 5, number + 10)))
            proxy.is_open = True
        run.end()
        received += await take(events, 1 + 60 + 1 - len(received))
    assert tools(received) == [f"tool {number}" for number in range(30)]
    assert received[-1].type == "agent.completed"
    proxy.close()


async def test_a_gap_is_an_event(server: FleetServer) -> None:
    server.append(host_event(1))
    async with Client(server.url, server.token) as client, aclosing(client.events(after=1)) as events:
        gap, event = await take(events, 2)
    assert (gap.type, gap.payload) == ("gap", {"lastEventId": "1"})
    assert event.payload["workerId"] == "host-1"


async def test_an_unknown_token_is_an_error(server: FleetServer) -> None:
    async with Client(server.url, "unknown") as client, aclosing(client.events()) as events:
        with pytest.raises(Unauthorized):
            await anext(events)


@pytest.mark.req("FE-53")
async def test_a_subscription_too_many_is_refused_before_the_stream_starts(
    server: FleetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_feed, "FLEET_SUBSCRIPTIONS_MAX", 1)
    async with Client(server.url, server.token) as client:
        async with aclosing(client.events(after=0)) as events:
            server.append(host_event(1))
            await take(events, 1)
            with pytest.raises(TooManySubscriptions):
                await anext(client.events())
        with anyio.fail_after(TIMEOUT_SECONDS):
            while server.fleet.subscriptions:
                await anyio.sleep(0.01)


async def test_a_server_that_only_accepts_connections_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumable_stream, "RECONNECT_PAUSE_SECONDS", 0.001)
    async with scripted_server() as (server, client):
        server.streams = [Answer([b"id: 1\nevent: ready\ndata: {}\n\n"])] * (RECONNECT_TRIES + 1)
        with pytest.raises(ServerUnreachable):
            await anext(client.events())


# The command


@pytest.fixture
def env(server: FleetServer) -> dict[str, str]:
    return {**os.environ, "SHOPFLOOR_URL": server.url, "SHOPFLOOR_TOKEN": server.token, "NO_COLOR": "1"}


@contextmanager
def following(env: dict[str, str], *words: str) -> Iterator[Iterator[dict[str, Any]]]:
    """Yield the events that `shopfloor events --follow` prints."""
    command = [SHOPFLOOR, "events", "--follow", "--json", *words]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield map(json.loads, process.stdout)
        finally:
            process.terminate()
            process.wait(TIMEOUT_SECONDS)


@pytest.mark.req("FE-54")
def test_the_command_follows_all_runs_or_a_provider_or_a_run(server: FleetServer, env: dict[str, str]) -> None:
    first = WrittenRun(server.storage)
    server.append(provider_event("codex"))
    child = WrittenRun(server.storage, provider="codex", parent=first.id)
    with (
        following(env, "--limit", "1000") as everything,
        following(env, "--provider", "codex", "--stream", "provider") as codex,
        following(env, first.id, "--tree") as tree,
    ):
        assert {next(everything)["type"] for _ in range(3)} == {"agent.spawned", "provider.unavailable"}
        assert next(codex)["type"] == "provider.unavailable"
        assert {next(tree)["payload"]["taskId"] for _ in range(2)} == {first.id, child.id}
        child.call("new")
        for printed in (everything, tree):
            assert next(printed)["payload"]["tool"]["name"] == "new"
        server.append(provider_event("codex"))
        assert next(codex)["payload"]["providerId"] == "codex"


def shopfloor(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SHOPFLOOR, "events", *words], env=env, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )


@pytest.mark.req("FE-54")
def test_the_command_lists_the_newest_stored_events(server: FleetServer, env: dict[str, str]) -> None:
    server.append(*(host_event(number) for number in range(30)))
    printed = shopfloor(env, "--limit", "2", "--json")
    assert [json.loads(line)["payload"]["workerId"] for line in printed.stdout.splitlines()] == ["host-28", "host-29"]
    lines = shopfloor(env).stdout.splitlines()
    assert len(lines) == 20
    assert lines[0].split()[:3] == ["10:30:00.000", "worker.status_changed", "host-10"]
    assert shopfloor(env, "--stream", "agent").stdout == ""


@pytest.mark.req("FE-54")
def test_the_command_lists_events_of_a_type_and_those_that_no_log_has(server: FleetServer, env: dict[str, str]) -> None:
    run = WrittenRun(server.storage)
    run.call("one")
    with following(env, "--type", "agent.tool_call") as calls:
        assert next(calls)["payload"]["tool"]["name"] == "one"
        server.append(*(host_event(number, run_id=run.id) for number in range(30)))
        run.call("two")
        assert next(calls)["payload"]["tool"]["name"] == "two"
    listed = shopfloor(env, "--type", "agent.spawned", "--json").stdout.splitlines()
    assert [json.loads(line)["type"] for line in listed] == ["agent.spawned"]
    for words in (["--stream", "worker"], ["--type", "worker.status_changed"]):
        listed = shopfloor(env, run.id, *words, "--limit", "2", "--json").stdout.splitlines()
        assert [json.loads(line)["payload"]["workerId"] for line in listed] == ["host-28", "host-29"]
    run.end()


def test_a_tree_needs_a_run_and_follow(env: dict[str, str]) -> None:
    for words in (["--tree"], ["last", "--tree"], ["--follow", "--tree"]):
        refused = shopfloor(env, *words)
        assert refused.returncode == 2
        assert "--tree needs RUN and --follow" in refused.stderr
