"""What the model says to an agent that is driven for real: one short play per kind of thing that happens.

An agent whose base URL is `<server>/s/<agent>/<scenario>/<key>` is told that scenario, in the names of its own tools. Each
key has its own state, so that one server serves many runs at once; a session that is resumed keeps its key.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
from tests.model_server.agent_tools import AGENT_TOOLS, AgentTools
from tests.model_server.script import Failure, Script, Text, Thinking, Turn

SUB_TASK = "Say where you are."
"""What a sub-agent is told to do."""
LOOPS = 40
"""How many turns `loop` has before it comes to an end."""
_SUB_SAID = "I am the sub-agent."
STALLED = "This is the part of the message that comes. "
"""All that `stalled` says of a block before it says no more."""
LIMITED_SECONDS = 6
"""How long the scenario `limited` is."""


def text(agent_tools: AgentTools) -> list[Turn]:
    return [Turn(say=[Text(text="Hello from the script. "), Text(text="Snowman ☃, emoji 😀, <b>html</b>,\nend.")])]


def bash(agent_tools: AgentTools) -> list[Turn]:
    command = agent_tools.shell("echo hello-from-tool && pwd")
    return [Turn(say=[Text(text="I will run a command."), command]), _then("The command printed hello-from-tool.")]


def parallel(agent_tools: AgentTools) -> list[Turn]:
    slow, quick = agent_tools.shell("echo first; sleep 0.5; echo first-end"), agent_tools.shell("echo second")
    return [Turn(say=[Text(text="Two at once."), slow, quick]), _then("Both ran.")]


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
    return [Turn(say=[agent_tools.shell("echo to-stdout; echo to-stderr >&2; exit 1")]), _then("The command failed.")]


def long(agent_tools: AgentTools) -> list[Turn]:
    """Somebody can tell by the file `begun` that the tool runs."""
    return [
        Turn(say=[Text(text="Sleeping."), agent_tools.shell("touch begun; sleep 30; touch ended")]),
        _then("I slept."),
    ]


def touch(agent_tools: AgentTools) -> list[Turn]:
    """Not at once: of a command that its sandbox stops within moments Codex says nothing."""
    return [
        Turn(say=[agent_tools.shell("sleep 0.3; touch touched && echo done-it")]),
        _then("I tried to touch a file."),
    ]


def files(agent_tools: AgentTools) -> list[Turn]:
    return [
        Turn(say=[Text(text="Writing."), agent_tools.write("note.txt", "line one\nline two\n")]),
        Turn(say=[Text(text="Editing."), agent_tools.edit("note.txt", "line two", "line 2")]),
        _then("Written and edited."),
    ]


def agents(agent_tools: AgentTools) -> list[Turn]:
    return _delegating(agent_tools, "echo in-sub-agent")


def long_agents(agent_tools: AgentTools) -> list[Turn]:
    """The same with a sub-agent that is at it for long."""
    return _delegating(agent_tools, "touch begun; sleep 30; touch ended")


def _delegating(agent_tools: AgentTools, command: str) -> list[Turn]:
    """The sub-agent's thread is told from its parent's by what it was told, and then by what it said."""
    first, *rest = agent_tools.delegate(SUB_TASK)
    return [
        Turn(say=[Text(text=_SUB_SAID), agent_tools.shell(command)], match=SUB_TASK, replies_before=0),
        Turn(say=[agent_tools.report("The sub-agent's report.")], match=_SUB_SAID),
        Turn(say=[Text(text="Delegating."), first]),
        *(Turn(say=[call], fill=True) for call in rest),
        _then("The sub-agent reported."),
    ]


def loop(agent_tools: AgentTools) -> list[Turn]:
    again = Turn(say=[Text(text="Again."), agent_tools.shell("echo turn {n}")], times=LOOPS, fill=True)
    return [again, _then("Nobody stopped me.")]


def echo(agent_tools: AgentTools) -> list[Turn]:
    return [Turn(say=[Text(text="You said: {asked}")], times=0, fill=True)]


def rl_once(agent_tools: AgentTools) -> list[Turn]:
    return [_fails(429, "rate_limit_error", "Slow down.", times=1), _then("Answer after one retry.")]


def rl_forever(agent_tools: AgentTools) -> list[Turn]:
    return [_fails(429, "rate_limit_error", "Slow down.")]


def stalled(agent_tools: AgentTools) -> list[Turn]:
    """A message that stops in the middle of its second block, after `STALLED`."""
    stalls = Text(text=f"{STALLED}And this is never said.")
    return [Turn(say=[Text(text="Well. "), stalls], chunk=len(STALLED), hang_after=2), _then("Here I am again.")]


def limited(agent_tools: AgentTools) -> list[Turn]:
    """A subscription whose window is used up, and opens again in a few seconds."""
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
    return [_fails(agent_tools.overloaded, "overloaded_error", "Overloaded.")]


def unauthorised(agent_tools: AgentTools) -> list[Turn]:
    return [_fails(401, "authentication_error", "This key is not valid.")]


_ALL: tuple[Callable[[AgentTools], list[Turn]], ...] = (
    *(text, bash, parallel, thinking, fail, long, touch, files, agents, long_agents, loop, echo),
    *(stalled, rl_once, rl_forever, limited, overloaded, unauthorised),
)
SCENARIOS = {scenario.__name__: scenario for scenario in _ALL}


def script_of(agent: str, scenario: str) -> Script | None:
    """None where there is no such agent or scenario."""
    if agent not in AGENT_TOOLS or scenario not in SCENARIOS:
        return None
    agent_tools = AGENT_TOOLS[agent]
    turns = [
        # What a program asks beside its task, such as a title for it, comes without tools.
        Turn(say=[Text(text="A title")], tools=False, times=0),
        *SCENARIOS[scenario](agent_tools),
    ]
    return Script(turns=[msgspec.structs.replace(turn, usage=agent_tools.tokens) for turn in turns])


def _then(words: str) -> Turn:
    return Turn(say=[Text(text=words)])


def _fails(status: int, kind: str, message: str, times: int = 0) -> Turn:
    headers = {"retry-after": "1"} if status == 429 else {}
    return Turn(fail=Failure(status=status, type=kind, message=message, headers=headers), times=times)
