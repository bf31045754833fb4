"""Codex itself, under the installed `shopfloor`, with a model that follows a script."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from tests.agents.agent_runner import PROMPT, AgentRunner, Fields, FinishedRun, Log
from tests.agents.conftest import MakeAgentRunner
from tests.model_server.scenarios import SUB_TASK
from tests.timeouts import TIMEOUT_SECONDS

MODEL = ("--model", "gpt-5.5")


@pytest.fixture
def codex(agent_runner: MakeAgentRunner) -> Callable[[str], AgentRunner]:
    return lambda scenario: agent_runner("codex", scenario)


def usage(calls: int) -> Fields:
    """Return the usage of model calls. Of the 1200 input tokens of each call, 800 come from a cache."""
    read = {"input": 400 * calls, "cache_read": 800 * calls, "cache_write": 0}
    return {**read, "output": 45 * calls, "reasoning": 12 * calls}


def completed(log: Log, calls: int) -> bool:
    """Return whether a run completed with the usage of this many model calls, and their cost by the price list."""
    outcome = log.outcome
    assert outcome["status"] == "completed", outcome
    assert outcome["usage"] == usage(calls)
    assert outcome["cost"]["usd"] > 0
    assert outcome["cost"]["source"] != "agent"
    return True


def ran_well(agent: AgentRunner, calls: int) -> FinishedRun:
    ran = agent.run(*MODEL)
    assert ran.code == 0, ran.err
    assert completed(ran.log, calls)
    return ran


# What it says and does


def test_its_messages_are_on_record_and_its_answer_is_printed(codex):
    ran = ran_well(codex("text"), calls=1)
    assert ran.log.texts == ["Hello from the script. ", "Snowman ☃, emoji 😀, <b>html</b>,\nend."]
    assert ran.log.outcome["result"] == ran.log.texts[-1]
    assert "Snowman ☃, emoji 😀" in ran.out
    assert (ran.log.first["name"], ran.log.first["task"]) == ("codex", PROMPT)


def test_its_session_is_on_record_as_soon_as_it_is_known(codex):
    ran = ran_well(codex("text"), calls=1)
    (ready,) = [note["ready"] for note in ran.log.notes("ready")]
    assert ran.log.session["provider"] == "codex"
    assert ready["session_id"] == ran.log.session_id
    assert PROMPT not in " ".join(ran.log.session["process"]["args"])


def test_its_default_model_is_on_record_and_priced(codex):
    agent = codex("text")
    agent.env["SHOPFLOOR_CODEX_CONFIG"] += '\nmodel="gpt-5.5"'
    ran = agent.run()
    assert ran.code == 0, ran.err
    assert completed(ran.log, 1)
    messages = [message for message in ran.log.payloads("message.assistant") if message["blocks"] or "usage" in message]
    assert {message["model"] for message in messages} == {"gpt-5.5"}


def test_a_command_and_its_result_are_on_record(codex):
    agent = codex("bash")
    ran = ran_well(agent, calls=2)
    (call,), (result,) = ran.log.calls, ran.log.results
    assert "echo hello-from-tool && pwd" in call["input"]["command"]
    assert (result["output"], result["exit_code"]) == (f"hello-from-tool\n{agent.cwd}\n", 0)
    blocks = [block for message in ran.log.payloads("message.assistant") for block in message["blocks"]]
    assert [block["tool_id"] for block in blocks if block["type"] == "tool_use"] == [call["call_id"]]
    assert ran.log.outcome["result"] == "The command printed hello-from-tool."


def test_commands_of_one_turn_keep_their_results_apart(codex):
    ran = ran_well(codex("parallel"), calls=2)
    assert ran.log.result_of("echo second")["output"] == "second\n"
    assert ran.log.result_of("first-end")["output"] == "first\nfirst-end\n"


def test_its_thinking_is_on_record(codex):
    ran = ran_well(codex("thinking"), calls=2)
    assert ran.log.thoughts == ["Let me think about this.", "It is done."]
    assert ran.log.texts == ["Now I act.", "I thought twice."]


def test_files_that_it_changes_are_on_record(codex):
    agent = codex("files")
    ran = ran_well(agent, calls=3)
    assert (agent.cwd / "note.txt").read_text() == "line one\nline 2\n"
    files = [(one["path"], one["action"]) for result in ran.log.results for one in result["files"]]
    note = str(agent.cwd / "note.txt")
    assert files == [(note, "create"), (note, "modify")]


def test_a_command_that_fails_is_no_failure_of_the_run(codex):
    ran = ran_well(codex("fail"), calls=2)
    (result,) = ran.log.results
    assert result["exit_code"] == 1
    assert result["error"]
    assert "to-stdout" in result["output"]
    assert ran.log.outcome["result"] == "The command failed."


# Sub-agents and sessions


def test_a_sub_agent_is_a_run_of_its_own(codex):
    """Codex does not report the usage of sub-agents: the run has the usage of the session alone."""
    agent = codex("agents")
    ran = ran_well(agent, calls=3)
    assert ran.log.outcome["result"] == "The sub-agent reported."
    (child,) = ran.children
    assert child.first["parent"]["run_id"] == child.first["root_run_id"] == ran.log.run_id
    assert child.first["task"] == SUB_TASK
    assert (child.outcome["status"], child.outcome["result"]) == ("completed", "The sub-agent's report.")
    (start,), (end,) = (ran.log.payloads(f"step.call_workflow.{what}") for what in ("started", "completed"))
    assert (start["input"], end.get("error")) == ({"prompt": SUB_TASK}, None)
    tree = agent.shopfloor("tree", ran.log.run_id)
    assert tree.returncode == 0, tree.stderr
    assert child.first["name"] in tree.stdout


def test_a_session_is_resumed(codex):
    agent = codex("echo")
    first = ran_well(agent, calls=1)
    assert first.log.texts == [f"You said: {PROMPT}"]
    second = agent.run(*MODEL, "--resume", first.log.run_id, prompt="And now the rest.")
    assert second.log.outcome["status"] == "completed"
    assert second.log.texts == [f"You said: {PROMPT} | And now the rest."]
    assert second.log.session["resumed"] is True
    assert second.log.session_id == first.log.session_id
    # Codex reports the total of the session, and a part of it belongs to the first run.
    assert completed(second.log, calls=1)


def test_the_budget_of_a_resumed_session_counts_only_what_this_run_spends(codex):
    agent = codex("echo")
    first = ran_well(agent, calls=1)
    cost = first.log.outcome["cost"]["usd"]
    again = ("--resume", first.log.run_id, "--max-budget")
    assert completed(agent.run(*MODEL, *again, str(cost * 1.5)).log, calls=1)
    # The record of the first run does not have what the second run spent in the session.
    third = agent.run(*MODEL, *again, str(cost * 0.5))
    assert third.log.error["code"] == "budget_exceeded"
    assert (third.log.outcome["usage"], third.log.outcome["cost"]["usd"]) == (usage(1), pytest.approx(cost))


def test_two_runs_do_not_work_in_one_session(codex):
    agent = codex("long")
    process = agent.start(*MODEL)
    log = agent.wait_for_tool(process)
    second = agent.shopfloor("run", "--provider", "codex", "And now?", "--resume", log.run_id, "--cwd", str(agent.cwd))
    assert second.returncode != 0
    assert "has not ended" in second.stderr
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT_SECONDS)


def test_a_killed_session_is_resumed(codex):
    agent = codex("long")
    process = agent.start(*MODEL)
    os.killpg(agent.wait_for_tool(process).session["process"]["pid"], signal.SIGKILL)
    first = agent.end(process)
    agent.set_scenario("echo")
    second = agent.run(*MODEL, "--resume", first.log.run_id, prompt="And now the rest.")
    assert completed(second.log, calls=1)
    assert second.log.text.endswith("And now the rest.")
    assert second.log.session_id == first.log.session_id


# What goes wrong


def test_a_rate_limit_that_passes_is_a_note(codex):
    ran = ran_well(codex("rl_once"), calls=1)
    (note,) = ran.log.notes("retry")
    assert (note["code"], note["status"], note["try"], note["tries"]) == ("rate_limit_error", 429, 1, 2)
    assert ran.log.texts == ["Answer after one retry."]


@pytest.mark.parametrize(
    ("scenario", "status", "code", "retryable"),
    [
        ("rl_forever", 429, "rate_limit_error", True),
        ("overloaded", 503, "provider_overloaded", True),
        ("unauthorised", 401, "authentication_error", False),
    ],
)
def test_a_model_that_never_answers_fails_the_run_by_its_name(codex, scenario, status, code, retryable):
    agent = codex(scenario)
    ran = agent.run(*MODEL)
    assert ran.code not in (0, 130)
    assert (ran.log.error["code"], ran.log.error["retryable"]) == (code, retryable)
    assert code in ran.err
    assert [(note["status"], note["try"], note["tries"]) for note in ran.log.notes("retry")] == [(status, 1, 2)]
    assert len(agent.model.requests()) == 2
    assert ran.log.calls == []


def test_an_agent_that_is_killed_in_a_command_leaves_the_call_open(codex):
    agent = codex("long")
    process = agent.start(*MODEL)
    log = agent.wait_for_tool(process)
    os.killpg(log.session["process"]["pid"], signal.SIGKILL)
    ran = agent.end(process)
    assert ran.log.error["code"] == "agent_error"
    assert "SIGKILL" in ran.log.error["message"]
    assert (len(ran.log.calls), ran.log.results) == (1, [])
    assert ran.log.texts == ["Sleeping."]
    assert not (agent.cwd / "ended").exists()


def test_a_cancel_ends_the_agent_and_its_commands(codex):
    agent = codex("long")
    process = agent.start(*MODEL)
    log = agent.wait_for_tool(process)
    cancelled = agent.shopfloor("cancel", log.run_id, "--reason", "wrong task")
    assert cancelled.returncode == 0, cancelled.stderr
    ran = agent.end(process)
    assert ran.code != 0
    assert ran.log.outcome["status"] == "cancelled"
    assert (ran.log.error["code"], ran.log.error["message"]) == ("cancelled", "wrong task")
    assert ran.log.texts == ["Sleeping."]
    assert not (agent.cwd / "ended").exists()


# What it may do


def test_a_read_only_agent_changes_nothing(codex):
    agent = codex("touch")
    ran = agent.run(*MODEL, "--read-only")
    assert completed(ran.log, calls=2)
    (result,) = ran.log.results
    assert result["exit_code"] == 1
    assert "Read-only file system" in result["output"]
    assert not (agent.cwd / "touched").exists()


def test_it_cannot_be_limited_to_some_tools(codex):
    agent = codex("text")
    done = agent.shopfloor("run", "--provider", "codex", PROMPT, "--cwd", str(agent.cwd), "--tools", "Read")
    assert done.returncode != 0
    assert "unsupported_option" in done.stderr
    assert agent.model.requests() == []


def test_a_budget_that_is_spent_fails_the_run(codex):
    """Codex reports its usage only at the end of a turn, when the budget is already spent."""
    agent = codex("bash")
    ran = agent.run(*MODEL, "--max-budget", "0.000001")
    assert ran.log.error["code"] == "budget_exceeded"
    assert ran.log.outcome["cost"]["usd"] > 0.000001
