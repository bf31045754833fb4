"""What a person is asked to approve, as text, and the fields of a call that say most about it."""

from __future__ import annotations

from typing import Any, Final, cast

from shopfloor.views.truncation import as_text

APPROVAL_OPTIONS: Final = ("approve", "approve for this run", "always approve", "deny")
"""The answers to an approval."""
COMMAND_FIELD: Final = "command"
PATH_FIELDS: Final = ("file_path", "notebook_path", "path")
_MAIN_FIELDS: Final = (COMMAND_FIELD, *PATH_FIELDS, "url", "query")
"""The fields that say most about a call, the first that the call has."""
FILE_TOOLS: Final = frozenset({"Read", "Glob", "Grep", "LS", "Edit", "MultiEdit", "Write", "NotebookEdit"})
COMMAND_TOOL: Final = "command"
"""The name under which patterns address the command steps of a worker."""
MAIN_FIELD_TOOLS: Final = FILE_TOOLS | {COMMAND_TOOL, "Bash", "WebFetch", "WebSearch"}
"""The tools whose main field says what a call does. Of other tools, the whole input counts."""
_OMITTED_FIELDS: Final = frozenset({"variables", "old_string", "new_string", "description", "cwd"})
"""The fields of `MAIN_FIELD_TOOLS` that are shown elsewhere, or that do not change what the call does."""


def main_field(tool_input: Any) -> str | None:
    """Return the name of the field of an input that is shown first, and that patterns are compared to; None if none."""
    fields = _fields(tool_input)
    return next((name for name in _MAIN_FIELDS if isinstance(fields.get(name), str) and fields[name]), None)


def describe_approval(arguments: Any) -> str:
    """Return what a person is asked to approve: the tool, and its command with the values in it, path or input."""
    fields = _fields(arguments)
    inner, name = _fields(fields.get("input")), main_field(fields.get("input"))
    detail = as_text(fields.get("input")) if name is None else str(inner[name])
    values = _fields(inner.get("variables"))
    with_values = f" with {', '.join(f'{key}={as_text(value)}' for key, value in values.items())}" if values else ""
    return f"approval of {fields.get('tool')}: {detail}{with_values}"


def approval_question(arguments: Any) -> str:
    """Return what a person is asked to approve, what an answer for always holds for, and the rest of the call."""
    fields = _fields(arguments)
    inner, name = _fields(fields.get("input")), main_field(fields.get("input"))
    omitted = {name, *(_OMITTED_FIELDS if fields.get("tool") in MAIN_FIELD_TOOLS else ())}
    others = {} if name is None else {key: value for key, value in inner.items() if key not in omitted}
    lines = [
        describe_approval(fields),
        *_rule_lines(fields),
        *(f"{key}: {as_text(value)}" for key, value in others.items()),
    ]
    return "\n".join([*lines, *([str(fields["diff"])] if fields.get("diff") else [])])


def _rule_lines(fields: dict[str, Any]) -> list[str]:
    if not fields.get("worker"):
        return []
    folder = f" in {fields['folder']}" if fields.get("folder") else ""
    return [f"{APPROVAL_OPTIONS[2]} holds for {fields.get('pattern')} of {fields['worker']}{folder}"]


def _fields(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
