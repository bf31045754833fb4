"""Claude Code itself, under the installed `shopfloor`, with a model that follows a script."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from tests.agents.agent_runner import PROMPT, AgentRunner, Fields, Log
from tests.agents.conftest import MakeAgentRunner
from tests.model_server.scenarios import STALLED, SUB_TASK
from tests.timeouts import wait_until

CALL_USD = 0.00636
"""What one call of the script costs by Claude Code's own prices."""


@pytest.fixture
def claude(agent_runner: MakeAgentRunner) -> Callable[[str], AgentRunner]:
    return lambda scenario: agent_runner("claude-code", scenario)


def usage(calls: int) -> Fields:
    read = {"input": 1200 * calls, "cache_read": 800 * calls, "cache_write": 100 * calls}
    return {**read, "output": 45 * calls, "reasoning": 0}


def completed(log: Log, calls: int) -> bool:
    """Return whether a run completed with the usage and the cost of this many model calls."""
    outcome = log.outcome
    assert outcome["status"] == "completed", outcome
    assert outcome["usage"] == usage(calls)
    assert outcome["cost"] == {"usd": pytest.approx(CALL_USD * calls), "source": "agent"}
    return True


# What it says and does


def test_its_messages_are_on_record_and_its_answer_is_printed(claude):
    agent = claude("text")
    ran = agent.run()
    assert ran.code == 0, ran.err
    assert completed(ran.log, calls=1)
    assert ran.log.texts == ["Hello from the script. ", "Snowman ☃, emoji 😀, <b>html</b>,\nend."]
    assert ran.log.outcome["result"] == ran.log.texts[-1]
    assert "Snowman ☃, emoji 😀" in ran.out
    assert (ran.log.first["name"], ran.log.first["worker_type"], ran.log.first["task"]) == (
        "claude-code",
        "claude-code",
        PROMPT,
    )


def test_its_session_is_on_record_before_it_does_anything(claude):
    ran = claude("text").run()
    session = ran.log.session
    ready, context = [note["ready"] for note in ran.log.notes("ready")]
    assert (ready["context_follows"], context) == (True, {"context_tokens": 2100})
    assert (session["provider"], session["access_mode"]) == ("claude-code", "api")
    assert session["session_id"] == ready["session_id"] == ran.log.session_id
    assert (ready["version"], ready["model"]) == ("2.1.325", "claude-opus-5-5")
    kinds = [event["type"] for event in ran.log.events]
    assert kinds.index("step.started") < kinds.index("message.user") < kinds.index("message.assistant")
    assert PROMPT not in " ".join(session["process"]["args"])


def test_a_tool_and_its_result_are_on_record(claude):
    agent = claude("bash")
    ran = agent.run()
    assert completed(ran.log, calls=2)
    (call,), (result,) = ran.log.calls, ran.log.results
    assert (call["name"], call["input"]["command"]) == ("Bash", "echo hello-from-tool && pwd")
    assert result["output"] == f"hello-from-tool\n{agent.cwd}"
    blocks = [block for message in ran.log.payloads("message.assistant") for block in message["blocks"]]
    assert [block["tool_id"] for block in blocks if block["type"] == "tool_use"] == [call["call_id"]]
    assert ran.log.outcome["result"] == "The command printed hello-from-tool."


def test_tools_that_run_at_once_keep_their_results_apart(claude):
    ran = claude("parallel").run()
    assert completed(ran.log, calls=2)
    kinds = [event["type"] for event in ran.log.events if event["type"].startswith("tool.")]
    assert kinds == ["tool.call", "tool.call", "tool.result", "tool.result"]
    assert ran.log.result_of("echo second")["output"] == "second"
    assert ran.log.result_of("first-end")["output"] == "first\nfirst-end"


def test_its_thinking_is_on_record(claude):
    ran = claude("thinking").run()
    assert completed(ran.log, calls=2)
    assert ran.log.thoughts == ["Let me think about this.", "It is done."]
    assert ran.log.texts == ["Now I act.", "I thought twice."]


