"""The OpenAPI document, made from the operations and the shapes of bodies and answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from shopfloor.server.answers import ANSWERS, ref
from shopfloor.server.bodies import BODIES
from shopfloor.server.operations import Operation
from shopfloor.server.parameters import HEADERS

OPENAPI: Final = "/api/openapi.json"
Document = dict[str, Any]

_ABOUT: Final = (
    "Runs of AI workers, and the record of what was said and done in them. "
    "Every address wants `Authorization: Bearer <token>`, or the cookie that the login link sets. "
    "Errors are a `ProblemAnswer`; where a worker was to be executed, an `ExecutionProblem`."
)
_REF: Final = ref("{name}")
_CONVERTOR: Final = re.compile(r":\w+(?=\})")


def openapi(operations: Iterable[Operation], version: str, cookie: str) -> Document:
    paths: dict[str, Document] = {}
    for operation in operations:
        paths.setdefault(_CONVERTOR.sub("", operation.path), {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shopfloor", "description": _ABOUT, "version": version},
        "paths": paths,
        "components": {
            "schemas": msgspec.json.schema_components((*ANSWERS, *BODIES), ref_template=_REF)[1],
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": cookie},
            },
        },
        "security": [{"token": []}, {"session": []}],
    }


async def openapi_document(request: Request) -> Response:
    return JSONResponse(document_of(request))


def document_of(request: Request) -> Document:
    return request.app.state.openapi()


def _described(operation: Operation) -> Document:
    described: Document = {
        "operationId": operation.id,
        "summary": operation.id.replace("_", " ").capitalize(),
        "description": _paragraphs(operation.endpoint.__doc__ or ""),
        "responses": operation.responses,
    }
    if parameters := list(_parameters(operation)):
        described["parameters"] = parameters
    if operation.body is not None:
        schema = msgspec.json.schema_components((operation.body,), ref_template=_REF)[0][0]
        content = {"application/json": {"schema": schema}}
        described["requestBody"] = {"required": operation.body_required, "content": content}
    return described


def _parameters(operation: Operation) -> Iterator[Document]:
    for field in msgspec.structs.fields(operation.params):
        schema = msgspec.json.schema_components((field.type,), ref_template=_REF)[0][0]
        if field.default not in (msgspec.NODEFAULT, None):
            schema["default"] = field.default
        in_path = field.name in operation.path_names
        yield {
            "name": HEADERS.get(field.name, field.name),
            "in": "path" if in_path else "header" if field.name in HEADERS else "query",
            "required": field.required,
            "description": schema.pop("description", ""),
            "schema": schema,
        }


def _paragraphs(docstring: str) -> str:
    return "\n".join(line.strip() for line in docstring.strip().splitlines())
