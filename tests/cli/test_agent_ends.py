"""Agents that die, under the installed `shopfloor`: a program in their place prints lines of a recording, and ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.agent_event_schema import checked_events, payloads
from tests.cli.conftest import Cli

FIXTURES = Path(__file__).parents[1] / "providers" / "fixtures"
PROGRAMS = {
    "claude-code": "claude",
    "codex": "codex",
    "gemini": "gemini",
    "copilot": "copilot",
    "opencode": "opencode",
}
ENDINGS = ("KILL", "1", "0")
AGENT = """#!/bin/sh
read -r lines ending
head -n "$lines" "$STREAMS/$(basename "$0").jsonl"
case "$ending" in
  [0-9]*) exit "$ending" ;;
  *) kill -s "$ending" $$ ;;
esac
"""
WORKER = """
from shopfloor import worker


@worker(slug="ends")
async def ends(run, CASES: list):
    outcomes = []
    for provider, lines, ending in CASES:
        try:
            reply = await run.agent(provider, f"{lines} {ending}")
        except Exception as error:
            outcomes.append([provider, lines, ending, False, str(error)])
        else:
            outcomes.append([provider, lines, ending, True, reply.text])
    return outcomes
"""

Fields = dict[str, Any]


@pytest.fixture
def programs(env: dict[str, str], tmp_path: Path) -> Path:
    """Programs with the agents' names come first on PATH."""
    folder, streams = tmp_path / "bin", tmp_path / "streams"
    folder.mkdir()
    streams.mkdir()
    for provider, program in PROGRAMS.items():
        (folder / program).write_text(AGENT)
        (folder / program).chmod(0o755)
        (streams / f"{program}.jsonl").write_bytes((FIXTURES / provider / "text.jsonl").read_bytes())
    env |= {"PATH": f"{folder}:{env['PATH']}", "STREAMS": str(streams), "CODEX_HOME": str(tmp_path / "codex")}
    return streams


def logs(env: dict[str, str]) -> list[list[Fields]]:
    folder = Path(env["SHOPFLOOR_STORAGE"]) / "transcripts"
    return [[json.loads(line) for line in path.read_text().split("\n")[:-1]] for path in folder.glob("*.jsonl")]


@pytest.mark.req("TR-60")
def test_an_agent_that_dies_after_any_line_has_not_succeeded(
    shopfloor: Cli, env: dict[str, str], programs: Path, tmp_path: Path
) -> None:
    cases: list[tuple[str, int, str]] = []
    for provider in PROGRAMS:
        total = len((FIXTURES / provider / "text.jsonl").read_bytes().split(b"\n")) - 1
        cases += [(provider, lines, ending) for lines in range(total + 1) for ending in ENDINGS]
    folder = tmp_path / "workers" / "ends"
    folder.mkdir(parents=True)
    (folder / "worker.py").write_text(WORKER)
    done = shopfloor(
        "run", "ends", "--workers", str(folder.parent), "--input", f"CASES={json.dumps(cases)}", "--quiet", timeout=300
    )
    assert done.returncode == 0, done.stderr
    (events,) = logs(env)
    outcomes = events[-1]["payload"]["result"]
    assert [tuple(outcome[:3]) for outcome in outcomes] == cases
    succeeded = [tuple(outcome[:3]) for outcome in outcomes if outcome[3]]
    last = {provider: max(lines for name, lines, _ in cases if name == provider) for provider in PROGRAMS}
    assert succeeded == [(provider, lines, "0") for provider, lines in last.items()]
    for provider, lines, ending, _, message in outcomes:
        if lines == last[provider] and ending != "0":
            assert ("killed by SIG" if ending.isalpha() else "exit code 1") in message


@pytest.mark.req("FE-23")
@pytest.mark.parametrize(("signal", "reason"), [("SEGV", "error"), ("KILL", "system")])
def test_an_agent_that_a_signal_ended_is_terminated_with_the_signal(
    shopfloor: Cli, programs: Path, signal: str, reason: str
) -> None:
    assert shopfloor("run", "--provider", "codex", f"2 {signal}", "--quiet").returncode != 0
    events = checked_events(shopfloor("events", "last", "--json").stdout)
    (terminated,) = payloads(events, "agent.terminated")
    assert (terminated["reason"], terminated["signal"]) == (reason, f"SIG{signal}")
    assert len(payloads(events, "agent.error")) == (reason == "error")


@pytest.mark.req("TR-66")
def test_the_prompt_is_recorded_once_and_timestamps_do_not_decrease(
    shopfloor: Cli, env: dict[str, str], programs: Path
) -> None:
    for provider in ("gemini", "copilot"):
        assert shopfloor("run", "--provider", provider, "100 0").returncode == 0
    for events in logs(env):
        prompts = [event["payload"] for event in events if event["type"] == "message.user"]
        assert [block["text"] for prompt in prompts for block in prompt["blocks"]] == ["100 0"]
        times = [event["timestamp"] for event in events]
        assert times == sorted(times)


def test_codex_runs_record_their_model_whether_requested_or_default(
    shopfloor: Cli, env: dict[str, str], programs: Path
) -> None:
    thread = json.loads((programs / "codex.jsonl").read_bytes().split(b"\n")[0])["thread_id"]
    kept = Path(env["CODEX_HOME"]) / "sessions" / "2026" / "11" / "15" / f"rollout-2026-11-15T01-00-00-{thread}.jsonl"
    kept.parent.mkdir(parents=True)
    turns = [{"type": "turn_context", "payload": {"model": model}} for model in ("gpt-5.4", "gpt-5.5")]
    kept.write_text("".join(json.dumps(turn) + "\n" for turn in [{"type": "session_meta", "payload": {}}, *turns]))
    assert shopfloor("run", "--provider", "codex", "100 0").returncode == 0
    assert shopfloor("run", "--provider", "codex", "--model", "gpt-5.2", "100 0").returncode == 0
    listed = json.loads(shopfloor("list", "--json").stdout)
    runs = listed["workers"] if isinstance(listed, dict) else listed
    assert {run["model"] for run in runs} == {"gpt-5.5", "gpt-5.2"}


def test_unparsed_lines_are_counted_where_a_run_is_shown(shopfloor: Cli, env: dict[str, str], programs: Path) -> None:
    stream = programs / "codex.jsonl"
    stream.write_bytes(b"one\ntwo\nthree\n" + stream.read_bytes())
    assert shopfloor("run", "--provider", "codex", "100 0").returncode == 0
    shown = shopfloor("show", "last").stdout
    assert "3 lines not understood" in shown
    assert shown.count("unparsed") == 3


def test_a_line_that_is_too_long_once_encoded_does_not_end_a_run(
    shopfloor: Cli, env: dict[str, str], programs: Path
) -> None:
    stream = programs / "codex.jsonl"
    first, *rest = stream.read_bytes().split(b"\n")
    item = b'{"type":"item.completed","item":{"id":"item_9","type":"agent_message","text":"%b"}}'
    stream.write_bytes(b"\n".join([first, item % (b"\x00" * 12 * 1024 * 1024), *rest]))
    assert shopfloor("run", "--provider", "codex", "--quiet", "100 0").returncode == 0
    (events,) = logs(env)
    messages = [event["payload"] for event in events if event["type"] == "message.assistant"]
    assert [message.get("truncated", False) for message in messages if message["blocks"]] == [True, False, False]
    assert events[-1]["payload"]["status"] == "completed"
