"""Validation of references in a definition: names, prompts, threads, tools, models and workers must exist."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from shopfloor.engine.workers.definition import (
    BUILTIN_TOOL_NAMES,
    AddMessage,
    Agent,
    CallTool,
    CommandStep,
    Condition,
    Custom,
    Definition,
    ForEach,
    HostRequirements,
    NextMessage,
    Operation,
    Parallel,
    PluginJob,
    RunWorker,
    SerializeThread,
    StartThread,
    Step,
    Terminal,
    While,
    is_slug,
    own_tool_spec,
    path_segment,
)
from shopfloor.engine.workers.inputs import input_problems, type_problem
from shopfloor.engine.workers.problems import Problem, did_you_mean
from shopfloor.engine.workers.provider_workers import DEFAULT_MODELS, PROMPT
from shopfloor.engine.workers.templating import (
    NAME,
    argv_problems,
    find_placeholders,
    invalid_placeholders,
    is_single_placeholder,
    placeholders,
    shell_problems,
)
from shopfloor.engine.workers.validation import StructureValidator
from shopfloor.errors import ShopfloorError, UnknownModel
from shopfloor.log import parse_duration
from shopfloor.ports import label_problem
from shopfloor.yaml_document import YamlDocument, YamlPath


class ValidationContext(msgspec.Struct, frozen=True, kw_only=True):
    """The models, agents and workers that exist outside of a definition. Parts that are None are not checked."""

    check_model: Callable[[str], None] | None = None
    """Raises if no provider can have a model of this name."""
    check_agent: Callable[[str, Mapping[str, Any]], None] | None = None
    """Raises if the provider does not exist or does not support the options, which are fields of `AgentOptions`."""
    workers: Mapping[str, Definition | None] | None = None
    """All workers by slug; None for a worker that has problems itself."""


class _Scope(msgspec.Struct):
    """The names and threads that a step may refer to."""

    names: set[str]
    threads: set[str]

    def copy(self) -> _Scope:
        return _Scope(set(self.names), set(self.threads))

    def merge(self, other: _Scope) -> None:
        self.names |= other.names
        self.threads |= other.threads


class ReferenceChecker:
    """Checker of the references of one definition."""

    def __init__(
        self,
        definition: Definition,
        document: YamlDocument,
        file: Path,
        *,
        validation_context: ValidationContext,
        structure: StructureValidator,
    ) -> None:
        """Create a checker. `structure` knows the invalid parts of the document, which are not reported again."""
        self._definition = definition
        self._document = document
        self._file = file
        self._context = validation_context
        self._structure = structure
        self.problems: list[Problem] = []

    def check(self) -> list[Problem]:
        """Return all problems."""
        definition = self._definition
        self._check_declarations()
        scope = _Scope({*definition.input, *definition.variables}, set())
        self._check_steps(definition.steps, scope, ("steps",))
        output = definition.output
        if isinstance(output, str) and NAME.fullmatch(output) and output not in scope.names:
            reason = f"`output` names `{output}`, which is never set"
            self._report_undefined(("output",), f"{reason}; {did_you_mean(output, scope.names)}")
        self._check_names(output, scope, ("output",))
        return self.problems

    def _report(self, place: YamlPath, reason: str) -> None:
        if not any(place[: len(broken)] == broken for broken in self._structure.broken if broken):
            self.problems.append(Problem(self._file, self._document.line_of(place), reason))

    def _report_undefined(self, place: YamlPath, reason: str) -> None:
        """Report an undefined reference, unless an invalid part of the document may define it."""
        if not self._structure.incomplete:
            self._report(place, reason)

    def _report_error(self, place: YamlPath, error: ShopfloorError) -> None:
        self._report(place, error.message + (f" ({error.hint})" if error.hint else ""))

    def _check_declarations(self) -> None:
        definition = self._definition
        declared: Mapping[str, Mapping[str, Any]] = {"input": definition.input, "variables": definition.variables}
        for section, declarations in declared.items():
            for name, field in declarations.items():
                if not NAME.fullmatch(name):
                    self._report((section, name), f"`{name}` is not a valid name: letters, digits, `_` and `-`")
                if field.default is not None and (problem := type_problem(field.default, field.type)):
                    self._report((section, name, "default"), f"the default of `{name}` {problem}")
        for name in definition.input.keys() & definition.variables.keys():
            self._report(("variables", name), f"`{name}` is an input already")
        if definition.requires is not None:
            self._check_requires(definition.requires)
        for name, tool in definition.tools.items():
            if tool.parameters.get("type") != "object":
                self._report(("tools", name, "parameters"), f"the parameters of `{name}` need `type: object`")

    def _check_requires(self, requires: HostRequirements) -> None:
        for name, value in requires.labels.items():
            if problem := label_problem(name, value):
                self._report(("requires", "labels", name), problem)
        for index, provider in enumerate(requires.providers):
            if self._context.check_agent is not None and provider not in DEFAULT_MODELS:
                try:
                    self._context.check_agent(provider, {PROMPT: "…"})
                except ShopfloorError as error:
                    self._report_error(("requires", "providers", index), error)

    def _check_steps(self, steps: dict[str, Step], scope: _Scope, place: YamlPath) -> None:
        self._check_segments(steps, place, "step")
        if not steps and place != ("steps",):
            self._report(place, f"`{place[-1]}` has no steps: it needs at least one")
        for name, step in steps.items():
            self._check_step(step, scope, (*place, name))

    def _check_segments(self, names: Collection[str], place: YamlPath, what: str) -> None:
        seen: dict[str, str] = {}
        for name in names:
            segment = path_segment(name)
            if not segment:
                self._report((*place, name), f"the name of the {what} `{name}` has no letter or digit")
            elif segment in seen:
                other = seen[segment]
                self._report((*place, name), f"the {what}s `{other}` and `{name}` would both be `{segment}` in the log")
            seen.setdefault(segment, name)

    def _check_step(self, step: Step, scope: _Scope, place: YamlPath) -> None:
        match step:
            case StartThread() | AddMessage() | NextMessage() | SerializeThread():
                self._check_thread_step(step, scope, place)
            case CallTool() | RunWorker() | Operation():
                self._check_called(step, place)
                self._check_names(step.input, scope, (*place, "input"))
            case CommandStep():
                self._check_command(step, scope, place)
            case Terminal():
                self._check_names([step.output, step.message], scope, place)
                self._check_condition(step.when, scope, (*place, "when"))
            case Custom():
                self._check_names(step.with_, scope, place)
            case PluginJob():
                self._check_names([step.task, step.label, step.config], scope, place)
            case Agent():
                self._check_agent(step, scope, place)
            case Parallel() | ForEach() | While():
                self._check_block(step, scope, place)
        output = getattr(step, "output", None)
        if isinstance(output, str) and not isinstance(step, Terminal):
            if not NAME.fullmatch(output):
                self._report((*place, "output"), f"`{output}` is not a valid name: letters, digits, `_` and `-`")
            scope.names.add(output)

    def _check_block(self, step: Parallel | ForEach | While, scope: _Scope, place: YamlPath) -> None:
        match step:
            case Parallel():
                self._check_segments(step.branches, (*place, "branches"), "branch")
                if not step.branches:
                    self._report((*place, "branches"), "`branches` needs at least one: a name and its steps")
                ends: list[_Scope] = []
                for name, steps in step.branches.items():
                    ends.append(scope.copy())
                    self._check_steps(steps, ends[-1], (*place, "branches", name))
                for end in ends:
                    scope.merge(end)
            case ForEach():
                self._check_for_each(step, scope, place)
            case While():
                inside = scope.copy()
                inside.names.add("ROUND")
                self._check_condition(step.condition, inside, (*place, "while"))
                self._check_steps(step.steps, inside, (*place, "steps"))
                inside.names -= {"ROUND"} - scope.names
                scope.merge(inside)

    def _check_for_each(self, step: ForEach, scope: _Scope, place: YamlPath) -> None:
        self._check_names(step.each, scope, (*place, "each"))
        if not isinstance(step.each, list) and not is_single_placeholder(step.each):
            self._report((*place, "each"), "`each` must be a list, or `{{NAME}}` of a list")
        if not NAME.fullmatch(step.as_):
            self._report((*place, "as"), f"`{step.as_}` is not a valid name: letters, digits, `_` and `-`")
        inside = scope.copy()
        inside.names |= {step.as_, "ROUND"}
        self._check_steps(step.steps, inside, (*place, "steps"))
        if step.collect is not None and step.collect not in inside.names:
            reason = f"`collect` names `{step.collect}`, which is never set"
            self._report_undefined((*place, "collect"), f"{reason}; {did_you_mean(step.collect, inside.names)}")
        if step.output is not None and step.collect is None:
            self._report((*place, "output"), "`output` needs `collect`: the variable to collect from each round")
        # Variables that a round sets are local to it: they are not defined after the loop.

    def _check_thread_step(
        self, step: StartThread | AddMessage | NextMessage | SerializeThread, scope: _Scope, place: YamlPath
    ) -> None:
        if isinstance(step, StartThread):
            self._check_start(step, scope, place)
            return
        if isinstance(step, NextMessage):
            self._check_timeout(step.timeout, scope, place)
        if step.thread not in scope.threads:
            known = did_you_mean(step.thread, scope.threads, none="add a `start-thread` step before it")
            reason = f"the thread `{step.thread}` is not started before this step; {known}"
            self._report_undefined((*place, "thread"), reason)
            # Report the thread only once.
            scope.threads.add(step.thread)
        if isinstance(step, AddMessage):
            if (step.prompt is None) == (step.text is None):
                self._report(place, "an `add-message` step needs either `prompt` or `text`")
            self._check_names(step.text, scope, (*place, "text"))
            self._check_prompt(step.prompt, step.input, scope, place, "prompt")

    def _check_start(self, step: StartThread, scope: _Scope, place: YamlPath) -> None:
        for name, model in (("model", step.model), ("backupModel", step.backup_model)):
            if model is not None:
                self._check_model(model, scope, (*place, name))
        for index, tool in enumerate(step.tools):
            self._check_tool(tool, (*place, "tools", index))
        self._check_prompt(step.system, step.input, scope, place, "system")
        scope.threads.add(step.thread)

    def _check_model(self, model: str, scope: _Scope, place: YamlPath) -> None:
        if placeholders(model):
            self._check_names(model, scope, place)
            return
        provider, _, name = model.partition("/")
        if not provider or not name:
            self._report(place, f"the model `{model}` must be `provider/name`, as in `anthropic/claude-sonnet-4-5`")
        elif self._context.check_model is not None:
            try:
                self._context.check_model(model)
            except UnknownModel as error:
                # A script reports its own problems, with file and line.
                self.problems += [Problem(Path(file), line, reason) for file, line, reason in error.problems]
                if not error.problems:
                    self._report_error(place, error)
            except ShopfloorError as error:
                self._report_error(place, error)

    def _check_tool(self, tool: str, place: YamlPath) -> None:
        known = self._definition.tools.keys() | BUILTIN_TOOL_NAMES
        if tool not in known:
            self._report_undefined(place, f"there is no tool `{tool}`; {did_you_mean(tool, known)}")

    def _check_called(self, step: CallTool | RunWorker | Operation, place: YamlPath) -> None:
        match step:
            case CallTool():
                self._check_tool(step.tool, (*place, "tool"))
            case RunWorker():
                self._check_worker(step, place)
            case Operation():
                self._check_operation(step, place)

    def _check_operation(self, step: Operation, place: YamlPath) -> None:
        """Check the names' shape only: what a plugin offers is known when it runs."""
        if not is_slug(step.plugin):
            reason = "is not a valid plugin name: lower-case letters, digits and `-`"
            self._report((*place, "plugin"), f"`{step.plugin}` {reason}")
        if not step.tool.strip():
            self._report((*place, "tool"), "`tool` needs the name of a tool of the plugin")

    def _check_worker(self, step: RunWorker, place: YamlPath) -> None:
        worker, known = step.worker, self._context.workers
        if not is_slug(worker):
            self._report(
                (*place, "worker"), f"`{worker}` is not a valid worker slug: lower-case letters, digits and `-`"
            )
        elif known is not None and worker not in known:
            self._report((*place, "worker"), f"there is no worker `{worker}`; {did_you_mean(worker, known)}")
        elif known is not None:
            self._check_worker_input(step, known[worker], place)

    def _check_worker_input(self, step: RunWorker, called: Definition | None, place: YamlPath) -> None:
        worker = step.worker
        if called is None:
            hint = f"run `shopfloor workers check {worker}` to see them"
            self._report((*place, "worker"), f"the worker `{worker}` has problems itself; {hint}")
            return
        # Values that are not known yet are assumed to be valid.
        unknown = {name for name, value in step.input.items() if placeholders(value)}
        for name, reason in input_problems(called, step.input, unknown=unknown):
            at = (*place, "input", name) if name in step.input else (*place, "input")
            self._report(at, f"the input of `{worker}`: {reason}")

    def _check_command(self, step: CommandStep, scope: _Scope, place: YamlPath) -> None:
        self._check_names(step.command, scope, (*place, "command"))
        if isinstance(step.command, str):
            for _, reason in shell_problems(step.command):
                self._report((*place, "command"), reason)
        elif not step.command:
            self._report((*place, "command"), "`command` needs a program")
        else:
            for reason in argv_problems(step.command):
                self._report((*place, "command"), reason)
        self._check_names(step.cwd, scope, (*place, "cwd"))
        self._check_names(step.env, scope, (*place, "env"))
        self._check_timeout(step.timeout, scope, place)

    def _check_timeout(self, timeout: float | str | None, scope: _Scope, place: YamlPath) -> None:
        self._check_names(timeout, scope, (*place, "timeout"))
        if isinstance(timeout, str) and not is_single_placeholder(timeout) and parse_duration(timeout) is None:
            expected = "seconds, a duration such as `90s`, `10m` or `2h`, or `{{NAME}}` of one"
            self._report((*place, "timeout"), f"`timeout` must be {expected}, got `{timeout[:40]}`")

    def _check_agent(self, step: Agent, scope: _Scope, place: YamlPath) -> None:
        if (step.prompt is None) == (step.text is None):
            self._report(place, "an `agent` step needs either `prompt` or `text`")
        texts = {name: getattr(step, name) for name in ("provider", "text", "model", "cwd", "resume")}
        for name, value in texts.items():
            self._check_names(value, scope, (*place, name))
        self._check_timeout(step.timeout, scope, place)
        for name, (_, value, expected) in _non_text_options(step).items():
            self._check_names(value, scope, (*place, name))
            if isinstance(value, str) and not is_single_placeholder(value):
                self._report((*place, name), f"`{name}` must be {expected}, or `{{{{NAME}}}}` of one")
        for index, name in enumerate(step.own_tools):
            known = self._definition.tools
            if name not in known:
                self._report_undefined(
                    (*place, "ownTools", index), f"there is no tool `{name}`; {did_you_mean(name, known)}"
                )
            elif known[name].handler is None:
                self._report((*place, "ownTools", index), f"`{name}` has no `handler`, which own tools need")
        self._check_prompt(step.prompt, step.input, scope, place, "prompt")
        self._check_prompt(step.system, step.input, scope, place, "system")
        if self._context.check_agent is not None and not placeholders(step.provider):
            self._check_provider(step, self._context.check_agent, place)

    def _check_provider(self, step: Agent, check: Callable[[str, Mapping[str, Any]], None], place: YamlPath) -> None:
        """Check each option on its own, so that all unsupported options are reported."""
        try:
            check(step.provider, {PROMPT: "…"})
        except ShopfloorError as error:
            self._report_error((*place, "provider"), error)
            return
        prompts = self._definition.prompts
        text = step.text if step.prompt is None else prompts.get(step.prompt)
        system = None if step.system is None else prompts.get(step.system)
        options: dict[str, tuple[str, Any]] = {
            "prompt" if step.prompt is not None else "text": (PROMPT, text),
            "system": ("system", system),
            "model": ("model", step.model),
            "resume": ("resume", step.resume),
            "ownTools": (
                "own_tools",
                [own_tool_spec(name, self._definition.tools.get(name)) for name in step.own_tools],
            ),
        }
        # A text is the name of a value, or has been reported already.
        others = {name: option for name, option in _non_text_options(step).items() if not isinstance(option[1], str)}
        options |= {name: (option, value) for name, (option, value, _) in others.items()}
        model = {} if step.model is None or placeholders(step.model) else {"model": step.model}
        if step.max_budget is not None and step.model is not None and not model:
            # Whether there is a price depends on the model, which is not known yet.
            options.pop("maxBudget", None)
        for name, (option, value) in options.items():
            if value is None or value is False or value == [] or placeholders(value):
                continue
            try:
                check(step.provider, {PROMPT: "…", **model, option: value})
            except ShopfloorError as error:
                self._report_error((*place, name), error)

    def _check_condition(self, condition: Condition | None, scope: _Scope, place: YamlPath) -> None:
        if condition is not None:
            operands = (
                condition.value,
                condition.is_,
                condition.not_,
                condition.less,
                condition.more,
                condition.contains,
            )
            self._check_names([*operands, condition.within], scope, place)

    def _check_prompt(self, name: str | None, allowed: list[str], scope: _Scope, place: YamlPath, field: str) -> None:
        for index, value in enumerate(allowed):
            if value not in scope.names:
                self._report_undefined(
                    (*place, "input", index), f"`{value}` is not defined; {did_you_mean(value, scope.names)}"
                )
        if name is None:
            return
        text = self._definition.prompts.get(name)
        if text is None:
            reason = f"there is no prompt `{name}` (prompts/{name}.md)"
            self._report((*place, field), f"{reason}; {did_you_mean(name, self._definition.prompts)}")
            return
        known = set(allowed) or scope.names
        file = self._file.parent / "prompts" / f"{name}.md"
        for start, reason in invalid_placeholders(text, scope.names):
            self.problems.append(Problem(file, text.count("\n", 0, start) + 1, reason))
        for start, value in find_placeholders(text):
            if value not in known and not self._structure.incomplete:
                reason = "is not in the `input` of its step" if value in scope.names else "is not defined"
                line = text.count("\n", 0, start) + 1
                self.problems.append(Problem(file, line, f"`{{{{{value}}}}}` {reason}; {did_you_mean(value, known)}"))

    def _check_names(self, template: Any, scope: _Scope, place: YamlPath) -> None:
        for name in sorted(placeholders(template) - scope.names):
            at = next(_places_of(name, template, place), place)
            known = did_you_mean(name, scope.names, none="no values are defined yet")
            self._report_undefined(at, f"`{{{{{name}}}}}` is not defined before {_step_at(place)}; {known}")
        for at, text in _texts_in(template, place):
            for _, reason in invalid_placeholders(text, scope.names):
                self._report(at, reason)


