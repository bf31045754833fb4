"""Answers as bytes that we encode, and what the API's description says of them."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.errors import Forbidden
from shopfloor.ports import Works
from shopfloor.server import shapes
from shopfloor.server.services import Services

ANSWERS = (
    shapes.ProblemAnswer,
    shapes.ExecutionProblem,
    shapes.WorkerList,
    shapes.WorkerItem,
    shapes.WorkerDetail,
    shapes.WorkerEvents,
    shapes.LogPage,
    shapes.FoundEvents,
    shapes.SpanList,
    shapes.ChannelList,
    shapes.Deleted,
    shapes.Health,
    shapes.RunAnswer,
    shapes.CancelAnswer,
    shapes.Catalogue,
    shapes.ProviderList,
)
# Of a stream the description says what each event is, as readers of such descriptions expect.
_TEXT = {"type": "string"}
_FRAME = {"type": "object", "required": ["data"], "properties": {"event": _TEXT, "id": _TEXT, "data": _TEXT}}
_encode = msgspec.json.Encoder().encode


def answer(shape: msgspec.Struct) -> Response:
    return Response(_encode(shape), media_type="application/json")


def says(shape: type[msgspec.Struct], description: str) -> dict[str, dict[str, Any]]:
    """What an operation answers, for the description of the API."""
    return {"200": _described(shape, description), "default": _described(shapes.ProblemAnswer, "What went wrong.")}


def streams(description: str, refusal: type[msgspec.Struct] = shapes.ProblemAnswer) -> dict[str, dict[str, Any]]:
    """The same for a stream."""
    stream = {"description": description, "content": {"text/event-stream": {"schema": _FRAME}}}
    return {"200": stream, "default": _described(refusal, "What went wrong.")}


def gives(media_type: str, description: str) -> dict[str, dict[str, Any]]:
    """The same for bytes that are passed on as they are."""
    whole = {"description": description, "content": {media_type: {"schema": {"type": "string"}}}}
    return {"200": whole, "default": _described(shapes.ProblemAnswer, "What went wrong.")}


def _described(shape: type[msgspec.Struct], description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": {"$ref": ref(shape.__name__)}}}}


def ref(name: str) -> str:
    return f"#/components/schemas/{name}"


def services_of(request: Request) -> Services:
    """What the server was given to serve."""
    return request.app.state.services


def works_of(request: Request) -> Works:
    """What makes runs happen. Raises `Forbidden` where nothing does."""
    works = services_of(request).works
    if works is None:
        raise Forbidden("runs cannot be made here", hint="ask a server that `shopfloor up` has started")
    return works
