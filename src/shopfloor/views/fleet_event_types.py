"""Fleet events: twenty types in three streams, about agents, about hosts and about providers.

`FLEET_PAYLOADS` has the payload of each type; the set of types is closed. A payload has all the fields that its type
promises. A required value that cannot be known is null, never a number that a reader could take for a fact: a cost of 0
would read as free, an exit code of 0 as success. Optional fields are omitted when unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, cast, get_args

import msgspec

from shopfloor.limits import FLEET_EVENT_TEXT_BYTES
from shopfloor.log import TIMESTAMP
from shopfloor.views import agent_payloads, host_payloads
from shopfloor.views.truncation import truncate_bytes, truncate_value

EventStream = Literal["agent", "worker", "provider"]
EVENT_STREAMS: Final[tuple[EventStream, ...]] = get_args(EventStream)
"""The streams of fleet events. The first part of a type is its stream."""

AgentEventType = Literal[
    "agent.spawned",
    "agent.ready",
    "agent.thinking",
    "agent.tool_call",
    "agent.tool_result",
    "agent.file_change",
    "agent.error",
    "agent.rate_limited",
    "agent.completed",
    "agent.terminated",
]
FleetEventType = (
    AgentEventType
    | Literal[
        "worker.registered",
        "worker.heartbeat",
        "worker.status_changed",
        "worker.task_assigned",
        "worker.task_completed",
        "worker.offline",
        "worker.scaling",
        "provider.available",
        "provider.unavailable",
        "provider.fallback",
    ]
)
FLEET_PAYLOADS: Final[dict[FleetEventType, type]] = {
    "agent.spawned": agent_payloads.AgentSpawned,
    "agent.ready": agent_payloads.AgentReady,
    "agent.thinking": agent_payloads.AgentThinking,
    "agent.tool_call": agent_payloads.AgentToolCall,
    "agent.tool_result": agent_payloads.AgentToolResult,
    "agent.file_change": agent_payloads.AgentFileChange,
    "agent.error": agent_payloads.AgentError,
    "agent.rate_limited": agent_payloads.AgentRateLimited,
    "agent.completed": agent_payloads.AgentCompleted,
    "agent.terminated": agent_payloads.AgentTerminated,
    "worker.registered": host_payloads.WorkerRegistered,
    "worker.heartbeat": host_payloads.WorkerHeartbeat,
    "worker.status_changed": host_payloads.WorkerStatusChanged,
    "worker.task_assigned": host_payloads.WorkerTaskAssigned,
    "worker.task_completed": host_payloads.WorkerTaskCompleted,
    "worker.offline": host_payloads.WorkerOffline,
    "worker.scaling": host_payloads.WorkerScaling,
    "provider.available": host_payloads.ProviderAvailable,
    "provider.unavailable": host_payloads.ProviderUnavailable,
    "provider.fallback": host_payloads.ProviderFallback,
}
"""The payload of each type of fleet event."""
HEARTBEAT: Final = "worker.heartbeat"
"""The one type that is sent live and never stored."""
_FREE_FIELDS: Final = frozenset({"input", "output", "context"})
"""Fields whose objects come from a tool, so that any part of them may be dropped."""
_REF: Final = "#/$defs/{name}"
_encode = msgspec.json.Encoder().encode


class FleetEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A fleet event. `run_id` and `provider` are what subscribers filter by: not every payload names them."""

    type: FleetEventType
    payload: Mapping[str, Any]
    timestamp: str
    run_id: str | None = None
    """The run that the event is about; None for the events of hosts and providers that concern no run."""
    seq: int = 0
    """The log event that an `agent.*` event comes from."""
    n: int = 0
    """The index among the fleet events of that log event."""
    provider: str | None = None

    @property
    def stream(self) -> EventStream:
        """The stream that the event belongs to."""
        return stream_of(self.type)


def stream_of(event_type: str) -> EventStream:
    """Return the stream of a type of fleet event."""
    return cast("EventStream", event_type.partition(".")[0])


def encode_fleet_event(event: FleetEvent) -> bytes:
    """Return an event as it is stored and sent: `type`, `payload` and `timestamp`, with long texts truncated."""
    body = _encode({"type": event.type, "payload": event.payload, "timestamp": event.timestamp})
    if len(body) <= FLEET_EVENT_TEXT_BYTES:
        return body
    return _encode({"type": event.type, "payload": _shorten(event.payload), "timestamp": event.timestamp})


def _shorten(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the fields with long texts truncated. No field is dropped, and the log has the whole."""
    return {name: _shorten_value(name, value) for name, value in fields.items()}


def _shorten_value(name: str, value: Any) -> Any:
    match value:
        case str():
            return truncate_bytes(value, FLEET_EVENT_TEXT_BYTES)
        case dict() if name not in _FREE_FIELDS:
            return _shorten(cast("dict[str, Any]", value))
        case dict() | list():
            return truncate_value(value, FLEET_EVENT_TEXT_BYTES)
        case _:
            return value


def fleet_event_schema() -> dict[str, Any]:
    """Return the JSON Schema of a fleet event, as subscribers receive it."""
    payloads, definitions = msgspec.json.schema_components(FLEET_PAYLOADS.values(), ref_template=_REF)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Shopfloor fleet event",
        "description": "What a subscriber of the fleet receives as one event.",
        "type": "object",
        "properties": {
            "type": {"enum": [*FLEET_PAYLOADS]},
            "payload": {"type": "object"},
            "timestamp": {"type": "string", "pattern": f"^{TIMESTAMP.pattern}$"},
        },
        "required": ["type", "payload", "timestamp"],
        "oneOf": [
            {"properties": {"type": {"const": event_type}, "payload": payload}}
            for event_type, payload in zip(FLEET_PAYLOADS, payloads, strict=True)
        ],
        "$defs": dict(definitions),
    }
