"""The shortest plugin: jobs in memory, and a tool. Run `python server.py PORT`; exit code 2: the port is taken."""

from __future__ import annotations

import fnmatch
import json
import os
import sys
import threading
import uuid
from contextlib import nullcontext
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = os.environ.get("SHOPFLOOR_PLUGIN_SECRET")
JOBS: dict[str, dict[str, Any]] = {}
LOCK = threading.Lock()
"""Held for every access to the jobs."""
TOOL = {
    "name": "count_words",
    "description": "Count the words of a text.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


class InvalidParams(Exception):
    """Parameters that a method does not accept: JSON-RPC error -32602."""


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def text(params: dict[str, Any], name: str) -> str:
    if not isinstance(params.get(name), str) or not params[name]:
        raise InvalidParams(f"{name} must be a text that is not empty")
    return params[name]


def job_of(params: dict[str, Any]) -> dict[str, Any]:
    job_id = text(params, "jobId")
    if job_id not in JOBS:
        raise InvalidParams(f"unknown job {job_id!r}")
    return JOBS[job_id]


def work(task: str) -> str:
    """Do a job and return its output. Replace this function with your own."""
    return f"{len(task.split())} words"


def run(job: dict[str, Any], task: str) -> None:
    """Run a job, in a thread. An exception of the work is its failure."""
    try:
        ended = {"status": "completed", "output": work(task)}
    except Exception as failure:  # noqa: BLE001 - whatever fails is the job's outcome
        ended = {"status": "failed", "error": str(failure) or type(failure).__name__}
    with LOCK:
        if job["status"] == "running":
            job.update(ended, completedAt=now())


def dispatch(params: dict[str, Any]) -> dict[str, Any]:
    description, task = text(params, "description"), text(params, "task")
    config = params.get("config") or {}
    if not isinstance(config, dict):
        raise InvalidParams("config must be an object")
    # The host names its run: a dispatch that is repeated after a crash is the same job.
    job_id = text(config, "run_id") if "run_id" in config else str(uuid.uuid4())
    if job_id not in JOBS:
        job = {"jobId": job_id, "status": "running", "description": description, "startedAt": now()}
        JOBS[job_id] = {
            **job,
            "summary": None,
            "questions": None,
            "decisions": None,
            "error": None,
            "completedAt": None,
        }
        threading.Thread(target=run, args=(JOBS[job_id], task), daemon=True).start()
    return {"jobId": job_id}


def list_jobs(params: dict[str, Any]) -> dict[str, Any]:
    fields = ("jobId", "status", "description", "summary")[: 4 if params.get("detail") == "detailed" else 2]
    pattern = params.get("filter") or "*"
    jobs = [job for job in JOBS.values() if fnmatch.fnmatchcase(job["description"], pattern)]
    return {"jobs": [{name: job[name] for name in fields} for job in jobs]}


def status(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in job_of(params).items() if name != "output"}


def result(params: dict[str, Any]) -> dict[str, Any]:
    job = job_of(params)
    if job["status"] != "completed":
        raise InvalidParams(f"job {job['jobId']} is {job['status']}")
    return {"jobId": job["jobId"], "output": job["output"], "artifacts": None}


def cancel(params: dict[str, Any]) -> dict[str, Any]:
    job = job_of(params)
    if job["status"] == "running":
        job.update(status="cancelled", completedAt=now())
    return {"jobId": job["jobId"], "status": job["status"]}


def delete(params: dict[str, Any]) -> dict[str, Any]:
    job = job_of(params)
    if job["status"] not in ("completed", "cancelled"):
        raise InvalidParams(f"job {job['jobId']} is {job['status']}; only completed and cancelled jobs can be deleted")
    del JOBS[job["jobId"]]
    return {"jobId": job["jobId"], "deleted": True}


def call_tool(params: dict[str, Any]) -> dict[str, Any]:
    if params.get("name") != TOOL["name"]:
        raise InvalidParams(f"there is no tool {params.get('name')!r}")
    value = (params.get("arguments") or {}).get("text")
    if not isinstance(value, str):
        return {"content": [{"type": "text", "text": "text must be a string"}], "isError": True}
    return {"content": [{"type": "text", "text": str(len(value.split()))}], "isError": False}


METHODS = {
    "initialize": lambda _: {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}, "worker": {}},
        "serverInfo": {"name": "word-count", "version": "0.1.0"},
    },
    "tools/list": lambda _: {"tools": [TOOL]},
    "tools/call": call_tool,
    "worker/dispatch": dispatch,
    "worker/list": list_jobs,
    "worker/status": status,
    "worker/result": result,
    "worker/cancel": cancel,
    "worker/delete": delete,
}


def answer(raw: bytes) -> dict[str, Any] | None:
    """Answer a JSON-RPC request. None for a notification."""
    try:
        request = json.loads(raw)
    except (ValueError, RecursionError):
        return error(None, -32700, "the request is not JSON")
    if not isinstance(request, dict) or not isinstance(request.get("method"), str):
        return error(None, -32600, "not a JSON-RPC request")
    if "id" not in request:
        return None
    request_id, method, params = request["id"], request["method"], request.get("params", {})
    if method not in METHODS:
        return error(request_id, -32601, f"there is no method {method!r}")
    if not isinstance(params, dict):
        return error(request_id, -32602, "params must be an object")
    try:
        # A tool may take its time: jobs are reported meanwhile.
        with LOCK if method.startswith("worker/") else nullcontext():
            return {"jsonrpc": "2.0", "id": request_id, "result": METHODS[method](params)}
    except InvalidParams as wrong:
        return error(request_id, -32602, str(wrong))
    except Exception as failure:  # noqa: BLE001 - the host gets an answer in any case
        return error(request_id, -32603, f"{type(failure).__name__}: {failure}")


def error(request_id: object, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


class Handler(BaseHTTPRequestHandler):
    """POST /mcp with the secret of the host."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if SECRET and self.headers.get("authorization") != f"Bearer {SECRET}":
            self.send(401, {"error": "missing or wrong secret"})
        elif (response := answer(body)) is not None:
            self.send(200, response)
        else:
            self.send(202, None)

    def send(self, code: int, value: object) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing: the output of a plugin is for errors."""


def main() -> None:
    try:
        server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    except OSError as taken:
        sys.stderr.write(f"cannot listen on port {sys.argv[1]}: {taken.strerror}\n")
        sys.exit(2)
    server.serve_forever()


if __name__ == "__main__":
    main()
