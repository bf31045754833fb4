"""The types of fleet events and their JSON Schema, with payloads as subscribers are promised them."""

from __future__ import annotations

from typing import Any

import jsonschema
import msgspec
import pytest

from shopfloor.views import EVENT_STREAMS, FLEET_PAYLOADS, FleetEvent, encode_fleet_event, fleet_event_schema, stream_of

SCHEMA = jsonschema.Draft202012Validator(fleet_event_schema())
TIMESTAMP = "2026-02-23T10:30:00.000Z"
AGENT = {"agentId": "a", "taskId": "t"}
SESSION = {**AGENT, "providerId": "claude-code"}
LOCATIONS = [
    {"type": "kubernetes", "namespace": "n", "pod": "p"},
    {"type": "docker", "container": "c"},
    {"type": "ec2", "instanceId": "i", "region": "r"},
    {"type": "local"},
]
RESOURCES = {"cpuCores": 8, "memoryMB": 16_000, "diskGB": 100, "gpuCount": 1}
HOST = {"hostname": "h", "type": "local", "version": "1", "capabilities": ["codex"], "resources": RESOURCES}

PAYLOADS: dict[str, list[dict[str, Any]]] = {
    "agent.spawned": [
        {
            **SESSION,
            "workerId": "h",
            "accessMode": mode,
            "process": {"pid": 1, "command": "claude", "args": ["-p"], "cwd": "/"},
            "capabilities": {"codeGeneration": True, "webSearch": False, "more": True},
        }
        for mode in ("subscription", "api", "local", None)
    ],
    "agent.ready": [{**SESSION, "initialization": {"duration": 5, "contextLoaded": True, "contextTokens": None}}],
    "agent.thinking": [{**AGENT, "thinking": {"content": "hm", "tokensUsed": tokens}} for tokens in (7, None)],
    "agent.tool_call": [{**AGENT, "tool": {"name": "Bash", "input": {"command": "ls"}, "startedAt": TIMESTAMP}}],
    "agent.tool_result": [
        {**AGENT, "tool": {"name": "Bash", "duration": 5, "success": True, "output": ["x"]}},
        {**AGENT, "tool": {"name": "Bash", "duration": None, "success": False, "error": "no"}},
    ],
    "agent.file_change": [
        {**AGENT, "file": {"path": "a", "action": "modify", "linesAdded": 1, "linesRemoved": 2, "diff": "@@"}},
        {**AGENT, "file": {"path": "a", "action": "delete"}},
    ],
    "agent.error": [
        {
            **SESSION,
            "error": {"code": "c", "message": "m", "recoverable": True, "context": {"status": 500}},
            "action": action,
        }
        for action in (
            {"type": "retry", "retryCount": 1},
            {"type": "fallback", "fallbackProvider": "codex"},
            {"type": "abort"},
        )
    ],
    "agent.rate_limited": [
        {
            **SESSION,
            "accessMode": "api",
            "limit": {"type": "requests", "current": 1, "max": 2.5, "resetAt": TIMESTAMP},
            "action": action,
        }
        for action in ({"type": "wait", "waitSeconds": 5}, {"type": "fallback", "fallbackProvider": "codex"})
    ],
    "agent.completed": [
        {
            **SESSION,
            "result": {"success": True, "exitCode": 0},
            "metrics": {
                "duration": 1,
                "tokensInput": 1,
                "tokensOutput": 1,
                "tokensTotal": 2,
                "toolCalls": 0,
                "filesChanged": 0,
                "cost": 0.1,
            },
        }
    ],
    "agent.terminated": [
        {**SESSION, "reason": reason, "metrics": {"duration": 1, "tokensUsed": None, "cost": None}, "signal": "SIGTERM"}
        for reason in ("user_cancel", "timeout", "error", "system")
    ],
    "worker.registered": [{"workerId": "h", "info": {**HOST, "location": location}} for location in LOCATIONS],
    "worker.heartbeat": [
        {
            "workerId": "h",
            "status": "busy",
            "currentTask": {"taskId": "t", "progress": 0.5, "startedAt": TIMESTAMP},
            "currentTasks": [{"taskId": "t", "progress": None, "startedAt": TIMESTAMP}],
            "metrics": {"cpuUsage": 1.5, "memoryUsage": 50, "diskUsage": 99, "uptime": 3},
        }
    ],
    "worker.status_changed": [
        {"workerId": "h", "previous": "starting", "current": "idle"},
        {"workerId": "h", "previous": "draining", "current": "offline", "reason": "r", "taskId": "t"},
    ],
    "worker.task_assigned": [
        {
            "workerId": "h",
            "taskId": "t",
            "providerId": "codex",
            "task": {"prompt": "p", "taskType": "build", "priority": 0},
            "estimatedDuration": 12.5,
        }
    ],
    "worker.task_completed": [
        {
            "workerId": "h",
            "taskId": "t",
            "result": {"success": True, "duration": 1, "tokensUsed": 1, "cost": None},
            "nextTask": {"taskId": "u", "queuePosition": 1},
        }
    ],
    "worker.offline": [
        {
            "workerId": "h",
            "hostname": "h",
            "reason": "timeout",
            "lastHeartbeat": TIMESTAMP,
            "orphanedTask": {"taskId": "t", "reassigned": True, "newWorkerId": "i"},
            "orphanedTasks": [{"taskId": "t", "reassigned": False}],
        }
    ],
    "worker.scaling": [
        {
            "action": "scale_up",
            "current": 1,
            "target": 2,
            "reason": "queue_length > 50",
            "workers": {"starting": ["i"], "terminating": []},
        }
    ],
    "provider.available": [
        {"providerId": "codex", "name": "Codex", "previousStatus": "rate_limited", "accessMode": "subscription"}
    ],
    "provider.unavailable": [
        {
            "providerId": "codex",
            "name": "Codex",
            "reason": reason,
            "error": "e",
            "estimatedRecovery": TIMESTAMP,
            "fallbackProvider": "gemini",
        }
        for reason in ("rate_limited", "error", "maintenance", "disabled")
    ],
    "provider.fallback": [
        {
            "taskId": "t",
            "from": {"providerId": "codex", "reason": "unavailable"},
            "to": {"providerId": "gemini", "accessMode": "api"},
            "impact": {"costIncrease": 0.5, "capabilityChange": ["webSearch"]},
        }
    ],
}


