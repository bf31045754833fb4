"""The words and examples of docs/reference/worker-yaml.md. Tests check and run every example."""

from __future__ import annotations

INTRO = """\
`worker.yaml` defines a worker. [Workers](../workers.md) explains values, models and tools; this page has the exact
shapes. `shopfloor workers check` checks a file against them. Field names are case-sensitive. Block names may be written
with `-` or `_`. A field that the tables do not list is an error.

The examples are complete workers. Save one as `workers/<slug>/worker.yaml`, then type `shopfloor run <slug>`."""

SUMMARIES = {
    "Input": "One input of the worker. It is required unless it is `optional` or has a `default`.",
    "Requires": "What a host must have to execute the worker. The run waits until a host has all of it "
    "([where and when a run starts](../workers.md#where-and-when-a-run-starts)).",
    "Variable": "A value that exists before a step has set it.",
    "Tool": "A tool that models or `tool-call` steps may call. Without `handler` it is a client tool: the run waits "
    "for "
    "the client to return a result.",
    "Retry": "How often a failed step is tried again.",
    "Condition": "Compares `value` with the other fields. All comparisons that are present must hold. Text that is a "
    "number can be compared with numbers.",
    "Blocks": "`steps` maps names to steps. Each step has a `block`, which decides its other fields. Steps are "
    "executed in "
    "order.",
    "start-thread": "Starts a conversation with a model.",
    "add-message": "Adds a message to a conversation. Give either `prompt` or `text`.",
    "next-message": "Lets the model answer. The model may call tools before it answers.",
    "tool-call": "Calls a tool without a model. To ask a person, call the [built-in tool `ask`](#ask).",
    "serialize-thread": "Converts a conversation to text or JSON.",
    "operation": "Calls a tool that a [plugin](../how-to/plugins.md) offers. The input is checked against the tool's "
    "schema before the plugin gets it. A failure of the tool is the error `tool_error`, one of the plugin "
    "`plugin_error`. After a crash, a call whose result is not recorded is `outcome_unknown` unless `retry` has "
    "`always`. This example needs the plugin `word-count`.",
    "run-worker": "Runs another worker as a sub-run, with a log of its own.",
    "command": "Runs a program or a shell script. A list is a program with its arguments; text is a script for "
    "`/bin/sh`.",
    "agent": "Hands a task to an agent such as Claude Code ([agents](../agents.md)). Give either `prompt` or `text`. "
    "Fields that "
    "are not text also accept `{{NAME}}`. This example needs Claude Code and an account.",
    "parallel": "Executes branches at the same time. Each branch has a name and steps of its own. The values that a "
    "branch sets can be "
    "used after the `parallel` step. If a branch fails, the others are cancelled.",
    "for-each": "Executes the same steps for each item of a list. Values that a round sets exist in that round only; "
    "`collect` keeps one of them.",
    "while": "Executes the same steps while the condition holds.",
    "terminal": "Ends the run, or ends it only if a condition holds.",
    "Built-in tools": "These tools need no definition. Call them with `tool-call`, or give them to a model with "
    "`tools: [ask]` in `start-thread`.",
    "ask": "Asks a person and waits for the answer. `input`: `question` (text, required) and `options` (list of "
    "text). The "
    "result is the answer. [Ask a person](../how-to/ask-a-person.md) shows how to answer.",
    "log_question": "Records a question for a person and continues. `input`: `question` (text, required), `options`.",
    "record_decision": "Records a decision that the worker made because the task left it open. `input`: `question`, "
    "`decision`, `reasoning` (text, all required). `shopfloor status` and the page show it.",
    "store_memory": "Keeps a text for later runs of the worker. `input`: `key` (letters, digits, `.`, `_`, `-`) and "
    "`content` (text). An existing key is overwritten. [Memory](../workers.md#memory) explains the rest.",
    "submit_result": "Submits the result of the run, whatever `output` says. `input`: `text` (required) and "
    "`artifacts`, a list of files with `name` and `content`. `shopfloor result --artifacts` lists them.",
    "update_summary": "Records one line about what the worker is doing. `input`: `summary` (text, required) and "
    "`progress` (0 to 1), which lists show.",
}

