"""Hosts that die around a run whose worker changed: it waits once, continues once, and has one outcome."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.faults.engine_process import DONE, HostPlan, run_host
from tests.faults.engine_server import SHOPFLOOR, Deployment, Server
from tests.timeouts import wait_until

from shopfloor.log import (
    Event,
    RunCompleted,
    RunStarted,
    StepCompleted,
    ToolCall,
    ToolResult,
    Verifier,
    decode,
    new_run_id,
)
from shopfloor.record import Storage, read

AT_ONCE = 5
"""The number of hosts at once. They wait most of their time."""
KILLED = -9
ASKS = '''
from shopfloor import Run, worker


def note(file, what):
    with open(file, "a") as out:
        out.write(what + "\\n")
    return what


@worker
async def asks(run: Run, NOTES: str, GO: str = ""):
    """Notes, asks, and notes again."""
    await run.step("before", note, NOTES, "before")
    answer = await run.ask("Shall we?")
    return [answer, await run.step("after", note, NOTES, "after")]
'''
CHANGED = ASKS.replace('out.write(what + "\\n")', 'out.write(f"{what}!\\n")')


def write(folder: Path, source: str) -> None:
    (folder / "asks").mkdir(parents=True, exist_ok=True)
    (folder / "asks" / "worker.py").write_text(source)


def waits_of(events: list[Event]) -> list[ToolCall]:
    calls = [event.payload for event in events if isinstance(event.payload, ToolCall)]
    return [call for call in calls if call.awaits and call.awaits.kind == "definition_changed"]


def has_done(events: list[Event], path: str) -> bool:
    return any(isinstance(event.payload, StepCompleted) and event.path == path for event in events)


def checked(storage: Storage, run_id: str) -> list[Event]:
    """Return the events of a complete log, with at most one wait for the definition, which ended once."""
    path = storage.log_path(run_id)
    verifier = Verifier(run_id)
    assert [problem for line in path.read_bytes().splitlines(keepends=True) for problem in verifier.line(line)] == []
    events = [decode(entry.raw) for entry in read(path, on_problem=lambda problem: None)]
    waits = {call.call_id for call in waits_of(events)}
    assert len(waits) <= 1
    results = Counter(event.payload.call_id for event in events if isinstance(event.payload, ToolResult))
    assert all(results[call_id] <= 1 for call_id in waits)
    return events


def shown(deployment: Deployment, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SHOPFLOOR, *words], env=deployment.env, capture_output=True, text=True, timeout=60, check=False
    )


def wait_for_definition_wait(deployment: Deployment, server: Server, run_id: str) -> None:
    """Wait until the list shows that the run waits for its definition."""

    def is_waiting() -> bool:
        detail = server.http.get("/api/agents/workers/detail", params={"worker_id": run_id}).json()
        return detail["status"] == "waiting" and "definition_changed" in (detail["waits_for"] or [])

    wait_until(is_waiting, "the run to wait for its definition")


@pytest.mark.req("TR-72")
def test_a_server_killed_around_a_wait_for_a_definition_logs_it_once_and_continues_once(tmp_path: Path):
    deployment = Deployment(tmp_path)
    write(tmp_path / "workers", ASKS)
    with deployment.up() as server:
        run_id = server.dispatch("asks")
        wait_until(lambda: deployment.open_calls(run_id), "the question")
        (question,) = deployment.open_calls(run_id)
        server.kill()
    write(tmp_path / "workers", CHANGED)
    with deployment.up() as server:
        server.post(f"/api/runs/{run_id}/resume")
        wait_for_definition_wait(deployment, server, run_id)
        server.kill()
    (wait,) = waits_of(deployment.events(run_id))
    before = len(deployment.events(run_id))
    with deployment.up() as server:
        # An answer during the wait is kept; the wait itself cannot be answered.
        server.post(f"/api/runs/{run_id}/answer", call_id=question, answer="yes")
        refused = server.http.post(f"/api/runs/{run_id}/answer", json={"call_id": wait.call_id, "answer": "yes"})
        assert refused.status_code == 409, refused.text
        output = shown(deployment, "status", run_id).stdout
        assert "waiting" in output
        assert "`note` of the worker `asks` changed" in output
        assert "`note` of the worker `asks` changed" in shown(deployment, "show", run_id).stdout
        listed = json.loads(shown(deployment, "list", "--json").stdout)["workers"][0]
        assert (listed["status"], listed["waits_for"]) == ("waiting", ["definition_changed", "question"])
        assert "waits until its worker is restored" in shown(deployment, "answer", run_id, wait.call_id, "yes").stderr
        time.sleep(1.5)
        server.kill()
    with deployment.up() as server:
        time.sleep(1.5)
        wait_for_definition_wait(deployment, server, run_id)
        server.kill()
    assert len(deployment.events(run_id)) == before
    assert shown(deployment, "rebuild").returncode == 0
    listed = json.loads(shown(deployment, "list", "--json").stdout)["workers"][0]
    assert (listed["status"], listed["waits_for"][0]) == ("waiting", "definition_changed")
    write(tmp_path / "workers", ASKS)
    with deployment.up() as server:
        # Killed in the middle of the step, its outcome would not be known.
        wait_until(lambda: has_done(deployment.events(run_id), "after"), "the run to go on")
        server.kill()
    with deployment.up():
        (outcome,) = deployment.wait_until_all_ended().values()
    assert (outcome.status, outcome.result) == ("completed", ["yes", "after"])
    assert deployment.note_counts() == {"before": 1, "after": 1}
    checked(deployment.storage, run_id)


@pytest.mark.req("TR-71")
def test_a_run_in_the_foreground_reports_that_it_waits_for_its_definition_and_exits(tmp_path: Path):
    deployment = Deployment(tmp_path)
    write(tmp_path / "workers", ASKS)
    with deployment.up("--slots", "1") as server:
        server.dispatch("command")
        wait_until(deployment.children, "the only slot to be taken")
        words = [SHOPFLOOR, "run", "asks", "-i", f"NOTES={deployment.notes}"]
        # With the URL of a server, that server executes the run.
        address = json.loads(deployment.storage.server_address.read_bytes())
        env = {**deployment.env, "SHOPFLOOR_URL": address["url"], "SHOPFLOOR_TOKEN": address["token"]}
        with subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True) as run:
            wait_until(lambda: _queued(server) == ["asks"], "the run to be queued")
            write(tmp_path / "workers", CHANGED)
            # The server reads the file again only with the next request.
            server.dispatch("asks")
            deployment.go.touch()
            _, output = run.communicate(timeout=60)
        assert run.returncode == 75, output
        assert "waits for its definition: `note` of the worker `asks` changed since this run began" in output
        assert "shopfloor answer" not in output


def _queued(server: Server) -> list[str]:
    listed = server.http.get("/api/agents/workers", params={"status": "queued"}).json()
    return [run["name"] for run in listed["workers"]]


class Matrix:
    """A run that is interrupted at its question, in a storage that is copied for every kill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_id = new_run_id()
        (folder / "first_plan").mkdir(parents=True)
        write(folder / "asks-workers", ASKS)
        write(folder / "changed-workers", CHANGED)
        arguments = {"NOTES": str(folder / "first_plan" / "notes")}
        # run.started, step.started, step.completed, tool.call
        first_plan = HostPlan(
            storage=folder / "first_plan" / "storage",
            workers=folder / "asks-workers",
            run_id=self.run_id,
            dispatch=("asks", arguments),
            act="kill",
            at=4,
            answers=False,
        )
        assert run_host(first_plan) == KILLED

    def plan(self, case: Path, workers: str, **plan: object) -> int:
        return run_host(
            HostPlan(storage=case / "storage", workers=self.folder / f"{workers}-workers", run_id=self.run_id, **plan)  # pyright: ignore[reportArgumentType]
        )

    def case(self, name: str) -> Path:
        """Copy the interrupted run; the copy shares its file of notes."""
        case = self.folder / name
        shutil.copytree(self.folder / "first_plan" / "storage", case / "storage")
        return case