@pytest.mark.req("FE-8")
def test_there_are_twenty_types_in_three_streams() -> None:
    assert PAYLOADS.keys() == FLEET_PAYLOADS.keys()
    counts = {stream: sum(stream_of(name) == stream for name in FLEET_PAYLOADS) for stream in EVENT_STREAMS}
    assert counts == {"agent": 10, "worker": 7, "provider": 3}


@pytest.mark.req("FE-7", "FE-8")
@pytest.mark.parametrize("event_type", PAYLOADS)
def test_each_type_has_its_payload(event_type: Any) -> None:
    for payload in PAYLOADS[event_type]:
        event = msgspec.json.decode(
            encode_fleet_event(FleetEvent(type=event_type, payload=payload, timestamp=TIMESTAMP))
        )
        assert event == {"type": event_type, "payload": payload, "timestamp": TIMESTAMP}
        SCHEMA.validate(event)
        msgspec.convert(payload, FLEET_PAYLOADS[event_type])


@pytest.mark.req("FE-7")
@pytest.mark.parametrize("event_type", PAYLOADS)
def test_a_payload_without_a_required_field_or_of_another_type_is_invalid(event_type: str) -> None:
    payload = PAYLOADS[event_type][0]
    name_of_payload = next(type_.__name__ for name, type_ in FLEET_PAYLOADS.items() if name == event_type)
    required = fleet_event_schema()["$defs"][name_of_payload]["required"]
    assert required
    for name in required:
        less = {key: value for key, value in payload.items() if key != name}
        assert not SCHEMA.is_valid({"type": event_type, "payload": less, "timestamp": TIMESTAMP}), name
    assert not SCHEMA.is_valid({"type": "agent.paused", "payload": payload, "timestamp": TIMESTAMP})
