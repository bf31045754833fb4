"""Deleting runs, and ending runs whose host is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from shopfloor.adapters.local import LocalAudit
from shopfloor.engine import delete_run, end_orphan, is_orphan, prune
from shopfloor.errors import NeedsForce, RunNotFound, RunRunning
from shopfloor.log import (
    Awaits,
    CallStarted,
    RunCompleted,
    RunError,
    RunStarted,
    StepStarted,
    ToolCall,
    Verifier,
    decode,
    new_run_id,
    now,
)
from shopfloor.ports import RunFilter
from shopfloor.record import Recorder, Storage, read
from shopfloor.wiring import StorageBackend, local_backend, memory_backend


def record(storage: Storage, *, parent: str | None = None, status: str | None = "completed", child: str = "") -> str:
    run_id = new_run_id()
    with Recorder(storage.log_path(run_id), run_id, parent_run_id=parent) as recorder:
        recorder.append(RunStarted(name="w", kind="worker", attempt=1, host="local-gone0000", task="t"))
        if child:
            recorder.append(CallStarted(name="sub", kind="call_workflow", try_=1), path="sub", child_run_id=child)
        if status is not None:
            error = RunError(code="x", message="y") if status == "failed" else None
            recorder.append(RunCompleted(name="w", kind="worker", status=status, error=error))  # type: ignore[arg-type]
    return run_id


def with_backend(storage: Storage, work: Callable[[StorageBackend], Awaitable[None]]) -> None:
    async def main() -> None:
        async with local_backend(storage) as backend:
            await backend.ingest.catch_up(everything=True)
            await work(backend)

    anyio.run(main)


async def rebuilt(backend: StorageBackend) -> set[str]:
    """Return the runs that are listed after a rebuild."""
    await backend.store.clear_views()
    await backend.ingest.catch_up(everything=True)
    return await backend.store.known_runs()


def test_a_run_is_deleted_with_its_sub_runs_and_stays_deleted_after_a_rebuild(storage: Storage):
    other_run = record(storage)
    root = record(storage)
    child = record(storage, parent=root)
    grandchild = record(storage, parent=child)
    for suffix in (".torn", ".torn-2", ".torn-3"):
        storage.log_path(child).with_suffix(suffix).write_bytes(b"half a line")

    async def work(backend: StorageBackend) -> None:
        assert set(await delete_run(backend, root)) == {root, child, grandchild}
        assert await rebuilt(backend) == {other_run}

    with_backend(storage, work)
    assert [path.name for path in storage.transcripts.iterdir()] == [f"{other_run}.jsonl"]


def test_a_tombstone_exists_before_anything_is_deleted_so_that_a_crash_restores_nothing(
    storage: Storage,
):
    run_id = record(storage)

    async def work(backend: StorageBackend) -> None:
        await backend.store.add_tombstone(run_id)
        assert await rebuilt(backend) == set()

    with_backend(storage, work)


def test_only_ended_runs_can_be_deleted_and_failed_runs_only_by_force(storage: Storage):
    running, failed = record(storage, status=None), record(storage, status="failed")
    parent_of_running = record(storage)
    record(storage, parent=parent_of_running, status=None)

    async def work(backend: StorageBackend) -> None:
        with pytest.raises(RunRunning):
            await delete_run(backend, running, force=True)
        with pytest.raises(RunRunning):
            await delete_run(backend, parent_of_running)
        with pytest.raises(NeedsForce):
            await delete_run(backend, failed)
        assert await delete_run(backend, failed, force=True) == [failed]
        with pytest.raises(RunNotFound):
            await delete_run(backend, failed, force=True)

    with_backend(storage, work)


def test_pruning_goes_by_when_a_run_ended_and_leaves_the_pinned_ones(storage: Storage):
    runs = [record(storage) for _ in range(5)]
    running = record(storage, status=None)

    async def work(backend: StorageBackend) -> None:
        await backend.store.pin(runs[0], pinned=True)
        assert await prune(backend, before="2000-01-01T00:00:00.000Z", by="test") == 0
        assert await prune(backend, before="2999-01-01T00:00:00.000Z", by="test") == 4
        assert await backend.store.known_runs() == {runs[0], running}
        assert (await backend.store.list_runs(RunFilter(), limit=9)).total == 2

    with_backend(storage, work)
    written = [(entry["action"], entry["by"], entry["run_id"]) for entry in LocalAudit(storage.audit).read()]
    assert sorted(written) == sorted(("run.deleted", "test", run_id) for run_id in runs[1:])


def test_a_tree_is_pruned_as_a_whole_or_not_at_all(storage: Storage):
    def tree(last: str | None = "completed") -> list[str]:
        root = record(storage)
        child = record(storage, parent=root)
        return [root, child, record(storage, parent=child, status=last), record(storage, parent=root)]

    old, with_pin, with_open = tree(), tree(), tree(None)
    (storage.transcripts / f"{(parentless := tree())[0]}.jsonl").unlink()

    async def work(backend: StorageBackend) -> None:
        await backend.store.pin(with_pin[2], pinned=True)
        assert await prune(backend, before="2999-01-01T00:00:00.000Z", by="test") == 4 + 3
        assert await backend.store.known_runs() == {*with_pin, *with_open}
        assert all(not storage.log_path(run_id).exists() for run_id in (*old, *parentless))
        assert all(storage.log_path(run_id).exists() for run_id in (*with_pin, *with_open))
        await backend.store.pin(with_pin[2], pinned=False)
        assert await prune(backend, before="2999-01-01T00:00:00.000Z", by="test") == 4

    with_backend(storage, work)


def test_a_tree_with_a_run_that_ended_later_is_kept(storage: Storage):
    root = record(storage)
    anyio.run(anyio.sleep, 0.02)
    between = now()
    anyio.run(anyio.sleep, 0.02)
    child = record(storage, parent=root)

    async def work(backend: StorageBackend) -> None:
        assert await prune(backend, before=between, by="test") == 0
        assert await backend.store.known_runs() == {root, child}
        assert await prune(backend, before="2999-01-01T00:00:00.000Z", by="test") == 2

    with_backend(storage, work)


def test_an_orphan_gets_one_outcome_with_its_last_step(storage: Storage):
    run_id, ports = record(storage, status=None, child=new_run_id()), memory_backend(storage)
    with Recorder(storage.log_path(run_id), run_id) as recorder:
        recorder.append(StepStarted(name="build", kind="command", try_=1), path="each.3.build", iteration=3)
        assert not anyio.run(is_orphan, ports.reader, run_id, "local-gone0000")
        assert not anyio.run(end_orphan, ports, run_id)
    assert anyio.run(is_orphan, ports.reader, run_id, "local-gone0000")
    assert anyio.run(end_orphan, ports, run_id)
    assert not anyio.run(end_orphan, ports, run_id)
    events = [decode(entry.raw) for entry in read(storage.log_path(run_id))]
    assert [event.type for event in events][3:] == ["step.completed", "step.call_workflow.completed", "run.completed"]
    outcome = events[-1].payload
    assert isinstance(outcome, RunCompleted)
    assert outcome.error is not None
    assert outcome.error.code == "host_lost"
    assert outcome.error.message.endswith("during sub, each.3.build")
    verifier = Verifier(run_id)
    with storage.log_path(run_id).open("rb") as file:
        assert [problem for line in file for problem in verifier.line(line)] == []


def test_an_orphan_with_a_question_outside_of_any_step_has_a_valid_log(storage: Storage):
    run_id = record(storage, status=None)
    question = ToolCall(
        name="ask",
        call_id="c1",
        input={"question": "?"},
        output=None,
        fidelity="router",
        awaits=Awaits(kind="question"),
    )
    with Recorder(storage.log_path(run_id), run_id) as recorder:
        recorder.append(question, path="ask")
    assert anyio.run(end_orphan, memory_backend(storage), run_id)
    verifier = Verifier(run_id)
    with storage.log_path(run_id).open("rb") as file:
        assert [problem for line in file for problem in verifier.line(line)] == []


@pytest.mark.parametrize("host", [None, "../../etc/passwd", "x" * 300, "local-gone0000"])
def test_a_host_that_cannot_be_is_no_host(storage: Storage, host: str | None):
    assert anyio.run(is_orphan, memory_backend(storage).reader, record(storage, status=None), host)
