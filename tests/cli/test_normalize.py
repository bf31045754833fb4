"""`shopfloor normalize`, `providers`, `doctor` and `events`, as a user calls them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import SHOPFLOOR, Cli
from tests.sample_events import GOLDEN

from shopfloor.limits import RUN_ID_LINES

FIXTURES = Path(__file__).parents[1] / "providers" / "fixtures"


def normalised(shopfloor: Cli, provider: str, file: str, *words: str) -> list[dict[str, Any]]:
    done = shopfloor("normalize", provider, str(FIXTURES / provider / file), *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def blocks(events: list[dict[str, Any]], event_type: str = "message.assistant") -> list[dict[str, Any]]:
    return [block for event in events if event["type"] == event_type for block in event["payload"]["blocks"]]


def kinds(events: list[dict[str, Any]]) -> set[str]:
    return {block["type"] for block in blocks(events)}


@pytest.mark.req("TR-27", "TR-28", "TR-29", "TR-30", "TR-31")
@pytest.mark.parametrize(
    ("provider", "file", "wanted"),
    [
        ("claude-code", "thinking.jsonl", {"thinking", "text", "tool_use"}),
        ("codex", "thinking.jsonl", {"thinking", "text", "tool_use"}),
        ("gemini", "bash.jsonl", {"text", "tool_use"}),
        ("copilot", "thinking.jsonl", {"thinking", "text", "tool_use"}),
        ("openai", "responses_tools.sse", {"tool_use"}),
        ("openai", "chat_text.json", {"text"}),
        ("opencode", "bash.jsonl", {"text", "tool_use"}),
        ("anthropic", "thinking.sse", {"thinking", "text"}),
    ],
)
def test_the_output_of_a_provider_becomes_content_blocks(
    shopfloor: Cli, provider: str, file: str, wanted: set[str]
) -> None:
    events = normalised(shopfloor, provider, file)
    assert kinds(events) >= wanted
    assert {block["fidelity"] for block in blocks(events)} == {"agent_emitted"}
    assert "stream" not in kinds(events)
    assert events[-1]["payload"]["status"] == "completed"


@pytest.mark.req("TR-32")
def test_a_nul_inside_of_a_line_leaves_the_transcript_valid(shopfloor: Cli, tmp_path: Path) -> None:
    done = shopfloor("normalize", "codex", str(FIXTURES / "codex" / "nasty.jsonl"))
    assert done.returncode == 0
    assert "\0" not in done.stdout
    results = [json.loads(line)["payload"] for line in done.stdout.split("\n") if '"tool.result"' in line]
    assert "\0" in results[0]["output"]
    assert "\u2028" in results[0]["output"]
    assert len(results[1]["output"]) >= 200_000
    kept = tmp_path / "kept.jsonl"
    kept.write_text(done.stdout)
    verified = shopfloor("verify", str(kept))
    assert verified.returncode == 0, verified.stdout


@pytest.mark.req("TR-32")
def test_a_raw_nul_inside_of_a_line_is_a_part_of_its_text(shopfloor: Cli, tmp_path: Path) -> None:
    file, kept = tmp_path / "run.jsonl", tmp_path / "kept.jsonl"
    item = b'{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"a\x00b"}}'
    file.write_bytes(item + b'\n{"type":"turn.completed","usage":{}}\n')
    done = shopfloor("normalize", "codex", str(file))
    assert done.returncode == 0
    assert "\\u0000" in done.stdout
    assert [block["text"] for block in blocks([json.loads(line) for line in done.stdout.split("\n")[:-1]])] == ["a\0b"]
    assert "not understood" not in done.stderr
    kept.write_text(done.stdout)
    assert shopfloor("verify", str(kept)).returncode == 0


@pytest.mark.req("TR-33")
def test_a_call_without_a_result_is_recorded_without_one(shopfloor: Cli) -> None:
    events = normalised(shopfloor, "claude-code", "kill.jsonl", "--exit-code", "137")
    assert [event["type"] for event in events].count("tool.call") == 1
    assert "tool.result" not in [event["type"] for event in events]
    assert "tool_use" in kinds(events)
    assert events[-1]["payload"]["error"]["code"] == "agent_error"


@pytest.mark.req("TR-34")
def test_a_reply_of_thinking_text_and_a_tool_use_is_three_blocks_in_that_order(shopfloor: Cli) -> None:
    events = normalised(shopfloor, "claude-code", "thinking.jsonl")
    replies = [
        event["payload"] for event in events if event["type"] == "message.assistant" and event["payload"]["blocks"]
    ]
    first = [block for one in replies if one["message_id"] == replies[0]["message_id"] for block in one["blocks"]]
    assert [block["type"] for block in first] == ["thinking", "text", "tool_use"]


@pytest.mark.req("TR-35")
def test_normalize_does_not_change_its_input(shopfloor: Cli) -> None:
    file = FIXTURES / "gemini" / "bash.jsonl"
    before = file.read_bytes()
    assert normalised(shopfloor, "gemini", "bash.jsonl")
    assert file.read_bytes() == before


def with_sub_agents() -> list[tuple[str, str]]:
    """Every recorded stream in which an agent called another one."""
    found = GOLDEN.glob("providers/*/*.jsonl")
    return sorted((file.parent.name, file.name) for file in found if b"step.call_workflow.started" in file.read_bytes())


def files_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        file.stem: [json.loads(line) for line in file.read_text().split("\n")[:-1]] for file in folder.glob("*.jsonl")
    }


@pytest.mark.req("TR-67")
@pytest.mark.parametrize(("provider", "file"), with_sub_agents())
def test_a_stream_with_sub_agents_is_written_as_one_linked_file_per_run(
    shopfloor: Cli, tmp_path: Path, provider: str, file: str
) -> None:
    folder = tmp_path / "new" / "runs"
    done = shopfloor("normalize", provider, str(FIXTURES / provider / file), "--out", str(folder))
    assert done.returncode == 0, done.stderr
    runs = files_of(folder)
    assert len(runs) > 1
    listed = [Path(line) for line in done.stdout.splitlines()]
    assert sorted(listed) == sorted(folder.glob("*.jsonl"))
    assert {path.stat().st_mode & 0o777 for path in listed} == {0o600}
    verified = shopfloor("verify", *map(str, listed))
    assert verified.returncode == 0, verified.stdout
    assert verified.stdout.count(" events, complete") == len(runs)
    called = {
        (run_id, event["child_run_id"])
        for run_id, events in runs.items()
        for event in events
        if event["type"] == "step.call_workflow.started"
    }
    parents = {(event.get("parent_run_id"), run_id) for run_id, events in runs.items() for event in events}
    assert {pair for pair in parents if pair[0] is not None} == called
    assert [run_id for parent, run_id in parents if parent is None] == [listed[0].stem]
    assert all({event["run_id"] for event in events} == {run_id} for run_id, events in runs.items())
    assert {events[0]["payload"]["root_run_id"] for events in runs.values()} == {listed[0].stem}


@pytest.mark.req("TR-67")
@pytest.mark.parametrize(("provider", "file"), with_sub_agents())
def test_stdout_takes_one_run_and_sub_agents_are_an_error_that_names_out(
    shopfloor: Cli, tmp_path: Path, provider: str, file: str
) -> None:
    done = shopfloor("normalize", provider, str(FIXTURES / provider / file))
    assert done.returncode == 2
    assert "error[several_runs]" in done.stderr
    assert "--out DIR" in done.stderr
    assert len({json.loads(line)["run_id"] for line in done.stdout.splitlines()}) == 1
    kept = tmp_path / "kept.jsonl"
    kept.write_text(done.stdout)
    verified = shopfloor("verify", str(kept))
    assert verified.returncode == 0, verified.stdout
    assert " events, complete" in verified.stdout


@pytest.mark.req("TR-67")
def test_existing_files_are_not_overwritten(shopfloor: Cli, tmp_path: Path) -> None:
    words = ("normalize", "claude-code", str(FIXTURES / "claude-code" / "task.jsonl"), "--out", str(tmp_path / "runs"))
    assert shopfloor(*words).returncode == 0
    before = files_of(tmp_path / "runs")
    again = shopfloor(*words)
    assert again.returncode == 5
    assert "error[log_exists]" in again.stderr
    assert again.stdout == ""
    assert files_of(tmp_path / "runs") == before


def test_a_folder_that_cannot_be_created_is_an_error(shopfloor: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = str(FIXTURES / "codex" / "text.jsonl")
    done = shopfloor("normalize", "codex", file, "--out", str(tmp_path / "file"))
    assert "error[storage_failed]" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "file").read_text() == ""


def test_the_same_bytes_have_the_same_ids_and_an_unparsed_line_is_kept(shopfloor: Cli) -> None:
    one, two = (shopfloor("normalize", "codex", input="what is this?\n") for _ in range(2))
    assert one.returncode == 0
    ids = [{json.loads(line)["run_id"] for line in done.stdout.split("\n")[:-1]} for done in (one, two)]
    assert ids[0] == ids[1]
    assert '"unparsed":true' in one.stdout
    assert "1 line not understood" in one.stderr


@pytest.mark.req("SF-25")
def test_a_run_and_its_resume_are_two_runs_although_their_streams_begin_alike(shopfloor: Cli, tmp_path: Path) -> None:
    thread, turn, first, end = (FIXTURES / "codex" / "resume.jsonl").read_text().splitlines(keepends=True)
    streams = [thread + turn + first + end.replace("3600", tokens) for tokens in ("3600", "4900")]
    for stream in streams:
        done = shopfloor("normalize", "codex", "--out", str(tmp_path), input=stream)
        assert done.returncode == 0, done.stderr
    assert len(files_of(tmp_path)) == 2
    # The same stream again, without its last newline, is the same run.
    again = shopfloor("normalize", "codex", "--out", str(tmp_path), input=streams[0].rstrip("\n"))
    assert "error[log_exists]" in again.stderr


def test_a_pipe_is_normalized_while_it_is_written(env: dict[str, str]) -> None:
    lines = (FIXTURES / "codex" / "files.jsonl").read_bytes().splitlines(keepends=True)
    assert b"Editing it." in lines[RUN_ID_LINES - 1]
    pipe, words = subprocess.PIPE, [SHOPFLOOR, "normalize", "codex"]
    process = subprocess.Popen(words, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        seen = b""
        for sent, awaited in (
            (lines[:RUN_ID_LINES], b"Editing it."),
            (lines[RUN_ID_LINES:-1], b"File written and edited."),
        ):
            process.stdin.writelines(sent)
            process.stdin.flush()
            until = time.monotonic() + 20
            while awaited not in seen and time.monotonic() < until:
                seen += process.stdout.read() or b""
                time.sleep(0.02)
            assert awaited in seen
    finally:
        process.kill()
        process.communicate()


def test_a_reader_that_stops_early_is_no_error(env: dict[str, str]) -> None:
    file = FIXTURES / "codex" / "nasty.jsonl"
    line = f"{SHOPFLOOR} normalize codex {file} | head -c 10; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n")[-2] in ("141", '{"seq":1,"141')
    assert "error" not in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (("normalize", "zork"), "provider_not_found", 4),
        (("normalize", "codex", "nowhere.jsonl"), "file_not_found", 4),
        (("run", "--provider", "zork", "hello"), "provider_not_found", 4),
        (("run", "--provider", "codex"), "usage", 2),
        (("run", "--provider", "codex", "hello", "--max-budget", "0"), "usage", 2),
        (("run", "--provider", "codex", "hello", "--tools", "Read"), "unsupported_option", 2),
        (("run", "--provider", "codex", "hello", "--max-budget", "1"), "unsupported_option", 2),
        (("run", "--provider", "codex", "hello", "--max-budget", "1", "--model", "zork"), "unsupported_option", 2),
        (("run", "--provider", "codex", "hello", "--sandbox"), "unsupported_option", 2),
        (("dispatch", "codex", "--input-json", '{"prompt": "hello", "tools": [1]}'), "validation_error", 2),
        (("dispatch", "codex", "--input-json", '{"prompt": "hello", "max_turns": 0}'), "validation_error", 2),
        (("run", "--provider", "codex", "hello", "-i", "A=b"), "usage", 2),
        (("run", "hello", "--read-only"), "usage", 2),
        (("run", "--provider", "codex", "hello", "--resume", "5f3a"), "run_not_found", 4),
    ],
)
def test_an_invalid_request_is_a_clear_error(shopfloor: Cli, words: tuple[str, ...], code: str, exit_code: int) -> None:
    done = shopfloor(*words)
    assert f"error[{code}]" in done.stderr, done.stderr
    assert done.returncode == exit_code
    assert "Traceback" not in done.stderr


def test_an_agent_that_is_not_installed_says_how_to_install_it(shopfloor: Cli, env: dict[str, str]) -> None:
    done = shopfloor("run", "--provider", "gemini", "hello", env={**env, "PATH": "/usr/bin:/bin"})
    assert done.returncode == 127
    assert "error[agent_not_installed]" in done.stderr
    assert "npm install -g @google/gemini-cli" in done.stderr
    assert "failed" in shopfloor("list").stdout


def fake(folder: Path, name: str, body: str) -> None:
    """A program that is not the agent, but of its name."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)


