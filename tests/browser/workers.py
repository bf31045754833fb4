"""The workers that the browser tests run."""

from __future__ import annotations

from pathlib import Path

WORKERS = {
    "form": """
name: Form
description: Takes one of everything.
input:
  TITLE: {type: string, description: What it is called}
  COUNT: {type: integer, description: How many, default: 3}
  RATIO: {type: number, optional: true}
  LOUD: {type: boolean, default: false}
  TONE: {choices: [calm, glad], default: calm}
  ITEMS: {type: array, default: [a, b]}
steps:
  Say it: {block: command, command: "printf '%s x %s %s' {{TITLE}} {{COUNT}} {{LOUD}}", output: SAID}
output: SAID
""",
    "picky": """
name: Picky
input:
  GO: {type: string}
steps:
  Refuse: {block: command, command: "echo no such thing >&2; exit 3"}
""",
    "stepper": """
name: Stepper
input:
  GO: {type: string, description: A file that is waited for}
steps:
  Note: {block: tool-call, tool: update_summary, input: {summary: Getting ready}}
  First: {block: command, command: "echo one", output: ONE}
  Wait: {block: command, command: "while [ ! -e {{GO}} ]; do sleep 0.05; done; echo through", output: TWO}
output: TWO
""",
    "reporter": """
name: Reporter
steps:
  Decide:
    block: tool-call
    tool: record_decision
    input: {question: "Which year?", decision: "2026", reasoning: It is the newest.}
  Wonder: {block: tool-call, tool: log_question, input: {question: "May I call?"}}
  Submit:
    block: tool-call
    tool: submit_result
    input: {text: The whole report., artifacts: [{name: page.html, content: "<h1>tea</h1>"}]}
""",
    "sleeper": """
name: Sleeper
steps:
  Sleep: {block: command, command: "sleep 600"}
""",
    "pusher": """
name: Pusher
steps:
  Push: {block: command, command: "printf pushed", approve: [command], output: SAID}
output: SAID
""",
    "asker": """
name: Asker
steps:
  Ask: {block: tool-call, tool: ask, input: {question: "Which colour shall it be?"}, output: COLOUR}
  Use it: {block: command, command: "printf 'painted in %s' {{COLOUR}}", output: SAID}
output: SAID
""",
    "chooser": """
name: Chooser
steps:
  Ask: {block: tool-call, tool: ask, input: {question: "Shall we go on?", options: ["Yes, go on", "No, stop"]}, output: CHOICE}
output: "{{CHOICE}}"
""",
    "measurer": """
name: Measurer
tools:
  measure: {description: Measures something., parameters: {what: {type: string}}}
steps:
  Measure: {block: tool-call, tool: measure, input: {what: the fence}, output: FOUND}
output: "{{FOUND}}"
""",
    "parent": """
name: Parent
input:
  WHAT: {type: string, default: report}
steps:
  First part: {block: run-worker, worker: child, input: {PART: "{{WHAT}} one"}, output: ONE}
  Second part: {block: run-worker, worker: child, input: {PART: "{{WHAT}} two"}, output: TWO}
output: "{{ONE}} and {{TWO}}"
""",
    "grandparent": """
name: Grandparent
steps:
  All of it: {block: run-worker, worker: parent, output: ALL}
output: ALL
""",
    "child": """
name: Child
input:
  PART: {type: string}
steps:
  Work: {block: command, command: "printf 'did %s' {{PART}}", output: SAID}
output: SAID
""",
    "speaker": """
name: Speaker
input:
  TOPIC: {type: string}
steps:
  Begin: {block: start-thread, model: anthropic/claude-test}
  Ask: {block: add-message, text: "Tell me of {{TOPIC}}."}
  Answer: {block: next-message, output: SAID}
output: SAID
""",
}


def write_workers(folder: Path) -> None:
    for slug, text in WORKERS.items():
        home = folder / slug
        home.mkdir(parents=True, exist_ok=True)
        (home / "worker.yaml").write_text(text, encoding="utf-8")