def test_files_that_it_changes_are_on_record(claude):
    agent = claude("files")
    ran = agent.run()
    assert completed(ran.log, calls=3)
    assert (agent.cwd / "note.txt").read_text() == "line one\nline 2\n"
    (made,), (changed,) = [result["files"] for result in ran.log.results]
    assert (made["action"], changed["action"]) == ("create", "modify")
    assert (changed["lines_added"], changed["lines_removed"]) == (1, 1)
    assert "-line two\n+line 2" in changed["diff"]


def test_a_tool_that_fails_is_no_failure_of_the_run(claude):
    ran = claude("fail").run()
    assert completed(ran.log, calls=2)
    (result,) = ran.log.results
    assert result["exit_code"] == 1
    assert "to-stderr" in result["error"]
    assert ran.log.outcome["result"] == "The command failed."


# Sub-agents and sessions


def test_a_sub_agent_is_a_separate_run_with_its_own_usage(claude):
    agent = claude("agents")
    ran = agent.run()
    assert completed(ran.log, calls=2)
    assert ran.log.outcome["result"] == "The sub-agent reported."
    (child,) = ran.children
    assert child.first["parent"]["run_id"] == child.first["root_run_id"] == ran.log.run_id
    assert (child.first["name"], child.first["task"]) == ("general-purpose", SUB_TASK)
    (start,), (end,) = (ran.log.payloads(f"step.call_workflow.{what}") for what in ("started", "completed"))
    assert (start["input"], end.get("error")) == ({"prompt": SUB_TASK}, None)
    assert child.result_of("echo in-sub-agent")["output"] == "in-sub-agent"
    assert (child.outcome["status"], child.outcome["result"]) == ("completed", "The sub-agent's report.")
    assert ran.log.outcome["sub_usage"] == usage(2)
    assert ran.log.outcome["sub_cost"]["usd"] == pytest.approx(2 * CALL_USD)
    tree = agent.shopfloor("tree", ran.log.run_id)
    assert (tree.returncode, "general-purpose" in tree.stdout) == (0, True), tree.stderr


def test_a_session_is_resumed(claude):
    agent = claude("echo")
    first = agent.run()
    assert first.log.texts == [f"You said: {PROMPT}"]
    second = agent.run("--resume", first.log.run_id, prompt="And now the rest.")
    assert completed(second.log, calls=1)
    assert second.log.texts == [f"You said: {PROMPT} | And now the rest."]
    assert second.log.session["resumed"] is True
    assert second.log.session_id == first.log.session_id
    assert [message["blocks"][0]["text"] for message in second.log.payloads("message.user")] == ["And now the rest."]


def test_a_killed_session_is_resumed(claude):
    agent = claude("long")
    process = agent.start()
    os.killpg(agent.wait_for_tool(process).session["process"]["pid"], signal.SIGKILL)
    first = agent.end(process)
    agent.set_scenario("echo")
    second = agent.run("--resume", first.log.run_id, prompt="And now the rest.")
    assert completed(second.log, calls=1)
    assert second.log.text.endswith("And now the rest.")
    assert second.log.session_id == first.log.session_id


# What goes wrong


def test_a_rate_limit_that_passes_is_a_note(claude):
    ran = claude("rl_once").run()
    assert completed(ran.log, calls=1)
    (note,) = ran.log.notes("retry")
    assert (note["code"], note["status"], note["try"], note["tries"]) == ("rate_limit_error", 429, 1, 3)
    assert note["retry_after"] == pytest.approx(1, rel=0.5)
    assert ran.log.texts == ["Answer after one retry."]


