"""A client that behaves like the TypeScript SDK.

It accepts only events that match its schemas, executes the calls that it has handlers for, shows their results itself,
and continues the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx
from tests.sdk.vocabulary import event_faults, http_error_type, http_message

Wire = dict[str, Any]
Handler = Callable[[dict[str, Any]], Any]
_ECHOED = ("outputVariable", "blockIndex", "thread", "workerId")
"""Fields of a call that the client sends back with the result of a handler."""


class StockClient:
    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def execute(
        self, slug: str, input_values: Wire | None = None, tools: Mapping[str, Handler] | None = None, **more: Any
    ) -> list[Wire]:
        """Execute a worker and return the events that the caller sees."""
        return self._led(slug, {"type": "start", "input": input_values or {}, **more}, tools or {})

    def continue_execution(
        self, slug: str, run_id: str, results: list[Wire], tools: Mapping[str, Handler] | None = None
    ) -> list[Wire]:
        """Continue a run and return the events that the caller sees."""
        return self._led(slug, _continue(run_id, results), tools or {})

    def _led(self, slug: str, body: Wire, tools: Mapping[str, Handler]) -> list[Wire]:
        seen: list[Wire] = []
        while True:
            events = self.posted(slug, body)
            run_id = next((event["executionId"] for event in events if event["type"] == "start"), "")
            requested = [call for event in events if event["type"] == "tool-request" for call in event["toolCalls"]]
            asks = bool(requested) and events[-1].get("finishReason") == "tool-calls"
            seen += [
                event for event in events if event["type"] != "tool-request" and not (asks and event is events[-1])
            ]
            if not asks:
                return seen
            results = [_executed(call, tools[call["toolName"]]) for call in requested if call["toolName"] in tools]
            seen += [_shown(result) for result in results]
            left = [call for call in requested if call["toolName"] not in tools]
            if left:
                request = {"type": "client-tool-request", "executionId": run_id, "toolCalls": left}
                finish = {"type": "finish", "finishReason": "client-tool-calls", "executionId": run_id}
                return [*seen, {**request, "serverToolResults": results}, finish]
            body = _continue(run_id, results)

    def posted(self, slug: str, body: Wire) -> list[Wire]:
        """Send one request and return its events, all of which match the client's schemas."""
        got = self._http.post(f"/api/agents/{slug}/execute", json=body)
        if got.is_error:
            message = http_message(got.json())
            assert message
            return [{"type": "error", "errorType": http_error_type(got.status_code), "message": message}]
        assert got.headers["content-type"] == "text/event-stream"
        *lines, done = [line for line in got.text.split("\n") if line.startswith("data: ")]
        assert done == "data: [DONE]"
        events = [json.loads(line[6:]) for line in lines]
        assert [fault for event in events for fault in event_faults(event)] == []
        return events


def _continue(run_id: str, results: list[Wire]) -> Wire:
    return {"type": "continue", "executionId": run_id, "toolResults": results}


def _executed(call: Wire, handler: Handler) -> Wire:
    echoed = {name: call[name] for name in _ECHOED if name in call}
    result = {"toolCallId": call["toolCallId"], "toolName": call["toolName"], **echoed}
    try:
        value = handler(call["args"])
    except Exception as error:  # noqa: BLE001 - a handler may raise anything
        return {**result, "error": str(error)}
    # Fields that are `undefined` in TypeScript are missing in JSON.
    return result if value is None else {**result, "result": value}


def _shown(result: Wire) -> Wire:
    if result.get("error"):
        return {"type": "tool-output-error", "toolCallId": result["toolCallId"], "error": result["error"]}
    return {"type": "tool-output-available", "toolCallId": result["toolCallId"], "output": result.get("result")}