FIELDS = {
    "Document.name": "Name for people.",
    "Document.input": "What a run receives, by name.",
    "Document.variables": "Values that exist before a step sets them, by name.",
    "Document.tools": "Tools of the worker, by name.",
    "Document.memory": "Add what the worker has stored with `store_memory` to the system messages of its models and "
    "agents ([memory](../workers.md#memory)).",
    "Document.approve": "Calls that a person has to approve first, in all steps: `Bash`, `Bash(git push*)`, `command` "
    "for commands, or the name of a tool ([how to](../how-to/approvals.md)).",
    "Document.approveTimeout": "Seconds after which a call without a decision is denied. By default a day.",
    "approve": "Calls of this step that a person has to approve first, besides those of the worker "
    "([how to](../how-to/approvals.md)).",
    "Document.requires": "What the host of a run must have.",
    "labels": "Labels of the host with their values, given by `shopfloor up --label gpu=yes`.",
    "providers": "Agents and model APIs that the host must have, besides those of its `agent` steps.",
    "Document.kinds": "Block types of the worker's own: a name and `file.py:function` or `package.module:function` "
    "([example](../workers.md#blocks-of-your-own)).",
    "Document.steps": "What the worker does, in order.",
    "Document.output": "What the run returns: the name of a value, or any shape with `{{NAME}}` in it.",
    "description": "Text for people.",
    "type": "The type that a value must have.",
    "optional": "The input may be missing; it is then `null`.",
    "default": "The value if none is given.",
    "choices": "The only values that are accepted; the page shows them as a choice.",
    "parameters": "The tool's input: parameters by name, each with `type`, `description`, `optional`; or a whole JSON "
    "Schema with "
    "`type: object`.",
    "handler": "The Python function that executes the tool: `file.py:function` beside `worker.yaml`, or "
    "`package.module:function`.",
    "Tool.readOnly": "Calling the tool twice does no harm: a call that a crash interrupted is made again.",
    "limit": "How many further tries.",
    "delay": "Seconds before the first further try.",
    "factor": "Each wait is this many times as long as the one before.",
    "maxDelay": "The longest wait, in seconds.",
    "always": "Also try again after a crash cut the step off, and after errors that are not known to be temporary.",
    "value": "What is compared.",
    "is": "Equal to this.",
    "not": "Not equal to this.",
    "less": "Less than this.",
    "more": "More than this.",
    "contains": "The text or list contains this.",
    "within": "The value is one of these.",
    "retry": "When the step is tried again.",
    "thread": "The name of the conversation.",
    "start-thread.model": "`provider/name` ([models](../workers.md#models)).",
    "system": "The prompt file with the system message: `researcher` is `prompts/researcher.md`.",
    "start-thread.input": "The only values that the prompt may use; empty: all.",
    "start-thread.tools": "The tools that the model may call.",
    "maxSteps": "How often the model may answer within one `next-message`, tool calls included.",
    "thinking": "How much the model thinks before it answers.",
    "temperature": "Sampling temperature.",
    "backupModel": "The model to use if the first one fails.",
    "role": "Who says it.",
    "prompt": "The prompt file: `summary` is `prompts/summary.md`.",
    "text": "The text itself.",
    "add-message.input": "The only values that the prompt may use; empty: all.",
    "agent.input": "The only values that the prompt may use; empty: all.",
    "output": "The value that receives the result.",
    "schema": "A JSON Schema. The answer is then a value of this shape instead of text.",
    "tool": "The name of the tool.",
    "tool-call.input": "The tool's arguments.",
    "operation.plugin": "The name of the plugin. It is started if it does not run.",
    "operation.tool": "The name of its tool.",
    "operation.input": "The tool's arguments.",
    "operation.output": "The value that receives the text of the result; its content if that is not only text.",
    "format": "Markdown text, or a JSON list of messages.",
    "worker": "The slug of the worker.",
    "run-worker.input": "Its input, by name.",
    "command": "A list: program and arguments, without a shell. Text: a shell script.",
    "cwd": "The working directory, relative to the folder of the run.",
    "env": "Environment variables to add.",
    "timeout": "The time limit of each try: seconds, or a duration such as `90s`, `10m` or `2h`. Then the step is "
    "stopped and fails with `step_timeout`; `retry` applies.",
    "allowFailure": "Continue with any exit code. `output` still receives what the command printed to stdout.",
    "command.output": "The value that receives what the command prints to stdout.",
    "provider": "The agent: `claude-code`, `claude-sdk`, `codex`, `gemini`, `copilot`, `opencode`.",
    "agent.system": "A prompt file that is added to the agent's own instructions.",
    "agent.model": "The model that the agent uses.",
    "agent.tools": "The only tools that the agent may use, by their exact names.",
    "ownTools": "Tools of this worker that the agent may call too. Each needs a `handler`. Only `claude-sdk` supports "
    "this.",
    "readOnly": "The agent may read but not change anything.",
    "sandbox": "The agent's commands run in the provider's sandbox; if it cannot start, nothing runs. Only "
    "`claude-sdk` supports this.",
    "maxTurns": "How often the agent may ask its model.",
    "maxBudget": "US dollars that the agent and its sub-agents may spend.",
    "resume": "The id of a run or of an agent's session to continue.",
    "agent.output": "The value that receives the agent's answer.",
    "branches": "The branches by name, each with steps of its own.",
    "parallel.concurrency": "How many branches are executed at once; none: all.",
    "each": 'The list, usually `"{{NAME}}"`.',
    "as": "The name of the item. `{{ROUND}}` counts from 0.",
    "steps": "The steps of each round.",
    "for-each.concurrency": "How many items are processed at once.",
    "collect": "The value to keep from each round.",
    "for-each.output": "The value that receives the list of what was kept.",
    "while": "The condition, tested before each round. `{{ROUND}}` counts from 0.",
    "maxRounds": "The run fails if the condition still holds after this many rounds.",
    "status": "The outcome of the run.",
    "terminal.output": "What the run returns.",
    "message": "The error message, with `status: failed`.",
    "when": "End the run only if this holds.",
}

