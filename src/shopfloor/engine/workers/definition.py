"""A worker's definition as data: what `worker.yaml` says, with its prompts inside, and what a run keeps of it."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any, Literal

import msgspec

from shopfloor.engine.workers.source_hash import total_hash
from shopfloor.limits import SLUG_CHARS

InputType = Literal["string", "number", "integer", "boolean", "array", "object", "any"]

WORKER_FILE = "worker.yaml"
PROMPTS_FOLDER = "prompts"
INTERNAL_TOOLS = frozenset({"ask", "log_question", "update_summary"})
"""Tools that every worker may name without defining them."""

AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    pass


class InputField(_Part, frozen=True, kw_only=True):
    """One value that a run is given. Required unless it is optional or has a default."""

    type: InputType = "string"
    description: str | None = None
    optional: bool = False
    default: Any = None


class Variable(_Part, frozen=True, kw_only=True):
    """A value that steps set, and what it is before."""

    type: InputType = "any"
    description: str | None = None
    default: Any = None


def _no_parameters() -> dict[str, Any]:
    return {"type": "object", "properties": {}}


class ToolDefinition(_Part, frozen=True, kw_only=True):
    """A tool that the worker may call. Without a handler whoever watches the run has to execute it."""

    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=_no_parameters)
    """JSON Schema of its input."""
    handler: str | None = None
    """`package.module:function` on the server."""
    read_only: bool = False
    """True where calling it twice does no harm: then a call that a crash cut off is made again."""


def own_tool_spec(name: str, tool: ToolDefinition | None) -> dict[str, Any]:
    """A tool of the worker as an agent's order has it."""
    tool = tool or ToolDefinition()
    return {
        "name": name,
        "description": tool.description,
        "parameters": tool.parameters,
        "handler": tool.handler or "",
    }


class Retry(_Part, frozen=True, kw_only=True):
    """How often a step that failed is tried again, and how long it waits before."""

    limit: Annotated[int, msgspec.Meta(ge=0)] = 2
    delay: NonNegative = 1.0
    """Seconds before the first; each further wait is `factor` times as long."""
    factor: Annotated[float, msgspec.Meta(ge=1)] = 2.0
    max_delay: NonNegative = 60.0
    always: bool = False
    """Also what a crash cut off, and errors that are not known to pass."""


class Condition(_Part, frozen=True, kw_only=True):
    """Holds where all that it says of the value is so."""

    value: Any
    is_: Any = msgspec.field(default=msgspec.UNSET, name="is")
    not_: Any = msgspec.field(default=msgspec.UNSET, name="not")
    less: Any = msgspec.UNSET
    more: Any = msgspec.UNSET
    contains: Any = msgspec.UNSET
    within: list[Any] | msgspec.UnsetType = msgspec.UNSET


class _Step(_Part, frozen=True, kw_only=True, tag_field="block"):
    description: str | None = None


class _Tried(_Step, frozen=True, kw_only=True):
    retry: Retry | None = None


class StartThread(_Step, frozen=True, kw_only=True, tag="start-thread"):
    """Begins a conversation with a model."""

    thread: str = "main"
    model: str
    """`provider/name`."""
    system: str | None = None
    """The name of a prompt."""
    input: list[str] = []
    """The values that the prompt may use; all of them where it is empty."""
    tools: list[str] = []
    max_steps: AtLeastOne = 10
    """How many times the model may answer in one `next-message`."""
    thinking: Literal["low", "medium", "high"] | None = None
    temperature: float | None = None
    backup_model: str | None = None


class AddMessage(_Step, frozen=True, kw_only=True, tag="add-message"):
    """Says something in a thread: a prompt by its name, or the text itself."""

    thread: str = "main"
    role: Literal["user", "assistant"] = "user"
    prompt: str | None = None
    text: str | None = None
    input: list[str] = []


class NextMessage(_Tried, frozen=True, kw_only=True, tag="next-message"):
    """Has the model answer, with as many tool calls as it likes."""

    thread: str = "main"
    output: str | None = None
    """The variable that gets the answer."""
    schema: dict[str, Any] | None = None
    """With it the answer is JSON of this shape."""


class CallTool(_Tried, frozen=True, kw_only=True, tag="tool-call"):
    """Calls a tool of the worker without a model."""

    tool: str
    input: dict[str, Any] = {}
    output: str | None = None


class SerializeThread(_Step, frozen=True, kw_only=True, tag="serialize-thread"):
    """A thread as text, or as JSON."""

    thread: str = "main"
    format: Literal["markdown", "json"] = "markdown"
    output: str | None = None


class RunWorker(_Tried, frozen=True, kw_only=True, tag="run-worker"):
    """A sub-run: a worker called by this one."""

    worker: str
    input: dict[str, Any] = {}
    output: str | None = None


