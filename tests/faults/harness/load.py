"""The load: workers of every kind, each with its effects and its possible outcomes.

A step with an effect appends a token to a file: `KEY PATH ITERATION RULE LABEL`. KEY names the run, by its input or by its
id. RULE limits how often the step may be executed: `once` is once per try in the log, `safe` is once per attempt that
started before the step was completed.
"""

from __future__ import annotations

import random
import textwrap
from pathlib import Path
from typing import Any, Literal

import msgspec
from tests.model_server.script import Text, ToolUse, Turn

TOKENS = "HARNESS_TOKENS"
"""The environment variable with the path of the token file."""
BIG_OUTPUT_LINES = 40_000
BIG_INPUT_CHARS = 200_000

_TOOLS = """
import os, time

def _token(given, rule, label):
    path, iteration = given.get("path", label), given.get("iteration", 0)
    with open(os.environ["HARNESS_TOKENS"], "a") as file:
        file.write(f"{given['key']} {path} {iteration} {rule} {label}{given.get('mark', '')}\\n")
    time.sleep(float(given.get("seconds", 0)))
    return "did " + label

def act(given):
    return _token(given, "once", given.get("label", "act"))

def look(given):
    return _token(given, "safe", given.get("label", "look"))

async def count(given):
    return given.get("n", 0) + 1
"""
_TOOL_LIST = """\
tools:
  look: {description: Looks., handler: '@TOOLS@:look', readOnly: true}
  act: {description: Acts., handler: '@TOOLS@:act'}
  count: {description: Counts., handler: '@TOOLS@:count', readOnly: true}
  outside: {description: Is done elsewhere.}
input: {KEY: {}, SECONDS: {default: '0.05'}}
"""
_TOKEN = 'echo {{KEY}} %s >> "$HARNESS_TOKENS"; sleep {{SECONDS}}; echo done'
_YAML = {
    "steps": """
        steps:
          First: {block: command, command: '@first 0 once first@', output: ONE}
          Act: {block: tool-call, tool: act, input: {key: '{{KEY}}', seconds: '{{SECONDS}}'}}
          Look: {block: tool-call, tool: look, input: {key: '{{KEY}}', seconds: '{{SECONDS}}'}}
          Last: {block: command, command: '@last 0 once last@'}
        output: ONE
    """,
    "always": """
        steps:
          First: {block: command, command: '@first 0 once first@', retry: {always: true, delay: 0, limit: 50}}
        output: [done]
    """,
    "loops": """
        variables: {COUNT: {type: any, default: 0}}
        steps:
          Each:
            block: for-each
            each: [0, 1, 2]
            concurrency: 2
            steps:
              Do:
                block: tool-call
                tool: act
                input: {key: '{{KEY}}', path: 'each.{{ITEM}}.do', iteration: '{{ITEM}}', mark: '{{ITEM}}', seconds: '{{SECONDS}}'}
          Both:
            block: parallel
            branches:
              left: {Do: {block: command, command: '@both.left.do 0 once left@'}}
              right: {Do: {block: tool-call, tool: look, input: {key: '{{KEY}}', path: both.right.do}}}
          Until:
            block: while
            while: {value: '{{COUNT}}', less: 2}
            steps:
              Count: {block: tool-call, tool: count, input: {n: '{{COUNT}}'}, output: COUNT}
        output: '{{COUNT}}'
    """,
    "child": """
        steps:
          Do: {block: tool-call, tool: act, input: {key: '{{KEY}}', path: do, seconds: '{{SECONDS}}'}, output: DID}
        output: DID
    """,
    "middle": """
        steps:
          Call: {block: run-worker, worker: child, input: {KEY: '{{KEY}}-child', SECONDS: '{{SECONDS}}'}, output: DID}
        output: DID
    """,
    "family": """
        steps:
          Both:
            block: parallel
            branches:
              near: {Call: {block: run-worker, worker: child, input: {KEY: '{{KEY}}-near'}, output: NEAR}}
              far: {Call: {block: run-worker, worker: middle, input: {KEY: '{{KEY}}-far'}, output: FAR}}
        output: '{{NEAR}}, {{FAR}}'
    """,
    "asks": """
        steps:
          First: {block: command, command: '@first 0 once first@'}
          Ask: {block: tool-call, tool: ask, input: {question: 'Shall we?'}, output: ANSWER}
          Last: {block: command, command: '@last 0 once last@'}
        output: ANSWER
    """,
    "client-tool": """
        steps:
          Both:
            block: parallel
            branches:
              here: {Do: {block: tool-call, tool: look, input: {key: '{{KEY}}', path: both.here.do}}}
              there: {Do: {block: tool-call, tool: outside, input: {q: 1}, output: ANSWER}}
        output: '{{ANSWER}}'
    """,
    "asking-family": """
        steps:
          Call: {block: run-worker, worker: asks, input: {KEY: '{{KEY}}-child', SECONDS: '{{SECONDS}}'}, output: OUT}
        output: OUT
    """,
    "talks": """
        steps:
          Start: {block: start-thread, model: anthropic/claude-test, tools: [look, act, ask]}
          Say: {block: add-message, text: '{{KEY}}'}
          Answer: {block: next-message, output: ANSWER}
        output: ANSWER
    """,
    "agent": """
        steps:
          Hand: {block: agent, provider: claude-code, text: '{{KEY}}', output: OUT}
        output: [done]
    """,
    "big": """
        steps:
          Print: {block: command, command: 'echo {{KEY}} print 0 once print >> "$HARNESS_TOKENS"; seq 1 @LINES@'}
        output: [done]
    """,
    "leaves-behind": """
        steps:
          First:
            block: command
            command: '(setsid sleep 300 >/dev/null 2>&1 &) ; @first 0 once first@'
        output: [done]
    """,
    "fails": """
        steps:
          Both:
            block: parallel
            branches:
              bad: {Do: {block: command, command: '@both.bad.do 0 once bad@; exit 3'}}
              slow: {Do: {block: command, command: 'echo {{KEY}} both.slow.do 0 once slow >> "$HARNESS_TOKENS"; sleep 60'}}
              sub: {Do: {block: run-worker, worker: endless, input: {KEY: '{{KEY}}-sub'}}}
    """,
    "endless": """
        steps:
          Do:
            block: command
            command: 'trap "" TERM; echo {{KEY}} do 0 once do >> "$HARNESS_TOKENS"; while :; do sleep 1; done'
    """,
    "unanswered": """
        steps:
          Both:
            block: parallel
            branches:
              one: {Ask: {block: tool-call, tool: ask, input: {question: 'Is anybody there?'}}}
              two: {Call: {block: run-worker, worker: unheard, input: {KEY: '{{KEY}}-sub'}}}
    """,
    "unheard": """
        steps:
          Ask: {block: tool-call, tool: ask, input: {question: 'Is anybody there?'}}
    """,
}
_PYTHON = '''
import asyncio, os, time
from shopfloor import Run, worker

def token(key, path, iteration, rule, label, seconds):
    with open(os.environ["HARNESS_TOKENS"], "a") as file:
        file.write(f"{key} {path} {iteration} {rule} {label}\\n")
    time.sleep(float(seconds))
    return label

def token_and_fail(*given):
    token(*given)
    raise ValueError("as it was told to")

@worker(slug="python")
async def python(run: Run, KEY: str, SECONDS: str = "0.05", BIG: str = ""):
    """Everything that a worker in Python can await."""
    first = await run.step("first", token, KEY, "first", 0, "once", "first", SECONDS)
    safe = await run.step("safe", token, KEY, "safe", 0, "safe", "safe", SECONDS, safe=True)
    out = await run.command("echo $KEY command 0 once command >> $HARNESS_TOKENS; echo out", env={"KEY": KEY})
    sub = await run.worker("child", {"KEY": KEY + "-sub", "SECONDS": SECONDS})
    answer = await run.ask("Shall we?")
    return [first, safe, out.stdout.strip(), sub, answer]

@worker(slug="gathers")
async def gathers(run: Run, KEY: str, SECONDS: str = "0.05"):
    """Branches that all complete."""
    one, two, three = await asyncio.gather(
        run.step("one", token, KEY, "one", 0, "once", "one", SECONDS),
        run.worker("child", {"KEY": KEY + "-sub", "SECONDS": SECONDS}),
        run.command(["sleep", SECONDS]),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(run.step("left", token, KEY, "left", 0, "safe", "left", SECONDS, safe=True))
        group.create_task(run.step("right", token, KEY, "right", 0, "once", "right", SECONDS))
    return [one, two]

@worker(slug="gather-fails")
async def gather_fails(run: Run, KEY: str, SECONDS: str = "0.05"):
    """A branch that fails when others complete, or go on."""
    await asyncio.gather(
        run.step("bad", token_and_fail, KEY, "bad", 0, "once", "bad", SECONDS),
        *(run.step(f"beside-{n}", token, KEY, f"beside-{n}", 0, "once", f"beside-{n}", SECONDS) for n in range(6)),
        run.command(["sleep", "30"]),
        run.worker("endless", {"KEY": KEY + "-sub"}),
    )

async def tick(n):
    await asyncio.sleep(0.01)
    return n

@worker(slug="gathers-on")
async def gathers_on(run: Run, KEY: str, SECONDS: str = "0.05"):
    """Short steps side by side, until somebody cancels it."""
    for n in range(100_000):
        await asyncio.gather(*(run.step(f"tick-{branch}", tick, n, safe=True) for branch in range(4)))

@worker(slug="timed")
async def timed(run: Run, KEY: str, SECONDS: str = "0.05"):
    """A question with a time limit of an hour."""
    return await run.ask("Shall we, within the hour?", timeout=3600)
'''
_AGENT = """#!/bin/sh
case "$1" in --version) echo '2.1.325 (Claude Code)'; exit 0;; esac
echo "$SHOPFLOOR_RUN hand 0 safe hand" >> "$HARNESS_TOKENS"
half=$(( $(wc -l < "$HARNESS_RECORDING") / 2 ))
head -n "$half" "$HARNESS_RECORDING"
sleep 0.3
tail -n +"$(( half + 1 ))" "$HARNESS_RECORDING"
"""
_RECORDING = Path(__file__).parents[2] / "providers" / "fixtures" / "claude-code" / "text.jsonl"

