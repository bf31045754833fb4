"""Operations on providers: list, check, disable and enable."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from shopfloor.decoding import json_decoder
from shopfloor.errors import NotFoundError
from shopfloor.fleet import ProviderMonitor
from shopfloor.server.audit import audit, get_caller
from shopfloor.server.fleet_models import ProviderItem, ProviderList, build_provider, build_provider_list
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import NoParams, ProviderParams
from shopfloor.server.request_models import DisableRequest, decode_body
from shopfloor.server.responses import describe_json, get_services, json_response

_disable_decoder = json_decoder(DisableRequest)
operations = Operations()


@operations(
    "GET", "/api/providers", describe_json(ProviderList, "The agents and model APIs, and which of them are usable.")
)
async def list_providers(request: Request, _: NoParams) -> Response:
    """List the agents and model APIs: what each can do, its status by the last check, and the limits that runs met."""
    monitor = get_services(request).providers
    return json_response(build_provider_list(await monitor.list() if monitor else []))


@operations("POST", "/api/providers/check", describe_json(ProviderList, "The providers, as the check found them."))
async def check_providers(request: Request, _: NoParams) -> Response:
    """Check now whether the providers of the server's machine are installed, logged in and answer. Takes seconds."""
    states = await _get_monitor(request).check()
    await audit(request, "providers.checked")
    return json_response(build_provider_list(states))


@operations(
    "POST",
    "/api/providers/{name}/disable",
    describe_json(ProviderItem, "The provider after the change."),
    ProviderParams,
    body=DisableRequest,
    body_required=False,
)
async def disable_provider(request: Request, params: ProviderParams) -> Response:
    """Disable a provider: new runs that need it are refused, sessions that are running continue."""
    monitor = _get_monitor(request)
    body = await decode_body(request, _disable_decoder) if await request.body() else DisableRequest()
    caller = get_caller(request.scope)
    await monitor.disable(
        params.name, by=caller.label if caller else "nobody", maintenance=body.maintenance, reason=body.reason
    )
    await audit(request, "provider.disabled", detail=_detail(params.name, body))
    return json_response(await _build_item(monitor, params.name))


@operations(
    "POST",
    "/api/providers/{name}/enable",
    describe_json(ProviderItem, "The provider after the change."),
    ProviderParams,
)
async def enable_provider(request: Request, params: ProviderParams) -> Response:
    """Enable a provider that was disabled, and forget the failures that runs observed."""
    monitor = _get_monitor(request)
    await monitor.enable(params.name)
    await audit(request, "provider.enabled", detail=params.name)
    return json_response(await _build_item(monitor, params.name))


def _detail(name: str, body: DisableRequest) -> str:
    words = [name, "for maintenance" if body.maintenance else "", f"({body.reason})" if body.reason else ""]
    return " ".join(word for word in words if word)


async def _build_item(monitor: ProviderMonitor, name: str) -> ProviderItem:
    return next(build_provider(state) for state in await monitor.list() if state.info.name == name)


def _get_monitor(request: Request) -> ProviderMonitor:
    monitor = get_services(request).providers
    if monitor is None:
        raise NotFoundError("this server knows no providers", hint="use a server started with `shopfloor up`")
    return monitor
