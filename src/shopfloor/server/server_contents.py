"""Operations that tell what a server has: its health, workers, plugins and channels."""

from __future__ import annotations

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.server.audit import get_caller
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import NoParams
from shopfloor.server.response_models import Catalogue, ChannelItem, ChannelList, Health, PluginList
from shopfloor.server.responses import describe_json, get_services, json_response

operations = Operations()


@operations("GET", "/api/plugins", describe_json(PluginList, "The plugins, and the state of each."))
async def list_plugins(request: Request, _: NoParams) -> Response:
    """List the plugins, their state, and why one cannot be used. A plugin with the capability `worker` is a worker."""
    services = get_services(request)
    return json_response(PluginList(list(await anyio.to_thread.run_sync(services.plugins)) if services.plugins else []))


@operations("GET", "/api/workers", describe_json(Catalogue, "The workers, by their slugs."))
async def list_catalogue(request: Request, _: NoParams) -> Response:
    """List the workers that this server can run, with their inputs."""
    run_service = get_services(request).run_service
    return json_response(
        Catalogue(run_service.workers(), run_service.provider_workers()) if run_service else Catalogue([], [])
    )


@operations("GET", "/api/channels", describe_json(ChannelList, "The channels."))
async def list_channels(request: Request, _: NoParams) -> Response:
    """List the channels that runs came from."""
    channels = await get_services(request).store.channels()
    return json_response(ChannelList([ChannelItem(channel.id, channel.name) for channel in channels]))


@operations("GET", "/api/health", describe_json(Health, "The server is running."))
async def health(request: Request, _: NoParams) -> Response:
    """Check that the server is running, and return its version and the role of the caller."""
    caller = get_caller(request.scope)
    role = None if caller is None or caller.role == "host" else caller.role
    return json_response(Health(get_services(request).version, role))
