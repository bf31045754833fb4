"""What a provider's failure means in our words."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

import anthropic
import httpx2
import msgspec
import openai
from google.genai.errors import APIError as GoogleError
from pydantic_ai import exceptions as theirs

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


class _Meaning(msgspec.Struct, frozen=True):
    error: type[ProviderError]
    words: str
    hint: str | None = None


_KEY = "check the key, and that it may use this model"
_TRY_LATER = "it is tried again by itself where the step's retry rule allows"
_ADDRESS = "check the address and the network"

_BY_KIND: list[tuple[type[theirs.AgentRunError], _Meaning]] = [
    (theirs.ModelRateLimitError, _Meaning(RateLimited, "takes no more requests for now", _TRY_LATER)),
    (theirs.ModelQuotaExceededError, _Meaning(RequestRejected, "says the account's quota is used up", "top it up")),
    (theirs.ModelUnavailableError, _Meaning(ProviderOverloaded, "is overloaded", _TRY_LATER)),
    (theirs.ModelAuthenticationError, _Meaning(AuthenticationFailed, "does not accept the key", _KEY)),
    (theirs.ModelNotFoundError, _Meaning(RequestRejected, "does not have that", "check the model's name")),
    (theirs.ModelRequestRejectedError, _Meaning(RequestRejected, "does not accept the request")),
    (theirs.ModelTimeoutError, _Meaning(ProviderTimeout, "did not answer in time", _TRY_LATER)),
    (theirs.ModelRequestTimeout, _Meaning(ProviderTimeout, "did not answer in time", _TRY_LATER)),
    (theirs.ModelConnectionError, _Meaning(ProviderUnreachable, "cannot be reached, or broke off", _ADDRESS)),
]
"""The first that fits. What says nothing of its kind is judged by its status."""

_BY_STATUS: dict[int, _Meaning] = {
    401: _Meaning(AuthenticationFailed, "does not accept the key", _KEY),
    403: _Meaning(AuthenticationFailed, "does not accept the key", _KEY),
    408: _Meaning(ProviderTimeout, "did not get the request in time", _TRY_LATER),
    429: _Meaning(RateLimited, "takes no more requests for now", _TRY_LATER),
    503: _Meaning(ProviderOverloaded, "is overloaded", _TRY_LATER),
    529: _Meaning(ProviderOverloaded, "is overloaded", _TRY_LATER),
}

_FAILED = _Meaning(ProviderError, "failed", _TRY_LATER)
_REFUSED = _Meaning(RequestRejected, "does not accept the request")

_CLIENT_ERRORS = range(400, 500)

_NOT_UNDERSTOOD = (
    # What clients raise over an answer that is not of the provider's shape: they check few of its fields.
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
    """Whatever goes wrong inside is raised as a `ProviderError`."""
    try:
        yield
    except ProviderError:
        raise
    except theirs.AgentRunError as error:
        raise _told(error, model) from error
    except theirs.UserError as error:
        raise RequestRejected(f"{model} cannot be asked that: {_short(str(error))}") from error
    except httpx2.TimeoutException as error:
        raise ProviderTimeout(f"{model} did not answer in time", hint=_TRY_LATER) from error
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        words = _short(str(error)) or type(error).__name__
        raise ProviderUnreachable(f"{endpoint.provider} broke off: {words}", hint=_ADDRESS) from error
    except _NOT_UNDERSTOOD as error:
        words = _short(str(error)) or type(error).__name__
        raise ProviderError(f"{model} said what cannot be understood: {words}", hint=_TRY_LATER) from error


def _told(error: theirs.AgentRunError, model: str) -> ProviderError:
    meaning = _meaning(error)
    status = f" ({error.status_code})" if isinstance(error, theirs.ModelHTTPError) else ""
    retry_after = error.retry_after if isinstance(error, theirs.ModelAPIError) else None
    message = f"{model} {meaning.words}{status}: {_short(_said(error))}"
    return meaning.error(message, hint=meaning.hint, retry_after=retry_after)


def _meaning(error: theirs.AgentRunError) -> _Meaning:
    for kind, meaning in _BY_KIND:
        if isinstance(error, kind):
            return meaning
    if isinstance(error, theirs.ModelHTTPError):
        rest = _REFUSED if error.status_code in _CLIENT_ERRORS else _FAILED
        return _BY_STATUS.get(error.status_code, rest)
    return _FAILED


def _said(error: theirs.AgentRunError) -> str:
    """The provider's own sentence, out of the shapes that providers wrap it in."""
    body = error.body if isinstance(error, theirs.ModelAPIError) else None
    for _ in range(2):
        if not isinstance(body, dict):
            break
        told = cast("dict[str, object]", body)
        if isinstance(sentence := told.get("message"), str):
            return sentence
        body = told.get("error")
    return body if isinstance(body, str) and body else error.message


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= PROVIDER_MESSAGE_CHARS else f"{line[:PROVIDER_MESSAGE_CHARS]}…"
