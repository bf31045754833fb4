"""Translation of the errors of model clients to `ProviderError`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

import anthropic
import httpx2
import msgspec
import openai
from google.genai.errors import APIError as GoogleError
from pydantic_ai import exceptions as pydantic_errors

from shopfloor.adapters.models.router import Endpoint
from shopfloor.errors import (
    AuthenticationFailed,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    ProviderUnreachable,
    RateLimited,
    RequestRejected,
)
from shopfloor.limits import PROVIDER_MESSAGE_CHARS


class _ErrorInfo(msgspec.Struct, frozen=True):
    error: type[ProviderError]
    text: str
    hint: str | None = None


_KEY = "check the key, and that it may use this model"
_TRY_LATER = "it is retried automatically if the step's retry rule allows"
_ADDRESS = "check the address and the network"

_BY_KIND: list[tuple[type[pydantic_errors.AgentRunError], _ErrorInfo]] = [
    (pydantic_errors.ModelRateLimitError, _ErrorInfo(RateLimited, "has reached its rate limit", _TRY_LATER)),
    (
        pydantic_errors.ModelQuotaExceededError,
        _ErrorInfo(RequestRejected, "has no quota left", "add credit to the account"),
    ),
    (pydantic_errors.ModelUnavailableError, _ErrorInfo(ProviderOverloaded, "is overloaded", _TRY_LATER)),
    (pydantic_errors.ModelAuthenticationError, _ErrorInfo(AuthenticationFailed, "does not accept the key", _KEY)),
    (
        pydantic_errors.ModelNotFoundError,
        _ErrorInfo(RequestRejected, "is unknown to the provider", "check the model's name"),
    ),
    (pydantic_errors.ModelRequestRejectedError, _ErrorInfo(RequestRejected, "does not accept the request")),
    (pydantic_errors.ModelTimeoutError, _ErrorInfo(ProviderTimeout, "did not answer in time", _TRY_LATER)),
    (pydantic_errors.ModelRequestTimeout, _ErrorInfo(ProviderTimeout, "did not answer in time", _TRY_LATER)),
    (
        pydantic_errors.ModelConnectionError,
        _ErrorInfo(ProviderUnreachable, "cannot be reached, or closed the connection", _ADDRESS),
    ),
]
"""The first match applies. An error that matches none is classified by its HTTP status."""

_BY_STATUS: dict[int, _ErrorInfo] = {
    401: _ErrorInfo(AuthenticationFailed, "does not accept the key", _KEY),
    403: _ErrorInfo(AuthenticationFailed, "does not accept the key", _KEY),
    408: _ErrorInfo(ProviderTimeout, "did not receive the request in time", _TRY_LATER),
    429: _ErrorInfo(RateLimited, "has reached its rate limit", _TRY_LATER),
    503: _ErrorInfo(ProviderOverloaded, "is overloaded", _TRY_LATER),
    529: _ErrorInfo(ProviderOverloaded, "is overloaded", _TRY_LATER),
}

_FAILED = _ErrorInfo(ProviderError, "failed", _TRY_LATER)
_REJECTED = _ErrorInfo(RequestRejected, "does not accept the request")

_CLIENT_ERRORS = range(400, 500)

_INVALID_RESPONSE_ERRORS = (
    # What clients raise for a response of an unexpected shape: they validate few of its fields.
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RuntimeError,
    anthropic.AnthropicError,
    openai.OpenAIError,
    GoogleError,
)


@contextmanager
def map_provider_errors(endpoint: Endpoint, model: str) -> Generator[None]:
    """Raise the errors of a model client as `ProviderError`."""
    try:
        yield
    except ProviderError:
        raise
    except pydantic_errors.AgentRunError as error:
        raise _to_provider_error(error, model) from error
    except pydantic_errors.UserError as error:
        raise RequestRejected(f"invalid request to {model}: {_shorten(str(error))}") from error
    except httpx2.TimeoutException as error:
        raise ProviderTimeout(f"{model} did not answer in time", hint=_TRY_LATER) from error
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        reason = _shorten(str(error)) or type(error).__name__
        raise ProviderUnreachable(f"the connection to {endpoint.provider} failed: {reason}", hint=_ADDRESS) from error
    except _INVALID_RESPONSE_ERRORS as error:
        reason = _shorten(str(error)) or type(error).__name__
        raise ProviderError(f"cannot understand the response of {model}: {reason}", hint=_TRY_LATER) from error


def _to_provider_error(error: pydantic_errors.AgentRunError, model: str) -> ProviderError:
    info = _classify(error)
    status = f" ({error.status_code})" if isinstance(error, pydantic_errors.ModelHTTPError) else ""
    retry_after = error.retry_after if isinstance(error, pydantic_errors.ModelAPIError) else None
    message = f"{model} {info.text}{status}: {_shorten(_provider_message(error))}"
    return info.error(message, hint=info.hint, retry_after=retry_after)


def _classify(error: pydantic_errors.AgentRunError) -> _ErrorInfo:
    for kind, info in _BY_KIND:
        if isinstance(error, kind):
            return info
    if isinstance(error, pydantic_errors.ModelHTTPError):
        rest = _REJECTED if error.status_code in _CLIENT_ERRORS else _FAILED
        return _BY_STATUS.get(error.status_code, rest)
    return _FAILED


def _provider_message(error: pydantic_errors.AgentRunError) -> str:
    """Return the provider's own message, out of the objects that providers wrap it in."""
    body = error.body if isinstance(error, pydantic_errors.ModelAPIError) else None
    for _ in range(2):
        if not isinstance(body, dict):
            break
        fields = cast("dict[str, object]", body)
        if isinstance(message := fields.get("message"), str):
            return message
        body = fields.get("error")
    return body if isinstance(body, str) and body else error.message


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= PROVIDER_MESSAGE_CHARS else f"{line[:PROVIDER_MESSAGE_CHARS]}…"
