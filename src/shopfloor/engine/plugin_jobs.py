"""The jobs of plugins behind runs: which job belongs to which run, and the deletion of both."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import msgspec

from shopfloor.engine.replay_state import PLUGIN_JOB, read_replay_state
from shopfloor.engine.workers.catalog import PLUGIN
from shopfloor.engine.workers.plugin_workers import job_description
from shopfloor.errors import OutcomeUnknown, ShopfloorError
from shopfloor.limits import PLUGIN_CLAIM_RUNS
from shopfloor.log import RunCompleted, Session
from shopfloor.ports import LogReader, Plugins, RunFilter, RunItem, Store

_log = logging.getLogger("shopfloor.engine")


class JobClaims(msgspec.Struct, frozen=True):
    """Which jobs of a plugin belong to its newest runs."""

    job_ids: set[str]
    lost: dict[str, str]
    """The runs that have dispatched a job but do not know its id, each with the description of its job."""
    is_complete: bool
    """Whether the plugin has no older runs, whose claims are not known."""


FindJobClaims = Callable[[str], Awaitable[JobClaims]]
"""A function that returns the claims on the jobs of a plugin."""


async def job_claims(store: Store, reader: LogReader, plugin: str) -> JobClaims:
    """Return the claims on the jobs of a plugin, as the logs of its newest runs have them."""
    page = await store.list_runs(RunFilter(worker_type=PLUGIN, name=plugin), limit=PLUGIN_CLAIM_RUNS)
    claims = JobClaims(set(), {}, is_complete=len(page.items) < PLUGIN_CLAIM_RUNS)
    for item in page.items:
        replay_state = await read_replay_state(reader, item.row.id)
        for step in replay_state.steps.values():
            if step.kind != PLUGIN_JOB or step.session is None or step.session.session_id is None:
                continue
            if step.has_reported:
                claims.job_ids.add(step.session.session_id)
            elif replay_state.first is not None and _may_have_dispatched(replay_state.outcome):
                claims.lost[item.row.id] = job_description(replay_state.first.input or {})
    return claims


def _may_have_dispatched(outcome: RunCompleted | None) -> bool:
    """Return whether a run without a job may have one in the plugin: the plugin did not refuse the dispatch."""
    return outcome is None or outcome.error is None or outcome.error.code == OutcomeUnknown.code


async def job_of(reader: LogReader, run_id: str) -> Session | None:
    """Return the job of a run whose plugin has accepted it."""
    replay_state = await read_replay_state(reader, run_id)
    jobs = [step.session for step in replay_state.steps.values() if step.kind == PLUGIN_JOB and step.has_reported]
    return jobs[-1] if jobs else None


async def delete_job(plugins: Plugins, reader: LogReader, item: RunItem) -> None:
    """Delete the job of a run in its plugin.

    A plugin that is gone or refuses, as it must for a failed job, does not prevent the deletion of the run.
    """
    if item.row.worker_type != PLUGIN:
        return
    job = await job_of(reader, item.row.id)
    if job is None or job.session_id is None:
        return
    try:
        await (await plugins.worker(job.provider)).delete(job.session_id)
    except ShopfloorError as error:
        _log.warning("the job of run %s is not deleted: %s", item.row.id, error.message)
