"""Worker definitions as data: the content of `worker.yaml` with its prompts, as recorded in a run's log."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from shopfloor.engine.workers.source_hash import total_hash
from shopfloor.limits import FILTER_MAX_CHARS, SLUG_CHARS
from shopfloor.ports import run_fields

InputType = Literal["string", "number", "integer", "boolean", "array", "object", "any"]

WORKER_FILE = "worker.yaml"
PROMPTS_FOLDER = "prompts"
BUILTIN_TOOL_NAMES = frozenset(
    {"ask", "log_question", "update_summary", "record_decision", "store_memory", "submit_result"}
)
"""Tools that every worker may use without defining them."""

AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
ApprovalPattern = Annotated[str, msgspec.Meta(pattern=run_fields.APPROVAL_PATTERN, max_length=FILTER_MAX_CHARS)]
"""A pattern of calls that a person has to approve: `Bash`, or `Bash(git push*)`."""


class _DefinitionPart(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    pass


class InputField(_DefinitionPart, frozen=True, kw_only=True):
    """An input of a run. Required unless it is optional or has a default."""

    type: InputType = "string"
    description: str | None = None
    optional: bool = False
    default: Any = None
    choices: list[str | int | float | bool] | None = None
    """The only values that are allowed."""


class Variable(_DefinitionPart, frozen=True, kw_only=True):
    """A value that steps set, with its initial value."""

    type: InputType = "any"
    description: str | None = None
    default: Any = None


def _no_parameters() -> dict[str, Any]:
    return {"type": "object", "properties": {}}


class ToolDefinition(_DefinitionPart, frozen=True, kw_only=True):
    """A tool that the worker may call. Without a handler the client of the run executes it."""

    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=_no_parameters)
    """JSON Schema of the input."""
    handler: str | None = None
    """`package.module:function` on the server."""
    read_only: bool = False
    """Whether a repeated call does no harm. A call that a crash interrupted is then made again."""


def own_tool_spec(name: str, tool: ToolDefinition | None) -> dict[str, Any]:
    """Convert a tool of the worker to an `OwnTool`, as plain data."""
    tool = tool or ToolDefinition()
    return {
        "name": name,
        "description": tool.description,
        "parameters": tool.parameters,
        "handler": tool.handler or "",
    }


class Retry(_DefinitionPart, frozen=True, kw_only=True):
    """How often a failed step is retried, and the delays."""

    limit: Annotated[int, msgspec.Meta(ge=0)] = 2
    delay: NonNegative = 1.0
    """Seconds before the first retry; each further delay is `factor` times as long."""
    factor: Annotated[float, msgspec.Meta(ge=1)] = 2.0
    max_delay: NonNegative = 60.0
    always: bool = False
    """Whether to retry also after a crash interrupted the step, and after errors that may not be temporary."""


class Condition(_DefinitionPart, frozen=True, kw_only=True):
    """A test of a value. True if all given comparisons are true."""

    value: Any
    is_: Any = msgspec.field(default=msgspec.UNSET, name="is")
    not_: Any = msgspec.field(default=msgspec.UNSET, name="not")
    less: Any = msgspec.UNSET
    more: Any = msgspec.UNSET
    contains: Any = msgspec.UNSET
    within: list[Any] | msgspec.UnsetType = msgspec.UNSET


class _Step(_DefinitionPart, frozen=True, kw_only=True, tag_field="block"):
    description: str | None = None


class _RetryableStep(_Step, frozen=True, kw_only=True):
    retry: Retry | None = None


class _ApprovableStep(_RetryableStep, frozen=True, kw_only=True):
    approve: list[ApprovalPattern] = []
    """The calls that a person has to approve, such as `Bash`, `Bash(git push*)` or `command`."""


class _TimedStep(_ApprovableStep, frozen=True, kw_only=True):
    timeout: Positive | str | None = None
    """The time limit of each try: seconds, or a duration such as `90s`, `10m` or `2h`."""


class StartThread(_Step, frozen=True, kw_only=True, tag="start-thread"):
    """Starts a conversation with a model."""

    thread: str = "main"
    model: str
    """`provider/name`."""
    system: str | None = None
    """The name of a prompt."""
    input: list[str] = []
    """The values that the prompt may use; all values if empty."""
    tools: list[str] = []
    max_steps: AtLeastOne = 10
    """How many times the model may reply in one `next-message`."""
    thinking: Literal["low", "medium", "high"] | None = None
    temperature: float | None = None
    backup_model: str | None = None


class AddMessage(_Step, frozen=True, kw_only=True, tag="add-message"):
    """Adds a message to a thread: a prompt by its name, or a text."""

    thread: str = "main"
    role: Literal["user", "assistant"] = "user"
    prompt: str | None = None
    text: str | None = None
    input: list[str] = []


class NextMessage(_TimedStep, frozen=True, kw_only=True, tag="next-message"):
    """Lets the model reply, with as many tool calls as it needs."""

    thread: str = "main"
    output: str | None = None
    """The variable that gets the reply."""
    schema: dict[str, Any] | None = None
    """JSON Schema. If set, the reply is JSON of this shape."""


class CallTool(_ApprovableStep, frozen=True, kw_only=True, tag="tool-call"):
    """Calls a tool of the worker without a model."""

    tool: str
    input: dict[str, Any] = {}
    output: str | None = None


class SerializeThread(_Step, frozen=True, kw_only=True, tag="serialize-thread"):
    """Converts a thread to text or JSON."""

    thread: str = "main"
    format: Literal["markdown", "json"] = "markdown"
    output: str | None = None


class RunWorker(_RetryableStep, frozen=True, kw_only=True, tag="run-worker"):
    """Calls another worker as a sub-run."""

    worker: str
    input: dict[str, Any] = {}
    output: str | None = None


class CommandStep(_TimedStep, frozen=True, kw_only=True, tag="command"):
    """Runs a program with its arguments, or a shell script. A value in it is always one word."""

    command: str | list[str]
    """A list is executed without a shell; a text is executed by `/bin/sh`."""
    cwd: str | None = None
    env: dict[str, str] = {}
    allow_failure: bool = False
    """Whether the step completes with any exit code; `output` then still gets stdout."""
    output: str | None = None
    """The variable that gets the standard output."""


class Agent(_TimedStep, frozen=True, kw_only=True, tag="agent"):
    """Passes a task to an agent such as Claude Code or Codex. Options that are not text also accept `{{NAME}}`."""

    provider: str
    prompt: str | None = None
    text: str | None = None
    input: list[str] = []
    """The values that the prompt may use; all values if empty."""
    system: str | None = None
    """The name of a prompt that is added to the agent's own instructions."""
    model: str | None = None
    tools: list[str] | str | None = None
    """The only tools that the agent may use, by their exact names."""
    own_tools: list[str] = []
    """Tools of the worker that the agent may call, too; each needs a `handler`."""
    read_only: bool | str = False
    sandbox: bool | str = False
    """Run the agent's commands in the provider's sandbox; if the sandbox cannot start, nothing runs."""
    max_turns: AtLeastOne | str | None = None
    max_budget: Positive | str | None = None
    """US dollars, including sub-agents."""
    cwd: str | None = None
    resume: str | None = None
    """The id of a run or of a provider's session to resume."""
    output: str | None = None
    """The variable that gets the answer."""


