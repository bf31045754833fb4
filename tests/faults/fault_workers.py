"""Workers of every kind for the fault tests. Each effect is a line in a file, so that it can be counted."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.model_server.script import Text, ToolUse, Turn

TOOLS = """
import fcntl, time
from pathlib import Path

def _note(given, what):
    with open(given["file"], "a") as file:
        file.write(what + "\\n")
    return {"noted": what}

def look(given):
    return _note(given, "look " + str(given.get("what", "")))

def act(given):
    return _note(given, "act " + str(given.get("what", "")))

def dawdle(given):
    _note(given, "dawdle")
    time.sleep(given.get("seconds", 60))

async def count(given):
    return given.get("n", 0) + 1
"""

STEPS = """
    input: {FILE: {type: string}}
    steps:
      First: {block: command, command: 'echo first >> {{FILE}}; echo one', output: ONE}
      Second: {block: tool-call, tool: act, input: {file: '{{FILE}}', what: second}, output: TWO}
      Third: {block: tool-call, tool: look, input: {file: '{{FILE}}', what: third}}
      Fourth: {block: command, command: 'echo fourth {{ONE}} >> {{FILE}}'}
    output: '{{ONE}} {{TWO.noted}}'
"""
ALWAYS = """
    input: {FILE: {type: string}}
    steps:
      First:
        block: command
        command: 'echo first >> {{FILE}}; echo one'
        output: ONE
        retry: {always: true, delay: 0}
      Second:
        block: tool-call
        tool: act
        input: {file: '{{FILE}}', what: second}
        retry: {always: true, delay: 0}
    output: ONE
"""
LOOPS = """
    input: {FILE: {type: string}}
    variables: {COUNT: {type: any, default: 0}}
    steps:
      Each:
        block: for-each
        each: [a, b]
        as: OUTER
        steps:
          Inner:
            block: for-each
            each: [1, 2]
            as: INNER
            steps:
              Do: {block: tool-call, tool: act, input: {file: '{{FILE}}', what: '{{OUTER}}{{INNER}}'}, output: DID}
            collect: DID
            output: ROW
        collect: ROW
        output: ROWS
      Both:
        block: parallel
        branches:
          left: {Do: {block: tool-call, tool: act, input: {file: '{{FILE}}', what: left}, output: LEFT}}
          right: {Do: {block: tool-call, tool: look, input: {file: '{{FILE}}', what: right}, output: RIGHT}}
      Until:
        block: while
        while: {value: '{{COUNT}}', less: 2}
        steps:
          Count: {block: tool-call, tool: count, input: {n: '{{COUNT}}'}, output: COUNT}
    output: '{{ROWS}}'
"""
CHILD = """
    input: {FILE: {type: string}, WHAT: {type: string}}
    steps: {Do: {block: tool-call, tool: act, input: {file: '{{FILE}}', what: '{{WHAT}}'}, output: DID}}
    output: '{{DID.noted}}'
"""
MIDDLE = """
    input: {FILE: {type: string}, WHAT: {type: string}}
    steps: {Call: {block: run-worker, worker: child, input: {FILE: '{{FILE}}', WHAT: '{{WHAT}}'}, output: DID}}
    output: DID
"""
FAMILY = """
    input: {FILE: {type: string}}
    steps:
      Both:
        block: parallel
        branches:
          near: {Call: {block: run-worker, worker: child, input: {FILE: '{{FILE}}', WHAT: near}, output: NEAR}}
          far: {Call: {block: run-worker, worker: middle, input: {FILE: '{{FILE}}', WHAT: far}, output: FAR}}
    output: '{{NEAR}}, {{FAR}}'
"""
TALK = """
    input: {FILE: {type: string}}
    steps:
      Start: {block: start-thread, model: anthropic/claude-test, tools: [look, act, outside, ask]}
      Say: {block: add-message, text: 'note in {{FILE}}'}
      Answer: {block: next-message, output: ANSWER}
    output: ANSWER
"""
PYTHON = '''
from shopfloor import Run, worker

def note(file, what):
    with open(file, "a") as out:
        out.write(what + "\\n")
    return what

@worker
async def python(run: Run, FILE: str):
    """Everything that a worker in Python can await."""
    first = await run.step("first", note, FILE, "first")
    safe = await run.step("safe", note, FILE, "look safe", safe=True)
    answer = await run.ask("Shall we?")
    out = await run.command("echo command >> $FILE; echo out", env={"FILE": FILE})
    sub = await run.worker("child", {"FILE": FILE, "WHAT": "sub"})
    for n in range(2):
        await run.step("again", note, FILE, f"again {n}")
    return [first, safe, answer, out.stdout.strip(), sub]
'''

TURNS = [
    Turn(replies_before=0, times=0, say=[ToolUse(name="look", input={"file": "@", "what": "model"}, id="c1")]),
    Turn(
        replies_before=1,
        times=0,
        say=[
            Text(text="now"),
            ToolUse(name="act", input={"file": "@", "what": "model"}, id="c2"),
            ToolUse(name="outside", input={"q": 1}, id="c3"),
        ],
    ),
    Turn(replies_before=2, times=0, say=[ToolUse(name="ask", input={"question": "Well?"}, id="c4")]),
    Turn(replies_before=3, times=0, say=[Text(text="done with it")]),
]
"""The replies of the model of `talk`; `@` is the file of the run."""

YAML = {
    "steps": STEPS,
    "always": ALWAYS,
    "loops": LOOPS,
    "child": CHILD,
    "middle": MIDDLE,
    "family": FAMILY,
    "talk": TALK,
}
EFFECTS = {
    "steps": {"first", "act second", "look third", "fourth one"},
    "always": {"first", "act second"},
    "loops": {"act a1", "act a2", "act b1", "act b2", "act left", "look right"},
    "family": {"act near", "act far"},
    "talk": {"look model", "act model"},
    "python": {"first", "look safe", "command", "act sub", "again 0", "again 1"},
}
RESULTS = {
    "steps": "one act second",
    "always": "one",
    "loops": [[{"noted": "act a1"}, {"noted": "act a2"}], [{"noted": "act b1"}, {"noted": "act b2"}]],
    "family": "act near, act far",
    "talk": "done with it",
    "python": ["first", "look safe", "yes", "out", "act sub"],
}


def write_workers(folder: Path) -> Path:
    """Write all workers and return their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tools = folder / "_tools.py"
    tools.write_text(TOOLS)
    for slug, text in YAML.items():
        (folder / slug).mkdir(exist_ok=True)
        (folder / slug / "worker.yaml").write_text(f"{_tools(tools)}\n{textwrap.dedent(text)}")
    (folder / "python").mkdir(exist_ok=True)
    (folder / "python" / "worker.py").write_text(PYTHON)
    return folder


def _tools(file: Path) -> str:
    return textwrap.dedent(f"""\
        tools:
          look: {{description: Looks., handler: '{file}:look', readOnly: true}}
          act: {{description: Acts., handler: '{file}:act'}}
          dawdle: {{description: Takes long., handler: '{file}:dawdle'}}
          count: {{description: Counts., handler: '{file}:count', readOnly: true}}
          outside: {{description: Is done elsewhere.}}
    """)


def turns(file: Path) -> list[Turn]:
    """Return the script of the model for a run that writes to that file."""
    import msgspec

    raw = msgspec.json.encode(TURNS).replace(b'"@"', msgspec.json.encode(str(file)))
    return msgspec.json.decode(raw, type=list[Turn])