MODEL = [
    Turn(
        replies_before=0,
        times=0,
        fill=True,
        say=[ToolUse(name="look", input={"key": "{asked}", "path": "answer"}, id="c1")],
    ),
    Turn(
        replies_before=1,
        times=0,
        fill=True,
        pause=0.02,
        say=[
            Text(text="now it is done, and it takes a while to say so"),
            ToolUse(name="act", input={"key": "{asked}", "path": "answer"}, id="c2"),
        ],
    ),
    Turn(replies_before=2, times=0, say=[ToolUse(name="ask", input={"question": "Well?"}, id="c3")]),
    Turn(replies_before=3, times=0, pause=0.02, chunk=4, say=[Text(text="done with all of it")]),
]
"""The replies of the model of `talks`."""

ANSWER = "yes"


class LoadWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker of the load."""

    slug: str
    weight: int = 2
    ends: frozenset[str] = frozenset({"completed"})
    """The possible ends without a fault: a status, or an error code."""
    effects: frozenset[str] = frozenset()
    """The labels of the tokens of a completed run, without its sub-runs."""
    result: Any = None
    """The result of a completed run."""
    act: Literal["answer", "cancel"] | None = None
    """The action of the driver on such a run."""


def _kind(slug: str, effects: str = "", **fields: Any) -> LoadWorker:
    return LoadWorker(slug=slug, effects=frozenset(effects.split()), **fields)


_CANCELLED = frozenset({"cancelled"})
KINDS = {
    kind.slug: kind
    for kind in (
        _kind("steps", "first act look last", result="done"),
        _kind("always", "first", result=["done"]),
        _kind("loops", "act0 act1 act2 left look", result=2),
        _kind("child", "act", weight=1, result="did act"),
        _kind("middle", weight=0, result="did act"),
        _kind("family", result="did act, did act"),
        _kind("asks", "first last", result=ANSWER, act="answer"),
        _kind("client-tool", "look", result=ANSWER, act="answer"),
        _kind("asking-family", result=ANSWER, act="answer"),
        _kind("talks", "look act", weight=3, result="done with all of it", act="answer"),
        _kind("agent", "hand", weight=1, result=["done"]),
        _kind("big", "print", weight=1, result=["done"]),
        _kind("leaves-behind", "first", weight=1, result=["done"]),
        _kind("fails", weight=1, ends=frozenset({"execution_error", "command_failed"})),
        _kind("endless", "do", ends=_CANCELLED, act="cancel"),
        _kind("unanswered", ends=_CANCELLED, act="cancel"),
        _kind("unheard", weight=0, ends=_CANCELLED),
        _kind(
            "python", "first safe command", weight=3, result=["first", "safe", "out", "did act", ANSWER], act="answer"
        ),
        _kind("gathers", "one left right", result=["one", "did act"]),
        _kind("gather-fails", weight=1, ends=frozenset({"execution_error"})),
        _kind("gathers-on", weight=1, ends=_CANCELLED, act="cancel"),
        _kind("timed", weight=1, result=ANSWER, act="answer"),
    )
}


def write_workers(folder: Path) -> None:
    """Write all workers with the files that they need."""
    folder.mkdir()
    tools = folder / "_tools.py"
    tools.write_text(_TOOLS)
    head = _TOOL_LIST.replace("@TOOLS@", str(tools))
    for slug, text in _YAML.items():
        parts = textwrap.dedent(text).replace("@LINES@", str(BIG_OUTPUT_LINES)).split("@")
        parts[1::2] = [_TOKEN % part for part in parts[1::2]]
        (folder / slug).mkdir()
        (folder / slug / "worker.yaml").write_text(head + "".join(parts))
    (folder.parent / "python_workers.py").write_text(_PYTHON)


def write_agent(folder: Path) -> dict[str, str]:
    """Install a program that replaces Claude Code and prints a recording, and return the environment to find it."""
    import os

    folder.mkdir()
    (folder / "claude").write_text(_AGENT)
    (folder / "claude").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "HARNESS_RECORDING": str(_RECORDING)}


def pick(rng: random.Random, workers: list[str]) -> tuple[LoadWorker, dict[str, Any]]:
    """Return the next run of the load: one of these workers, and its input without the key."""
    kinds = [KINDS[slug] for slug in workers]
    (kind,) = rng.choices(kinds, [kind.weight for kind in kinds])
    arguments: dict[str, Any] = {"SECONDS": str(round(rng.choice([0, 0.02, 0.05, 0.2, 1.0]), 2))}
    if kind.slug == "python" and rng.random() < 0.2:
        arguments["BIG"] = "x" * BIG_INPUT_CHARS
    return kind, arguments