class Operation(_ApprovableStep, frozen=True, kw_only=True, tag="operation"):
    """Calls a tool that a plugin offers. The arguments are checked against the tool's schema first."""

    plugin: str
    tool: str
    input: dict[str, Any] = {}
    output: str | None = None
    """The variable that gets the text of the result."""


class PluginJob(_Step, frozen=True, kw_only=True, tag="plugin"):
    """Hands a task to a plugin and waits for the end of its job.

    Only generated definitions have this step: a worker in YAML calls a plugin with `run-worker`.
    """

    plugin: str
    task: str
    label: str | None = None
    """The description of the job, for lists of the plugin."""
    config: Any = None
    """Options of the plugin: an object, or `{{NAME}}` of one."""
    output: str | None = None
    """The variable that gets the output of the job."""


class Parallel(_Step, frozen=True, kw_only=True, tag="parallel"):
    """Runs branches at the same time, each with its own steps."""

    branches: dict[str, dict[str, Step]]
    concurrency: AtLeastOne | None = None


class ForEach(_Step, frozen=True, kw_only=True, tag="for-each"):
    """Runs the same steps for each item of a list."""

    each: Any
    """A list, or `{{NAME}}` of a list."""
    as_: str = msgspec.field(default="ITEM", name="as")
    steps: dict[str, Step]
    concurrency: AtLeastOne = 1
    collect: str | None = None
    """The variable whose value at the end of each round is collected."""
    output: str | None = None
    """The variable that gets the list of collected values."""


