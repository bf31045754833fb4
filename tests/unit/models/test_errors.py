"""Provider failures over real HTTP, mapped to `ProviderError`."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from tests.model_server.model_client import ModelClient, user_message
from tests.model_server.script import Failure, ReplyPart, Text, Turn
from tests.model_server.server import ModelServer

from shopfloor.errors import (
    AuthenticationFailed,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    ProviderUnreachable,
    RateLimited,
    RequestRejected,
)

LONG: list[ReplyPart] = [Text(text="a long answer that comes in pieces, one after the other")]


@pytest.fixture(params=["anthropic", "openai", "google", "compatible"])
def model_client(request: pytest.FixtureRequest, model_server: ModelServer, tmp_path: Path) -> ModelClient:
    return ModelClient(request.param, model_server, tmp_path)


def failure(model_client: ModelClient) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        model_client.ask(user_message("Hello"))
    return raised.value


@pytest.mark.req("SDK-31")
@pytest.mark.parametrize(
    ("status", "kind", "expected", "retryable"),
    [
        (400, "invalid_request_error", RequestRejected, False),
        (401, "authentication_error", AuthenticationFailed, False),
        (402, "billing_error", RequestRejected, False),
        (403, "permission_error", AuthenticationFailed, False),
        (404, "not_found_error", RequestRejected, False),
        (409, "conflict_error", RequestRejected, False),
        (413, "request_too_large", RequestRejected, False),
        (422, "invalid_request_error", RequestRejected, False),
        (429, "rate_limit_error", RateLimited, True),
        (500, "api_error", ProviderError, True),
        (502, "api_error", ProviderError, True),
        (503, "overloaded_error", ProviderOverloaded, True),
        (529, "overloaded_error", ProviderOverloaded, True),
    ],
)
def test_each_status_maps_to_an_error_and_is_requested_once(
    model_client: ModelClient, status: int, kind: str, expected: type[ProviderError], retryable: bool
) -> None:
    model_client.set_turns(Turn(fail=Failure(status=status, type=kind, message="as the provider says"), times=0))
    error = failure(model_client)
    assert type(error) is expected
    assert error.retryable is retryable
    assert "as the provider says" in error.message
    assert model_client.model in error.message
    assert len(model_client.server.requests()) == 1


def test_a_retry_date_is_converted_to_seconds(model_client: ModelClient) -> None:
    then = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    model_client.set_turns(Turn(fail=Failure(status=429, type="rate_limit_error", headers={"retry-after": then})))
    error = failure(model_client)
    assert isinstance(error, RateLimited)
    assert error.retry_after is not None
    assert 60 < error.retry_after <= 90


def test_an_error_inside_a_stream_is_an_error(model_client: ModelClient) -> None:
    overloaded = Failure(status=503, type="overloaded_error", message="too many guests")
    model_client.set_turns(Turn(say=LONG, fail=overloaded, fail_after=2))
    assert "too many guests" in failure(model_client).message


def test_a_broken_connection_is_an_unreachable_provider(model_client: ModelClient) -> None:
    model_client.set_turns(Turn(say=LONG, cut_after=2))
    assert type(failure(model_client)) is ProviderUnreachable
    assert model_client.server.wait_for_end() == "cut"


def test_a_stream_without_a_stop_reason_is_not_a_reply(model_client: ModelClient) -> None:
    model_client.set_turns(Turn(say=LONG, end_after=2))
    assert isinstance(failure(model_client), ProviderError)


def test_garbage_in_a_stream_is_a_provider_error(model_client: ModelClient) -> None:
    model_client.set_turns(Turn(say=LONG, garbage_after=1))
    error = failure(model_client)
    assert type(error) is ProviderError
    assert error.retryable


@pytest.mark.parametrize("garbage", ["data: null\n\n", "data: []\n\n", 'data: {"type": 7}\n\n', "data: 3\n\n"])
def test_unexpected_json_is_a_provider_error(model_client: ModelClient, garbage: str) -> None:
    model_client.set_turns(Turn(say=LONG, garbage_after=1, garbage=garbage, end_after=2))
    assert isinstance(failure(model_client), ProviderError)


def test_an_html_page_as_response_is_a_provider_error(model_client: ModelClient) -> None:
    model_client.set_turns(Turn(fail=Failure(status=502, body="<html><h1>Bad Gateway</h1></html>")))
    assert type(failure(model_client)) is ProviderError


def test_silence_in_the_middle_is_a_timeout(model_client: ModelClient) -> None:
    model_client.env["SHOPFLOOR_MODEL_TIMEOUT"] = "1"
    model_client.set_turns(Turn(say=LONG, hang_after=1))
    assert type(failure(model_client)) is ProviderTimeout
    assert model_client.server.wait_for_end() == "left"


def test_silence_from_the_beginning_is_a_timeout(model_client: ModelClient) -> None:
    model_client.env["SHOPFLOOR_MODEL_TIMEOUT"] = "0.5"
    model_client.set_turns(Turn(say=LONG, wait=20))
    assert type(failure(model_client)) is ProviderTimeout


def test_a_refused_connection_is_an_unreachable_provider(model_client: ModelClient) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}"
        model_client.env |= {name: dead for name in model_client.env if name.endswith("_URL")}
        error = failure(model_client)
    assert type(error) is ProviderUnreachable
    assert error.hint


@pytest.mark.parametrize(
    ("provider", "variable"),
    [("anthropic", "ANTHROPIC_API_KEY"), ("openai", "OPENAI_API_KEY"), ("google", "GEMINI_API_KEY")],
)
def test_a_missing_key_names_the_variable(
    model_server: ModelServer, tmp_path: Path, provider: str, variable: str
) -> None:
    model_client = ModelClient(provider, model_server, tmp_path)
    del model_client.env[variable]
    with pytest.raises(AuthenticationFailed) as raised:
        model_client.ask(user_message("Hello"))
    assert variable in (raised.value.hint or "")
    assert model_server.requests() == []
