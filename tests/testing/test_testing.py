"""`shopfloor.testing`: running workers in tests, with a script instead of models."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from tests.architecture.test_docs import files_of

import shopfloor.testing
from shopfloor.errors import InvalidInput, WorkerNotFound
from shopfloor.log import AssistantMessage, ThinkingBlock
from shopfloor.testing import RunResult

ROOT = Path(__file__).parents[2]
ASKS = """\
    tools: {search: {parameters: {query: {type: string}}}, order: {parameters: {}}}
    steps:
      Begin: {block: start-thread, model: anthropic/claude-sonnet-4-5, tools: [search, order, ask]}
      Say: {block: add-message, text: "Find tea"}
      Answer: {block: next-message, output: TEXT}
    output: TEXT
    """
TWO_CALLS = {
    "turns": [
        {"tool_calls": [{"name": "search", "input": {"query": "tea"}}, {"name": "order", "input": {"cups": 2}}]},
        {"text": "{{tool_results}}"},
    ]
}


@pytest.fixture
def workers(tmp_path: Path) -> Path:
    folder = tmp_path / "workers"
    for slug, text in {
        "asks": ASKS,
        "calls": "steps: {Call: {block: run-worker, worker: asks, output: OUT}}\noutput: OUT\n",
        "runs": "steps: {Run: {block: command, command: echo hi, output: OUT}}\noutput: OUT\n",
    }.items():
        (folder / slug).mkdir(parents=True)
        (folder / slug / "worker.yaml").write_text(textwrap.dedent(text))
    return folder


def engine(workers: Path, *turns: Mapping[str, object]) -> shopfloor.testing.Engine:
    return shopfloor.testing.engine(workers=[workers], script={"turns": list(turns)})


def text_of(run: RunResult) -> str:
    assert run.status == "completed", run.error
    return run.output


@pytest.mark.req("SDK-47")
def test_the_example_of_the_docs_passes(tmp_path: Path) -> None:
    for name, text in files_of(ROOT / "docs" / "testing.md").items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_find_sources.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    shopfloor_ = Path(sys.executable).parent / "shopfloor"
    checked = subprocess.run([shopfloor_, "workers", "check", "scripted"], cwd=tmp_path, capture_output=True, text=True)
    assert checked.stdout == "1 worker is fine\n"


@pytest.mark.req("SDK-47")
def test_a_worker_runs_with_its_tools_and_several_calls_in_one_message(workers: Path) -> None:
    tools = {"search": lambda args: f"found {args['query']}", "order": lambda args: {"cups": args["cups"]}}
    with shopfloor.testing.engine(workers=[workers], script=TWO_CALLS) as harness:
        run = harness.run("asks", tools=tools)
    assert "found tea" in text_of(run)
    assert [(call.name, call.input) for call in run.calls] == [("search", {"query": "tea"}), ("order", {"cups": 2})]
    assert len({event.payload.message_id for event in run.events if isinstance(event.payload, AssistantMessage)}) == 2
    assert [entry.role for entry in run.transcript] == ["user", "assistant", "user", "assistant"]
    assert run.waiting == []


@pytest.mark.req("SDK-47")
def test_a_run_that_waits_is_answered_and_followed(workers: Path) -> None:
    async def main() -> None:
        async with shopfloor.testing.engine(workers=[workers], script=TWO_CALLS) as harness:
            run = await harness.run("asks", tools={"search": lambda args: "found"})
            assert (run.status, [call.tool_name for call in run.waiting]) == ("waiting", ["order"])
            await harness.answer(run.run_id, run.waiting[0].tool_call_id, "ordered")
            assert "ordered" in text_of(await harness.wait(run.run_id))

    anyio.run(main)


@pytest.mark.req("SDK-47")
def test_all_unanswered_calls_are_named_and_a_question_is_a_call(workers: Path) -> None:
    with shopfloor.testing.engine(workers=[workers], script=TWO_CALLS) as harness:
        assert [call.tool_name for call in harness.run("asks").waiting] == ["search", "order"]
    question = {"tool_calls": [{"name": "ask", "input": {"question": "Milk?"}}]}
    with engine(workers, question, {"text": "{{tool_results}}"}) as harness:
        run = harness.run("asks", tools={"ask": lambda args: f"yes to {args['question']}"})
    assert text_of(run) == "yes to Milk?"


@pytest.mark.req("SDK-47")
def test_the_client_tools_of_a_sub_run_are_executed_too(workers: Path) -> None:
    tools = {"search": lambda args: "found", "order": lambda args: "ordered"}
    with shopfloor.testing.engine(workers=[workers], script=TWO_CALLS) as harness:
        run = harness.run("calls", tools=tools)
        waiting = harness.run("calls", tools={"search": tools["search"]})
    assert "found" in text_of(run)
    (child,) = run.children
    assert (child.status, [call.name for call in child.calls]) == ("completed", ["search", "order"])
    assert child.events[0].parent_run_id == run.run_id
    assert (waiting.status, [call.tool_name for call in waiting.waiting]) == ("waiting", ["order"])


@pytest.mark.req("SDK-48")
def test_deltas_thinking_and_usage_follow_the_script(workers: Path) -> None:
    turn = {"thinking": ["Hm", "m."], "text": ["Notes on", " te", "a"], "usage": {"input": 7, "output": 3}}
    with engine(workers, turn) as harness:
        run = harness.run("asks")
    assert text_of(run) == "Notes on tea"
    (message,) = [event.payload for event in run.events if isinstance(event.payload, AssistantMessage)]
    assert message.usage is not None
    assert (message.usage.input, message.usage.output) == (7, 3)
    assert isinstance(message.blocks[0], ThinkingBlock)
    assert message.blocks[0].thinking == "Hmm."
    pieces = [(delta.kind, delta.text) for delta in run.deltas]
    assert pieces == [("thinking", "Hm"), ("thinking", "m."), ("text", "Notes on"), ("text", " te"), ("text", "a")]


@pytest.mark.req("SDK-48")
@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        ("provider_error", True),
        ("rate_limit_error", True),
        ("provider_overloaded", True),
        ("provider_timeout", True),
        ("provider_unreachable", True),
        ("authentication_error", False),
        ("invalid_request_error", False),
    ],
)
def test_every_error_of_a_provider_can_be_scripted(workers: Path, tmp_path: Path, code: str, retryable: bool) -> None:
    folder = workers / "fails"
    folder.mkdir()
    (folder / "worker.yaml").write_text(
        "steps:\n  Begin: {block: start-thread, model: a/b}\n"
        "  Answer: {block: next-message, retry: {limit: 1, delay: 0}, output: TEXT}\noutput: TEXT\n"
    )
    error = {"code": code, "message": "as it is written"}
    with engine(workers, {"error": error}) as harness:
        run = harness.run("fails")
    assert run.error is not None
    assert (run.status, run.error.code, run.error.message) == ("failed", code, "as it is written")
    with engine(workers, {"text": "fine", "error": {**error, "times": 1}}) as harness:
        again = harness.run("fails")
    assert (again.status == "completed") is retryable


@pytest.mark.req("SDK-48")
def test_a_run_waits_for_the_end_of_a_rate_limit(workers: Path) -> None:
    limited = {"text": "fine", "error": {"code": "rate_limit_error", "retry_after": 0.05, "times": 1}}
    with engine(workers, limited) as harness:
        run = harness.run("asks")
    assert text_of(run) == "fine"
    waits = [call for call in run.calls if call.awaits is not None]
    assert [call.awaits.kind for call in waits if call.awaits] == ["rate_limit"]


@pytest.mark.req("SDK-48")
def test_a_turn_may_depend_on_the_last_message(workers: Path) -> None:
    with engine(workers, {"when": "coffee", "text": "Coffee."}, {"when": "(?i)TEA", "text": "Tea."}) as harness:
        assert text_of(harness.run("asks")) == "Tea."
    with engine(workers, {"when": "coffee", "text": "Coffee."}) as harness:
        run = harness.run("asks")
    assert run.error is not None
    assert "has no turn that matches 'Find tea'" in run.error.message


def test_delays_of_a_script_are_honored(workers: Path) -> None:
    with engine(workers, {"wait_ms": 5_000, "text": "late"}) as harness, pytest.raises(TimeoutError, match=r"0\.2 s"):
        harness.run("asks", timeout_seconds=0.2)


def test_a_refused_run_raises_and_commands_run_for_real(workers: Path) -> None:
    with engine(workers, {"text": "x"}) as harness:
        with pytest.raises(WorkerNotFound):
            harness.run("nobody")
        with pytest.raises(InvalidInput):
            harness.run("runs", {"X": 1})
        assert text_of(harness.run("runs")) == "hi"


def test_logs_are_kept_in_a_folder_of_choice(workers: Path, tmp_path: Path) -> None:
    with shopfloor.testing.engine(
        workers=[workers], script={"turns": [{"text": "x"}]}, logs=tmp_path / "kept"
    ) as harness:
        run = harness.run("asks")
        kept_logs = harness.logs
    assert (kept_logs / f"{run.run_id}.jsonl").is_file()
    with engine(workers, {"text": "x"}) as harness:
        logs = harness.logs
    assert not logs.exists()
