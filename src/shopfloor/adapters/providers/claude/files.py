"""The files that a tool changed, as far as its result tells."""

from __future__ import annotations

from shopfloor.adapters.providers.reading import Record, changed_file, int_at, list_at, records_at, text_at
from shopfloor.log import FileChange

PATHS = {"Write": "file_path", "Edit": "file_path", "MultiEdit": "file_path", "NotebookEdit": "notebook_path"}
"""The tools that change a file, and where their input names it."""

_NOWHERE = "/dev/null"
_CREATED = "File created"


def changed_files(path: str | None, structured: Record, output: object) -> list[FileChange] | None:
    """`path` is what the call named. A sub-agent's results have no structured part: then that is all that is known."""
    if "structuredPatch" in structured and (changed := text_at(structured, "filePath")) is not None:
        return [_patched(changed, structured)]
    if path is None:
        return None
    created = isinstance(output, str) and output.startswith(_CREATED)
    return [changed_file(path, "create" if created else "modify")]


def _patched(path: str, structured: Record) -> FileChange:
    is_new = structured.get("originalFile") is None
    hunks = records_at(structured, "structuredPatch")
    content = text_at(structured, "content")
    if is_new and not hunks and content is not None:
        hunks = [_whole(content)]
    lines = [f"--- {_NOWHERE if is_new else path}", f"+++ {path}"]
    for hunk in hunks:
        old, new = (f"{int_at(hunk, f'{side}Start')},{int_at(hunk, f'{side}Lines')}" for side in ("old", "new"))
        lines += [f"@@ -{old} +{new} @@", *(line for line in list_at(hunk, "lines") if isinstance(line, str))]
    return changed_file(path, "create" if is_new else "modify", "\n".join(lines) + "\n" if hunks else None)


def _whole(content: str) -> Record:
    lines = [f"+{line}" for line in content.split("\n")]
    if lines[-1] == "+":
        lines.pop()
    else:
        lines.append("\\ No newline at end of file")
    count = sum(line.startswith("+") for line in lines)
    return {"oldStart": 0, "oldLines": 0, "newStart": 1 if count else 0, "newLines": count, "lines": lines}
