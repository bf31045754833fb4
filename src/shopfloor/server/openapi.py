"""Operations of the API, and the OpenAPI document made from them.

Each operation declares its path, parameters, body and responses once, for both handling requests and OpenAPI.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shopfloor.decoding import convert
from shopfloor.errors import InvalidParameter
from shopfloor.server.parameters import HEADERS, NoParams
from shopfloor.server.request_models import REQUEST_MODELS
from shopfloor.server.responses import RESPONSE_MODELS, schema_ref

P = TypeVar("P", bound=Struct)
Method = Literal["GET", "POST", "DELETE"]
Responses = Mapping[str, dict[str, Any]]

_HINT: Final = "see /api/docs for the API"
_PATH_NAMES: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
_LOCATED: Final = re.compile(r"(?P<problem>.*) - at `\$\.(?P<name>\w+)`", re.DOTALL)
_SHOWN_CHARS: Final = 40
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>\w+)`")


class Operation(Struct, frozen=True, kw_only=True):
    """One operation of the API. Its function's name is its id, its docstring is its description."""

    method: Method
    path: str
    params: type[Struct]
    responses: Responses
    body: Any
    """The type of the request body; None if the operation takes none."""
    body_required: bool
    endpoint: Callable[[Request, Any], Awaitable[Response]]

    @property
    def id(self) -> str:
        return self.endpoint.__name__

    @property
    def path_names(self) -> frozenset[str]:
        return frozenset(_PATH_NAMES.findall(self.path))

    def route(self) -> Route:
        parse = _ParameterParser(self)

        async def respond(request: Request) -> Response:
            return await self.endpoint(request, parse(request))

        route = Route(self.path, respond, methods=[self.method], name=self.id)
        # Starlette adds HEAD to GET, and a HEAD request for a stream would never end.
        route.methods = {self.method}
        return route


class Operations:
    """The operations of a module, in the order of their declaration."""

    def __init__(self) -> None:
        self.all: list[Operation] = []

    def __call__(
        self,
        method: Method,
        path: str,
        responses: Responses,
        params: type[P] = NoParams,
        *,
        body: Any = None,
        body_required: bool = True,
    ) -> Callable[[Callable[[Request, P], Awaitable[Response]]], Callable[[Request, P], Awaitable[Response]]]:
        """Declare the decorated function as an operation. It is called with the request and the checked parameters."""

        def declare(endpoint: Callable[[Request, P], Awaitable[Response]]) -> Any:
            self.all.append(
                Operation(
                    method=method,
                    path=path,
                    params=params,
                    responses=responses,
                    body=body,
                    body_required=body_required,
                    endpoint=endpoint,
                )
            )
            return endpoint

        return declare


class _ParameterParser:
    """Parses the parameters of an operation from a request. Refuses unknown and repeated query parameters."""

    def __init__(self, operation: Operation) -> None:
        self._params = operation.params
        names = operation.params.__struct_fields__
        self._headers = {name: HEADERS[name] for name in names if name in HEADERS}
        self._query = frozenset(names) - operation.path_names - HEADERS.keys()

    def __call__(self, request: Request) -> Any:
        values: dict[str, str] = dict(request.path_params)
        for name, value in request.query_params.multi_items():
            if name not in self._query:
                # Silently ignoring a filter would be worse than an error.
                known = f"known parameters: {', '.join(sorted(self._query))}" if self._query else "there are none"
                raise InvalidParameter(f"{name}: unknown parameter", hint=known)
            if name in values:
                raise InvalidParameter(f"{name}: set more than once")
            values[name] = value
        for name, header in self._headers.items():
            if (value := request.headers.get(header)) is not None:
                values[name] = value
        try:
            return convert(values, self._params, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidParameter(_parameter_problem(str(error), values), hint=_HINT) from error


def _parameter_problem(message: str, values: Mapping[str, str]) -> str:
    """Rewrite a message of msgspec: the parameter's name first, then the problem and the value."""
    if missing := _MISSING.fullmatch(message):
        return f"{missing['name']}: missing"
    if located := _LOCATED.fullmatch(message):
        name, problem = located["name"], located["problem"].partition(", got `")[0]
        return f"{name}: {problem[:1].lower()}{problem[1:]}, got {values[name][:_SHOWN_CHARS]!r}"
    return message


OPENAPI_PATH: Final = "/api/openapi.json"
Document = dict[str, Any]

_ABOUT: Final = (
    "Runs of AI workers, and the record of what was said and done in them. "
    "Every request needs `Authorization: Bearer <token>`, or the cookie that the login link sets. "
    "Errors are a `ProblemAnswer`; errors of `execute` are an `ExecutionProblem`."
)
_REF: Final = schema_ref("{name}")
_CONVERTOR: Final = re.compile(r":\w+(?=\})")


def build_openapi(operations: Iterable[Operation], version: str, cookie: str) -> Document:
    """Return the OpenAPI document of the operations. `cookie` is the name of the session cookie."""
    paths: dict[str, Document] = {}
    for operation in operations:
        paths.setdefault(_CONVERTOR.sub("", operation.path), {})[operation.method.lower()] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shopfloor", "description": _ABOUT, "version": version},
        "paths": paths,
        "components": {
            "schemas": msgspec.json.schema_components((*RESPONSE_MODELS, *REQUEST_MODELS), ref_template=_REF)[1],
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": cookie},
            },
        },
        "security": [{"token": []}, {"session": []}],
    }


async def openapi_document(request: Request) -> Response:
    """Return the OpenAPI document as JSON."""
    return JSONResponse(get_openapi_document(request))


def get_openapi_document(request: Request) -> Document:
    """Return the OpenAPI document of the app that handles the request."""
    return request.app.state.openapi()


def _describe(operation: Operation) -> Document:
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
