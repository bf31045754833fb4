"""Every `worker.*` event from its cause, received by the stock client of tRPC and checked against the document."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.document_schema import PAYLOADS, check_event
from tests.fleet.host_processes import Fleet, fleet
from tests.login import token_of
from tests.timeouts import wait_until
from tests.trpc.stock_client import StockClient, stock_client

from shopfloor.limits import HOST_HEARTBEAT_SECONDS, PREVIEW_CHARS
from shopfloor.version import __version__

LONG = "write a long text " * 100


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet")) as found:
        yield found


@pytest.fixture(scope="module")
def client(hosts: Fleet) -> Iterator[StockClient]:
    with stock_client() as client:
        client.connect(hosts.up("--slots", "1"), token_of(hosts.storage))
        client.subscribe("hosts", "workerEvents")
        yield client


def of_type(client: StockClient, event_type: str, **payload: Any) -> dict[str, Any]:
    """Wait for an event with these values in its payload, and return its payload."""

    def matches(line: dict[str, Any]) -> bool:
        data = line.get("data") or {}
        return data.get("type") == event_type and payload.items() <= data["payload"].items()

    event = client.wait(lambda line: line.get("name") == "hosts" and matches(line))["data"]
    check_event(event)
    return event["payload"]


@pytest.mark.req("FE-4", "FE-25", "FE-26", "FE-27", "FE-28", "FE-29", "FE-30", "FE-31", "FE-49", "HO-10")
def test_a_host_that_joins_is_registered_and_its_heartbeats_reach_the_server(hosts: Fleet, client: StockClient) -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAMESPACE": "prod", "POD_NAME": "hosts-7d4b"}
    host = hosts.host("--label", "gpu=yes", "--slots", "2", ANTHROPIC_API_KEY="key", **pod)
    info = of_type(client, "worker.registered", workerId=host.id)["info"]
    assert (info["type"], info["version"]) == ("cloud", __version__)
    assert info["location"] == {"type": "kubernetes", "namespace": "prod", "pod": "hosts-7d4b"}
    assert "anthropic" in info["capabilities"]
    assert (info["labels"], info["slots"]) == ({"gpu": "yes"}, 2)
    assert info["resources"]["memoryMB"] > 100
    assert of_type(client, "worker.status_changed", workerId=host.id, previous="starting")["current"] == "idle"
    beat = of_type(client, "worker.heartbeat", workerId=host.id, status="idle")
    assert beat["metrics"]["uptime"] > 0
    # Heartbeats are not stored.
    assert hosts.events("worker.heartbeat") == []
    listed = {found["id"]: found for found in json.loads(hosts.cli("hosts", "--json"))["hosts"]}
    assert len(listed) == 2
    assert [found["heartbeat_seconds"] for found in listed.values()] == [HOST_HEARTBEAT_SECONDS, 0.5]
    assert len(listed[host.id]["cpu_history"]) >= 1
    host.signal(signal.SIGTERM)
    assert host.wait() == 0
    gone = of_type(client, "worker.offline", workerId=host.id)
    assert gone["reason"] == "shutdown"
    assert "orphanedTask" not in gone


@pytest.mark.req("FE-29", "FE-31", "FE-32", "FE-33")
def test_runs_are_assigned_and_completed_with_an_estimate_and_the_next_run(
    hosts: Fleet, client: StockClient, tmp_path: Path
) -> None:
    (first,) = hosts.dispatch("chain", "first")
    assigned = of_type(client, "worker.task_assigned", taskId=first)
    server = assigned["workerId"]
    assert assigned["task"]["taskType"] == "chain"
    assert assigned["providerId"] is None
    assert "estimatedDuration" not in assigned
    completed = of_type(client, "worker.task_completed", taskId=first)
    assert completed["workerId"] == server
    assert completed["result"]["success"] is True
    assert completed["result"]["duration"] > 0
    # No model was called, so nobody can know tokens or cost.
    assert (completed["result"]["tokensUsed"], completed["result"]["cost"]) == (None, None)
    busy = of_type(client, "worker.status_changed", workerId=server, current="busy")
    assert (busy["previous"], busy["taskId"]) == ("idle", first)
    of_type(client, "worker.status_changed", workerId=server, previous="busy", current="idle")
    go = tmp_path / "go"
    held, queued, last = hosts.dispatch("holding", "held", "queued", LONG, GO=str(go))
    hosts.wait_for_note("held held")
    go.touch()
    following = of_type(client, "worker.task_completed", taskId=held)["nextTask"]
    assert following == {"taskId": queued, "queuePosition": 1}
    assert "nextTask" not in of_type(client, "worker.task_completed", taskId=last)
    prompt = of_type(client, "worker.task_assigned", taskId=last)["task"]["prompt"]
    assert len(prompt) == PREVIEW_CHARS
    assert prompt.endswith("…")


@pytest.mark.req("FE-32")
def test_the_estimate_is_the_median_of_the_last_runs(hosts: Fleet, client: StockClient) -> None:
    (first,) = hosts.dispatch("note", "first")
    server = of_type(client, "worker.task_completed", taskId=first)["workerId"]
    host = hosts.host()
    hosts.cli("hosts", "drain", server)
    of_type(client, "worker.status_changed", workerId=server, current="draining", reason="requested")
    (run_id,) = hosts.dispatch("note", "again")
    assigned = of_type(client, "worker.task_assigned", taskId=run_id)
    assert assigned["workerId"] == host.id
    done = hosts.outcome(first)
    assert done is not None
    assert done.duration_ms is not None
    assert assigned["estimatedDuration"] == pytest.approx(done.duration_ms / 1000, abs=0.002)
    (held,) = hosts.dispatch("holding", "busy", GO="/nowhere")
    hosts.wait_for_note("held busy")

    def current(line: dict[str, Any]) -> str | None:
        return (line.get("data") or {}).get("payload", {}).get("currentTask", {}).get("taskId")

    event = client.wait(lambda line: current(line) == held)["data"]
    check_event(event)
    beat = event["payload"]
    assert (event["type"], beat["workerId"], beat["status"]) == ("worker.heartbeat", host.id, "busy")
    assert (beat["currentTasks"], beat["currentTasksTotal"]) == ([beat["currentTask"]], 1)
    host.signal(signal.SIGINT)
    assert host.wait() == 0
    gone = of_type(client, "worker.offline", workerId=host.id)
    # The server is draining: nobody takes the run over.
    assert gone["reason"] == "shutdown"
    assert gone["orphanedTask"] == {"taskId": held, "reassigned": False}
    types = {event["type"] for event in hosts.events()} | {"worker.heartbeat"}
    assert types == set(PAYLOADS)
    wait_until(lambda: len(client.events("hosts")) > len(hosts.events()), "each event and the heartbeats")