@pytest.mark.req("TR-72")
def test_a_host_that_dies_at_any_event_around_the_wait_leaves_a_run_that_waits_once_and_ends_once(tmp_path: Path):
    matrix = Matrix(tmp_path)
    # Longer than the maintenance of runs without a host takes.
    wait_for_definition_wait = {"hold_seconds": 1.2}

    def dies_waiting(at: int) -> Path:
        """Change the worker, kill the host at that event, run a host for a while, then restore the worker."""
        case = matrix.case(f"waiting-{at}")
        code = matrix.plan(case, "changed", act="kill", at=at, before=True, **wait_for_definition_wait)
        # Depending on timing, the answer is a third event, or comes only after the worker is restored.
        assert code == KILLED or (code, at) == (DONE, 3)
        assert matrix.plan(case, "changed", **wait_for_definition_wait) == DONE
        events = checked(Storage(case / "storage"), matrix.run_id)
        assert len(waits_of(events)) == 1
        assert matrix.plan(case, "changed", **wait_for_definition_wait) == DONE
        assert len(checked(Storage(case / "storage"), matrix.run_id)) == len(events)
        assert matrix.plan(case, "asks") == DONE
        return case

    def kill_after_restore(at: int) -> Path:
        """Restore the worker, kill the host at that event, and run another host."""
        case = matrix.case(f"back-{at}")
        assert matrix.plan(case, "changed", **wait_for_definition_wait) == DONE
        code = matrix.plan(case, "asks", act="kill", at=at, before=True)
        assert code == KILLED or (code, at) == (DONE, 6)
        assert matrix.plan(case, "asks") == DONE
        return case

    with ThreadPoolExecutor(AT_ONCE) as pool:
        cases = [*pool.map(dies_waiting, (1, 2, 3)), *pool.map(kill_after_restore, range(1, 7))]
    for case in cases:
        events = checked(Storage(case / "storage"), matrix.run_id)
        outcomes = [event.payload for event in events if isinstance(event.payload, RunCompleted)]
        assert [one.error and one.error.code for one in outcomes] in ([None], ["outcome_unknown"]), case.name
        assert isinstance(events[0].payload, RunStarted)
