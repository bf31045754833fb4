"""Records by which a program asks for the permission to call a tool, and gets its answer.

They are those of Claude Code, which writes a `control_request` to its standard output and reads the `control_response`
from its standard input. The session processes of other agents use the same records.
"""

from __future__ import annotations

import json
from typing import Any

from shopfloor.adapters.providers.json_access import Record, record_at, text_at
from shopfloor.ports import AgentReport, PermissionRequest, PermissionWithdrawn


def encode_line(value: Any) -> bytes:
    """Return a value as a line of JSON."""
    # A lone surrogate, which JSON cannot hold, becomes a question mark.
    return json.dumps(value, ensure_ascii=False).encode(errors="replace") + b"\n"


def encode_request(request: PermissionRequest) -> bytes:
    """Return the request for a permission as a line."""
    call = {"tool_name": request.tool, "input": request.tool_input, "tool_use_id": request.tool_id}
    body = {"subtype": "can_use_tool", **call}
    return encode_line({"type": "control_request", "request_id": request.request_id, "request": body})


def encode_withdrawal(request_id: str) -> bytes:
    """Return the line after which a request needs no answer any more."""
    return encode_line({"type": "control_cancel_request", "request_id": request_id})


def parse_permission_record(record: Record) -> list[AgentReport]:
    """Return the report of a record: a request for a permission, its withdrawal, or nothing."""
    request, request_id = record_at(record, "request"), text_at(record, "request_id") or ""
    if record.get("type") == "control_cancel_request":
        return [PermissionWithdrawn(request_id)]
    if text_at(request, "subtype") != "can_use_tool":
        return []
    return [
        PermissionRequest(
            request_id=request_id,
            tool=text_at(request, "tool_name") or "",
            tool_input=request.get("input"),
            tool_id=text_at(request, "tool_use_id"),
        )
    ]


def answer_permission(request: PermissionRequest, denial: str | None) -> bytes:
    """Return the answer to a request: the reason of a denial, or None to allow the call."""
    decision = (
        {"behavior": "allow", "updatedInput": request.tool_input}
        if denial is None
        else {"behavior": "deny", "message": denial}
    )
    response = {"subtype": "success", "request_id": request.request_id, "response": decision}
    return encode_line({"type": "control_response", "response": response})


def parse_answer(record: Record) -> tuple[str, str | None]:
    """Return the id of the answered request, and why the call is denied; None if it is allowed."""
    response = record_at(record, "response")
    decision = record_at(response, "response")
    denial = None if decision.get("behavior") == "allow" else text_at(decision, "message") or "denied"
    return text_at(response, "request_id") or "", denial
