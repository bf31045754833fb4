"""Hosts: list them, and drain one."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from shopfloor.decoding import json_decoder
from shopfloor.errors import NotFoundError
from shopfloor.fleet import HostDirectory
from shopfloor.limits import LONGEST_SPAN_SECONDS
from shopfloor.server.audit import audit
from shopfloor.server.host_models import DrainParameters, HostAnswer, HostList, build_host_item
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import HostParams, NoParams
from shopfloor.server.request_models import decode_body
from shopfloor.server.responses import describe_json, get_services, json_response

operations = Operations()


_drain_decoder = json_decoder(DrainParameters)


@operations("GET", "/api/hosts", describe_json(HostList, "The hosts, and those that went offline within a day."))
async def list_hosts(request: Request, _: NoParams) -> Response:
    """List the processes that execute runs, with their status, usage and open runs."""
    directory = get_services(request).hosts
    return json_response(HostList([build_host_item(host) for host in await directory.list()] if directory else []))


@operations(
    "POST",
    "/api/hosts/{host_id}/drain",
    describe_json(HostAnswer, "The request is stored; the host claims no more runs within a second."),
    HostParams,
    body=DrainParameters,
    body_required=False,
)
async def drain_host(request: Request, params: HostParams) -> Response:
    """Have a host claim no more runs. Those that it has end there, or are resumed by other hosts after a time."""
    body = await decode_body(request, _drain_decoder) if await request.body() else DrainParameters()
    seconds = None if body.seconds is None else min(max(body.seconds, 0.0), LONGEST_SPAN_SECONDS)
    host = await _get_directory(request).drain(params.host_id, seconds)
    await audit(request, "host.drained", detail=params.host_id)
    return json_response(HostAnswer(params.host_id, host.status))


@operations(
    "POST",
    "/api/hosts/{host_id}/undrain",
    describe_json(HostAnswer, "The request is withdrawn; the host claims runs again within a second."),
    HostParams,
)
async def undrain_host(request: Request, params: HostParams) -> Response:
    """Have a host claim runs again."""
    host = await _get_directory(request).undrain(params.host_id)
    await audit(request, "host.undrained", detail=params.host_id)
    return json_response(HostAnswer(params.host_id, host.status))


def _get_directory(request: Request) -> HostDirectory:
    directory = get_services(request).hosts
    if directory is None:
        raise NotFoundError("this server has no hosts", hint="use a server started with `shopfloor up`")
    return directory
