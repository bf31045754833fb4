"""States of a fleet that a test cannot bring about in seconds, as answers of the API."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from playwright.sync_api import BrowserContext, Route

RUN_ID = "5f3a1c9e-6d0b-4c55-9a6e-2f8d1b7c4e10"


def at(seconds: float) -> str:
    """Return a time this many seconds from now."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def host(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"host-{name}",
        "hostname": name,
        "type": "local",
        "version": "0.1.0",
        "location": {"type": "docker", "container": "c"},
        "capabilities": [],
        "labels": {"region": "eu"},
        "resources": {"cpu_cores": 8, "memory_mb": 32_000, "disk_gb": 500, "gpu_count": None},
        "slots": 4,
        "slots_used": 0,
        "status": "idle",
        "responsive": True,
        "drain_reason": None,
        "drain_deadline": None,
        "started_at": at(-9_000),
        "heartbeat_at": at(-4),
        "heartbeat_seconds": 30,
        "metrics": {"cpu_percent": 31.4, "memory_percent": 38.0, "disk_percent": 88.0, "uptime_seconds": 9_000.0},
        "cpu_history": [30.0, 35.0, 20.0, 31.4],
        "runs": [],
        **fields,
    }


def queued(number: int, task: str, **fields: Any) -> dict[str, Any]:
    run_id = f"{RUN_ID[:-4]}{number:04d}"
    return {"run_id": run_id, "worker": "embed", "task": task, "priority": 0, "queued_at": at(-240), **fields}


def hosts() -> dict[str, Any]:
    run = {"run_id": RUN_ID, "worker": "repair", "task": "Fix the flaky test", "status": "running", "progress": 0.4}
    return {
        "hosts": [
            host("build-1", status="busy", slots_used=1, runs=[{**run, "started_at": at(-372)}]),
            host("build-2", status="draining", drain_deadline=at(400), slots=40),
            host("laptop", responsive=False, heartbeat_at=at(-161)),
            host("old", status="offline", metrics=None, cpu_history=[]),
        ]
    }


def providers() -> dict[str, Any]:
    def provider(name: str, kind: str, status: str, **fields: Any) -> dict[str, Any]:
        empty = dict.fromkeys(("problem", "reason", "error", "estimated_recovery", "access_mode", "version"))
        known = {"program": name, "path": f"/usr/bin/{name}", "login": "file", "install": "", "capabilities": {}}
        common = {"name": name, "kind": kind, "status": status, "checked_at": at(-12), "limits": []}
        return {**empty, **known, **common, **fields}

    def limit(name: str, current: float, most: float, seconds: float) -> dict[str, Any]:
        times = {"reset_at": at(seconds), "met_at": at(-3_000)}
        status = "rejected" if current >= most else "warning"
        return {"kind": "requests", "name": name, "current": current, "max": most, "status": status, **times}

    met = limit("5 hours", 1, 1, 4_329)
    return {
        "usable": [],
        "providers": [
            provider("claude-code", "agent", "available", limits=[limit("5 hours", 0.82, 1, 6_500)]),
            provider(
                "codex",
                "agent",
                "rate_limited",
                reason="rate_limited",
                estimated_recovery=met["reset_at"],
                limits=[met],
            ),
            provider("openai", "api", "unavailable", reason="error", error="HTTP 503"),
            provider("copilot", "agent", "disabled", reason="maintenance"),
            provider("goose", "agent", "unavailable", reason="error", error="not installed", path=None, login=None),
        ],
    }


def queue() -> dict[str, Any]:
    return {
        "total": 28,
        "oldest_queued_at": at(-720),
        "wait_p50_seconds": 4.2,
        "wait_p95_seconds": 68.0,
        "started_last_hour": 38,
        "groups": [
            {
                "reason": "provider",
                "message": "codex is at its limit",
                "total": 26,
                "runs": [queued(1, "Bump the linter", priority=10), queued(2, "Rename the scheduler")],
            },
            {
                "reason": "labels",
                "message": "no host has the label gpu=yes",
                "total": 2,
                "runs": [queued(3, "Rebuild the index"), queued(4, "Score the set")],
            },
        ],
    }


def answer_fleet(context: BrowserContext) -> None:
    """Answer the requests for hosts, providers and the queue with these states."""
    for path, build in (("hosts", hosts), ("providers", providers), ("queue", queue)):
        context.route(f"**/api/{path}", _answer_with(build))


def _answer_with(build: Callable[[], dict[str, Any]]) -> Callable[[Route], None]:
    return lambda route: route.fulfill(json=build())
