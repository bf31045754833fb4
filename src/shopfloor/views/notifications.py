"""Notifications: what of a run people outside are notified of, as CloudEvents with a stable id (ADR 32)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from shopfloor.errors import BudgetExceeded
from shopfloor.limits import REQUEST_TEXT_CHARS
from shopfloor.log import Event, RunCompleted, ToolCall
from shopfloor.views.row import RunRow
from shopfloor.views.wait_state import APPROVAL, QUESTION

NotificationKind = Literal["outcome", "question", "budget"]
NOTIFICATION_KINDS: Final[tuple[NotificationKind, ...]] = ("outcome", "question", "budget")
DEFAULT_NOTIFICATION_KINDS: Final[tuple[NotificationKind, ...]] = ("outcome", "question")
"""Without `budget`: a run that spent its budget has an outcome with the same text."""
_SOURCE: Final = "urn:shopfloor"


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """One notification, made from one event of a log."""

    run_id: str
    seq: int
    kind: NotificationKind
    at: str
    data: dict[str, Any]

    @property
    def id(self) -> str:
        """The same for the same event of the same log, however often the log is read."""
        return f"{self.run_id}.{self.seq}.{self.kind}"


def notifications_of(row: RunRow, events: Sequence[Event]) -> list[Notification]:
    """Return the notifications of the newest events of a run. `row` is the row after them.

    The outcome of a sub-run gives none: its root has one.
    """
    found: list[Notification] = []
    for event in events:
        match event.payload:
            case RunCompleted() as ended:
                outcome = outcome_notification(row)
                if ended.error is not None and ended.error.code == BudgetExceeded.code:
                    found.append(msgspec.structs.replace(outcome, kind="budget"))
                if row.parent_run_id is None:
                    found.append(outcome)
            case ToolCall(awaits=awaits, call_id=call_id) if awaits is not None and awaits.kind in (
                QUESTION,
                APPROVAL,
            ):
                # An answer that arrived with the same events leaves no request: there is nothing to ask any more.
                if (request := row.waits.requests.get(call_id)) is not None:
                    fields = {"call_id": call_id, "wait_kind": awaits.kind, "text": request.text}
                    options = {"options": [*request.options]} if request.options else {}
                    found.append(_notification(row, event.seq, "question", event.timestamp, {**fields, **options}))
            case _:
                pass
    return found


def outcome_notification(row: RunRow) -> Notification:
    """Return the notification of the outcome of a run that has ended. The outcome is the last event of its log."""
    message = None if row.error_message is None else row.error_message[:REQUEST_TEXT_CHARS]
    error = {"code": row.error_code, "message": message} if row.error_code or message else None
    fields = {
        "status": row.status,
        "completed_at": row.completed_at,
        "duration_ms": row.duration_ms,
        "error": error,
        "result": None if row.result is None else row.result[:REQUEST_TEXT_CHARS],
    }
    return _notification(row, row.last_seq, "outcome", row.completed_at or "", fields)


def _notification(row: RunRow, seq: int, kind: NotificationKind, at: str, fields: dict[str, Any]) -> Notification:
    shared = {
        "run_id": row.id,
        "root_run_id": row.root_run_id or row.id,
        "worker": row.name,
        "title": row.title,
        "owner": row.agent_id,
        "started_at": row.started_at,
        "cost_usd": row.spending.tree.cost_usd,
    }
    return Notification(run_id=row.id, seq=seq, kind=kind, at=at, data={**shared, **fields})


def encode_cloud_event(notification: Notification) -> bytes:
    """Return the notification as a CloudEvent 1.0 in JSON. The same notification gives the same bytes."""
    return msgspec.json.encode(
        {
            "specversion": "1.0",
            "id": notification.id,
            "source": _SOURCE,
            "type": f"shopfloor.run.{notification.kind}",
            "subject": notification.run_id,
            "time": notification.at,
            "datacontenttype": "application/json",
            "data": notification.data,
        }
    )


def notification_environment(event: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables of a command that is notified of a CloudEvent."""
    data: Mapping[str, Any] = event.get("data") or {}
    error: Mapping[str, Any] = data.get("error") or {}
    kind = str(event.get("type", "")).rpartition(".")[2]
    text = data.get("text") or error.get("message") or data.get("result") or ""
    values = {
        "SHOPFLOOR_EVENT": kind,
        "SHOPFLOOR_RUN_ID": data.get("run_id", ""),
        "SHOPFLOOR_WORKER": data.get("worker", ""),
        "SHOPFLOOR_STATUS": data.get("status") or "waiting",
        "SHOPFLOOR_TITLE": data.get("title", ""),
        "SHOPFLOOR_TEXT": text,
    }
    # An environment variable cannot contain NUL.
    return {name: str(value).replace("\0", "") for name, value in values.items()}
