"""Decisions, memories and results with artifacts, through the installed command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

NOTES = """
memory: true
input:
  TOPIC: {type: string}
steps:
  Talk: {block: start-thread, model: script/echo}
  Say: {block: add-message, text: "{{TOPIC}}"}
  Answer: {block: next-message}
  Look around: {block: tool-call, tool: update_summary, input: {summary: "looking at {{TOPIC}}"}}
  Decide:
    block: tool-call
    tool: record_decision
    input: {question: "Which year?", decision: "2026", reasoning: It is the newest.}
  Wonder: {block: tool-call, tool: log_question, input: {question: "May I call?"}}
  Remember: {block: tool-call, tool: store_memory, input: {key: topic, content: "about {{TOPIC}}"}}
  Submit:
    block: tool-call
    tool: submit_result
    input: {text: "All about {{TOPIC}}.", artifacts: [{name: report.md, content: "# {{TOPIC}}"}]}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "workers" / "notes").mkdir(parents=True)
    (folder / "workers" / "notes" / "worker.yaml").write_text(NOTES)
    return folder


@pytest.mark.req("SF-43", "SF-44", "SF-45")
def test_what_a_worker_notes_is_shown_and_kept(shopfloor: Cli, project: Path, env: dict[str, str]) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        done = shopfloor(*words, cwd=project)
        assert done.returncode == 0, done.stderr
        return done

    env["SHOPFLOOR_SCRIPT_DELAY_MS"] = "0"
    checked = run("workers", "check", "notes")
    assert "error" not in checked.stdout.lower()
    run("run", "notes", "--input", "TOPIC=tea")
    assert run("result", "last").stdout == "All about tea.\n"
    assert run("result", "last", "--artifacts").stdout == "report.md  5 bytes\n"
    assert json.loads(run("result", "last", "--artifacts", "--json").stdout) == [{"name": "report.md", "size_bytes": 5}]
    assert run("result", "last", "--artifact", "report.md").stdout == "# tea"
    status = run("status", "last").stdout
    for line in (
        "summary   looking at tea",
        "question  May I call?",
        "decision  Which year? → 2026",
        "artifact  report.md",
    ):
        assert line in status
    shown = run("show", "last").stdout
    assert "record_decision" in shown
    assert "It is the newest." in shown
    missing = shopfloor("result", "last", "--artifact", "other.md", cwd=project)
    assert missing.returncode == 4
    assert "artifact_not_found" in missing.stderr

    run("run", "notes", "--input", "TOPIC=coffee")
    assert "about tea" in system_prompt_of(run("show", "last", "--json").stdout)
    run("run", "notes", "--input", "TOPIC=cocoa")
    prompt = system_prompt_of(run("show", "last", "--json").stdout)
    assert "about coffee" in prompt
    assert "about tea" not in prompt


def system_prompt_of(log: str) -> str:
    return next(prompt for line in log.splitlines() if (prompt := json.loads(line)["payload"].get("system_prompt")))


def test_the_same_slug_in_another_folder_has_its_own_memory(
    shopfloor: Cli, project: Path, tmp_path: Path, env: dict[str, str]
) -> None:
    env["SHOPFLOOR_SCRIPT_DELAY_MS"] = "0"
    other = tmp_path / "other"
    (other / "workers").mkdir(parents=True)
    (project / "workers" / "notes").rename(other / "workers" / "notes")
    (project / "workers" / "notes").mkdir()
    (project / "workers" / "notes" / "worker.yaml").write_text(NOTES)
    assert shopfloor("run", "notes", "--input", "TOPIC=tea", cwd=project).returncode == 0
    assert shopfloor("run", "notes", "--input", "TOPIC=coffee", cwd=other).returncode == 0
    assert "about tea" not in shopfloor("show", "last", "--json", cwd=other).stdout
    assert shopfloor("run", "notes", "--input", "TOPIC=cocoa", cwd=project).returncode == 0
    assert "about tea" in system_prompt_of(shopfloor("show", "last", "--json", cwd=project).stdout)
