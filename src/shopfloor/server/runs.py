"""Runs by their id: the pin, and that they go; and what else a client asks of the server."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from shopfloor.decoding import json_decoder
from shopfloor.errors import Forbidden, RunNotFound
from shopfloor.server.answers import answer, says, services_of
from shopfloor.server.auditing import audit
from shopfloor.server.bodies import PinRequest, body_of
from shopfloor.server.operations import Operations
from shopfloor.server.parameters import DeleteParams, NoParams, RunParams
from shopfloor.server.shapes import ChannelItem, ChannelList, Deleted, Health, WorkerItem, item_of
from shopfloor.server.workers import owned_run

_pin_request = json_decoder(PinRequest)

operations = Operations()


@operations("POST", "/api/runs/{run_id}/pin", says(WorkerItem, "The run as it is now."), RunParams, body=PinRequest)
async def pin_run(request: Request, asked: RunParams) -> Response:
    """Keeps a run when old ones are pruned, or no longer."""
    served = services_of(request)
    body = await body_of(request, _pin_request)
    if not await served.store.pin(asked.run_id, pinned=body.pinned):
        raise RunNotFound(f"there is no run {asked.run_id}")
    await audit(request, "run.pinned" if body.pinned else "run.unpinned", run_id=asked.run_id)
    await served.changes.tell(asked.run_id)
    return answer(await item_of(await owned_run(served.store, asked.run_id), served.logs))


@operations("DELETE", "/api/runs/{run_id}", says(Deleted, "What is gone."), DeleteParams)
async def delete_run(request: Request, asked: DeleteParams) -> Response:
    """Deletes a run that has ended, and its sub-runs; one that failed only by force."""
    delete = services_of(request).delete_run
    if delete is None:
        raise Forbidden("runs cannot be deleted here")
    deleted = await delete(asked.run_id, force=asked.force)
    for run_id in deleted:
        await audit(
            request, "run.deleted", run_id=run_id, detail=None if run_id == asked.run_id else f"with {asked.run_id}"
        )
    return answer(Deleted(deleted))


@operations("GET", "/api/channels", says(ChannelList, "The channels."))
async def list_channels(request: Request, _: NoParams) -> Response:
    """Where runs came from."""
    channels = await services_of(request).store.channels()
    return answer(ChannelList([ChannelItem(channel.id, channel.name) for channel in channels]))


@operations("GET", "/api/health", says(Health, "It runs."))
async def health(request: Request, _: NoParams) -> Response:
    """Whether the server runs, and which one it is."""
    return answer(Health(services_of(request).version))
