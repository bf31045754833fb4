"""What the program says of itself, in records that need nothing but themselves to be understood."""

from __future__ import annotations

from shopfloor.adapters.providers.claude.failures import retry_note
from shopfloor.adapters.providers.reading import Record, int_at, list_at, text_at
from shopfloor.log import Initialisation, Note

HOUSEKEEPING = frozenset(
    {
        "auth_status",
        "command_lifecycle",
        "control_cancel_request",
        "control_request",
        "control_response",
        "conversation_reset",
        "keep_alive",
        "prompt_suggestion",
        "tool_use_summary",
        "transcript_mirror",
    }
)
"""Kinds of records that carry nothing of what was said or done."""
_SYSTEM_HOUSEKEEPING = frozenset(
    {
        "background_tasks_changed",
        "commands_changed",
        "control_request_progress",
        "elicitation_complete",
        "files_persisted",
        "hook_progress",
        "hook_started",
        "per_turn_effort_changed",
        "permission_check_status",
        "plugin_install",
        "post_turn_summary",
        "session_metadata",
        "session_state_changed",
        "session_title_changed",
        "status",
        "stop_hook_summary",
        "task_progress",
        "task_summary",
        "thinking_tokens",
        "turn_duration",
    }
)
_SCREEN = "ui_"
"""What begins so is for a screen that is not there."""
_WORDS = {
    "informational": "content",
    "model_consent_fallback": "content",
    "model_fallback": "content",
    "model_refusal_fallback": "content",
    "model_refusal_no_fallback": "content",
    "notification": "text",
}
"""What is said by the way, and where the words are."""


def notices(record: Record) -> list[Note] | None:
    """What a record of the program's tells; None where it is not understood."""
    subtype = text_at(record, "subtype") or ""
    if subtype == "api_retry":
        return [retry_note(record)]
    if subtype == "compact_boundary":
        return [Note(kind="warning", message="the conversation was compacted")]
    if subtype in _WORDS:
        message = text_at(record, _WORDS[subtype])
        return None if message is None else [Note(kind="warning", message=message)]
    return [] if subtype in _SYSTEM_HOUSEKEEPING or subtype.startswith(_SCREEN) else None


def hook_end(record: Record) -> tuple[Note | None, str]:
    """How a hook of the user's ended, and what it printed; no note where it printed nothing and did not fail."""
    streams = [text_at(record, key) or "" for key in ("stdout", "stderr")]
    printed = "".join(streams) or text_at(record, "output") or ""
    code, outcome = int_at(record, "exit_code"), text_at(record, "outcome")
    if not printed and not code and outcome in (None, "success"):
        return None, ""
    how = f"exit code {code}" if code is not None else outcome or "it ended"
    return Note(kind="warning", message=f"hook {text_at(record, 'hook_name') or ''}: {how}"), printed


def background_end(record: Record) -> Note:
    """A command in the background ended."""
    call, status = text_at(record, "tool_use_id"), text_at(record, "status") or "ended"
    words = [f"background command {text_at(record, 'task_id') or ''} {status}"]
    summary, file = text_at(record, "summary"), text_at(record, "output_file")
    details = [summary, f"call {call}" if call else None, f"output in {file}" if file else None]
    return Note(kind="warning", message=": ".join([*words, ", ".join(filter(None, details))]).removesuffix(": "))


def ready(record: Record, session: str | None) -> Note:
    found = Initialisation(
        session_id=session,
        model=text_at(record, "model"),
        version=text_at(record, "claude_code_version"),
        cwd=text_at(record, "cwd"),
        tools=[tool for tool in list_at(record, "tools") if isinstance(tool, str)],
        permission_mode=text_at(record, "permissionMode"),
    )
    return Note(kind="ready", ready=found)
