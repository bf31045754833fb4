"""Requests to models over the network, with pydantic-ai's low-level API: one request, one reply, no agent loop."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Any

import anyio
import genai_prices
from pydantic_ai import messages as pydantic_messages
from pydantic_ai.direct import model_request_stream
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.openai import OpenAIResponsesModelSettings
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from shopfloor.adapters.limits import MODEL_CLOSE_SECONDS, MODEL_READ_TIMEOUT_SECONDS
from shopfloor.adapters.models.connections import Connection, track_responses
from shopfloor.adapters.models.errors import map_provider_errors
from shopfloor.adapters.models.messages import to_pydantic_messages
from shopfloor.adapters.models.reply_builder import ReplyBuilder
from shopfloor.adapters.models.router import Endpoint
from shopfloor.errors import ProviderUnreachable
from shopfloor.log import Cost, Usage
from shopfloor.ports import ModelRequest, Reply, ReplyDelta

_ANSWER_TOOL = "answer"


class PydanticAIModels:
    """The models of all providers, with one connection pool per provider, opened on first use."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._read_timeout = float(env.get("SHOPFLOOR_MODEL_TIMEOUT") or MODEL_READ_TIMEOUT_SECONDS)
        self._connections: dict[str, Connection] = {}

    async def reply(self, endpoint: Endpoint, request: ModelRequest) -> AsyncGenerator[ReplyDelta | Reply]:
        name = request.model.partition("/")[2]
        with map_provider_errors(endpoint, request.model):
            model = self._connection(endpoint).model(name)
            parameters = _parameters(request, model, has_native_schemas=endpoint.has_native_schemas)
            answer_tool = _ANSWER_TOOL if parameters.output_tools else None
            builder = ReplyBuilder(endpoint.provider, answer_tool)
            items = _stream_reply(model, request, endpoint, parameters, builder)
            async with aclosing(items):
                async for item in items:
                    yield item

    async def aclose(self) -> None:
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            await connection.aclose()

    def _connection(self, endpoint: Endpoint) -> Connection:
        connection = self._connections.get(endpoint.provider)
        if connection is None:
            connection = self._connections[endpoint.provider] = Connection(endpoint, self._read_timeout)
        return connection


async def _stream_reply(
    model: Model[Any],
    request: ModelRequest,
    endpoint: Endpoint,
    parameters: ModelRequestParameters,
    builder: ReplyBuilder,
) -> AsyncGenerator[ReplyDelta | Reply]:
    response_stream = model_request_stream(
        model,
        to_pydantic_messages(request, endpoint.provider),
        model_settings=_settings(request, endpoint),
        model_request_parameters=parameters,
        instrument=False,
    )
    async with AsyncExitStack() as stack:
        with track_responses() as opened:
            stream = await stack.enter_async_context(response_stream)
        try:
            async for event in stream:
                for delta in builder.add(event):
                    yield delta
        except BaseException:
            # Not every client closes its connection when its reader stops, and unread output is still billed.
            with anyio.move_on_after(MODEL_CLOSE_SECONDS, shield=True):
                for response in opened:
                    await response.aclose()
            raise
        response = stream.get()
    stop_reason = _stop_reason(response)
    if stop_reason is None:
        # A proxy may end a stream without an error when its upstream died: without a stop reason a reply is incomplete.
        raise ProviderUnreachable(f"{request.model} closed the connection in the middle of its reply")
    for delta in builder.finish(response.parts):
        yield delta
    yield Reply(
        blocks=builder.blocks(response.parts),
        model=response.model_name or request.model,
        stop_reason=stop_reason,
        usage=_usage(response),
        cost=_cost(response),
    )


def _settings(request: ModelRequest, endpoint: Endpoint) -> ModelSettings:
    settings = OpenAIResponsesModelSettings()
    if request.temperature is not None:
        settings["temperature"] = request.temperature
    if request.thinking is not None:
        settings["thinking"] = request.thinking
    if endpoint.dialect == "openai-responses":
        # The log is the record, so the provider need not store anything. It summarizes thinking only on request.
        settings["openai_store"] = False
        if request.thinking is not None:
            settings["openai_reasoning_summary"] = "auto"
    return settings


def _parameters(request: ModelRequest, model: Model[Any], *, has_native_schemas: bool) -> ModelRequestParameters:
    tools = [
        ToolDefinition(name=tool.name, parameters_json_schema=tool.parameters, description=tool.description)
        for tool in request.tools
    ]
    if request.schema is None:
        return ModelRequestParameters(function_tools=tools)
    if has_native_schemas and _supports_schema(model, with_tools=bool(tools)):
        output = OutputObjectDefinition(json_schema=request.schema, name=_ANSWER_TOOL)
        return ModelRequestParameters(function_tools=tools, output_mode="native", output_object=output)
    answer = ToolDefinition(
        name=_ANSWER_TOOL, parameters_json_schema=request.schema, description="Give the answer.", kind="output"
    )
    return ModelRequestParameters(
        function_tools=tools, output_mode="tool", output_tools=[answer], allow_text_output=False
    )


def _supports_schema(model: Model[Any], *, with_tools: bool) -> bool:
    profile: Mapping[str, object] = model.profile
    if not profile.get("supports_json_schema_output"):
        return False
    return not (with_tools and model.system == "google" and not profile.get("google_supports_tool_combination"))


def _stop_reason(response: pydantic_messages.ModelResponse) -> str | None:
    """Return the provider's finish reason, or None if the response is incomplete.

    Without one, the client makes up a reason, which counts only if the token totals arrived too.
    """
    reason: object = (response.provider_details or {}).get("finish_reason")
    if isinstance(reason, str):
        return reason
    return None if response.usage.unmeasured_requests else response.finish_reason


def _usage(response: pydantic_messages.ModelResponse) -> Usage:
    """Convert the usage: pydantic-ai counts cached tokens as input tokens too, Shopfloor does not."""
    usage = response.usage
    return Usage(
        input=max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens),
        output=usage.output_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
        reasoning=usage.output_reasoning_tokens,
    )


def _cost(response: pydantic_messages.ModelResponse) -> Cost | None:
    with contextlib.suppress(LookupError, ValueError, AssertionError):
        price = response.cost().total_price
        return Cost(usd=float(price), source="genai-prices", prices=genai_prices.__version__)
    return None
