"""Helpers of operations: JSON responses, their description in OpenAPI, and access to the server's services."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.errors import Forbidden
from shopfloor.ports import ApprovalRule, RunService
from shopfloor.server import fleet_models, hook_models, host_models, response_models, waiting_models
from shopfloor.server.services import Services
from shopfloor.views import Stats

RESPONSE_MODELS = (
    response_models.ProblemAnswer,
    response_models.ExecutionProblem,
    response_models.WorkerList,
    response_models.WorkerItem,
    response_models.WorkerCounts,
    response_models.WorkerDetail,
    response_models.WorkerEvents,
    waiting_models.WaitingList,
    response_models.ArtifactList,
    response_models.LogPage,
    fleet_models.FleetEventList,
    fleet_models.QueueOverview,
    response_models.FoundEvents,
    response_models.SpanList,
    response_models.ApprovalList,
    ApprovalRule,
    response_models.ChannelList,
    response_models.Deleted,
    response_models.Health,
    response_models.RunAnswer,
    response_models.CancelAnswer,
    response_models.Catalogue,
    response_models.PluginList,
    fleet_models.ProviderList,
    fleet_models.ProviderItem,
    response_models.JsonRpcResponse,
    hook_models.HookList,
    hook_models.AddedHook,
    hook_models.RemovedHook,
    hook_models.HookTest,
    host_models.HostList,
    host_models.HostAnswer,
    Stats,
)
# For a stream the schema describes one event, as tools that read OpenAPI expect.
_TEXT = {"type": "string"}
_FRAME = {"type": "object", "required": ["data"], "properties": {"event": _TEXT, "id": _TEXT, "data": _TEXT}}
_encode = msgspec.json.Encoder().encode


def json_response(model: msgspec.Struct) -> Response:
    """Return a response with the model as JSON."""
    return Response(_encode(model), media_type="application/json")


def describe_json(model: type[msgspec.Struct], description: str) -> dict[str, dict[str, Any]]:
    """Describe the responses of an operation that returns JSON, for OpenAPI."""
    return {"200": _describe_model(model, description), "default": _describe_error(response_models.ProblemAnswer)}


def describe_stream(
    description: str, error_model: type[msgspec.Struct] = response_models.ProblemAnswer
) -> dict[str, dict[str, Any]]:
    """Describe the responses of an operation that returns server-sent events, for OpenAPI."""
    stream = {"description": description, "content": {"text/event-stream": {"schema": _FRAME}}}
    return {"200": stream, "default": _describe_error(error_model)}


def describe_bytes(description: str, *media_types: str) -> dict[str, dict[str, Any]]:
    """Describe the responses of an operation that returns a file of one of these types, for OpenAPI."""
    types = {media_type: {"schema": {"type": "string"}} for media_type in media_types}
    content = {"description": description, "content": types}
    return {"200": content, "default": _describe_error(response_models.ProblemAnswer)}


def _describe_error(model: type[msgspec.Struct]) -> dict[str, Any]:
    return _describe_model(model, "An error.")


def _describe_model(model: type[msgspec.Struct], description: str) -> dict[str, Any]:
    return {
        "description": description,
        "content": {"application/json": {"schema": {"$ref": schema_ref(model.__name__)}}},
    }


def schema_ref(name: str) -> str:
    """Return the reference to a schema of the OpenAPI document."""
    return f"#/components/schemas/{name}"


def get_services(request: Request) -> Services:
    """Return the services that the app was created with."""
    return request.app.state.services


def require_run_service(request: Request) -> RunService:
    """Return the service that starts and controls runs. Raises `Forbidden` if this server has none."""
    run_service = get_services(request).run_service
    if run_service is None:
        raise Forbidden("this server cannot start or change runs", hint="use a server started with `shopfloor up`")
    return run_service
