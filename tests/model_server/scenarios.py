"""Scenarios for real agents: short scripts of the model, one for each kind of event.

An agent whose base URL is `<server>/s/<agent>/<scenario>/<key>` gets that scenario with the names of its own tools. Each
key has separate state, so one server can serve many runs at once. A resumed session keeps its key.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
from tests.model_server.agent_tools import AGENT_TOOLS, AgentTools
from tests.model_server.script import Failure, Script, Text, Thinking, Turn

SUB_TASK = "Say where you are."
"""The task of a sub-agent."""
LOOPS = 40
"""The number of turns of `loop` before it ends."""
_SUB_AGENT_TEXT = "I am the sub-agent."
STALLED = "This is the part of the message that comes. "
"""All of the block that `stalled` sends before it hangs."""
LIMITED_SECONDS = 6
"""How long the scenario `limited` rejects requests."""


def text(agent_tools: AgentTools) -> list[Turn]:
    return [Turn(say=[Text(text="Hello from the script. "), Text(text="Snowman ☃, emoji 😀, <b>html</b>,\nend.")])]


def bash(agent_tools: AgentTools) -> list[Turn]:
    command = agent_tools.shell("echo hello-from-tool && pwd")
    return [Turn(say=[Text(text="I will run a command."), command]), _text_turn("The command printed hello-from-tool.")]


def record(agent_tools: AgentTools) -> list[Turn]:
    """Run the script `record` of the agent's folder."""
    return [Turn(say=[agent_tools.shell("./record")]), _text_turn("The script ran.")]


def parallel(agent_tools: AgentTools) -> list[Turn]:
    slow, quick = agent_tools.shell("echo first; sleep 0.5; echo first-end"), agent_tools.shell("echo second")
    return [Turn(say=[Text(text="Two at once."), slow, quick]), _text_turn("Both ran.")]


def thinking(agent_tools: AgentTools) -> list[Turn]:
    return [
        Turn(
            say=[
                Thinking(thinking="Let me think about this."),
                Text(text="Now I act."),
                agent_tools.shell("echo thought"),
            ]
        ),
        Turn(say=[Thinking(thinking="It is done."), Text(text="I thought twice.")]),
    ]


def fail(agent_tools: AgentTools) -> list[Turn]:
    return [
        Turn(say=[agent_tools.shell("echo to-stdout; echo to-stderr >&2; exit 1")]),
        _text_turn("The command failed."),
    ]


def long(agent_tools: AgentTools) -> list[Turn]:
    """Run a long command. The file `begun` shows that it runs."""
    return [
        Turn(say=[Text(text="Sleeping."), agent_tools.shell("touch begun; sleep 30; touch ended")]),
        _text_turn("I slept."),
    ]


def touch(agent_tools: AgentTools) -> list[Turn]:
    """Touch a file after a moment: Codex does not report a command that its sandbox stops at once."""
    return [
        Turn(say=[agent_tools.shell("sleep 0.3; touch touched && echo done-it")]),
        _text_turn("I tried to touch a file."),
    ]


def files(agent_tools: AgentTools) -> list[Turn]:
    return [
        Turn(say=[Text(text="Writing."), agent_tools.write("note.txt", "line one\nline two\n")]),
        Turn(say=[Text(text="Editing."), agent_tools.edit("note.txt", "line two", "line 2")]),
        _text_turn("Written and edited."),
    ]


def agents(agent_tools: AgentTools) -> list[Turn]:
    return _delegate(agent_tools, "echo in-sub-agent")


def long_agents(agent_tools: AgentTools) -> list[Turn]:
    """Delegate a long command to a sub-agent."""
    return _delegate(agent_tools, "touch begun; sleep 30; touch ended")


