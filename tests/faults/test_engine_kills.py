"""A host that is killed, stopped, or cancels at every event of a run: one outcome, and nothing is repeated."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_run import processes_with
from tests.faults.engine_process import DONE, STOPPED, HostPlan, run_host
from tests.faults.fault_workers import EFFECTS, RESULTS, turns, write_workers
from tests.model_server.server import ModelServer, in_thread
from tests.timeouts import wait_until

from shopfloor.log import (
    CallCompleted,
    CallStarted,
    Event,
    RunCompleted,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
    Verifier,
    decode,
    new_run_id,
)
from shopfloor.record import Storage, read

LONG = os.environ.get("SHOPFLOOR_TEST_LONG") == "1"
AT_ONCE = 5
"""The number of hosts at once. They wait most of their time."""
KILLED = -9
REPEATABLE = frozenset({"look", "count"})


class Case:
    """One run in a separate storage."""

    def __init__(self, folder: Path, workers: Path, shape: str) -> None:
        folder.mkdir()
        self.shape = shape
        self.run_id = new_run_id()
        self.storage = Storage(folder / "storage")
        self.file = folder / "effects"
        self.mark = f"{folder.name}-{self.run_id}"
        self._workers = workers
        self.env = {"SF_TEST": self.mark}

    def lives(self, *, first: bool = False, **plan: Any) -> int:
        return run_host(
            HostPlan(
                storage=self.storage.root,
                workers=self._workers,
                run_id=self.run_id,
                dispatch=(self.shape, {"FILE": str(self.file)}) if first else None,
                env=self.env,
                **plan,
            )
        )

    @property
    def runs(self) -> list[str]:
        return sorted(path.stem for path in self.storage.transcripts.glob("*.jsonl"))

    def events(self, run_id: str | None = None) -> list[Event]:
        path = self.storage.log_path(run_id or self.run_id)
        return [decode(entry.raw) for entry in read(path, on_problem=lambda problem: None)] if path.exists() else []

    def effects(self) -> Counter[str]:
        return Counter(self.file.read_text().splitlines()) if self.file.exists() else Counter()

    def runs_with_open_steps(self) -> set[str]:
        """Return the runs with an open step that must not be repeated."""
        return {run_id for run_id in self.runs if _open(self.events(run_id))}

    def check(self) -> RunCompleted:
        """Check that every log is complete and has one outcome, and that no process is left."""
        for run_id in self.runs:
            verifier = Verifier(run_id)
            lines = self.storage.log_path(run_id).read_bytes().splitlines(keepends=True)
            assert [problem for line in lines for problem in verifier.line(line)] == []
            events = self.events(run_id)
            assert [event.seq for event in events] == list(range(1, len(lines) + 1))
            assert [isinstance(event.payload, RunCompleted) for event in events].count(True) == 1
            assert isinstance(events[-1].payload, RunCompleted)
            assert not _open_steps(events), "the outcome leaves no step open"
        wait_until(lambda: processes_with(self.mark) == [], "no process to be left")
        outcome = self.events()[-1].payload
        assert isinstance(outcome, RunCompleted)
        return outcome


def _open_steps(events: list[Event]) -> list[Event]:
    opened: dict[tuple[str, int], Event] = {}
    for event in events:
        if isinstance(event.payload, StepStarted | CallStarted):
            opened[event.path, event.iteration] = event
        elif isinstance(event.payload, StepCompleted | CallCompleted):
            opened.pop((event.path, event.iteration), None)
    return list(opened.values())


def _open(events: list[Event]) -> bool:
    results = {event.payload.call_id for event in events if isinstance(event.payload, ToolResult)}
    calls = [event.payload for event in events if isinstance(event.payload, ToolCall)]
    interrupted = [one for one in calls if one.call_id not in results and not one.awaits and one.name not in REPEATABLE]
    steps = [event.payload for event in _open_steps(events)]
    return bool(interrupted) or any(
        isinstance(step, StepStarted) and (step.kind == "command" or (step.kind == "step" and step.name != "safe"))
        for step in steps
    )


@contextmanager
def model_of(case: Case) -> Iterator[ModelServer | None]:
    """Return the model that a run of this worker uses, if any."""
    if case.shape != "talk":
        yield None
        return
    with in_thread(turns(case.file)) as server:
        case.env |= server.env
        yield server


@pytest.fixture
def workers(tmp_path: Path) -> Path:
    return write_workers(tmp_path / "workers")


def points(count: int, most: int) -> list[tuple[int, bool]]:
    """Return fault points before and after events: all in a long test, otherwise some, evenly spread."""
    every = [(at, before) for at in range(1, count + 1) for before in (True, False)][1:]
    return every if LONG else sorted({every[n * len(every) // most] for n in range(most)})


def through(
    folder: Path,
    workers: Path,
    shape: str,
    one: Callable[[Case, int, bool, ModelServer | None], None],
    *,
    most: int,
) -> None:
    """Execute a test at many fault points of a run, several at once."""

    def at(point: tuple[int, bool]) -> None:
        case = Case(folder / f"{'before' if point[1] else 'after'}-{point[0]}", workers, shape)
        with model_of(case) as model:
            try:
                one(case, *point, model)
            except AssertionError as error:
                what = [(event.seq, event.type, event.path, event.payload) for event in case.events()]
                raise AssertionError(f"at {point}: {error}\n" + "\n".join(map(str, what))) from error

    found = points(count_events(folder, workers, shape), most)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert len(list(pool.map(at, found))) == len(found)


_event_counts: dict[str, int] = {}
"""The number of events of an undisturbed run of each shape, the same in all tests."""


def count_events(folder: Path, workers: Path, shape: str) -> int:
    """Check an undisturbed run, once for each shape, and return the number of events in its logs."""
    if shape not in _event_counts:
        calm = Case(folder / "calm", workers, shape)
        with model_of(calm):
            assert calm.lives(first=True) == DONE
        outcome = calm.check()
        assert outcome.status == "completed", outcome
        assert outcome.result == RESULTS[shape]
        assert calm.effects() == Counter(EFFECTS[shape])
        _event_counts[shape] = sum(len(calm.events(run_id)) for run_id in calm.runs)
    return _event_counts[shape]


SHAPES = ["steps", "loops", "family", "talk", "python"]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_continues_after_its_host_is_killed_at_any_event_and_repeats_nothing(
    tmp_path: Path, workers: Path, shape: str
):
    def killed(case: Case, at: int, before: bool, model: ModelServer | None) -> None:
        assert case.lives(first=True, act="kill", at=at, before=before) == KILLED
        interrupted = case.runs_with_open_steps()
        message_count = sum(event.type == "message.assistant" for event in case.events())
        assert case.lives() == DONE
        outcome = case.check()
        done = case.effects()
        twice = {what for what, times in done.items() if times > 1}
        assert all(what.startswith("look") for what in twice), f"killed at {at}, done twice: {twice}"
        if not interrupted:
            assert outcome.status == "completed", f"killed at {at} ({before}): {outcome}"
            assert outcome.result == RESULTS[shape]
            assert set(done) == EFFECTS[shape]
        else:
            assert outcome.status == "failed", f"killed at {at}: {interrupted}"
            ends = [case.events(run_id)[-1].payload for run_id in interrupted]
            assert {end.error.code for end in ends if isinstance(end, RunCompleted) and end.error} == {
                "outcome_unknown"
            }
        if model is not None and outcome.status == "completed":
            # A question is asked again only if no log has its answer.
            assert len(model.requests()) <= 4 + 1
            assert message_count <= 4

    through(tmp_path, workers, shape, killed, most=11)


@pytest.mark.parametrize("shape", SHAPES if LONG else ["family", "python"])
def test_memory_that_runs_out_at_any_event_ends_no_step_twice_and_leaves_no_run_without_an_outcome(
    tmp_path: Path, workers: Path, shape: str
):
    """The writer of an event does not learn whether the log has the event."""

    def starved(case: Case, at: int, before: bool, model: ModelServer | None) -> None:
        assert case.lives(first=True, act="starve", at=at, before=before) == DONE
        outcome = case.check()
        twice = {what for what, times in case.effects().items() if times > 1}
        assert all(what.startswith("look") for what in twice), f"starved at {at}, done twice: {twice}"
        if outcome.status == "completed":
            assert outcome.result == RESULTS[shape]
            assert set(case.effects()) == EFFECTS[shape]
        else:
            # The open step, of the run or of a sub-run, may have been executed.
            ends = [case.events(run_id)[-1].payload for run_id in case.runs]
            codes = {end.error.code for end in ends if isinstance(end, RunCompleted) and end.error}
            assert "outcome_unknown" in codes, codes

    through(tmp_path, workers, shape, starved, most=4)


def test_a_host_that_is_killed_with_an_empty_log_loses_no_run(tmp_path: Path, workers: Path):
    case = Case(tmp_path / "empty", workers, "steps")
    assert case.lives(first=True, act="kill", at=1, before=True) == KILLED
    assert case.storage.log_path(case.run_id).read_bytes() == b""
    assert case.lives() == DONE
    assert case.check().status == "completed"
    assert case.effects() == Counter(EFFECTS["steps"])


def test_a_step_that_may_always_be_tried_again_is_done_again_after_a_kill(tmp_path: Path, workers: Path):
    def killed(case: Case, at: int, before: bool, model: ModelServer | None) -> None:
        assert case.lives(first=True, act="kill", at=at, before=before) == KILLED
        interrupted = case.runs_with_open_steps()
        assert case.lives() == DONE
        outcome = case.check()
        assert outcome.status == "completed", f"killed at {at} ({before}): {outcome}"
        assert set(case.effects()) == EFFECTS["always"]
        assert case.effects().total() <= len(EFFECTS["always"]) + len(interrupted)

    through(tmp_path, workers, "always", killed, most=7)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_continues_after_its_host_is_stopped_at_any_event(tmp_path: Path, workers: Path, shape: str):
    def stopped(case: Case, at: int, before: bool, model: ModelServer | None) -> None:
        code = case.lives(first=True, act="stop", at=at, before=before)
        assert code in (STOPPED, DONE)
        assert processes_with(case.mark) == []
        if code == STOPPED:
            assert case.lives() == DONE
        outcome = case.check()
        twice = {what for what, times in case.effects().items() if times > 1}
        assert all(what.startswith("look") for what in twice), f"stopped at {at}, done twice: {twice}"
        if outcome.status != "completed":
            ends = [case.events(run_id)[-1].payload for run_id in case.runs]
            codes = {end.error.code for end in ends if isinstance(end, RunCompleted) and end.error}
            assert codes & {"host_stopped", "outcome_unknown"}, f"stopped at {at}: {outcome}"
        else:
            assert outcome.result == RESULTS[shape]
            assert set(case.effects()) == EFFECTS[shape]

    through(tmp_path, workers, shape, stopped, most=5)


@pytest.mark.req("SDK-25")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("how", ["alive", "dead"])
def test_a_run_is_cancelled_at_any_event_with_all_its_sub_runs(tmp_path: Path, workers: Path, shape: str, how: str):
    def cancelled(case: Case, at: int, before: bool, model: ModelServer | None) -> None:
        if how == "alive":
            assert case.lives(first=True, act="cancel", at=at, before=before) == DONE
        else:
            assert case.lives(first=True, act="kill", at=at, before=before) == KILLED
            assert case.lives(act="cancel", answers=False) == DONE
        outcome = case.check()
        states = {run_id: case.events(run_id)[-1].payload for run_id in case.runs}
        statuses = {run_id: end.status for run_id, end in states.items() if isinstance(end, RunCompleted)}
        if outcome.status == "cancelled":
            assert outcome.error is not None
            assert outcome.error.message == "told to"
            # A sub-run whose host is dead may end as interrupted before the cancellation reaches it.
            assert set(statuses.values()) <= {"cancelled", "completed", *(["failed"] if how == "dead" else [])}, (
                statuses
            )
        else:
            # The run ended before the cancellation reached it.
            assert outcome.status == "completed" or how == "dead", outcome

    through(tmp_path, workers, shape, cancelled, most=5)
