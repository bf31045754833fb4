"""Requests for new runs that are made from earlier ones, and the reasons why a run cannot be used again (ADR 29)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from shopfloor.engine.replay_state import COMMAND, ReplayState
from shopfloor.engine.workers.catalog import Worker
from shopfloor.engine.workers.provider_workers import DEFAULT_MODELS, PROMPT
from shopfloor.errors import ConflictError, InvalidInput, RunRunning, UnsupportedOption
from shopfloor.log import MASK, RunStarted
from shopfloor.ports import Capabilities, RunItem, RunRequest
from shopfloor.views import as_text

RESUME = "resume"
"""The input of a provider worker that names the session to continue."""


def check_reusable(run_id: str, starts: Sequence[RunStarted], *, parent: str | None, masks: bool) -> RunStarted:
    """Return the first event of a run that can be used again. Raises `ConflictError` with the reason otherwise.

    `masks`: whether this process masks the new record.
    """
    first = starts[0]
    if first.definition is None and first.kind == COMMAND:
        line = str((first.input or {}).get("command", ""))
        raise ConflictError(
            f"the run {run_id} is a recorded command, which only a shell can run",
            hint=f"run it again: shopfloor run --command {quote(line)}",
        )
    if first.definition is None:
        hint = f"use its agent's run, {parent}" if parent else "run a worker or a provider instead"
        what = "is a sub-agent, and part of its agent's session" if parent else "was imported and has no worker"
        raise ConflictError(f"the run {run_id} {what}: it cannot be run again", hint=hint)
    if any(start.masked for start in starts) and not masks:
        raise ConflictError(
            f"the record of the run {run_id} is masked, and it is not known what to mask in the new record",
            hint=f"`shopfloor rerun {run_id[:8]}` in your shell, with --mask-env NAME or --mask-keys, runs it again",
        )
    return first


def check_unmasked(run_id: str, values: Mapping[str, Any]) -> None:
    """Raise `ConflictError` if a value in the record was masked: the original is not known."""
    for name, value in values.items():
        if MASK in as_text(value):
            raise ConflictError(
                f"{name} of the run {run_id} is masked in its record, so the original is not known",
                hint=f"set it again: -i {name}=VALUE",
            )


def rerun_request(run_id: str, first: RunStarted, changed_input: Mapping[str, Any], key: str | None) -> RunRequest:
    """Return the request for the same worker with the same input, except for what is changed. None leaves one out.

    Raises `ConflictError` if an input that is not changed is masked.
    """
    merged = {**(first.input or {}), **changed_input}
    worker_input = {name: value for name, value in merged.items() if value is not None}
    check_unmasked(run_id, worker_input)
    return RunRequest(
        worker=first.name,
        input=worker_input,
        owner=first.agent_id,
        channel_id=first.channel_id,
        channel_name=first.channel_name,
        cwd=first.cwd,
        priority=first.priority,
        labels=first.labels or {},
        approve=first.approve or [],
        approve_timeout=first.approve_timeout,
        idempotency_key=key,
    )


def check_same_worker(run_id: str, first: RunStarted, worker: Worker) -> None:
    """Raise `ConflictError` if this is another worker that only has the same name. An edited worker is the same."""
    origin = worker.absolute_origin
    if first.origin not in (None, origin) and first.definition_hash != worker.hash:
        raise ConflictError(
            f"the run {run_id} had the worker `{first.name}` of {first.origin}; the name now means that of {origin}",
            hint=f"--workers names the folder of the first; `shopfloor run {first.name}` runs the second",
        )


def check_replyable(run: RunItem, state: ReplayState, capabilities: Capabilities, *, is_active: bool) -> None:
    """Raise the reason why the agent session of a run cannot be continued with a new prompt."""
    run_id, provider = run.row.id, run.row.worker_type
    if state.outcome is None and (is_active or run.row.status in ("queued", "waiting")):
        raise RunRunning(
            f"the run {run_id} has not ended: it is {run.row.status}", hint="wait for the run, answer it, or cancel it"
        )
    if not capabilities.resume:
        raise UnsupportedOption(f"{provider} cannot continue a session", hint="start a new run")
    if state.outcome is None and not capabilities.fork_session:
        raise ConflictError(
            f"the run {run_id} was interrupted and may still be resumed, and only one run can use its session",
            hint=f"`shopfloor resume {run_id[:8]}` continues the run; `shopfloor cancel {run_id[:8]}` ends it",
        )
    if not any(step.session is not None and step.session.session_id for step in state.steps.values()):
        raise ConflictError(f"the run {run_id} has no session: it ended before {provider} started", hint="rerun it")


def reply_request(run_id: str, first: RunStarted, text: str, key: str | None) -> RunRequest:
    """Return the request that continues the agent session of a run with a new prompt and the same options.

    Raises `InvalidInput` for an empty text, and `ConflictError` if the run has no agent session of its own.
    """
    if not text.strip():
        raise InvalidInput("the reply is empty", hint="write what the agent should do next")
    if first.worker_type in DEFAULT_MODELS:
        raise ConflictError(
            f"the run {run_id} is a single answer of {first.worker_type}, which keeps no session", hint="rerun it"
        )
    if first.worker_type in (None, "builtin", "plugin"):
        raise ConflictError(
            f"the run {run_id} is a run of the worker {first.name!r}, not an agent's session",
            hint=f"rerun the worker; `shopfloor run --provider NAME --resume {run_id[:8]}` continues a session of it",
        )
    return rerun_request(run_id, first, {PROMPT: text, RESUME: run_id}, key)
