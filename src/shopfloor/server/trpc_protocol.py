"""The WebSocket protocol of tRPC 11 for subscriptions to fleet events, without I/O.

Messages are JSON: a request or an array of requests from the client, one response to a message from the server. A
subscription is answered with `started`, then `data` for each event, and `stopped`. Each `data` has the event's cursor
as `result.id`, which the client sends as `lastEventId` when it reconnects.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, Literal, TypeVar, cast

import msgspec

from shopfloor.decoding import convert
from shopfloor.errors import (
    InputError,
    InvalidParameter,
    MethodNotAllowed,
    NotFoundError,
    RunNotFound,
    ShopfloorError,
    TooManySubscriptions,
    Unauthorized,
)
from shopfloor.limits import FILTER_MAX_CHARS
from shopfloor.log import is_run_id
from shopfloor.ports import FleetFilter
from shopfloor.server.fleet_feed import FeedItem
from shopfloor.server.limits import WEBSOCKET_BURST, WEBSOCKET_MESSAGES_PER_SECOND, WEBSOCKET_SUBSCRIPTIONS
from shopfloor.server.parameters import parse_event_id
from shopfloor.views import EventStream

PROCEDURES: Final[dict[str, EventStream]] = {
    "stream.agentEvents": "agent",
    "stream.workerEvents": "worker",
    "stream.providerEvents": "provider",
}
"""The procedures, each with the stream that it subscribes to."""
RECONNECT: Final = b'{"id":null,"method":"reconnect"}'
"""Tells the client to connect again, when the server stops."""
POLICY_VIOLATION: Final = 1008

RequestId = int | float | str
_PING, _PONG = "PING", "PONG"
_SHOWN_CHARS: Final = 100
_INPUT_HINT: Final = "the input may have `providerId`, `taskId`, `tree` and `lastEventId`"
_CODES: Final[dict[int, tuple[int, str]]] = {
    HTTPStatus.BAD_REQUEST: (-32600, "BAD_REQUEST"),
    HTTPStatus.UNAUTHORIZED: (-32001, "UNAUTHORIZED"),
    HTTPStatus.FORBIDDEN: (-32003, "FORBIDDEN"),
    HTTPStatus.NOT_FOUND: (-32004, "NOT_FOUND"),
    HTTPStatus.METHOD_NOT_ALLOWED: (-32005, "METHOD_NOT_SUPPORTED"),
    HTTPStatus.REQUEST_TIMEOUT: (-32008, "TIMEOUT"),
    HTTPStatus.CONFLICT: (-32009, "CONFLICT"),
    HTTPStatus.TOO_MANY_REQUESTS: (-32029, "TOO_MANY_REQUESTS"),
}
"""tRPC's code and name of an error, by HTTP status."""
_INTERNAL: Final = (-32603, "INTERNAL_SERVER_ERROR")
_PARSE_ERROR: Final = (-32700, "PARSE_ERROR")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


# What the handler of the connection has to do.


class Send(msgspec.Struct, frozen=True):
    """Send this message."""

    text: bytes


class Authenticate(msgspec.Struct, frozen=True):
    """Check this token, then call `accept` or `refuse`."""

    token: str


class Subscribe(msgspec.Struct, frozen=True):
    """Start a subscription."""

    id: RequestId
    path: str
    wanted: FleetFilter
    after: int | None


class Stop(msgspec.Struct, frozen=True):
    """Stop a subscription."""

    id: RequestId


class Close(msgspec.Struct, frozen=True):
    """Close the connection."""

    code: int
    reason: str


Action = Send | Authenticate | Subscribe | Stop | Close


