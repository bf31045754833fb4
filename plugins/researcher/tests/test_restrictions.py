"""Which tool calls of the agent are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugin.agent import refusal_reason


def refusal(tmp_path: Path, tool: str, **arguments: Any) -> str | None:
    """Check a call in a folder `job` that may also reach the folder `more`. The link `job/link` leads outside."""
    job, more = tmp_path / "job", tmp_path / "more"
    for folder in (job, more, tmp_path / "outside"):
        folder.mkdir()
    (job / "link").symlink_to(tmp_path / "outside")
    named = {name: str(value).replace("{}", str(tmp_path)) for name, value in arguments.items()}
    return refusal_reason(tool, named, job, [job, more])


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Read", {"file_path": "task.md"}),
        ("Read", {"file_path": "{}/more/file"}),
        ("Grep", {"pattern": "../x", "path": "{}/more"}),
        ("Grep", {"pattern": "x"}),
        ("Glob", {"pattern": "**/*.md"}),
        ("Glob", {"pattern": "*.md", "path": "{}/more"}),
        ("WebSearch", {"query": "/etc"}),
        ("mcp__worker__submit_result", {"text": "x"}),
    ],
)
def test_allowed(tmp_path: Path, tool: str, arguments: dict[str, str]) -> None:
    assert refusal(tmp_path, tool, **arguments) is None


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("Bash", {"command": "ls"}, "Bash is not available to this worker"),
        ("Write", {"file_path": "x", "content": "x"}, "Write is not available to this worker"),
        ("mcp__other__tool", {}, "mcp__other__tool is not available to this worker"),
        ("Read", {"file_path": "{}/outside/secret"}, "is outside of this job's folders"),
        ("Read", {"file_path": "../outside/secret"}, "is outside of this job's folders"),
        ("Read", {"file_path": "link/secret"}, "is outside of this job's folders"),
        ("Read", {"file_path": "~/secret"}, "is outside of this job's folders"),
        ("Read", {"file_path": "{}/job-of-another"}, "is outside of this job's folders"),
        ("Grep", {"pattern": "x", "path": "{}"}, "is outside of this job's folders"),
        ("Glob", {"pattern": "{}/outside/*"}, "is outside of this job's folders"),
        ("Glob", {"pattern": "*/../../outside/*"}, "a pattern must not contain '..'"),
        ("Glob", {"pattern": "link/*"}, "is outside of this job's folders"),
    ],
)
def test_refused(tmp_path: Path, tool: str, arguments: dict[str, str], reason: str) -> None:
    assert reason in (refusal(tmp_path, tool, **arguments) or "")
