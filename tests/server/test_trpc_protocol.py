"""The WebSocket protocol of tRPC, without a connection."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shopfloor.errors import Unauthorized
from shopfloor.log import new_run_id
from shopfloor.ports import FleetFilter
from shopfloor.server.fleet_feed import FeedItem
from shopfloor.server.limits import WEBSOCKET_BURST, WEBSOCKET_MESSAGES_PER_SECOND, WEBSOCKET_SUBSCRIPTIONS
from shopfloor.server.trpc_protocol import (
    Action,
    Authenticate,
    Close,
    Send,
    Stop,
    Subscribe,
    TrpcConnection,
    data_message,
    started_message,
    stopped_message,
)

RUN_ID = new_run_id()


def subscription(request_id: Any = 1, path: str = "stream.agentEvents", **params: Any) -> dict[str, Any]:
    return {"id": request_id, "method": "subscription", "params": {"path": path, **params}}


def receive(connection: TrpcConnection, message: Any, now: float = 1.0) -> list[Action]:
    return connection.receive(message if isinstance(message, str) else msgspec.json.encode(message).decode(), now)


def authenticated() -> TrpcConnection:
    return TrpcConnection(is_authenticated=True)


def sent(actions: list[Action]) -> list[Any]:
    return [msgspec.json.decode(action.text) for action in actions if isinstance(action, Send)]


def error_of(actions: list[Action]) -> tuple[Any, int, str]:
    """Return the id of the request, and number and name of its error, which has a code of ours and a hint."""
    (message,) = sent(actions)
    assert message["error"]["data"]["errorCode"]
    assert message["error"]["data"]["hint"]
    return message["id"], message["error"]["code"], message["error"]["data"]["code"]


@pytest.mark.req("FE-1")
@pytest.mark.parametrize(
    ("path", "params", "wanted", "after"),
    [
        ("stream.agentEvents", {}, FleetFilter(stream="agent"), None),
        ("stream.workerEvents", {"input": None}, FleetFilter(stream="worker"), None),
        ("stream.providerEvents", {"input": {}}, FleetFilter(stream="provider"), None),
        ("stream.agentEvents", {"input": {"providerId": "x"}}, FleetFilter(stream="agent", provider="x"), None),
        (
            "stream.agentEvents",
            {"input": {"taskId": RUN_ID, "tree": True}},
            FleetFilter(stream="agent", run_id=RUN_ID, tree=True),
            None,
        ),
        ("stream.agentEvents", {"input": {"lastEventId": "7"}}, FleetFilter(stream="agent"), 7),
        ("stream.agentEvents", {"input": {"lastEventId": 7}}, FleetFilter(stream="agent"), 7),
        ("stream.agentEvents", {"input": {"lastEventId": "7"}, "lastEventId": "9"}, FleetFilter(stream="agent"), 9),
    ],
)
def test_a_subscription_has_a_filter_and_a_cursor(
    path: str, params: dict[str, Any], wanted: FleetFilter, after: int | None
) -> None:
    assert receive(authenticated(), subscription(path=path, **params)) == [Subscribe(1, path, wanted, after)]


def test_requests_may_come_in_a_batch_and_be_stopped() -> None:
    connection = authenticated()
    actions = receive(connection, [subscription(1), subscription("two"), subscription(3, path="wrong")])
    assert [action.id for action in actions if isinstance(action, Subscribe)] == [1, "two"]
    assert sent(actions)[0]["id"] == 3
    assert receive(connection, {"id": "two", "method": "subscription.stop"}) == [Stop("two")]
    assert receive(connection, {"id": 9, "method": "subscription.stop"}) == []


def test_an_id_is_used_once_at_a_time() -> None:
    connection = authenticated()
    receive(connection, subscription(1))
    assert error_of(receive(connection, subscription(1))) == (1, -32600, "BAD_REQUEST")
    connection.subscriptions.discard(1)
    assert isinstance(receive(connection, subscription(1))[0], Subscribe)


@pytest.mark.parametrize(
    "message", ["{", "", "nothing", '{"id":1}', "7", '[{"id":1,"method":"x","params":{}}]', "[[]]"]
)
def test_what_is_no_request_is_a_parse_error(message: str) -> None:
    actions = receive(authenticated(), message)
    assert error_of(actions)[1:] == (-32700, "PARSE_ERROR")
    assert sent(actions)[0]["error"]["data"]["errorCode"] == "invalid_input"


def test_a_request_needs_an_id() -> None:
    assert error_of(receive(authenticated(), subscription(None))) == (None, -32700, "PARSE_ERROR")


def test_pings_are_answered_and_pongs_are_not() -> None:
    connection = TrpcConnection()
    assert receive(connection, "PING") == [Send(b"PONG")]
    assert receive(connection, "PONG") == []


@pytest.mark.req("FE-51")
def test_the_token_comes_with_the_first_message() -> None:
    connection = TrpcConnection()
    assert receive(connection, {"method": "connectionParams", "data": {"token": "abc"}}) == [Authenticate("abc")]
    connection.accept()
    assert isinstance(receive(connection, subscription())[0], Subscribe)


@pytest.mark.req("FE-51")
@pytest.mark.parametrize("first", [None, {"method": "connectionParams", "data": {}}, {"method": "connectionParams"}])
def test_without_a_token_each_request_is_refused_and_the_connection_closed(first: Any) -> None:
    connection = TrpcConnection()
    if first is not None:
        assert receive(connection, first) == []
    *answers, close = receive(connection, [subscription(1), subscription(2)])
    assert [answer["error"]["data"]["code"] for answer in sent(answers)] == ["UNAUTHORIZED"] * 2
    assert close == Close(1008, "a token is needed")


@pytest.mark.req("FE-51")
def test_a_refused_client_gets_the_reason_and_may_send_another_token() -> None:
    connection = TrpcConnection(refusal=Unauthorized("this session has ended"))
    assert sent(receive(connection, subscription()))[0]["error"]["message"] == "this session has ended"
    assert receive(connection, {"method": "connectionParams", "data": {"token": "new"}}) == [Authenticate("new")]
    connection.accept()
    assert isinstance(receive(connection, subscription())[0], Subscribe)


@pytest.mark.req("FE-52")
def test_subscriptions_of_a_connection_are_limited() -> None:
    connection = authenticated()
    receive(connection, [subscription(number) for number in range(WEBSOCKET_SUBSCRIPTIONS)])
    assert error_of(receive(connection, subscription("more"))) == ("more", -32029, "TOO_MANY_REQUESTS")
    too_many = [subscription(number) for number in range(WEBSOCKET_SUBSCRIPTIONS + 1)]
    assert isinstance(receive(authenticated(), too_many)[-1], Close)


@pytest.mark.req("FE-52")
def test_the_rate_of_messages_is_limited() -> None:
    connection = authenticated()
    for _ in range(WEBSOCKET_BURST):
        assert receive(connection, "PING") == [Send(b"PONG")]
    answer, close = receive(connection, "PING")
    assert "too many messages" in sent([answer])[0]["error"]["message"]
    assert close == Close(1008, "too many messages")
    later = 1.0 + 2 / WEBSOCKET_MESSAGES_PER_SECOND
    assert receive(connection, "PING", later) == [Send(b"PONG")]


def test_messages_have_the_shape_of_trpc() -> None:
    item = FeedItem(17, b'{"type":"agent.spawned","payload":{},"timestamp":"t"}')
    assert msgspec.json.decode(data_message("a", item)) == {
        "id": "a",
        "result": {"type": "data", "id": "17", "data": {"type": "agent.spawned", "payload": {}, "timestamp": "t"}},
    }
    assert msgspec.json.decode(started_message(1)) == {"id": 1, "result": {"type": "started"}}
    assert msgspec.json.decode(stopped_message(1)) == {"id": 1, "result": {"type": "stopped"}}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "id": JSON,
        "method": st.sampled_from(["subscription", "query", "subscription.stop", "connectionParams"]) | JSON,
        "params": st.fixed_dictionaries(
            {},
            optional={
                "path": st.sampled_from(["stream.agentEvents", "stream.x"]) | JSON,
                "input": st.fixed_dictionaries({}, optional={"taskId": JSON, "lastEventId": JSON, "tree": JSON}) | JSON,
                "lastEventId": JSON,
            },
        )
        | JSON,
        "data": JSON,
    },
)


@given(st.lists(st.text(max_size=30) | (REQUESTS | st.lists(REQUESTS, max_size=3) | JSON).map(msgspec.json.encode)))
def test_no_message_raises_and_each_answer_is_json(messages: list[str | bytes]) -> None:
    connection = authenticated()
    for message in messages:
        for action in connection.receive(message if isinstance(message, str) else message.decode(), 1.0):
            if isinstance(action, Send) and action.text != b"PONG":
                assert "id" in msgspec.json.decode(action.text)
