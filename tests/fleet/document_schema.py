"""The `worker.*` events as the document of the fleet describes them, written by hand and independent of our types.

Two things differ from the document: a required value that nobody can know is null, and a host that executes several
runs has plural fields besides the singular ones, with their number.
"""

from __future__ import annotations

from typing import Any

import jsonschema

TEXT = {"type": "string"}
NUMBER = {"type": "number"}
PERCENT = {"type": "number", "minimum": 0, "maximum": 100}
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"}
STATUS = {"enum": ["starting", "idle", "busy", "draining", "offline"]}


def nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def fields(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": [*required],
        "additionalProperties": False,
    }


def listed(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema}


LOCATION = {
    "oneOf": [
        fields({"type": {"const": "kubernetes"}, "namespace": nullable(TEXT), "pod": nullable(TEXT)}),
        fields({"type": {"const": "docker"}, "container": nullable(TEXT)}),
        fields({"type": {"const": "ec2"}, "instanceId": nullable(TEXT), "region": nullable(TEXT)}),
        fields({"type": {"const": "local"}}),
    ]
}
CURRENT = fields({"taskId": TEXT, "progress": nullable(NUMBER), "startedAt": TIME})
ORPHAN = fields({"taskId": TEXT, "reassigned": {"type": "boolean"}}, {"newWorkerId": TEXT})
PAYLOADS: dict[str, dict[str, Any]] = {
    "worker.registered": fields(
        {
            "workerId": TEXT,
            "info": fields(
                {
                    "hostname": TEXT,
                    "type": {"enum": ["local", "remote", "cloud"]},
                    "version": TEXT,
                    "location": LOCATION,
                    "capabilities": listed(TEXT),
                    "resources": fields(
                        {"cpuCores": NUMBER, "memoryMB": NUMBER, "diskGB": NUMBER}, {"gpuCount": NUMBER}
                    ),
                },
                {"labels": {"type": "object", "additionalProperties": TEXT}, "slots": NUMBER},
            ),
        }
    ),
    "worker.heartbeat": fields(
        {
            "workerId": TEXT,
            "status": {"enum": ["idle", "busy", "draining"]},
            "metrics": fields(
                {"cpuUsage": nullable(PERCENT), "memoryUsage": PERCENT, "diskUsage": PERCENT, "uptime": NUMBER}
            ),
        },
        {"currentTask": CURRENT, "currentTasks": listed(CURRENT), "currentTasksTotal": NUMBER},
    ),
    "worker.status_changed": fields(
        {"workerId": TEXT, "previous": STATUS, "current": STATUS}, {"reason": TEXT, "taskId": TEXT}
    ),
    "worker.task_assigned": fields(
        {
            "workerId": TEXT,
            "taskId": TEXT,
            "providerId": nullable(TEXT),
            "task": fields({"prompt": TEXT, "taskType": TEXT, "priority": nullable(NUMBER)}),
        },
        {"estimatedDuration": NUMBER},
    ),
    "worker.task_completed": fields(
        {
            "workerId": TEXT,
            "taskId": TEXT,
            "result": fields(
                {
                    "success": {"type": "boolean"},
                    "duration": nullable(NUMBER),
                    "tokensUsed": nullable(NUMBER),
                    "cost": nullable(NUMBER),
                }
            ),
        },
        {"nextTask": fields({"taskId": TEXT, "queuePosition": NUMBER})},
    ),
    "worker.offline": fields(
        {
            "workerId": TEXT,
            "hostname": TEXT,
            "reason": {"enum": ["shutdown", "timeout", "error"]},
            "lastHeartbeat": nullable(TIME),
        },
        {"orphanedTask": ORPHAN, "orphanedTasks": listed(ORPHAN), "orphanedTasksTotal": NUMBER},
    ),
}


def check_event(event: dict[str, Any]) -> None:
    """Raise if an event of a host differs from the document."""
    schema = fields({"type": {"const": event["type"]}, "payload": PAYLOADS[event["type"]], "timestamp": TIME})
    jsonschema.Draft202012Validator(schema).validate(event)
