"""Runs by their id: the pin, and that they go; and what else a client asks of the server."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from shopfloor.errors import Forbidden, RunNotFound
from shopfloor.server.answers import Served, answer, says
from shopfloor.server.auditing import audit
from shopfloor.server.parameters import Force, PinBody, RunId, api_router
from shopfloor.server.shapes import ChannelItem, ChannelList, Deleted, Health, WorkerItem, item_of
from shopfloor.server.workers import owned_run

router = api_router("/api")


@router.post("/runs/{run_id}/pin", responses=says(WorkerItem, "The run as it is now."))
async def pin_run(request: Request, run_id: RunId, body: PinBody, served: Served) -> Response:
    """Keeps a run when old ones are pruned, or no longer."""
    if not await served.store.pin(run_id, pinned=body.pinned):
        raise RunNotFound(f"there is no run {run_id}")
    audit(request, "run.pinned" if body.pinned else "run.unpinned", run_id=run_id)
    await served.changes.tell(run_id)
    return answer(item_of(await owned_run(served.store, run_id), served.logs))


@router.delete("/runs/{run_id}", responses=says(Deleted, "What is gone."))
async def delete_run(
    request: Request,
    run_id: RunId,
    served: Served,
    force: Force = False,  # noqa: FBT002 - a parameter of the request
) -> Response:
    """Deletes a run that has ended, and its sub-runs; one that failed only by force."""
    if served.delete_run is None:
        raise Forbidden("runs cannot be deleted here")
    deleted = await served.delete_run(run_id, force=force)
    for one in deleted:
        audit(request, "run.deleted", run_id=one, detail=None if one == run_id else f"with {run_id}")
    return answer(Deleted(deleted))


@router.get("/channels", responses=says(ChannelList, "The channels."))
async def list_channels(served: Served) -> Response:
    """Where runs came from."""
    channels = await served.store.channels()
    return answer(ChannelList([ChannelItem(channel.id, channel.name) for channel in channels]))


@router.get("/health", responses=says(Health, "It runs."))
async def health(served: Served) -> Response:
    """Whether the server runs, and which one it is."""
    return answer(Health(served.version))
