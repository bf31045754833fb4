"""The jobs of plugins behind runs: which job belongs to which run, and the deletion of both."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from shopfloor.engine.replay_state import PLUGIN_JOB, read_replay_state
from shopfloor.engine.workers.catalog import PLUGIN
from shopfloor.errors import ShopfloorError
from shopfloor.limits import PLUGIN_CLAIM_RUNS
from shopfloor.log import Session
from shopfloor.ports import LogReader, Plugins, RunFilter, RunItem, Store

_log = logging.getLogger("shopfloor.engine")
FindClaimedJobs = Callable[[str], Awaitable[set[str]]]
"""A function that returns the ids of the jobs of a plugin that belong to a run."""


async def claimed_jobs(store: Store, reader: LogReader, plugin: str) -> set[str]:
    """Return the ids of the jobs of a plugin that belong to its newest runs."""
    page = await store.list_runs(RunFilter(worker_type=PLUGIN, name=plugin), limit=PLUGIN_CLAIM_RUNS)
    sessions = [await job_of(reader, item.row.id) for item in page.items]
    return {session.session_id for session in sessions if session is not None and session.session_id is not None}


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