def test_a_limit_with_a_reset_time_is_waited_for_and_the_session_resumes(claude):
    agent = claude("limited")
    del agent.env["ANTHROPIC_API_KEY"]
    agent.env["CLAUDE_CODE_OAUTH_TOKEN"] = "token"
    ran = agent.run()
    assert ran.code == 0, ran.err
    assert ran.log.session["access_mode"] == "subscription"
    assert ran.log.notes("limit")[0]["limit"]["status"] == "rejected"
    (wait,) = [call for call in ran.log.calls if call["name"] == "rate_limit"]
    assert wait["awaits"]["kind"] == "rate_limit"
    (over,) = [event for event in ran.log.events if event["type"] == "tool.result"]
    assert over["timestamp"] >= wait["awaits"]["until"]
    assert len(ran.log.notes("left")) == 1
    # One try: waiting for a limit does not fail the step.
    assert [step["try"] for step in ran.log.payloads("step.started")] == [1]
    assert ran.log.outcome["result"].endswith("Go on with what you were doing.")
    assert "waits for a rate limit" in ran.err


@pytest.mark.parametrize(
    ("scenario", "status", "code", "retryable"),
    [
        ("rl_forever", 429, "rate_limit_error", True),
        ("overloaded", 529, "provider_overloaded", True),
        ("unauthorised", 401, "authentication_error", False),
    ],
)
def test_a_model_that_never_answers_fails_the_run_by_its_name(claude, scenario, status, code, retryable):
    agent = claude(scenario)
    ran = agent.run()
    assert ran.code not in (0, 130)
    assert (ran.log.error["code"], ran.log.error["retryable"]) == (code, retryable)
    assert code in ran.err
    assert [(note["status"], note["try"], note["tries"]) for note in ran.log.notes("retry")] == [
        (status, 1, 3),
        (status, 2, 3),
    ]
    assert len(agent.model.requests()) == 3
    assert ran.log.calls == []


def test_an_agent_that_is_killed_in_a_tool_leaves_the_call_open(claude):
    agent = claude("long")
    process = agent.start()
    log = agent.wait_for_tool(process)
    os.killpg(log.session["process"]["pid"], signal.SIGKILL)
    ran = agent.end(process)
    assert ran.log.error["code"] == "agent_error"
    assert "SIGKILL" in ran.log.error["message"]
    assert ([call["name"] for call in ran.log.calls], ran.log.results) == (["Bash"], [])
    assert ran.log.texts == ["Sleeping."]
    assert not (agent.cwd / "ended").exists()


@pytest.mark.req("TR-56")
@pytest.mark.parametrize("end", ["killed", "cancelled"])
def test_an_unfinished_message_is_on_record_when_the_agent_ends(claude, end):
    agent = claude("stalled")
    process = agent.start()
    wait_until(lambda: agent.logs() and STALLED in dict(agent.logs()[0].partial_texts).values(), "a piece")
    (log,) = agent.logs()
    if end == "killed":
        os.killpg(log.session["process"]["pid"], signal.SIGKILL)
    else:
        assert agent.shopfloor("cancel", log.run_id).returncode == 0
    ran = agent.end(process)
    assert ran.log.outcome["status"] == {"killed": "failed", "cancelled": "cancelled"}[end]
    assert ran.log.texts == ["Well. ", STALLED]
    assert ran.log.interrupted_texts == [STALLED]
    shown = agent.shopfloor("show", ran.log.run_id).stdout
    assert (shown.count(STALLED.strip()), shown.count("was not completed")) == (1, 1)


@pytest.mark.req("TR-56", "TR-58")
def test_an_unfinished_message_is_on_record_when_the_host_is_killed(claude):
    agent = claude("stalled")
    process = agent.start()
    wait_until(lambda: agent.logs() and STALLED in dict(agent.logs()[0].partial_texts).values(), "a piece")
    process.kill()
    process.communicate()
    (log,) = agent.logs()
    assert log.texts == ["Well. "]
    shown = agent.shopfloor("show", log.run_id).stdout
    assert (shown.count(STALLED.strip()), shown.count("was not completed")) == (1, 1)
    wait_until(lambda: not agent.live_processes(), "an end of every process")