class CommandStep(_Tried, frozen=True, kw_only=True, tag="command"):
    """A program with its arguments, or a shell script. A value in it is one word, whatever it holds."""

    command: str | list[str]
    """A list is executed without a shell; a text by `/bin/sh`."""
    cwd: str | None = None
    env: dict[str, str] = {}
    timeout: Positive | None = None
    allow_failure: bool = False
    """Whether the step completes with any exit code; `output` then still gets stdout."""
    output: str | None = None
    """The variable that gets what it printed on stdout."""


class Agent(_Tried, frozen=True, kw_only=True, tag="agent"):
    """Hands a task to an agent, as Claude Code or Codex. What is not text may be `{{NAME}}` of a value, too."""

    provider: str
    prompt: str | None = None
    text: str | None = None
    input: list[str] = []
    """The values that the prompt may use; all of them where it is empty."""
    system: str | None = None
    """The name of a prompt that is added to the agent's own instructions."""
    model: str | None = None
    tools: list[str] | str | None = None
    """The only tools that it may use, by their exact names."""
    own_tools: list[str] = []
    """Tools of the worker that it may call, too; each needs a `handler`."""
    read_only: bool | str = False
    sandbox: bool | str = False
    """Its commands run in a sandbox of the provider's; where that cannot start, nothing runs."""
    max_turns: AtLeastOne | str | None = None
    max_budget: Positive | str | None = None
    """US dollars, with what its sub-agents spend."""
    cwd: str | None = None
    resume: str | None = None
    """The id of a run, or of a session of the provider's, to go on with."""
    output: str | None = None
    """The variable that gets its answer."""


class Parallel(_Step, frozen=True, kw_only=True, tag="parallel"):
    """Branches at the same time, each with steps of its own."""

    branches: dict[str, dict[str, Step]]
    concurrency: AtLeastOne | None = None


class ForEach(_Step, frozen=True, kw_only=True, tag="for-each"):
    """The same steps for each item of a list."""

    each: Any
    """A list, or `{{NAME}}` of one."""
    as_: str = msgspec.field(default="ITEM", name="as")
    steps: dict[str, Step]
    concurrency: AtLeastOne = 1
    collect: str | None = None
    """The variable whose value at the end of each round is kept."""
    output: str | None = None
    """The variable that gets the list of what was kept."""


class While(_Step, frozen=True, kw_only=True, tag="while"):
    """The same steps as long as the condition holds. The round is `{{ROUND}}`, from 0."""

    condition: Condition = msgspec.field(name="while")
    steps: dict[str, Step]
    max_rounds: AtLeastOne = 1000


class Terminal(_Step, frozen=True, kw_only=True, tag="terminal"):
    """Ends the run here."""

    status: Literal["completed", "failed"] = "completed"
    output: Any = None
    message: str | None = None
    when: Condition | None = None
    """Only where this holds."""


class Custom(_Tried, frozen=True, kw_only=True, tag="custom"):
    """A kind of the worker's own: a Python function that `kinds` names. In YAML the kind itself is the `block`."""

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
    | Parallel
    | ForEach
    | While
    | Terminal
    | Custom
)


class Definition(_Part, frozen=True, kw_only=True):
    """A worker: what it takes, what it does, what it gives."""

    slug: str
    name: str | None = None
    description: str | None = None
    input: dict[str, InputField] = {}
    variables: dict[str, Variable] = {}
    tools: dict[str, ToolDefinition] = {}
    kinds: dict[str, str] = {}
    """Kinds of step of its own: `package.module:function`."""
    prompts: dict[str, str] = {}
    """The prompts' texts by name: `prompts/<name>.md` beside `worker.yaml`."""
    steps: dict[str, Step] = {}
    output: Any = None
    """A variable's name, or a value with `{{NAME}}` in it."""
    function: str | None = None
    """For a worker in Python: `package.module:function`; then there are no steps."""
    functions: dict[str, str] = {}
    """For a worker in Python: hashes of the function and of what it uses of its file, by name."""
    source_hash: str | None = None
    """Of that function's file, in logs of the first versions, which have no `functions`."""


def definition_hash(definition: Definition) -> str:
    """Hash what a run of it would do, with the algorithm's name before the hash.

    Of a worker in Python what its functions do; of a worker in YAML the document, which has no comments and no layout.
    """
    if definition.functions:
        return total_hash(definition.functions)
    return f"json1:{hashlib.sha256(msgspec.json.encode(definition)).hexdigest()}"


_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_NO_WORD = re.compile(r"[\W_]+")


def is_slug(name: str) -> bool:
    """Whether a worker may be called so: lower-case letters, digits and `-` between them."""
    return len(name) <= SLUG_CHARS and _SLUG.fullmatch(name) is not None


def path_segment(name: str) -> str:
    """A step's segment of the path: `Find sources` is `find-sources`. Empty where the name has no letter or digit."""
    return _NO_WORD.sub("-", name.lower()).strip("-")
