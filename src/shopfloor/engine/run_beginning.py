"""The `run.started` with which an attempt begins."""

from __future__ import annotations

from shopfloor.engine.journal import Journal
from shopfloor.engine.workers.catalogue import BUILTIN
from shopfloor.log import FORMAT, RunStarted
from shopfloor.ports import Dispatch


def run_started(
    journal: Journal, order: Dispatch | None, *, host: str, is_caller: bool = False, masked: bool = False
) -> RunStarted:
    """Make the first event of an attempt; that of the first attempt has all that the order says."""
    executor = "caller" if is_caller else None
    if journal.first is not None or order is None:
        first = journal.first
        name, kind = (first.name, first.kind) if first else ("", "")
        attempt = journal.attempt + 1
        return RunStarted(name=name, kind=kind, attempt=attempt, host=host, executor=executor, masked=masked)
    return RunStarted(
        name=order.worker,
        kind="worker" if order.worker_type == BUILTIN else "agent",
        attempt=1,
        host=host,
        task=order.task,
        input=order.input,
        worker_type=order.worker_type,
        agent_id=order.agent_id,
        channel_id=order.channel_id,
        channel_name=order.channel_name,
        root_run_id=order.root_run_id,
        queued_at=order.queued_at,
        definition=order.definition,
        definition_hash=order.definition_hash,
        idempotency_key=order.idempotency_key,
        cwd=order.cwd,
        client_wait_seconds=order.client_wait_seconds,
        parent={"run_id": order.parent_run_id, "depth": order.depth} if order.parent_run_id else None,
        executor=executor,
        masked=masked,
        format=FORMAT,
    )
