"""`shopfloor up` is killed, stopped, or told to cancel, with runs in the middle of everything."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.cli.test_run import processes_with
from tests.faults.engine_server import MODEL, SHOPFLOOR, STATES, Shop
from tests.model_server.server import ModelServer, in_thread
from tests.patience import PATIENCE, wait_until

from shopfloor.limits import STOPPED_HOST_SECONDS
from shopfloor.log import CallStarted, StepCompleted
from shopfloor.record import Recorder
from shopfloor.wiring import Workers, local_engine, local_office

ONCE = {f"before {state}" for state in STATES}
COUNTS = {f"count {letter}{number}" for letter in "ab" for number in (1, 2)}


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with in_thread(MODEL) as server:
        yield server


@pytest.fixture
def shop(tmp_path: Path, model: ModelServer) -> Iterator[Shop]:
    shop = Shop(tmp_path, **model.env)
    yield shop
    shop.go.touch()


def codes(shop: Shop, runs: dict[str, str]) -> dict[str, str | None]:
    """How each ended: its result's kind, or its error's code."""
    ended = {state: shop.outcome(run_id) for state, run_id in runs.items()}
    return {state: end and (end.error.code if end.error else end.status) for state, end in ended.items()}


def test_a_server_killed_in_the_middle_of_everything_goes_on_with_it(shop: Shop, model: ModelServer):
    with shop.up() as server:
        runs = server.start_all()
        wait_until(lambda: len(model.asked()) == 1, "the model to be asked")
        server.kill()
    wait_until(lambda: shop.children() == [], "the command to be ended with its host")
    shop.go.touch()
    with shop.up() as server:
        server.answer_all(runs)
        shop.all_ended()
    expected = dict.fromkeys(STATES, "completed") | {"acting": "outcome_unknown", "command": "outcome_unknown"}
    assert codes(shop, runs) == expected
    for state, step in (("acting", "act"), ("command", "do")):
        outcome = shop.outcome(runs[state])
        assert outcome is not None
        assert outcome.error is not None
        assert step in outcome.error.message
    noted = shop.noted()
    assert {what: noted[what] for what in ONCE | COUNTS} == dict.fromkeys(ONCE | COUNTS, 1)
    assert (noted["reading"], noted["acting"], noted["one"], noted["loop a1"]) == (4, 1, 2, 2), noted
    assert len(model.asked()) == 2
    assert (shop.outcome(runs["model"]) or pytest.fail("no outcome")).result == "all of it"


def test_a_server_that_is_told_to_stop_leaves_everything_so_that_the_next_goes_on(shop: Shop, model: ModelServer):
    with shop.up() as server:
        runs = server.start_all()
        wait_until(lambda: len(model.asked()) == 1, "the model to be asked")
        assert server.stop() == 0
    assert shop.children() == []
    shop.go.touch()
    with shop.up() as server:
        server.answer_all(runs)
        shop.all_ended()
    expected = dict.fromkeys(STATES, "completed") | {"acting": "outcome_unknown", "command": "host_stopped"}
    assert codes(shop, runs) == expected
    noted = shop.noted()
    assert {what: noted[what] for what in ONCE | COUNTS} == dict.fromkeys(ONCE | COUNTS, 1)
    assert len(model.asked()) == 2


@pytest.mark.req("SDK-25")
@pytest.mark.parametrize("host", ["alive", "killed"])
def test_runs_in_the_middle_of_everything_are_cancelled(shop: Shop, model: ModelServer, host: str):
    with shop.up() as server:
        runs = server.start_all()
        wait_until(lambda: len(model.asked()) == 1, "the model to be asked")
        if host == "killed":
            server.kill()
        else:
            cancel_all(server, runs)
            shop.all_ended()
            assert model.wait_for_end() == "left"
    if host == "killed":
        # While nobody is there to go on with them: a command that was cut off would else be found so, and end by that.
        anyio.run(order_cancels, shop, list(runs.values()))
    with shop.up() as server:
        ended = shop.all_ended()
    assert codes(shop, runs) == dict.fromkeys(STATES, "cancelled")
    children = [event.child_run_id for event in shop.events(runs["sub-run"]) if isinstance(event.payload, CallStarted)]
    assert [ended[child or ""].status for child in children] == ["cancelled"]
    assert {outcome.status for outcome in ended.values()} == {"cancelled"}
    assert shop.children() == []


async def order_cancels(shop: Shop, runs: list[str]) -> None:
    async with local_office(shop.storage) as office, local_engine(office, Workers()) as engine:
        await office.ingest.catch_up(everything=True)
        for run_id in runs:
            await engine.service.cancel(run_id, reason="enough")


def cancel_all(server, runs: dict[str, str]) -> None:
    for run_id in runs.values():
        server.post(f"/api/runs/{run_id}/cancel", reason="enough")


STRANDED = """
    Both:
      block: parallel
      branches:
        bad: {Do: {block: command, command: 'while [ ! -e {{GO}} ]; do sleep 0.1; done'}}
        sub: {Call: {block: run-worker, worker: question, input: {NOTES: '{{NOTES}}', GO: '{{GO}}'}, output: OUT}}
