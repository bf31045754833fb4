"""Answers as bytes that we encode, and what the API's description says of them."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.errors import Forbidden
from shopfloor.ports import RunService
from shopfloor.server import response_models
from shopfloor.server.services import Services

RESPONSE_MODELS = (
    response_models.ProblemAnswer,
    response_models.ExecutionProblem,
    response_models.WorkerList,
    response_models.WorkerItem,
    response_models.WorkerDetail,
    response_models.WorkerEvents,
    response_models.LogPage,
    response_models.FoundEvents,
    response_models.SpanList,
    response_models.ChannelList,
    response_models.Deleted,
    response_models.Health,
    response_models.RunAnswer,
    response_models.CancelAnswer,
    response_models.Catalogue,
    response_models.ProviderList,
)
# Of a stream the description says what each event is, as readers of such descriptions expect.
_TEXT = {"type": "string"}
_FRAME = {"type": "object", "required": ["data"], "properties": {"event": _TEXT, "id": _TEXT, "data": _TEXT}}
_encode = msgspec.json.Encoder().encode


def answer(shape: msgspec.Struct) -> Response:
    return Response(_encode(shape), media_type="application/json")


def describe_json(shape: type[msgspec.Struct], description: str) -> dict[str, dict[str, Any]]:
    """What an operation answers, for the description of the API."""
    return {
        "200": _described(shape, description),
        "default": _described(response_models.ProblemAnswer, "What went wrong."),
    }


def streams(
    description: str, refusal: type[msgspec.Struct] = response_models.ProblemAnswer
) -> dict[str, dict[str, Any]]:
    """The same for a stream."""
    stream = {"description": description, "content": {"text/event-stream": {"schema": _FRAME}}}
    return {"200": stream, "default": _described(refusal, "What went wrong.")}


def describe_bytes(media_type: str, description: str) -> dict[str, dict[str, Any]]:
    """The same for bytes that are passed on as they are."""
    whole = {"description": description, "content": {media_type: {"schema": {"type": "string"}}}}
    return {"200": whole, "default": _described(response_models.ProblemAnswer, "What went wrong.")}


def _described(shape: type[msgspec.Struct], description: str) -> dict[str, Any]:
    return {
        "description": description,
        "content": {"application/json": {"schema": {"$ref": schema_ref(shape.__name__)}}},
    }


def schema_ref(name: str) -> str:
    return f"#/components/schemas/{name}"


def get_services(request: Request) -> Services:
    """What the server was given to serve."""
    return request.app.state.services


def require_run_service(request: Request) -> RunService:
    """What makes runs happen. Raises `Forbidden` where nothing does."""
    run_service = get_services(request).run_service
    if run_service is None:
        raise Forbidden("runs cannot be made here", hint="ask a server that `shopfloor up` has started")
    return run_service