_THREAD = """\
input:
  TOPIC: {type: string, default: tea}
steps:
  Start:
    block: start-thread
    model: script/echo
"""

BLOCK_EXAMPLES = {
    "start-thread": _THREAD
    + """\
    thread: research
    maxSteps: 5
  Tell:
    block: add-message
    thread: research
    text: "Research: {{TOPIC}}"
  Answer:
    block: next-message
    thread: research
    output: NOTES
output: NOTES
""",
    "add-message": _THREAD
    + """\
  Show an answer:
    block: add-message
    role: assistant
    text: I answer in one word.
  Tell:
    block: add-message
    text: "What is {{TOPIC}}?"
  Answer:
    block: next-message
    output: ANSWER
output: ANSWER
""",
    "next-message": _THREAD
    + """\
  Tell:
    block: add-message
    text: "Rate {{TOPIC}}."
  Rate:
    block: next-message
    schema:
      type: object
      properties: {stars: {type: integer}}
      required: [stars]
    retry: {limit: 3, delay: 2}
    output: RATING
output: {topic: "{{TOPIC}}", stars: "{{RATING.stars}}"}
""",
    "tool-call": """\
tools:
  web-search:
    description: Searches the web.
    parameters:
      query: {type: string, description: What to search for}
      limit: {type: integer, optional: true}
steps:
  Search:
    block: tool-call
    tool: web-search
    input: {query: tea, limit: 3}
    output: FOUND
output: FOUND
""",
    "serialize-thread": _THREAD
    + """\
  Tell:
    block: add-message
    text: "What is {{TOPIC}}?"
  Answer:
    block: next-message
  Export:
    block: serialize-thread
    format: json
    output: CONVERSATION
output: CONVERSATION
""",
    "operation": """\
input:
  TEXT: {type: string, default: one two three}
steps:
  Count:
    block: operation
    plugin: word-count
    tool: count_words
    input: {text: "{{TEXT}}"}
    output: COUNT
output: COUNT
""",
    "run-worker": """\
steps:
  Greet:
    block: run-worker
    worker: hello
    input: {NAME: Ada}
    output: GREETING
output: GREETING
""",
    "command": """\
input:
  FOLDER: {type: string, default: "."}
steps:
  List:
    block: command
    command: [ls, -a, "{{FOLDER}}"]
    timeout: 30
    output: LISTING
  Count:
    block: command
    command: ls {{FOLDER}} | wc -l
    output: NUMBER
  Find:
    block: command
    command: [grep, -rl, TODO, "{{FOLDER}}"]
    allowFailure: true
    output: FOUND
output: {listing: "{{LISTING}}", number: "{{NUMBER}}", found: "{{FOUND}}"}
""",
    "agent": """\
input:
  TEST: {type: string}
steps:
  Fix:
    block: agent
    provider: claude-code
    text: "Fix the failing test {{TEST}}."
    maxBudget: 0.50
    maxTurns: 30
    output: ANSWER
output: ANSWER
""",
    "parallel": """\
steps:
  Look around:
    block: parallel
    concurrency: 2
    branches:
      Files:
        Count:
          block: command
          command: ls | wc -l
          output: FILES
      Disk:
        Measure:
          block: command
          command: [du, -sh, "."]
          output: SIZE
output: {files: "{{FILES}}", size: "{{SIZE}}"}
""",
    "for-each": """\
input:
  NAMES: {type: array, default: [Ada, Grace]}
steps:
  Greet everyone:
    block: for-each
    each: "{{NAMES}}"
    as: NAME
    concurrency: 2
    steps:
      Greet:
        block: run-worker
        worker: hello
        input: {NAME: "{{NAME}}"}
        output: GREETING
    collect: GREETING
    output: GREETINGS
output: GREETINGS
""",
    "while": """\
variables:
  LINES: {type: string, default: "0"}
steps:
  Repeat:
    block: while
    while: {value: "{{LINES}}", less: 3}
    maxRounds: 10
    steps:
      Add a line:
        block: command
        command: echo line >> lines.txt; wc -l < lines.txt
        output: LINES
output: LINES
""",
    "terminal": """\
input:
  NUMBER: {type: integer, default: 3}
steps:
  Refuse big numbers:
    block: terminal
    status: failed
    message: "{{NUMBER}} is too big"
    when: {value: "{{NUMBER}}", more: 10}
  End:
    block: terminal
    output: {number: "{{NUMBER}}"}
""",
}