"""


def test_a_sub_run_is_cancelled_although_its_sibling_had_failed_before_the_attempt_began(shop: Shop):
    """A host that was killed after it had recorded the failure, and before it could cancel the sub-run."""
    shop.worker("stranded", STRANDED, shop.folder / "tools.py")
    with shop.up() as server:
        parent = server.dispatch("stranded")
        wait_until(shop.children, "the command to run")
        wait_until(lambda: any(shop.open_calls(run_id) for run_id in shop.runs()), "the sub-run to wait")
        server.kill()
    wait_until(lambda: shop.children() == [], "the command to be ended with its host")
    with Recorder(shop.storage.log_path(parent), parent) as recorder:
        unknown = StepCompleted(name="Do", kind="command", try_=1, error="cut off", error_code="outcome_unknown")
        recorder.append(unknown, path="both.bad.do")
    with shop.up():
        ended = shop.all_ended()
    assert {run_id: outcome.status for run_id, outcome in ended.items() if run_id != parent} == {
        run_id: "cancelled" for run_id in shop.runs() if run_id != parent
    }
    assert len(ended) == 2
    assert ended[parent].status == "failed"


def test_queued_runs_are_cancelled_without_being_begun(shop: Shop):
    with shop.up("--slots", "1") as server:
        first = server.dispatch("command")
        wait_until(lambda: "before command" in shop.noted(), "the first to run")
        queued = [server.dispatch("reading", WHAT=f"queued {n}") for n in range(3)]
        for run_id in queued:
            server.post(f"/api/runs/{run_id}/cancel", reason="not that one")
        wait_until(lambda: all(shop.outcome(run_id) for run_id in queued), "their outcomes")
        assert shop.outcome(first) is None
        shop.go.touch()
        ended = shop.all_ended()
    assert {ended[run_id].status for run_id in queued} == {"cancelled"}
    assert ended[first].status == "completed"
    assert set(shop.noted()) == {"before command"}


def test_runs_that_wait_for_a_slot_after_a_restart_can_be_cancelled(shop: Shop):
    with shop.up() as server:
        runs = [server.dispatch("reading", WHAT=str(n)) for n in range(4)]
        wait_until(lambda: shop.noted()["reading"] == 4, "all to be in the middle")
        server.kill()
    with shop.up("--slots", "1") as server:
        wait_until(lambda: shop.noted()["reading"] == 5, "one of them to go on")
        for run_id in runs:
            server.post(f"/api/runs/{run_id}/cancel", reason="enough")
        ended = shop.all_ended(seconds=20)
    assert {outcome.status for outcome in ended.values()} == {"cancelled"}


def stopped_outside_of_the_database(pid: int, shop: Shop) -> bool:
    """Whoever is stopped in the middle of writing rows holds the database for all: that is another story."""
    os.kill(pid, signal.SIGSTOP)
    database = sqlite3.connect(shop.storage.database, timeout=0.2)
    try:
        database.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        os.kill(pid, signal.SIGCONT)
        return False
    finally:
        database.close()
    return True


def test_a_run_of_a_process_that_was_stopped_is_cancelled_by_a_server_that_comes_later(shop: Shop):
    words = ["run", "-q", "command", "--workers", str(shop.folder / "workers")]
    given = ["-i", f"NOTES={shop.notes}", "-i", f"GO={shop.go}"]
    alone = subprocess.Popen([SHOPFLOOR, *words, *given], env=shop.env, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(shop.children()) > 0, "its command to run")
        wait_until(lambda: stopped_outside_of_the_database(alone.pid, shop), "it to be stopped")
        with shop.up() as server:
            (run_id,) = shop.runs()
            began = time.monotonic()
            server.post(f"/api/runs/{run_id}/cancel", reason="it hangs")
            ended = shop.all_ended(seconds=STOPPED_HOST_SECONDS + 30)
            assert time.monotonic() - began > STOPPED_HOST_SECONDS - 1
            assert ended[run_id].status == "cancelled"
            assert alone.wait(PATIENCE) == -signal.SIGKILL
            wait_until(lambda: shop.children() == [], "nobody to be left")
    finally:
        alone.kill()
        alone.wait()


def test_a_run_without_a_server_stays_with_its_process_when_a_server_comes(shop: Shop):
    words = ["run", "-q", "command", "--workers", str(shop.folder / "workers")]
    given = ["-i", f"NOTES={shop.notes}", "-i", f"GO={shop.go}"]
    alone = subprocess.Popen([SHOPFLOOR, *words, *given], env=shop.env, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: len(shop.children()) > 0, "its command to run")
    with shop.up():
        time.sleep(2.5)
        (run_id,) = shop.runs()
        assert shop.outcome(run_id) is None
        shop.go.touch()
        printed, _ = alone.communicate(timeout=PATIENCE)
        assert alone.returncode == 0
        assert "through" in printed
        shop.all_ended()
    attempts = [event.payload for event in shop.events(run_id) if event.type == "run.started"]
    assert len(attempts) == 1
    assert shop.noted() == {"before command": 1}
    wait_until(lambda: processes_with(shop.mark) == [], "nobody to be left")
