"""The invariants that hold after every campaign, with any faults."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator

import anyio
from tests.faults.harness.driver import Ledger
from tests.faults.harness.load import ANSWER, KINDS
from tests.faults.harness.records import events_of, key_of, log_paths, outcome_of, views_of
from tests.faults.harness.server import Deployment, Server

from shopfloor.log import (
    CallCompleted,
    CallStarted,
    Event,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    ToolResult,
)
from shopfloor.views import RunRow, row_fold
from shopfloor.wiring import local_backend

MEMORY_BYTES = 400 * 2**20
"""The memory limit of the server under this load."""
_DEFECTS = re.compile(r"Traceback|ExceptionGroup|a defect of Shopfloor|never retrieved|never awaited")
_PAGE_RUNS = 200

Logs = dict[str, list[Event]]


def read_logs(deployment: Deployment) -> Logs:
    return {path.stem: events_of(path) for path in log_paths(deployment.storage)}


def violations(deployment: Deployment, server: Server, ledger: Ledger, excused_codes: frozenset[str]) -> list[str]:
    """Return every violation after the server has stopped. `excused_codes` are failures that the faults explain."""
    logs = read_logs(deployment)
    found = [
        *ledger.violations,
        *_outcomes(logs),
        *_verified(deployment),
        *_steps(logs),
        *_tokens(deployment, logs),
        *_acknowledged(ledger, logs, excused_codes),
        *_ends(logs, excused_codes),
        *_processes(deployment),
        *_rows(deployment, logs),
    ]
    if server.peak_memory_bytes > MEMORY_BYTES:
        found.append(f"memory: the server had {server.peak_memory_bytes:,} bytes, more than {MEMORY_BYTES:,}")
    return found


def stderr_defects(deployment: Deployment) -> list[str]:
    """Return the lines of the server's standard error that no fault explains."""
    text = deployment.stderr.read_text(errors="replace")
    return [f"stderr: {line}" for line in text.splitlines() if _DEFECTS.search(line)]


def _outcomes(logs: Logs) -> Iterator[str]:
    for run_id, events in logs.items():
        count = sum(isinstance(event.payload, RunCompleted) for event in events)
        if count != 1 or outcome_of(events) is None:
            yield f"outcome: the run {run_id} has {count} outcomes; its last event is {events[-1:]}"


def _verified(deployment: Deployment) -> Iterator[str]:
    done = deployment.command("verify", "--all")
    if done.returncode != 0:
        wrong = [line for line in done.stdout.splitlines() if not re.search(r"\d+ events, complete$", line)]
        yield f"verify: exit code {done.returncode}: " + "\n  ".join([*wrong[:20], done.stderr[-2000:]])


def _steps(logs: Logs) -> Iterator[str]:
    """Check that no step starts again after it was completed without an error."""
    for run_id, events in logs.items():
        done: set[tuple[str, int]] = set()
        for event in events:
            place = event.path, event.iteration
            match event.payload:
                case StepStarted() | CallStarted() if place in done:
                    yield f"step: {place} of the run {run_id} began again at event {event.seq}"
                case (StepCompleted() | CallCompleted()) as step if step.error is None:
                    done.add(place)
                case _:
                    pass


def _tokens(deployment: Deployment, logs: Logs) -> Iterator[str]:
    """Check that no effect happens more often than the log allows, and that completed runs have all their effects."""
    by_key = {run_id: run_id for run_id in logs}
    for run_id, events in logs.items():
        key = key_of(events)
        if key is not None and by_key.setdefault(key, run_id) != run_id:
            yield f"run: {key} was run twice: {by_key[key]} and {run_id}"
    tokens = Counter(line for line in deployment.tokens.read_text().splitlines())
    labels: dict[str, set[str]] = {}
    for token, count in tokens.items():
        key, path, iteration, rule, label = token.split()
        if key not in by_key:
            yield f"effect: {token!r} happened, and there is no log of it"
            continue
        labels.setdefault(by_key[key], set()).add(label)
        allowed = _allowed(logs[by_key[key]], (path, int(iteration)), rule)
        if count > allowed:
            yield f"effect: {token!r} of the run {by_key[key]} happened {count} times, {allowed} are allowed"
    for run_id, events in logs.items():
        outcome, kind = outcome_of(events), KINDS.get(_worker(events))
        if kind and outcome and outcome.status == "completed" and labels.get(run_id, set()) != kind.effects:
            had = sorted(labels.get(run_id, set()))
            yield f"effect: {key_of(events)} ({run_id}) is completed, with the effects {had}"


def _worker(events: list[Event]) -> str:
    first = events[0].payload
    return first.name if isinstance(first, RunStarted) else ""


def _allowed(events: list[Event], place: tuple[str, int], rule: str) -> int:
    """Return how often a step may have been executed."""
    if rule == "once":
        starts = [event.payload for event in events if (event.path, event.iteration) == place]
        return sum(isinstance(payload, StepStarted) for payload in starts)
    attempts = 0
    for event in events:
        if isinstance(event.payload, StepCompleted) and (event.path, event.iteration) == place:
            break
        attempts += isinstance(event.payload, RunStarted)
    return attempts


