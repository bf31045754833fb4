"""Several hosts on one storage: takeover, drain, and runs that are executed once whatever happens to their host."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.document_schema import check_event
from tests.fleet.host_processes import Fleet, fleet
from tests.timeouts import wait_until

from shopfloor.cli.limits import SIGTERM_REPEAT_SECONDS

_STOPPED_SECONDS = 1.0


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Fleet]:
    with fleet(tmp_path) as found:
        yield found
        for event in found.events():
            check_event(event)


def statuses(hosts: Fleet, host: str) -> list[str]:
    return [event["payload"]["current"] for event in hosts.events("worker.status_changed", host)]


def offline(hosts: Fleet, host: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in hosts.events("worker.offline", host)]


def listed(hosts: Fleet) -> dict[str, Any]:
    return {host["id"]: host for host in json.loads(hosts.cli("hosts", "--json"))["hosts"]}


@pytest.mark.req("FE-34", "FE-35", "HO-1", "HO-2")
def test_the_runs_of_a_killed_host_are_taken_over_and_its_loss_is_told_once(hosts: Fleet, tmp_path: Path) -> None:
    lost = hosts.host("--slots", "2")
    go = tmp_path / "go"
    runs = hosts.dispatch("holding", "a", "b", GO=str(go))
    hosts.wait_for_note("held a")
    hosts.wait_for_note("held b")
    others = [hosts.host() for _ in range(2)]
    lost.kill()
    wait_until(lambda: offline(hosts, lost.id), "the loss to be told")
    wait_until(lambda: hosts.counts()["held b"] == 2, "the runs to be resumed")
    go.touch()
    assert [hosts.wait_for_outcome(run_id).status for run_id in runs] == ["completed", "completed"]
    counts = hosts.counts()
    assert {note: counts[f"{note} a"] for note in ("before", "after", "held")} == {"before": 1, "after": 1, "held": 2}
    (told,) = offline(hosts, lost.id)
    hosts_by_run = {run_id: hosts.hosts_of(run_id) for run_id in runs}
    assert told["reason"] == "error"
    assert told["lastHeartbeat"] is not None
    assert told["orphanedTasks"] == [
        {"taskId": run_id, "reassigned": True, "newWorkerId": hosts_by_run[run_id][1]} for run_id in runs
    ]
    assert told["orphanedTask"] == told["orphanedTasks"][0]
    assert {host for run_id in runs for host in hosts_by_run[run_id][1:]} <= {other.id for other in others}
    for other in others:
        other.signal(signal.SIGTERM)
        assert other.wait() == 0
    assert [payload["reason"] for payload in offline(hosts, others[0].id)] == ["shutdown"]
    assert len(offline(hosts, lost.id)) == 1


@pytest.mark.req("HO-3")
def test_killed_and_stopped_hosts_under_a_stream_of_runs_give_one_outcome_per_run(hosts: Fleet) -> None:
    names = [f"r{number}" for number in range(40)]
    processes = [hosts.host("--slots", "3") for _ in range(3)]
    runs = hosts.dispatch("chain", *names)
    hosts.wait_for_note("one r4")
    processes[0].signal(signal.SIGSTOP)
    # Nothing can be waited for: the stopped host may hold the write lock of the database.
    time.sleep(_STOPPED_SECONDS)
    processes[1].kill()
    time.sleep(_STOPPED_SECONDS)
    processes[0].signal(signal.SIGCONT)
    replacement = hosts.host("--slots", "3")
    outcomes = {name: hosts.wait_for_outcome(run_id) for name, run_id in zip(names, runs, strict=True)}
    counts = hosts.counts()
    assert [note for note, count in counts.items() if count > 1] == []
    for name, outcome in outcomes.items():
        done = [counts[f"{step} {name}"] for step in ("one", "two", "three")]
        # An effect that the kill has interrupted cannot be known, and is not repeated.
        expected = outcome.status == "completed" or (outcome.error and outcome.error.code == "outcome_unknown")
        assert expected, outcome
        assert outcome.status != "completed" or done == [1, 1, 1]
    assert sum(outcome.status == "completed" for outcome in outcomes.values()) >= len(names) - 3
    assert offline(hosts, processes[0].id) == []
    for process in (processes[0], processes[2], replacement):
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    wait_until(lambda: not hosts.children(), "no process to be left")


@pytest.mark.req("HO-4")
def test_the_processes_of_a_killed_host_end_before_its_runs_are_taken_over(hosts: Fleet) -> None:
    lost = hosts.host()
    (run_id,) = hosts.dispatch("command", "c")
    wait_until(hosts.children, "the command to run")
    hosts.host()
    lost.kill()
    outcome = hosts.wait_for_outcome(run_id)
    # A command cannot be executed twice, and nobody knows how far it came.
    assert outcome.error is not None
    assert outcome.error.code == "outcome_unknown"
    assert hosts.children() == []


@pytest.mark.req("HO-5")
def test_sigterm_drains_a_host_and_a_second_one_hands_its_runs_over(hosts: Fleet, tmp_path: Path) -> None:
    first, go = hosts.host("--drain", "600"), tmp_path / "go"
    (ended,) = hosts.dispatch("holding", "ended", GO=str(go))
    hosts.wait_for_note("held ended")
    first.signal(signal.SIGTERM)
    wait_until(lambda: "draining" in statuses(hosts, first.id), "the host to drain")
    (queued,) = hosts.dispatch("holding", "queued", GO=str(tmp_path / "other"))
    second = hosts.host("--drain", "600")
    hosts.wait_for_note("held queued")
    go.touch()
    assert first.wait() == 0
    assert hosts.hosts_of(ended) == [first.id]
    assert hosts.hosts_of(queued) == [second.id]
    assert statuses(hosts, first.id) == ["idle", "busy", "draining", "offline"]
    third = hosts.host()
    second.signal(signal.SIGTERM)
    wait_until(lambda: "draining" in statuses(hosts, second.id), "the host to drain")
    # A signal that follows sooner counts as the same one.
    time.sleep(2 * SIGTERM_REPEAT_SECONDS)
    second.signal(signal.SIGTERM)
    assert second.wait() == 0
    assert second.output()[-1] == f"host {second.id} has stopped; 1 run is open, for other hosts to resume"
    wait_until(lambda: hosts.hosts_of(queued) == [second.id, third.id], "another host to resume the run")
    wait_until(lambda: offline(hosts, second.id), "the loss to be told")
    orphan = {"taskId": queued, "reassigned": True, "newWorkerId": third.id}
    assert [(told["reason"], told["orphanedTask"]) for told in offline(hosts, second.id)] == [("shutdown", orphan)]


@pytest.mark.req("HO-5")
def test_a_host_says_what_a_signal_does_and_a_signal_sent_twice_at_once_counts_once(
    hosts: Fleet, tmp_path: Path
) -> None:
    host, go = hosts.host("--drain", "600"), tmp_path / "go"
    (run_id,) = hosts.dispatch("holding", "x", GO=str(go))
    hosts.wait_for_note("held x")
    # As `timeout` does: to the process, then to its group.
    for _ in range(2):
        host.signal(signal.SIGTERM)
    wait_until(lambda: "draining" in statuses(hosts, host.id), "the host to drain")
    with pytest.raises(AssertionError, match=rf"error\[conflict\]: the host {host.id} is stopping"):
        hosts.cli("hosts", "undrain", host.id)
    go.touch()
    assert host.wait() == 0
    assert hosts.wait_for_outcome(run_id).status == "completed"
    assert hosts.hosts_of(run_id) == [host.id]
    assert host.output() == [
        "draining: claims no more runs, and stops when its runs have ended, within 600 s",
        f"host {host.id} has stopped",
    ]


def test_a_host_becomes_idle_after_its_runs_have_ended_in_the_order_of_events(hosts: Fleet) -> None:
    runs = hosts.dispatch("note", *map(str, range(20)))
    host = hosts.host("--slots", "1")
    for run_id in runs:
        hosts.wait_for_outcome(run_id)
    wait_until(lambda: len(hosts.events("worker.task_completed")) == len(runs), "the events of all runs")
    executing: set[str] = set()
    for event in hosts.events(host=host.id):
        payload = event["payload"]
        match event["type"], payload.get("current"):
            case "worker.task_assigned", _:
                executing.add(payload["taskId"])
            case "worker.task_completed", _:
                executing.remove(payload["taskId"])
            case "worker.status_changed", "idle":
                assert executing == set()
            case _:
                pass
    assert statuses(hosts, host.id)[:2] == ["idle", "busy"]


@pytest.mark.req("HO-6")
def test_a_user_drains_a_host_and_undrains_it_without_a_server(hosts: Fleet, tmp_path: Path) -> None:
    host, go = hosts.host("--label", "gpu=yes", "--slots", "3"), tmp_path / "go"
    (held,) = hosts.dispatch("holding", "held", GO=str(go))
    hosts.wait_for_note("held held")
    assert "it claims no more runs" in hosts.cli("hosts", "drain", host.id[-4:])
    wait_until(lambda: statuses(hosts, host.id)[-1] == "draining", "the host to drain")
    (waiting,) = hosts.dispatch("chain", "waiting")
    found = listed(hosts)[host.id]
    assert (found["status"], found["drain_reason"], found["responsive"]) == ("draining", "requested", True)
    assert (found["slots"], found["slots_used"], found["labels"]) == (3, 1, {"gpu": "yes"})
    assert [(run["run_id"], run["worker"], run["status"]) for run in found["runs"]] == [(held, "holding", "running")]
    go.touch()
    hosts.wait_for_outcome(held)
    assert hosts.log(waiting) == []
    hosts.cli("hosts", "undrain", host.id)
    hosts.wait_for_outcome(waiting)
    assert hosts.hosts_of(waiting) == [host.id]


@pytest.mark.req("HO-6")
def test_after_the_time_of_a_drain_other_hosts_resume_the_runs(hosts: Fleet, tmp_path: Path) -> None:
    host, go = hosts.host(), tmp_path / "go"
    (run_id,) = hosts.dispatch("holding", "x", GO=str(go))
    hosts.wait_for_note("held x")
    other = hosts.host()
    hosts.cli("hosts", "drain", host.id, "--seconds", "0")
    wait_until(lambda: hosts.hosts_of(run_id) == [host.id, other.id], "another host to resume the run")
    go.touch()
    hosts.wait_for_outcome(run_id)
    assert hosts.counts()["before x"] == hosts.counts()["after x"] == 1
    assert offline(hosts, host.id) == []
    assert host.process.poll() is None


@pytest.mark.req("HO-6")
def test_a_run_that_its_drained_host_has_handed_over_to_nobody_says_why_and_takes_no_slot(
    hosts: Fleet, tmp_path: Path
) -> None:
    host, go = hosts.host(), tmp_path / "go"
    (run_id,) = hosts.dispatch("holding", "x", GO=str(go))
    hosts.wait_for_note("held x")
    assert [(found["slots_used"], len(found["runs"])) for found in listed(hosts).values()] == [(1, 1)]
    hosts.cli("hosts", "drain", host.id, "--seconds", "0")
    wait_until(lambda: not listed(hosts)[host.id]["runs"], "the host to hand its run over")
    assert listed(hosts)[host.id]["slots_used"] == 0
    (row,) = json.loads(hosts.cli("list", "--json"))["workers"]
    reason = "every host that can execute it is draining"
    assert (row["id"], row["interrupted"], row["queue_reason"]) == (run_id, True, reason)
    go.touch()
    hosts.cli("hosts", "undrain", host.id)
    hosts.wait_for_outcome(run_id)
    assert hosts.hosts_of(run_id) == [host.id, host.id]


@pytest.mark.req("HO-3", "FE-55")
def test_a_run_is_taken_over_only_by_a_host_with_its_labels(hosts: Fleet, tmp_path: Path) -> None:
    lost, go = hosts.host("--label", "gpu=yes"), tmp_path / "go"
    (run_id,) = hosts.dispatch("holding", "x", labels={"gpu": "yes"}, GO=str(go))
    hosts.wait_for_note("held x")
    other = hosts.host()
    lost.kill()
    wait_until(lambda: any(record["status"] == "offline" for record in listed(hosts).values()), "the loss")
    # The other host executes runs without this label, and has looked for lost hosts meanwhile.
    (chain,) = hosts.dispatch("chain", "y")
    hosts.wait_for_outcome(chain)
    assert hosts.hosts_of(chain) == [other.id]
    assert hosts.hosts_of(run_id) == [lost.id]
    wait_until(lambda: "no host has the label gpu=yes" in hosts.cli("status", run_id), "the reason")
    assert "no host has the label gpu=yes" in hosts.cli("list", "--status", "interrupted")
    replacement = hosts.host("--label", "gpu=yes")
    wait_until(lambda: hosts.hosts_of(run_id) == [lost.id, replacement.id], "the run to be taken over")
    go.touch()
    assert hosts.wait_for_outcome(run_id).status == "completed"


@pytest.mark.req("HO-7")
def test_a_suspended_host_is_shown_as_unresponsive_and_keeps_its_runs(hosts: Fleet, tmp_path: Path) -> None:
    host, go = hosts.host(), tmp_path / "go"
    (run_id,) = hosts.dispatch("holding", "x", GO=str(go))
    hosts.wait_for_note("held x")
    hosts.host()
    host.signal(signal.SIGSTOP)
    wait_until(lambda: not listed(hosts)[host.id]["responsive"], "the host to be unresponsive")
    assert listed(hosts)[host.id]["status"] == "busy"
    assert "unresponsive" in hosts.cli("hosts")
    host.signal(signal.SIGCONT)
    wait_until(lambda: listed(hosts)[host.id]["responsive"], "the host to be responsive")
    go.touch()
    hosts.wait_for_outcome(run_id)
    assert hosts.hosts_of(run_id) == [host.id]
    assert offline(hosts, host.id) == []


@pytest.mark.req("HO-8")
def test_sub_runs_and_cancels_work_across_hosts(hosts: Fleet, tmp_path: Path) -> None:
    first = hosts.host("--slots", "1")
    go = tmp_path / "go"
    (parent,) = hosts.dispatch("parent", "p", GO=str(go))
    hosts.wait_for_note("held p")
    (cancelled,) = hosts.dispatch("holding", "c", GO=str(tmp_path / "never"))
    second = hosts.host("--slots", "1")
    hosts.wait_for_note("held c")
    assert hosts.hosts_of(cancelled) == [second.id]
    hosts.cli("cancel", cancelled)
    assert hosts.wait_for_outcome(cancelled).status == "cancelled"
    first.kill()
    wait_until(lambda: hosts.counts()["held p"] == 2, "the sub-run to be resumed")
    go.touch()
    assert hosts.wait_for_outcome(parent).status == "completed"
    assert hosts.hosts_of(parent) == [first.id, second.id]
    counts = hosts.counts()
    assert [counts[f"{note} p"] for note in ("parent", "before", "after", "end")] == [1, 1, 1, 1]


@pytest.mark.req("HO-9")
def test_a_process_of_run_is_no_host_of_the_fleet(hosts: Fleet) -> None:
    hosts.cli("run", "chain", "-i", "NAME=mine", "--workers", str(hosts.folder / "workers"))
    assert hosts.counts()["three mine"] == 1
    assert hosts.events() == []
    assert hosts.cli("hosts").startswith("no host is running")


def test_a_host_that_does_not_exist_or_is_gone_cannot_be_drained(hosts: Fleet) -> None:
    host = hosts.host()
    with pytest.raises(AssertionError, match=r"error\[host_not_found\]: there is no host 'local-nobody'"):
        hosts.cli("hosts", "drain", "local-nobody")
    host.signal(signal.SIGINT)
    assert host.wait() == 0
    assert [told["reason"] for told in offline(hosts, host.id)] == ["shutdown"]
    with pytest.raises(AssertionError, match=r"error\[conflict\]: the host local-.* is offline"):
        hosts.cli("hosts", "drain", host.id)