def test_a_cancel_ends_the_agent_and_its_tools(claude):
    agent = claude("long")
    process = agent.start()
    log = agent.wait_for_tool(process)
    cancelled = agent.shopfloor("cancel", log.run_id, "--reason", "wrong task")
    assert cancelled.returncode == 0, cancelled.stderr
    ran = agent.end(process)
    assert ran.code != 0
    assert ran.log.outcome["status"] == "cancelled"
    assert (ran.log.error["code"], ran.log.error["message"]) == ("cancelled", "wrong task")
    assert ran.log.texts == ["Sleeping."]
    assert not (agent.cwd / "ended").exists()


def test_a_sub_agent_cannot_be_cancelled_alone_and_ends_with_its_agent(claude):
    agent = claude("long_agents")
    process = agent.start()
    wait_until((agent.cwd / "begun").exists, "the tool of the sub-agent")
    wait_until(lambda: len(agent.logs()) == 2, "the log of the sub-agent")
    (parent,) = [log for log in agent.logs() if log.first.get("parent") is None]
    (child,) = [log for log in agent.logs() if log.run_id != parent.run_id]
    cancelled = agent.shopfloor("cancel", child.run_id)
    assert cancelled.returncode != 0
    assert f"cancel {parent.run_id} instead" in cancelled.stderr
    assert agent.shopfloor("cancel", parent.run_id).returncode == 0
    ran = agent.end(process)
    assert [log.outcome["status"] for log in (ran.log, *ran.children)] == ["cancelled", "cancelled"]
    assert not (agent.cwd / "ended").exists()


# What it may do


@pytest.mark.parametrize("scenario", ["bash", "files"])
def test_without_a_sandbox_it_works_with_the_permissions_it_gets(claude, scenario):
    agent = claude(scenario)
    del agent.env["IS_SANDBOX"]
    ran = agent.run()
    assert ran.log.outcome["status"] == "completed"
    assert [result.get("error") for result in ran.log.results] == [None] * len(ran.log.calls)
    assert not any("dangerously" in word for word in ran.log.session["process"]["args"])


def test_a_tool_that_it_may_not_use_is_not_there(claude):
    agent = claude("touch")
    ran = agent.run("--tools", "Read,Grep")
    assert completed(ran.log, calls=2)
    (result,) = ran.log.results
    assert "No such tool available" in result["error"]
    offered = {tool["name"] for tool in agent.model.requests()[0].body["tools"]}
    assert offered & {"Bash", "Write", "Edit", "Read", "Grep", "Agent"} == {"Read", "Grep"}
    assert not (agent.cwd / "touched").exists()


def test_a_read_only_agent_changes_nothing(claude):
    agent = claude("touch")
    ran = agent.run("--read-only")
    assert completed(ran.log, calls=2)
    assert ran.log.results[0]["error"]
    assert not (agent.cwd / "touched").exists()


def test_a_model_is_chosen(claude):
    agent = claude("text")
    ran = agent.run("--model", "claude-sonnet-4-5")
    assert ran.log.outcome["status"] == "completed"
    assert agent.model.requests()[0].body["model"].startswith("claude-sonnet-4-5")


def test_a_budget_ends_it(claude):
    agent = claude("loop")
    ran = agent.run("--max-budget", "0.01")
    assert ran.log.error["code"] == "budget_exceeded"
    assert "--max-budget" in ran.log.error["hint"]
    assert ran.log.outcome["cost"]["usd"] >= 0.01
    assert len(agent.model.requests()) <= 4


def test_a_limit_of_turns_ends_it(claude):
    agent = claude("loop")
    ran = agent.run("--max-turns", "2")
    assert ran.log.error["code"] == "max_turns_exceeded"
    assert ran.log.outcome["usage"] == usage(2)
    assert len(agent.model.requests()) == 2