class _Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The input of a subscription."""

    provider_id: str | None = None
    task_id: str | None = None
    tree: bool = False
    last_event_id: str | int | None = None


class _Params(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    input: Any = None
    last_event_id: str | int | None = None


class _Request(msgspec.Struct, frozen=True):
    id: RequestId | None
    method: Literal["query", "mutation", "subscription", "subscription.stop"]
    params: Any = None


class _ConnectionParams(msgspec.Struct, frozen=True):
    method: Literal["connectionParams"]
    data: dict[str, Any] | None = None


class TrpcConnection:
    """The state of one connection: whether the client is known, its subscriptions, and how much it sends.

    Without a token in the request for the connection, the first message must be tRPC's `connectionParams` with a
    `token`. After a refusal the next requests are answered with the error before the connection closes: the stock
    client reports an error only as the response to a request.
    """

    def __init__(self, *, is_authenticated: bool = False, refusal: ShopfloorError | None = None) -> None:
        self.is_authenticated = is_authenticated
        self.subscriptions: set[RequestId] = set()
        self._refusal = refusal
        self._allowance = float(WEBSOCKET_BURST)
        self._counted_at = 0.0

    def accept(self) -> None:
        """Record that the token is valid."""
        self.is_authenticated, self._refusal = True, None

    def refuse(self, error: ShopfloorError) -> None:
        """Record why the client is refused."""
        self.is_authenticated, self._refusal = False, error

    def receive(self, text: str, now: float) -> list[Action]:
        """Return what to do for a message that arrived at this time of a monotonic clock, in seconds."""
        if not self._may_send(now):
            error = TooManySubscriptions(
                "too many messages", hint=f"send at most {WEBSOCKET_MESSAGES_PER_SECOND} per second"
            )
            return [Send(error_message(None, error)), Close(POLICY_VIOLATION, error.message)]
        if text in (_PING, _PONG):
            return [Send(_PONG.encode())] if text == _PING else []
        try:
            message = _decode(text)
        except (msgspec.DecodeError, RecursionError):
            return [Send(_parse_error(None, "the message is not valid JSON"))]
        if (params := _connection_params(message)) is not None:
            return self._authenticate(params)
        requests = cast("list[Any]", message) if isinstance(message, list) else [message]
        if len(requests) > WEBSOCKET_SUBSCRIPTIONS:
            too_many = TooManySubscriptions(
                f"a message has at most {WEBSOCKET_SUBSCRIPTIONS} requests", hint="send the others in further messages"
            )
            return [Send(error_message(None, too_many)), Close(POLICY_VIOLATION, too_many.message)]
        actions = [action for request in requests for action in self._handle(request)]
        if not self.is_authenticated:
            actions.append(Close(POLICY_VIOLATION, self._unauthorized().message))
        return actions

    def _may_send(self, now: float) -> bool:
        elapsed = now - self._counted_at if self._counted_at else 0.0
        self._allowance = min(WEBSOCKET_BURST, self._allowance + elapsed * WEBSOCKET_MESSAGES_PER_SECOND) - 1
        self._counted_at = now
        return self._allowance >= 0

    def _authenticate(self, params: dict[str, Any]) -> list[Action]:
        token = params.get("token")
        if isinstance(token, str) and token:
            return [Authenticate(token)]
        # Parameters without a token are not for us; the request for the connection may have had one.
        return []

    def _unauthorized(self) -> ShopfloorError:
        return self._refusal or Unauthorized(
            "a token is needed", hint="pass `connectionParams: { token }` to `createWSClient`"
        )

    def _handle(self, raw: Any) -> list[Action]:
        try:
            request = convert(raw, _Request)
        except msgspec.ValidationError as error:
            return [Send(_parse_error(_id_of(raw), f"the message is not a request of tRPC: {error}"))]
        if request.id is None:
            return [Send(_parse_error(None, "`id` is required"))]
        if request.method == "subscription.stop":
            return [Stop(request.id)] if request.id in self.subscriptions else []
        path = ""
        try:
            if not self.is_authenticated:
                raise self._unauthorized()
            params = _convert(request.params, _Params, "params")
            path = params.path
            return [self._subscribe(request, params)]
        except ShopfloorError as error:
            return [Send(error_message(request.id, error, path))]

    def _subscribe(self, request: _Request, params: _Params) -> Subscribe:
        stream = PROCEDURES.get(params.path)
        if stream is None or request.id is None:
            known = ", ".join(PROCEDURES)
            raise NotFoundError(
                f'no procedure found on path "{params.path[:_SHOWN_CHARS]}"', hint=f"the procedures are {known}"
            )
        if request.method != "subscription":
            raise MethodNotAllowed(
                f"{params.path} is a subscription, not a {request.method}", hint="call its `.subscribe()`"
            )
        if request.id in self.subscriptions:
            raise InvalidParameter(f"duplicate id {request.id!r}", hint="each request needs an id of its own")
        if len(self.subscriptions) >= WEBSOCKET_SUBSCRIPTIONS:
            raise TooManySubscriptions(
                f"a connection has at most {WEBSOCKET_SUBSCRIPTIONS} subscriptions", hint="stop some, or open another"
            )
        wanted = _Input() if params.input is None else _convert(params.input, _Input, "input")
        for name, text in (("providerId", wanted.provider_id), ("taskId", wanted.task_id)):
            if text is not None and not 0 < len(text) <= FILTER_MAX_CHARS:
                raise InvalidParameter(
                    f"{name}: expected 1 to {FILTER_MAX_CHARS} characters, got {len(text)}", hint=_INPUT_HINT
                )
        if wanted.task_id is not None and not is_run_id(wanted.task_id):
            raise RunNotFound(f"there is no run {wanted.task_id!r}", hint="a run id is a UUID v4 in lower case")
        # A reconnecting client repeats its input, so the cursor of the message is the newer one.
        last_event_id = params.last_event_id if params.last_event_id is not None else wanted.last_event_id
        after = None if last_event_id is None else parse_event_id("lastEventId", last_event_id)
        self.subscriptions.add(request.id)
        fleet_filter = FleetFilter(stream=stream, provider=wanted.provider_id, run_id=wanted.task_id, tree=wanted.tree)
        return Subscribe(request.id, params.path, fleet_filter, after)


# Messages to the client.


def started_message(request_id: RequestId) -> bytes:
    """Return the message that a subscription has started."""
    return b'{"id":%b,"result":{"type":"started"}}' % _encode(request_id)


def stopped_message(request_id: RequestId) -> bytes:
    """Return the message that a subscription has stopped."""
    return b'{"id":%b,"result":{"type":"stopped"}}' % _encode(request_id)


def data_message(request_id: RequestId, item: FeedItem) -> bytes:
    """Return the message with an event. The event is `data` itself, so that `event.type` is its type."""
    return b'{"id":%b,"result":{"type":"data","id":"%d","data":%b}}' % (_encode(request_id), item.cursor, item.body)


def error_message(request_id: RequestId | None, error: ShopfloorError, path: str = "") -> bytes:
    """Return the message that a request, or with None the connection, has failed."""
    return _error_text(request_id, _CODES.get(error.status, _INTERNAL), error, path)


def _parse_error(request_id: RequestId | None, message: str) -> bytes:
    hint = "a request is a JSON object with `id`, `method` and `params`; a message is a request or an array of requests"
    return _error_text(request_id, _PARSE_ERROR, InputError(message, hint=hint))


def _error_text(request_id: RequestId | None, code: tuple[int, str], error: ShopfloorError, path: str = "") -> bytes:
    number, name = code
    data: dict[str, Any] = {"code": name, "httpStatus": error.status, "errorCode": error.code}
    data |= {key: value for key, value in (("hint", error.hint), ("path", path)) if value}
    return _encode({"id": request_id, "error": {"code": number, "message": error.message, "data": data}})


def _connection_params(message: Any) -> dict[str, Any] | None:
    """Return the parameters in a message, or None if it is another message."""
    try:
        return convert(message, _ConnectionParams).data or {}
    except msgspec.ValidationError:
        return None


def _id_of(raw: Any) -> RequestId | None:
    """Return the id of a request that is not valid otherwise."""
    try:
        return convert(raw, _Id).id
    except msgspec.ValidationError:
        return None


class _Id(msgspec.Struct, frozen=True):
    id: RequestId | None = None


T = TypeVar("T")


def _convert(value: Any, kind: type[T], name: str) -> T:
    try:
        return convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidParameter(f"{name}: {str(error)[:1].lower()}{str(error)[1:]}", hint=_INPUT_HINT) from error
