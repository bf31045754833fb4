"""`show`, `tail`, `tree`, `verify`, `schema`: reading records with the installed command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import jsonschema
import msgspec
import pytest
from tests.cli.conftest import SHOPFLOOR
from tests.cli.test_run import events_of
from tests.timeouts import TIMEOUT_SECONDS, wait_until

from shopfloor.cli.main import COMMANDS, find_command
from shopfloor.log import (
    AssistantMessage,
    CallCompleted,
    CallStarted,
    RunCompleted,
    RunError,
    RunStarted,
    StepCompleted,
    StepStarted,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    ToolUseBlock,
    UserMessage,
    new_run_id,
)
from shopfloor.record import Durability, Recorder, Storage

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def storage(env) -> Storage:
    return Storage(Path(env["SHOPFLOOR_STORAGE"]))


def record(storage: Storage, run_id: str, *, parent: str | None = None, calls: tuple[str, ...] = (), end: bool = True):
    """A run with a step, and a call for each of its sub-runs."""
    with Recorder(storage.log_path(run_id), run_id, parent_run_id=parent) as recorder:
        recorder.append(RunStarted(name=f"worker-{run_id[:4]}", kind="worker", attempt=1, host="h", task="t"))
        recorder.append(StepStarted(name="build", kind="command", try_=1), path="build")
        recorder.append(StepCompleted(name="build", kind="command", try_=1, duration_ms=5), path="build")
        for number, child in enumerate(calls):
            name = f"call{number}"
            recorder.append(CallStarted(name=name, kind="call_workflow", try_=1), path=name, child_run_id=child)
            recorder.append(CallCompleted(name=name, kind="call_workflow", try_=1), path=name, child_run_id=child)
        if end:
            recorder.append(RunCompleted(name="worker", kind="worker", status="completed", duration_ms=9))


# show


def test_the_hint_of_a_failure_is_shown_wherever_the_failure_is(shopfloor, storage):
    run_id = new_run_id()
    error = RunError(code="storage_full", message="no room", hint="free some space")
    storage.announce(run_id)
    with Recorder(storage.log_path(run_id), run_id) as recorder:
        recorder.append(RunStarted(name="worker", kind="worker", attempt=1, host="h", task="t"))
        recorder.append(RunCompleted(name="worker", kind="worker", status="failed", error=error))
    assert shopfloor("show", run_id).stdout.splitlines()[-1].endswith("hint: free some space")
    status = shopfloor("status", run_id).stdout.splitlines()
    assert [line.split(maxsplit=1) for line in status if "hint" in line] == [["hint", "free some space"]]
    assert shopfloor("result", run_id).stderr.splitlines()[-1] == "hint: free some space"
    assert json.loads(shopfloor("status", run_id, "--json").stdout)["error"] == {
        "code": "storage_full",
        "message": "no room",
        "hint": "free some space",
    }


def test_show_renders_a_run_readably(shopfloor):
    shopfloor("run", "--command", "echo hello; echo oops >&2; exit 3")
    done = shopfloor("show", "last")
    assert done.returncode == 0
    lines = [line.split(maxsplit=2)[-1] for line in done.stdout.splitlines() if line.startswith("#")]
    assert lines[2:5] == ["$ echo hello; echo oops >&2; exit 3", "│ hello", "┃ oops"]
    assert "failed · command_failed: exit code 3" in done.stdout
    assert "\x1b" not in done.stdout


def test_show_names_a_run_by_its_first_characters_or_a_file(shopfloor, transcripts):
    shopfloor("run", "--command", "echo one")
    (path,) = transcripts()
    by_file = shopfloor("show", str(path)).stdout
    assert by_file.startswith(f"run {path.stem}\n")
    assert shopfloor("show", path.stem[:5]).stdout == shopfloor("show", path.stem).stdout == by_file


def test_show_json_gives_the_bytes_of_the_log(shopfloor, transcripts):
    shopfloor("run", "--command", "echo hello")
    assert shopfloor("show", "last", "--json", text=False).stdout == transcripts()[0].read_bytes()
    after = shopfloor("show", "last", "--json", "--after", "2", "--limit", "2").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in after] == [3, 4]


def test_show_folds_long_output_with_a_note(shopfloor):
    shopfloor("run", "--command", "seq 1 1000; head -c 5000 /dev/zero | tr '\\0' x")
    folded = shopfloor("show", "last").stdout
    assert "976 lines folded; --full shows them" in folded
    assert "3,000 characters cut; --full shows them" in folded
    full = shopfloor("show", "last", "--full").stdout
    assert "│ 500\n" in full
    assert "x" * 5000 in full


def test_show_uses_colors_on_request(shopfloor, env):
    shopfloor("run", "--command", "echo oops >&2; false")
    assert "\x1b[31m" in shopfloor("show", "last", "--color", "always").stdout
    assert "\x1b" not in shopfloor("show", "last", "--color", "never").stdout


def test_show_escapes_control_characters_in_a_transcript(shopfloor):
    shopfloor("run", "--command", "printf '\\033]0;title\\007\\033[2J\\302\\233 \\342\\200\\256 done'")
    shown = shopfloor("show", "last").stdout
    assert "␛]0;title␇␛[2J" in shown
    assert not set(shown) & {"\x1b", "\x07", "\x9b", "\u202e"}


@pytest.mark.req("TR-12", "TR-14", "TR-15", "TR-16", "TR-19")
def test_show_renders_every_kind_of_event_and_block(shopfloor, storage):
    run_id, child = new_run_id(), new_run_id()
    with Recorder(storage.log_path(run_id), run_id) as recorder:
        recorder.append(RunStarted(name="w", kind="worker", attempt=1, host="h", task="do it"))
        recorder.append(StepStarted(name="think", kind="my-kind", try_=2), path="loop.3.think", iteration=3)
        ask = TextBlock(fidelity="router", text="please")
        recorder.append(UserMessage(system_prompt="be brief", blocks=[ask]), path="loop.3.think")
        blocks = [
            ThinkingBlock(fidelity="agent_emitted", thinking="hm"),
            TextBlock(fidelity="agent_emitted", text="I will."),
            ToolUseBlock(fidelity="agent_emitted", tool_name="Bash", tool_id="1", tool_input={"command": "ls"}),
        ]
        recorder.append(AssistantMessage(blocks=blocks), path="loop.3.think")
        call = ToolCall(name="Bash", call_id="1", input={"command": "ls"}, output=None, fidelity="agent_emitted")
        recorder.append(call, path="loop.3.think")
        result = ToolResult(
            name="Bash", call_id="1", input=None, output="a\nb", fidelity="agent_emitted", duration_ms=7
        )
        recorder.append(result, path="loop.3.think")
        failed = ToolResult(name="Read", call_id="2", input=None, output=None, error="gone", fidelity="router")
        recorder.append(failed, path="loop.3.think")
        recorder.append(CallStarted(name="sub", kind="call_workflow", try_=1), path="sub", child_run_id=child)
    shown = shopfloor("show", run_id).stdout
    for text in (
        "▸ loop / 3 / think (try 2)",
        "system  be brief",
        "> please",
        "thinking  hm",
        "I will.",
        '→ Bash {"command": "ls"}',
        "← Bash (7 ms)  a",
        "✗ Read  gone",
        f"▸ sub → run {child}",
        "no outcome was recorded, and the process of the run has ended",
    ):
        assert text in shown


@pytest.mark.req("TR-17")
def test_show_prints_unknown_events_and_blocks_with_a_warning(shopfloor, tmp_path):
    lines = (GOLDEN / "command.jsonl").read_text().splitlines()
    lines[2] = lines[2].replace('"message.user"', '"message.video"')
    lines[3] = lines[3].replace('"type":"text","fidelity":"router","text":"oops', '"type":"hologram","text":"oops')
    file = tmp_path / "future.jsonl"
    file.write_text("\n".join(lines) + "\n")
    done = shopfloor("show", str(file))
    assert "message.video" in done.stdout
    assert "unknown event type 'message.video'" in done.stdout + done.stderr
    assert "unknown block type 'hologram'" in done.stdout
    assert "oops" in done.stdout


def test_show_into_head_ends_quietly(env):
    from tests.cli.conftest import SHOPFLOOR

    subprocess.run([SHOPFLOOR, "run", "-q", "--command", "seq 1 100000"], env=env, stdout=subprocess.DEVNULL)
    line = f"{SHOPFLOOR} show last --full | head -1"
    done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("run ")
    assert done.stderr == ""


# tail


def test_tail_follows_a_run_of_another_process_to_its_outcome(start, transcripts):
    writer = start("run", "--command", "for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done")
    assert writer.stdout.readline() == b"line 1\n"
    out, err = start("tail", "last", "--json").communicate(timeout=TIMEOUT_SECONDS)
    writer.communicate(timeout=TIMEOUT_SECONDS)
    assert out == transcripts()[0].read_bytes()
    assert err == b""


def test_tail_shows_text_while_it_is_written(start):
    writer = start("run", "--command", "echo first; sleep 60")
    assert writer.stdout.readline() == b"first\n"
    reader = start("tail", "last")
    for line in reader.stdout:
        if "│ first".encode() in line:
            break
    assert reader.poll() is None
    writer.send_signal(signal.SIGINT)
    assert b"cancelled by SIGINT" in reader.communicate(timeout=TIMEOUT_SECONDS)[0]
    assert reader.returncode == 0


def test_tail_ends_with_a_note_when_the_writer_was_killed(start):
    writer = start("run", "--command", "echo first; sleep 60")
    assert writer.stdout.readline() == b"first\n"
    reader = start("tail", "last")
    writer.kill()
    out, err = reader.communicate(timeout=TIMEOUT_SECONDS)
    assert b"first" in out
    assert b"the process of the run has ended" in err
    assert reader.returncode == 1


@pytest.mark.req("WT-64")
@pytest.mark.parametrize("words", [[], ["--full"], ["--json"]], ids=["folded", "full", "json"])
def test_show_takes_no_more_memory_for_a_large_file_than_for_a_small_one(env, tmp_path, words):
    def peak(megabytes: int) -> int:
        """The peak memory of `show` in MB, for a log of this size with the output of one command."""
        file = tmp_path / f"{megabytes}.jsonl"
        text = TextBlock(fidelity="router", text="a line of output\n" * 4_000 + "x" * 64_000, stream="stdout")
        with Recorder(file, new_run_id(), durability=Durability.OS) as recorder:
            recorder.append(RunStarted(name="x", kind="command", attempt=1, host="h"))
            while file.stat().st_size < megabytes * 1_000_000:
                recorder.append(AssistantMessage(blocks=[text]), path="s")
        process = subprocess.Popen([SHOPFLOOR, "show", str(file), *words], env=env, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return usage.ru_maxrss // 1024

    assert peak(40) <= peak(1) + 8


# tree


@pytest.mark.req("TR-13", "TR-36", "TR-37", "TR-38", "TR-39")
def test_tree_shows_sub_runs_of_any_depth_from_the_files(shopfloor, storage):
    ids = [new_run_id() for _ in range(4)]
    missing = new_run_id()
    record(storage, ids[0], calls=(ids[1], missing))
    record(storage, ids[1], parent=ids[0], calls=(ids[2],))
    record(storage, ids[2], parent=ids[1], calls=(ids[3],))
    record(storage, ids[3], parent=ids[2], end=False)
    done = shopfloor("tree", "last")
    assert done.stdout.splitlines() == [
        f"run {ids[0][:8]} worker-{ids[0][:4]} ✓ completed · 9 ms",
        "├─ ✓ build [command] · 5 ms",
        f"├─ ✓ call0 → run {ids[1][:8]} worker-{ids[1][:4]} ✓ completed · 9 ms",
        "│  ├─ ✓ build [command] · 5 ms",
        f"│  └─ ✓ call0 → run {ids[2][:8]} worker-{ids[2][:4]} ✓ completed · 9 ms",
        "│     ├─ ✓ build [command] · 5 ms",
        f"│     └─ ✓ call0 → run {ids[3][:8]} worker-{ids[3][:4]} ! interrupted",
        "│        └─ ✓ build [command] · 5 ms",
        f"└─ ✓ call1 → run {missing}: no transcript found",
    ]


def test_tree_handles_deep_trees_and_cyclic_links(shopfloor, storage):
    ids = [new_run_id() for _ in range(1200)]
    for number, run_id in enumerate(ids):
        child = ids[(number + 1) % len(ids)]
        storage.transcripts.mkdir(parents=True, exist_ok=True)
        start = json.loads((GOLDEN / "parent.jsonl").read_text().splitlines()[0])
        call = json.loads((GOLDEN / "parent.jsonl").read_text().splitlines()[3])
        lines = [{**start, "run_id": run_id}, {**call, "seq": 2, "run_id": run_id, "child_run_id": child}]
        storage.log_path(run_id).write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = shopfloor("tree", ids[0])
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1201
    assert f"run {ids[0]}: shown above" in done.stdout


def test_tree_shows_a_run_that_is_being_written(start, shopfloor):
    writer = start("run", "--command", "echo first; sleep 60")
    assert writer.stdout.readline() == b"first\n"
    assert shopfloor("tree", "last").stdout.splitlines()[1] == "└─ … command"
    assert "… running" in shopfloor("tree", "last").stdout


def test_tree_of_the_worked_example_nests_steps_by_their_paths(shopfloor, tmp_path):
    example = GOLDEN / "parent.jsonl"
    run_id = events_of(example)[0]["run_id"]
    shutil.copy(example, tmp_path / f"{run_id}.jsonl")
    lines = shopfloor("tree", str(tmp_path / f"{run_id}.jsonl")).stdout.splitlines()
    assert [line.split(" [")[0].split(" → ")[0] for line in lines[1:]] == [
        "├─ ✓ checks",
        "│  ├─ ✓ lint",
        "│  └─ ✓ titles · 297 ms",
        "├─ ✗ each / 0 / count",
        "└─ ✓ each / 0 / count (try 2)",
    ]


def test_tree_omits_most_of_a_long_loop_with_a_note(shopfloor, storage):
    run_id = new_run_id()
    with Recorder(storage.log_path(run_id), run_id) as recorder:
        recorder.append(RunStarted(name="w", kind="worker", attempt=1, host="h"))
        for number in range(100):
            path = f"each.{number}.work"
            recorder.append(StepStarted(name="work", kind="command", try_=1), path=path, iteration=number)
    assert "… 60 more; --full shows them" in shopfloor("tree", run_id).stdout
    assert len(shopfloor("tree", run_id, "--full").stdout.splitlines()) == 101


# verify and schema


def test_verify_names_the_line_and_the_rule_that_is_broken(shopfloor, tmp_path):
    lines = (GOLDEN / "command.jsonl").read_bytes().splitlines(keepends=True)
    file = tmp_path / "broken.jsonl"
    file.write_bytes(b"".join([*lines[:2], *lines[3:]]) + b'{"seq":')
    done = shopfloor("verify", str(file), str(GOLDEN / "command.jsonl"))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"{file}:3: seq: seq is 4, expected 3",
        f"{file}:6: line-end: the last line is torn after 7 bytes",
        f"{GOLDEN / 'command.jsonl'}: 6 events, complete",
    ]


@pytest.mark.req("WT-63")
def test_verify_reports_damage_that_readers_skip(shopfloor, tmp_path):
    lines = (GOLDEN / "command.jsonl").read_bytes().splitlines(keepends=True)
    at = json.loads(lines[1])["timestamp"].encode()
    call = json.loads((GOLDEN / "claude-code.jsonl").read_bytes().splitlines()[0])
    result = ToolResult(name="Bash", call_id="lost", input=None, output="x", fidelity="router")
    orphan = {**call, "seq": 2, "type": "tool.result", "path": "s", "payload": msgspec.to_builtins(result)}
    files = {
        "step-end": b"".join(line for line in lines if b'"step.completed"' not in line)
        .replace(b'"seq":6', b'"seq":5')
        .replace(b'"status":"failed"', b'"status":"completed"'),
        "tool-pair": (json.dumps(call) + "\n" + json.dumps(orphan) + "\n").encode(),
        "clock": b"".join([lines[0], lines[1].replace(at, b"2001-01-01T00:00:00.000Z")]),
        "keys": lines[0].replace(b'"seq":1', b'"seq":1,"seq":1'),
        "empty": b"",
    }
    for rule, data in files.items():
        file = tmp_path / f"{rule}.jsonl"
        file.write_bytes(data)
        done = shopfloor("verify", str(file))
        assert (done.returncode, [line.split(": ")[1] for line in done.stdout.splitlines()]) == (1, [rule]), done.stdout


def test_verify_checks_the_mode_of_a_stored_file(shopfloor, transcripts):
    shopfloor("run", "--command", "true")
    (path,) = transcripts()
    path.chmod(0o644)
    done = shopfloor("verify", "--all")
    assert done.stdout == f"{path}:0: mode: the file has mode 0644\n"
    assert done.returncode == 1


def test_verify_of_a_run_that_is_being_written_reports_no_problem(start, shopfloor):
    writer = start("run", "--command", "echo first; sleep 60")
    assert writer.stdout.readline() == b"first\n"
    done = shopfloor("verify", "last")
    assert (done.returncode, "still being written" in done.stdout) == (0, True)


def test_verify_lists_its_rules(shopfloor):
    assert "seq counts from 1 without gaps" in shopfloor("verify", "--rules").stdout


@pytest.mark.req("TR-9")
def test_schema_describes_every_line_that_is_written(shopfloor, transcripts):
    schema = json.loads(shopfloor("schema").stdout)
    shopfloor("run", "--command", "echo hello; exit 4")
    validator = jsonschema.Draft202012Validator(schema)
    for event in events_of(transcripts()[0]):
        validator.validate(event)


# jq


@pytest.mark.req("TR-46", "TR-47", "TR-48", "TR-49", "TR-50")
def test_the_jq_lines_of_the_documentation_work(shopfloor, transcripts):
    shopfloor("run", "--command", "echo hello; echo oops >&2")
    (run,) = transcripts()

    def jq(program: str, file: Path, *options: str) -> str:
        return subprocess.run(["jq", *options, program, str(file)], check=True, capture_output=True, text=True).stdout

    assert jq(".", run).count('"seq"') == 6
    assert (
        jq('select(.type == "tool.call" or .type == "tool.result")', GOLDEN / "claude-code.jsonl").count("call_id") == 2
    )
    text = 'select(.type == "message.assistant") | .payload.blocks[] | select(.type == "text") | .text'
    assert jq(text, run, "-r") == "hello\n\noops\n\n"
    router = 'select(.type == "tool.call" and .payload.fidelity == "router")'
    assert jq(router, GOLDEN / "claude-code.jsonl") == ""
    steps = r'select(.type == "step.started") | "\(.seq)\t\(.path)\t\(.payload.kind)"'
    assert jq(steps, run, "-r") == "2\tcommand\tcommand\n"
    children = 'select(.type == "step.call_workflow.started") | .child_run_id'
    assert jq(children, GOLDEN / "parent.jsonl", "-r") == "0b7e55d2-91c4-4a34-8f0e-7d2a6c1e9b33\n"


# the command itself


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_on_one_screen(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    parser = find_command(name).parser(name, COMMANDS[name])
    lines = parser.format_help().splitlines()
    assert lines[0] == f"{COMMANDS[name]}."
    assert lines[2].startswith(f"Usage: shopfloor {name} ")
    assert "Examples:" in lines
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


def test_help_all_has_the_options_that_help_leaves_out(shopfloor):
    short, full = shopfloor("run", "--help").stdout, shopfloor("run", "--help-all").stdout
    assert "--mask-env" not in short
    assert "--mask-env" in full
    assert "shopfloor run --command 'sort | uniq -c' < words.txt" in full
    assert {line for line in short.splitlines() if line} <= set(full.splitlines())


def test_every_command_has_help(shopfloor):
    overview = shopfloor("--help")
    assert overview.returncode == 0
    for name in ("run", "show", "tail", "tree", "verify", "schema"):
        assert f"  {name} " in overview.stdout
        assert "Examples:" in shopfloor(name, "--help").stdout
    assert shopfloor().stdout == overview.stdout
    assert shopfloor("--version").stdout == "shopfloor 0.1.0\n"


def test_the_module_is_the_command(env):
    import sys

    done = subprocess.run([sys.executable, "-m", "shopfloor", "--version"], env=env, capture_output=True, text=True)
    assert done.stdout == "shopfloor 0.1.0\n"


def test_runs_are_kept_in_the_users_data_folder_by_default(shopfloor, env, tmp_path):
    del env["SHOPFLOOR_STORAGE"]
    env["XDG_DATA_HOME"] = str(tmp_path / "data")
    shopfloor("run", "--command", "true")
    assert len(list((tmp_path / "data" / "shopfloor" / "storage" / "transcripts").glob("*.jsonl"))) == 1
    wait_until(lambda: os.listdir(tmp_path / "data" / "shopfloor" / "storage" / "hosts") == [], "the host to be gone")
