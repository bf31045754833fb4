"""A plugin whose jobs behave as `config.behavior` of their dispatch says, also against the protocol: `misbehaving.py PORT`.

Its jobs are files, so they outlive its process. It never adopts the run id of the host, unless `config.adopts` is set.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
import uuid
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

JOBS = Path("jobs")
LATE_SECONDS = float(os.environ.get("LATE_SECONDS", "0"))
START = os.environ.get("START", "")
POLLS: Counter[str] = Counter()
STARTED_AT = "2026-01-01T00:00:00.000Z"

NEVER_RIGHT: dict[str, Any] = {
    "garbage": b"<html>",
    "nested": b'{"jsonrpc": "2.0", "result": ' + b"[" * 200_000,
    "large": b" " * 4_000_000,
    "bomb": gzip.compress(b" " * 20_000_000),
    "empty": b"",
    "unknown-status": {"status": "paused"},
    "number": {"status": 7},
    "decisions": {"decisions": [{"question": 1}]},
    "other-id": {"jobId": "another"},
}
"""What `worker/status` answers, by behavior: bytes, or changed fields of the state."""


class Refused(Exception):
    """Parameters that the plugin does not accept."""


def create(params: dict[str, Any], behavior: str) -> str:
    job_id = params["config"]["run_id"] if params["config"].get("adopts") else str(uuid.uuid4())
    job = {"jobId": job_id, "description": params["description"], "behavior": behavior}
    temporary = JOBS / f".{job_id}"
    temporary.write_text(json.dumps(job))
    temporary.rename(JOBS / job_id)
    return job_id


def dispatch(params: dict[str, Any]) -> dict[str, Any]:
    behavior = params["config"].get("behavior", "plain")
    if behavior == "refuses":
        raise Refused("this task is not for me")
    if behavior == "dies-before":
        os._exit(3)
    if behavior == "late-none":
        time.sleep(LATE_SECONDS)
    ids = [create(params, behavior) for _ in range(2 if behavior == "late-two" else 1)]
    if behavior == "dies-after":
        os._exit(3)
    if behavior in ("late", "late-two"):
        time.sleep(LATE_SECONDS)
    return {"jobId": {"empty-id": "", "path-id": "../../etc/passwd", "long-id": "x" * 1_000_000}.get(behavior, ids[0])}


def load(params: dict[str, Any]) -> dict[str, Any]:
    try:
        return json.loads((JOBS / Path(params["jobId"]).name).read_text())
    except OSError:
        raise Refused(f"unknown job {params['jobId'][:40]!r}") from None


def list_jobs(_: dict[str, Any]) -> dict[str, Any]:
    jobs = [json.loads(path.read_text()) for path in sorted(JOBS.iterdir()) if not path.name.startswith(".")]
    return {"jobs": [{**job, "status": "running", "summary": None} for job in jobs]}


def status(params: dict[str, Any]) -> dict[str, Any] | bytes:
    job = load(params)
    behavior, job_id = job["behavior"], job["jobId"]
    POLLS[job_id] += 1
    polls = POLLS[job_id]
    is_running = not Path("go").exists() if behavior == "waits" else polls < 2
    state = {
        "jobId": job_id,
        "status": "running" if is_running else "completed",
        "description": job["description"],
        "summary": f"poll {polls}",
        "questions": None,
        "decisions": None,
        "error": None,
        "startedAt": STARTED_AT,
        "completedAt": None if is_running else STARTED_AT,
        "costUsd": None,
    }
    if behavior == "hangs":
        time.sleep(600)
    if behavior == "garbage-once" and polls == 1:
        return b"<html>"
    if behavior == "back-to-running" and polls > 2:
        state["status"] = "running"
    if behavior == "fails-loudly":
        state.update(status="failed", error="loud " * 500_000)
    if behavior == "odd-cost":
        state.update(costUsd=-5, progress="half")
    if behavior == "back-to-running":
        state["progress"] = 0.501
    if behavior == "infinite-cost":
        return json.dumps({"jsonrpc": "2.0", "id": "ID", "result": {**state, "costUsd": "INF"}}).encode()
    if behavior == "endless-summary":
        state.update(status="running" if polls < 6 else "completed", summary=f"{polls} " + "s" * 1_000_000)
    if behavior == "endless-questions":
        state["questions"] = [f"question {number}" for number in range(20_000)]
    changed = NEVER_RIGHT.get(behavior)
    return changed if isinstance(changed, bytes) else {**state, **(changed or {})}


def result(params: dict[str, Any]) -> dict[str, Any]:
    job = load(params)
    if job["behavior"] == "no-result":
        raise Refused("the job is still running")
    output = "o" * 2_000_000 if job["behavior"] == "long-output" else f"output of {job['behavior']}"
    return {"jobId": job["jobId"], "output": output, "artifacts": None}


def cancel(params: dict[str, Any]) -> dict[str, Any]:
    job = load(params)
    if job["behavior"] == "ignores-cancel":
        return {"jobId": job["jobId"], "status": "running"}
    Path(JOBS / job["jobId"]).write_text(json.dumps({**job, "behavior": "plain"}))
    return {"jobId": job["jobId"], "status": "cancelled"}


def delete(params: dict[str, Any]) -> dict[str, Any]:
    (JOBS / load(params)["jobId"]).unlink()
    return {"jobId": params["jobId"], "deleted": True}


METHODS = {
    "initialize": lambda _: {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}},
    "tools/list": lambda _: {"tools": []},
    "worker/dispatch": dispatch,
    "worker/list": list_jobs,
    "worker/status": status,
    "worker/result": result,
    "worker/cancel": cancel,
    "worker/delete": delete,
}


class Handler(BaseHTTPRequestHandler):
    """Answers to anyone: this plugin requires no secret."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        try:
            value = METHODS[request["method"]](request["params"])
        except Refused as error:
            body: bytes | dict[str, Any] = {"error": {"code": -32602, "message": str(error)}}
        else:
            body = value if isinstance(value, bytes) else {"result": value}
        if isinstance(body, dict):
            body = json.dumps({"jsonrpc": "2.0", "id": request["id"], **body}).encode()
        body = body.replace(b'"ID"', str(request["id"]).encode()).replace(b'"INF"', b"1e999")
        self.send_response(200)
        if body.startswith(b"\x1f\x8b"):
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


if __name__ == "__main__":
    with open("starts", "a") as file:
        print(time.time(), file=file)
    if START == "dies":
        sys.exit("it cannot start")
    JOBS.mkdir(exist_ok=True)
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