def _delegate(agent_tools: AgentTools, command: str) -> list[Turn]:
    """Match the thread of the sub-agent by its task, and later by its own text."""
    first, *rest = agent_tools.delegate(SUB_TASK)
    return [
        Turn(say=[Text(text=_SUB_AGENT_TEXT), agent_tools.shell(command)], match=SUB_TASK, replies_before=0),
        Turn(say=[agent_tools.report("The sub-agent's report.")], match=_SUB_AGENT_TEXT),
        Turn(say=[Text(text="Delegating."), first]),
        *(Turn(say=[call], fill=True) for call in rest),
        _text_turn("The sub-agent reported."),
    ]


def loop(agent_tools: AgentTools) -> list[Turn]:
    again = Turn(say=[Text(text="Again."), agent_tools.shell("echo turn {n}")], times=LOOPS, fill=True)
    return [again, _text_turn("Nobody stopped me.")]


def echo(agent_tools: AgentTools) -> list[Turn]:
    return [Turn(say=[Text(text="You said: {asked}")], times=0, fill=True)]


def rl_once(agent_tools: AgentTools) -> list[Turn]:
    return [_failing_turn(429, "rate_limit_error", "Slow down.", times=1), _text_turn("Answer after one retry.")]


def rl_forever(agent_tools: AgentTools) -> list[Turn]:
    return [_failing_turn(429, "rate_limit_error", "Slow down.")]


def stalled(agent_tools: AgentTools) -> list[Turn]:
    """Stop a message in the middle of its second block, after `STALLED`."""
    stalls = Text(text=f"{STALLED}And this is never said.")
    return [Turn(say=[Text(text="Well. "), stalls], chunk=len(STALLED), hang_after=2), _text_turn("Here I am again.")]


def limited(agent_tools: AgentTools) -> list[Turn]:
    """Simulate a subscription whose window is used up and opens again in a few seconds."""
    reset = str(int(time.time()) + LIMITED_SECONDS)
    window = "anthropic-ratelimit-unified"
    headers = {
        f"{window}-status": "rejected",
        f"{window}-reset": reset,
        f"{window}-representative-claim": "five_hour",
        f"{window}-5h-status": "rejected",
        f"{window}-5h-reset": reset,
        f"{window}-5h-utilization": "1.0",
    }
    failure = Failure(status=429, type="rate_limit_error", message="Used up.", headers=headers)
    return [Turn(fail=failure, tools=True), *echo(agent_tools)]


def overloaded(agent_tools: AgentTools) -> list[Turn]:
    return [_failing_turn(agent_tools.overloaded, "overloaded_error", "Overloaded.")]


def unauthorised(agent_tools: AgentTools) -> list[Turn]:
    return [_failing_turn(401, "authentication_error", "This key is not valid.")]


_ALL: tuple[Callable[[AgentTools], list[Turn]], ...] = (
    *(text, bash, record, parallel, thinking, fail, long, touch, files, agents, long_agents, loop, echo),
    *(stalled, rl_once, rl_forever, limited, overloaded, unauthorised),
)
SCENARIOS = {scenario.__name__: scenario for scenario in _ALL}


def create_script(agent: str, scenario: str) -> Script | None:
    """Return the script of a scenario; None if the agent or the scenario is unknown."""
    if agent not in AGENT_TOOLS or scenario not in SCENARIOS:
        return None
    agent_tools = AGENT_TOOLS[agent]
    turns = [
        # Requests beside the task, for example for a title, offer no tools.
        Turn(say=[Text(text="A title")], tools=False, times=0),
        *SCENARIOS[scenario](agent_tools),
    ]
    return Script(turns=[msgspec.structs.replace(turn, usage=agent_tools.tokens) for turn in turns])


def _text_turn(reply: str) -> Turn:
    return Turn(say=[Text(text=reply)])


def _failing_turn(status: int, kind: str, message: str, times: int = 0) -> Turn:
    headers = {"retry-after": "1"} if status == 429 else {}
    return Turn(fail=Failure(status=status, type=kind, message=message, headers=headers), times=times)