def test_providers_are_listed_with_what_they_lack(shopfloor: Cli, env: dict[str, str], tmp_path: Path) -> None:
    fake(tmp_path, "codex", "echo 'codex-cli 0.166.0'")
    fake(tmp_path, "claude", "echo 'cannot open shared object' >&2; exit 127")
    home = {**env, "PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "OPENAI_API_KEY": "k"}
    done = shopfloor("providers", "--json", env=home)
    assert done.returncode == 0, done.stderr
    found = {one["name"]: one for one in json.loads(done.stdout)["providers"]}
    assert list(found) == ["claude-code", "claude-sdk", "codex", "gemini", "copilot", "opencode", "openai", "anthropic"]
    assert (found["codex"]["version"], found["codex"]["usable"]) == ("0.166.0", True)
    assert "cannot open shared object" in found["claude-code"]["problem"]
    assert found["gemini"]["path"] is None
    assert found["gemini"]["install"] == "npm install -g @google/gemini-cli"
    assert found["claude-code"]["capabilities"]["sub_agents"] is True
    listed = shopfloor("providers", env=home)
    assert "0.166.0" in listed.stdout
    assert "to install it: npm install -g @google/gemini-cli" in listed.stdout


def test_doctor_reports_what_is_wrong(shopfloor: Cli, tmp_path: Path, env: dict[str, str]) -> None:
    well = shopfloor("doctor")
    assert well.returncode == 0, well.stdout
    assert "runs are stored in" in well.stdout
    (tmp_path / "file").write_text("")
    ill = shopfloor("doctor", env={**env, "SHOPFLOOR_STORAGE": str(tmp_path / "file" / "storage")})
    assert ill.returncode == 1
    assert "Not a directory" in ill.stdout


def test_a_run_without_an_agent_has_no_agent_events(shopfloor: Cli) -> None:
    assert shopfloor("run", "--command", "true").returncode == 0
    done = shopfloor("events", "last")
    assert (done.returncode, done.stdout) == (0, "")