def _step_at(place: YamlPath) -> str:
    """Return the innermost step that contains a place, in words; `output` for the output of the worker."""
    words, rest = f"`{place[0]}`", place
    while rest[:1] == ("steps",) or rest[:1] == ("branches",):
        depth = 1 if rest[0] == "steps" else 2
        words, rest = f"the step `{rest[depth]}`", rest[depth + 1 :]
    return words


def _non_text_options(step: Agent) -> dict[str, tuple[str, Any, str]]:
    """Return the options that are not text: the name in `AgentOptions`, the value, and the expected type in words."""
    return {
        "tools": ("tools", step.tools, "a list"),
        "readOnly": ("read_only", step.read_only, "true or false"),
        "sandbox": ("sandbox", step.sandbox, "true or false"),
        "maxTurns": ("max_turns", step.max_turns, "a whole number"),
        "maxBudget": ("max_budget", step.max_budget, "a number"),
    }


def _texts_in(template: Any, place: YamlPath) -> Iterator[tuple[YamlPath, str]]:
    """Yield every text of a template with its place."""
    if isinstance(template, str):
        yield place, template
    elif isinstance(template, dict):
        for key, value in cast("dict[str, Any]", template).items():
            yield from _texts_in(value, (*place, key))
    elif isinstance(template, list):
        for index, value in enumerate(cast("list[Any]", template)):
            yield from _texts_in(value, (*place, index))


def _places_of(name: str, template: Any, place: YamlPath) -> Iterator[YamlPath]:
    """Yield the places inside of a template that refer to a name."""
    return (at for at, text in _texts_in(template, place) if name in placeholders(text))