class While(_Step, frozen=True, kw_only=True, tag="while"):
    """Repeats steps while a condition is true. `{{ROUND}}` is the number of the round, from 0."""

    condition: Condition = msgspec.field(name="while")
    steps: dict[str, Step]
    max_rounds: AtLeastOne = 1000


class Terminal(_Step, frozen=True, kw_only=True, tag="terminal"):
    """Ends the run."""

    status: Literal["completed", "failed"] = "completed"
    output: Any = None
    message: str | None = None
    when: Condition | None = None
    """End the run only if this condition is true."""


class Custom(_RetryableStep, frozen=True, kw_only=True, tag="custom"):
    """A step of a kind that the worker defines: a Python function named in `kinds`.

    In YAML, `block` is the kind itself.
    """

    kind: str
    with_: dict[str, Any] = msgspec.field(default_factory=dict[str, Any], name="with")
    output: str | None = None


Step = (
    StartThread
    | AddMessage
    | NextMessage
    | CallTool
    | SerializeThread
    | RunWorker
    | CommandStep
    | Agent
    | Operation
    | PluginJob
    | Parallel
    | ForEach
    | While
    | Terminal
    | Custom
)


class HostRequirements(_DefinitionPart, frozen=True, kw_only=True):
    """What a host must have to execute the worker, besides the providers of its `agent` steps."""

    labels: dict[str, str] = {}
    """Labels of the host (`shopfloor up --label gpu=yes`)."""
    providers: list[str] = []


class Definition(_DefinitionPart, frozen=True, kw_only=True):
    """A worker: its inputs, its steps and its output."""

    slug: str
    name: str | None = None
    description: str | None = None
    input: dict[str, InputField] = {}
    variables: dict[str, Variable] = {}
    tools: dict[str, ToolDefinition] = {}
    memory: bool = False
    """Whether the memories that the worker stored are added to its system prompts."""
    approve: list[ApprovalPattern] = []
    """The calls that a person has to approve, in all steps: `Bash`, `Bash(git push*)`, `command`, a tool."""
    approve_timeout: Positive | None = None
    """Seconds after which a call without a decision is denied; by default a day."""
    requires: HostRequirements | None = None
    kinds: dict[str, str] = {}
    """The worker's own kinds of steps: `package.module:function`."""
    prompts: dict[str, str] = {}
    """The texts of prompts by name: `prompts/<name>.md` beside `worker.yaml`."""
    steps: dict[str, Step] = {}
    output: Any = None
    """The name of a variable, or a value that contains `{{NAME}}`."""
    function: str | None = None
    """For a worker in Python: `package.module:function`. Such a worker has no steps."""
    functions: dict[str, str] = {}
    """For a worker in Python: hashes of the function and of what it uses in its file, by name."""
    source_hash: str | None = None
    """Hash of the function's file, in logs of the first versions, which have no `functions`."""


def definition_hash(definition: Definition) -> str:
    """Return a hash of what a run would do, prefixed with the name of the algorithm.

    For a worker in Python this is the hash of its functions. For a worker in YAML it is the hash of the parsed
    document, without comments and layout.
    """
    if definition.functions:
        return total_hash(definition.functions)
    return f"json1:{hashlib.sha256(msgspec.json.encode(definition)).hexdigest()}"


_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_NON_WORD = re.compile(r"[\W_]+")


def is_slug(name: str) -> bool:
    """Return whether a name is a valid slug: lower-case letters and digits, with `-` between them."""
    return len(name) <= SLUG_CHARS and _SLUG.fullmatch(name) is not None


def path_segment(name: str) -> str:
    """Convert the name of a step to a path segment: `Find sources` is `find-sources`.

    Empty if it has no letter or digit.
    """
    return _NON_WORD.sub("-", name.lower()).strip("-")


def all_steps(steps: Mapping[str, Step]) -> Iterator[Step]:
    """Yield the steps of a worker, also those inside other steps."""
    for step in steps.values():
        yield step
        if isinstance(step, Parallel):
            for branch in step.branches.values():
                yield from all_steps(branch)
        elif isinstance(step, ForEach | While):
            yield from all_steps(step.steps)