TOOL_EXAMPLES = {
    "ask": """\
steps:
  Ask:
    block: tool-call
    tool: ask
    input:
      question: Which colour?
      options: [red, green]
    output: COLOUR
output: "painted it {{COLOUR}}"
""",
    "log_question": """\
steps:
  Note:
    block: tool-call
    tool: log_question
    input: {question: "Are these warnings expected?"}
""",
    "record_decision": """\
steps:
  Decide:
    block: tool-call
    tool: record_decision
    input:
      question: Which year?
      decision: "2026"
      reasoning: It is the newest with complete numbers.
""",
    "store_memory": """\
memory: true
input:
  TOPIC: {type: string, default: tea}
steps:
  Start:
    block: start-thread
    model: script/echo
    tools: [store_memory]
  Tell:
    block: add-message
    text: "What do you know about {{TOPIC}}?"
  Answer:
    block: next-message
    output: ANSWER
  Remember:
    block: tool-call
    tool: store_memory
    input: {key: "{{TOPIC}}", content: "{{ANSWER}}"}
output: ANSWER
""",
    "submit_result": """\
steps:
  Submit:
    block: tool-call
    tool: submit_result
    input:
      text: All tests pass.
      artifacts:
        - {name: report.md, content: "# Report"}
""",
    "update_summary": """\
steps:
  Say what happens:
    block: tool-call
    tool: update_summary
    input: {summary: Looking at the logs}
""",
}