def _acknowledged(ledger: Ledger, logs: Logs, excused_codes: frozenset[str]) -> Iterator[str]:
    for key, run_id in ledger.runs.items():
        if run_id not in logs:
            yield f"lost: the dispatch of {key} was acknowledged as {run_id}, and there is no log"
        elif key_of(logs[run_id]) != key:
            yield f"lost: the run {run_id} is of {key_of(logs[run_id])}, not of {key}"
    for run_id, call_id in ledger.answers:
        events = logs.get(run_id, [])
        results = [event.payload for event in events if isinstance(event.payload, ToolResult)]
        if any(one.call_id == call_id and one.output == ANSWER for one in results):
            continue
        outcome = outcome_of(events)
        if outcome is None or outcome.error is None or outcome.error.code not in excused_codes:
            yield f"lost: the answer to {call_id} of the run {run_id} was acknowledged; the outcome is {outcome}"
    for run_id in ledger.cancels:
        outcome = outcome_of(logs.get(run_id, []))
        if _code(logs.get(run_id, [])) not in {"cancelled"} | excused_codes:
            yield f"lost: the cancel of the run {run_id} was acknowledged; the outcome is {outcome}"


def _ends(logs: Logs, excused_codes: frozenset[str]) -> Iterator[str]:
    """Check that every run ends as its worker does, or with a failure that the faults explain, its own or a sub-run's."""
    parents = {
        parent for events in logs.values() if _code(events) in excused_codes for parent in _parents(logs, events)
    }
    for run_id, events in logs.items():
        outcome, worker = outcome_of(events), _worker(events)
        if outcome is None:
            continue
        end = outcome.error.code if outcome.error else outcome.status
        if worker not in KINDS:
            if end not in {"completed", "host_lost"} | excused_codes:
                yield f"end: the bare run {run_id} ended as {end}: {outcome}"
            continue
        kind = KINDS[worker]
        is_sub_run = events[0].parent_run_id is not None
        allowed = kind.ends | excused_codes
        if is_sub_run:
            allowed |= {"cancelled"}
        if run_id in parents:
            allowed |= {"execution_error"}
        if end not in allowed:
            yield f"end: {key_of(events)} ({run_id}) ended as {end}: {outcome}"
        elif end == "completed" and outcome.result != kind.result:
            yield f"end: {key_of(events)} ({run_id}) gave {outcome.result!r}, not {kind.result!r}"


def _parents(logs: Logs, events: list[Event]) -> Iterator[str]:
    """Return the runs above a run."""
    parent = events[0].parent_run_id
    while parent is not None:
        yield parent
        parent = logs[parent][0].parent_run_id if parent in logs else None


def _code(events: list[Event]) -> str | None:
    outcome = outcome_of(events)
    return outcome.error.code if outcome and outcome.error else None


def _processes(deployment: Deployment) -> Iterator[str]:
    left = deployment.children()
    if left:
        yield f"process: {len(left)} are left: {left[:5]}"
    hosts = list(deployment.storage.hosts.glob("*.lock"))
    if hosts:
        yield f"process: locks of hosts are left: {hosts}"


def _rows(deployment: Deployment, logs: Logs) -> Iterator[str]:
    """Check that rows are the fold of their logs, and that a rebuild makes the same rows and the same list."""
    before, listed = views_of(deployment.storage), _listed(deployment)
    rows = anyio.run(_stored_rows, deployment)
    for run_id in sorted(rows.keys() | logs.keys()):
        folded = row_fold(RunRow(), logs[run_id]) if run_id in logs else None
        if rows.get(run_id) != folded:
            yield f"row: of {run_id}: {_difference(rows.get(run_id), folded)}"
    done = deployment.command("rebuild")
    if done.returncode != 0:
        yield f"rebuild: exit code {done.returncode}: {done.stderr[-2000:]}"
        return
    after = views_of(deployment.storage)
    for table in before:
        for one, other in itertools.zip_longest(before[table], after[table]):
            if one != other:
                changed = {
                    name
                    for name in {**(one or {}), **(other or {})}
                    if (one or {}).get(name) != (other or {}).get(name)
                }
                yield f"rebuild: {table} differs in {sorted(changed)}: {one} != {other}"[:2000]
                break
    for one, other in itertools.zip_longest(listed, _listed(deployment)):
        if one != other:
            yield f"rebuild: `shopfloor list` shows something else: {one} != {other}"
            break


async def _stored_rows(deployment: Deployment) -> dict[str, RunRow]:
    async with local_backend(deployment.storage) as backend:
        found = [await backend.store.get_run(run_id) for run_id in await backend.store.known_runs()]
    return {run.row.id: run.row for run in found if run is not None}


def _difference(row: RunRow | None, folded: RunRow | None) -> str:
    if row is None or folded is None:
        return (
            f"the row is {'missing' if row is None else row.status}, the log {'missing' if folded is None else 'there'}"
        )
    pairs = {name: (getattr(row, name), getattr(folded, name)) for name in RunRow.__struct_fields__}
    return str({name: pair for name, pair in pairs.items() if pair[0] != pair[1]})[:1000]


def _listed(deployment: Deployment) -> list[dict[str, object]]:
    """Return all runs that `shopfloor list` shows, page by page."""
    listed: list[dict[str, object]] = []
    cursor: list[str] = []
    while True:
        done = deployment.command("list", "--all", "--json", "--limit", str(_PAGE_RUNS), *cursor)
        page = json.loads(done.stdout) if done.returncode == 0 else {"workers": [{"error": done.stderr}], "next": None}
        listed += page["workers"]
        if page["next"] is None:
            # Runs that started in the same millisecond are in the order in which their logs were found.
            return sorted(listed, key=lambda run: str(run["id"]))
        cursor = ["--cursor", page["next"]]
