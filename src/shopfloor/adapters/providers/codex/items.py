"""Items of a thread that are tools at work: what each was given, and what it gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from shopfloor.adapters.providers.reading import Record, changed_file, int_at, record_at, records_at, text_at
from shopfloor.limits import PROVIDER_WORDS_CHARS
from shopfloor.log import FileChange

TODO_LIST = "todo_list"
COLLAB = "collab_tool_call"

_ACTIONS = {"add": "create", "update": "modify", "delete": "delete"}


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """An item as a call and its result; of one that has only begun, the call is meant."""

    name: str
    input: Any
    output: Any = None
    error: str | None = None
    exit_code: int | None = None
    files: list[FileChange] | None = None


def word(item: Record, key: str) -> str:
    """What an item must have as text."""
    value = item[key]
    if not isinstance(value, str):
        raise TypeError(key)
    return value


def tool_of(item: Record) -> Tool | None:
    """The tool that an item is; None where it is none that we know."""
    read = _TOOLS.get(word(item, "type"))
    return read(item) if read is not None else None


def _command(item: Record) -> Tool:
    command, output, exit_code = word(item, "command"), text_at(item, "aggregated_output"), int_at(item, "exit_code")
    error = _failed(item)
    if error is not None and exit_code is not None:
        # Some views show the error alone, so it has the end of what the command said too.
        error = f"exit code {exit_code}\n{(output or '').strip()[-PROVIDER_WORDS_CHARS:]}".strip()
    given = {"command": command}
    return Tool(name="command_execution", input=given, output=output, error=error, exit_code=exit_code)


def _file_change(item: Record) -> Tool:
    changes, error = records_at(item, "changes"), _failed(item)
    files = [
        changed_file(word(change, "path"), _ACTIONS.get(str(change.get("kind"))), text_at(change, "diff"))
        for change in changes
    ]
    return Tool(
        name="file_change",
        input={"changes": changes},
        output={"status": item.get("status")},
        error=error,
        files=files if error is None else None,
    )


def _mcp(item: Record) -> Tool:
    told = text_at(record_at(item, "error"), "message")
    error = told or _failed(item)
    if error is not None and told is None:
        said = [text_at(part, "text") or "" for part in records_at(record_at(item, "result"), "content")]
        error = "\n".join(said).strip()[:PROVIDER_WORDS_CHARS] or error
    # The name by which the model calls it; the item has its halves.
    name = f"mcp__{word(item, 'server')}__{word(item, 'tool')}"
    return Tool(name=name, input=item.get("arguments"), output=item.get("result"), error=error)


def _web_search(item: Record) -> Tool:
    # What was found is not in the stream. What was looked for may be known only at the end.
    looked_for = {key: item[key] for key in ("query", "action") if key in item}
    return Tool(name="web_search", input=looked_for, output=looked_for)


def _todo_list(item: Record) -> Tool:
    todo = {"items": item["items"]}
    return Tool(name=TODO_LIST, input=todo, output=todo)


def _collab(item: Record) -> Tool:
    given = {key: item[key] for key in ("prompt", "receiver_thread_ids") if item.get(key)}
    gave = {key: item[key] for key in ("receiver_thread_ids", "agents_states") if key in item}
    error = _failed(item)
    if error is not None:
        states = record_at(item, "agents_states")
        told = [record_at(states, thread) for thread in states]
        said = [text_at(state, "message") or text_at(state, "status") or "" for state in told]
        error = "\n".join(said).strip()[:PROVIDER_WORDS_CHARS] or error
    return Tool(name=word(item, "tool"), input=given, output=gave, error=error)


def _failed(item: Record) -> str | None:
    """Codex's word for how it went, where it did not go well: `failed` or `declined`."""
    status = text_at(item, "status")
    return status if status not in (None, "completed", "in_progress") else None


_TOOLS: dict[str, Callable[[Record], Tool]] = {
    "command_execution": _command,
    "file_change": _file_change,
    "mcp_tool_call": _mcp,
    "web_search": _web_search,
    TODO_LIST: _todo_list,
    COLLAB: _collab,
}
