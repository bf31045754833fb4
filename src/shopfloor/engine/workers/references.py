"""Whether what a definition speaks of is there: names, prompts, threads, tools, models, workers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from shopfloor.engine.workers.definition import (
    INTERNAL_TOOLS,
    AddMessage,
    Agent,
    CallTool,
    CommandStep,
    Condition,
    Custom,
    Definition,
    ForEach,
    NextMessage,
    Parallel,
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
from shopfloor.engine.workers.provider_workers import PROMPT
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
from shopfloor.yaml_document import YamlDocument, YamlPath


class ValidationContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a definition may speak of that is not in its folder. What is None is not checked."""

    check_model: Callable[[str], None] | None = None
    """Raises where nobody could ever answer under that name."""
    check_agent: Callable[[str, Mapping[str, Any]], None] | None = None
    """Raises where there is no such provider, or it cannot be asked for that: fields of an agent's order."""
    workers: Mapping[str, Definition | None] | None = None
    """All workers by their slugs; None for one that cannot be run itself."""


class _Scope(msgspec.Struct):
    """What a step may speak of."""

    names: set[str]
    threads: set[str]

    def copy(self) -> _Scope:
        return _Scope(set(self.names), set(self.threads))

    def take(self, other: _Scope) -> None:
        self.names |= other.names
        self.threads |= other.threads


class ReferenceChecker:
    def __init__(
        self,
        definition: Definition,
        document: YamlDocument,
        file: Path,
        *,
        validation_context: ValidationContext,
        shapes: StructureValidator,
    ) -> None:
        """`shapes` says which parts of the definition are known to be wrong, and could not be read."""
        self._definition = definition
        self._document = document
        self._file = file
        self._surroundings = validation_context
        self._shapes = shapes
        self.problems: list[Problem] = []

    def check(self) -> list[Problem]:
        definition = self._definition
        self._declared()
        scope = _Scope({*definition.input, *definition.variables}, set())
        self._steps(definition.steps, scope, ("steps",))
        output = definition.output
        if isinstance(output, str) and NAME.fullmatch(output) and output not in scope.names:
            reason = f"`output` names `{output}`, which nothing sets"
            self._undefined(("output",), f"{reason}; {did_you_mean(output, scope.names)}")
        self._names(output, scope, ("output",))
        return self.problems

    def _wrong(self, place: YamlPath, reason: str) -> None:
        if not any(place[: len(broken)] == broken for broken in self._shapes.broken if broken):
            self.problems.append(Problem(self._file, self._document.line_of(place), reason))

    def _undefined(self, place: YamlPath, reason: str) -> None:
        """The same of something that nothing defines: what could not be read may define it."""
        if not self._shapes.incomplete:
            self._wrong(place, reason)

    def _refused(self, place: YamlPath, error: ShopfloorError) -> None:
        self._wrong(place, error.message + (f" ({error.hint})" if error.hint else ""))

    def _declared(self) -> None:
        definition = self._definition
        declared: Mapping[str, Mapping[str, Any]] = {"input": definition.input, "variables": definition.variables}
        for part, named in declared.items():
            for name, field in named.items():
                if not NAME.fullmatch(name):
                    self._wrong((part, name), f"`{name}` cannot be a name: letters, digits, `_` and `-`")
                if field.default is not None and (problem := type_problem(field.default, field.type)):
                    self._wrong((part, name, "default"), f"the default of `{name}` {problem}")
        for name in definition.input.keys() & definition.variables.keys():
            self._wrong(("variables", name), f"`{name}` is an input already")
        for name, tool in definition.tools.items():
            if tool.parameters.get("type") != "object":
                self._wrong(("tools", name, "parameters"), f"the parameters of `{name}` need `type: object`")

    def _steps(self, steps: dict[str, Step], scope: _Scope, place: YamlPath) -> None:
        self._segments(steps, place, "step")
        if not steps and place != ("steps",):
            self._wrong(place, f"`{place[-1]}` has no steps: it needs at least one")
        for name, step in steps.items():
            self._step(step, scope, (*place, name))

    def _segments(self, names: Collection[str], place: YamlPath, what: str) -> None:
        seen: dict[str, str] = {}
        for name in names:
            segment = path_segment(name)
            if not segment:
                self._wrong((*place, name), f"the name of the {what} `{name}` has no letter or digit")
            elif segment in seen:
                other = seen[segment]
                self._wrong((*place, name), f"the {what}s `{other}` and `{name}` would both be `{segment}` in the log")
            seen.setdefault(segment, name)

    def _step(self, step: Step, scope: _Scope, place: YamlPath) -> None:
        match step:
            case StartThread() | AddMessage() | NextMessage() | SerializeThread():
                self._in_thread(step, scope, place)
            case CallTool():
                self._tool(step.tool, (*place, "tool"))
                self._names(step.input, scope, (*place, "input"))
            case RunWorker():
                self._worker(step, place)
                self._names(step.input, scope, (*place, "input"))
            case CommandStep():
                self._command(step, scope, place)
            case Terminal():
                self._names([step.output, step.message], scope, place)
                self._condition(step.when, scope, (*place, "when"))
            case Custom():
                self._names(step.with_, scope, place)
            case Agent():
                self._agent(step, scope, place)
            case Parallel() | ForEach() | While():
                self._with_steps(step, scope, place)
        output = getattr(step, "output", None)
        if isinstance(output, str) and not isinstance(step, Terminal):
            if not NAME.fullmatch(output):
                self._wrong((*place, "output"), f"`{output}` cannot be a name: letters, digits, `_` and `-`")
            scope.names.add(output)

    def _with_steps(self, step: Parallel | ForEach | While, scope: _Scope, place: YamlPath) -> None:
        match step:
            case Parallel():
                self._segments(step.branches, (*place, "branches"), "branch")
                if not step.branches:
                    self._wrong((*place, "branches"), "`branches` needs at least one: a name and its steps")
                ends: list[_Scope] = []
                for name, steps in step.branches.items():
                    ends.append(scope.copy())
                    self._steps(steps, ends[-1], (*place, "branches", name))
                for end in ends:
                    scope.take(end)
            case ForEach():
                self._each(step, scope, place)
            case While():
                inside = scope.copy()
                inside.names.add("ROUND")
                self._condition(step.condition, inside, (*place, "while"))
                self._steps(step.steps, inside, (*place, "steps"))
                inside.names -= {"ROUND"} - scope.names
                scope.take(inside)

    def _each(self, step: ForEach, scope: _Scope, place: YamlPath) -> None:
        self._names(step.each, scope, (*place, "each"))
        if not isinstance(step.each, list) and not is_single_placeholder(step.each):
            self._wrong((*place, "each"), "`each` is to be a list, or `{{NAME}}` of one")
        if not NAME.fullmatch(step.as_):
            self._wrong((*place, "as"), f"`{step.as_}` cannot be a name: letters, digits, `_` and `-`")
        inside = scope.copy()
        inside.names |= {step.as_, "ROUND"}
        self._steps(step.steps, inside, (*place, "steps"))
        if step.collect is not None and step.collect not in inside.names:
            reason = f"`collect` names `{step.collect}`, which nothing sets"
            self._undefined((*place, "collect"), f"{reason}; {did_you_mean(step.collect, inside.names)}")
        if step.output is not None and step.collect is None:
            self._wrong((*place, "output"), "`output` needs `collect`: which value of each round is kept")
        # What a round sets is its own: nothing of it can be spoken of after the loop.

    def _in_thread(
        self, step: StartThread | AddMessage | NextMessage | SerializeThread, scope: _Scope, place: YamlPath
    ) -> None:
        if isinstance(step, StartThread):
            self._start(step, scope, place)
        elif step.thread not in scope.threads:
            reason = f"the thread `{step.thread}` is not started before this step"
            self._undefined((*place, "thread"), f"{reason}; {did_you_mean(step.thread, scope.threads)}")
            # Said once is enough.
            scope.threads.add(step.thread)
        if isinstance(step, AddMessage):
            if (step.prompt is None) == (step.text is None):
                self._wrong(place, "an `add-message` step needs either `prompt` or `text`")
            self._names(step.text, scope, (*place, "text"))
            self._prompt(step.prompt, step.input, scope, place, "prompt")

    def _start(self, step: StartThread, scope: _Scope, place: YamlPath) -> None:
        for name, model in (("model", step.model), ("backupModel", step.backup_model)):
            if model is not None:
                self._model(model, scope, (*place, name))
        for index, tool in enumerate(step.tools):
            self._tool(tool, (*place, "tools", index))
        self._prompt(step.system, step.input, scope, place, "system")
        scope.threads.add(step.thread)

    def _model(self, model: str, scope: _Scope, place: YamlPath) -> None:
        if placeholders(model):
            self._names(model, scope, place)
            return
        provider, _, name = model.partition("/")
        if not provider or not name:
            self._wrong(place, f"the model `{model}` is to be `provider/name`, as in `anthropic/claude-sonnet-4-5`")
        elif self._surroundings.check_model is not None:
            try:
                self._surroundings.check_model(model)
            except UnknownModel as error:
                # A script says itself where it is wrong.
                self.problems += [Problem(Path(file), line, reason) for file, line, reason in error.problems]
                if not error.problems:
                    self._refused(place, error)
            except ShopfloorError as error:
                self._refused(place, error)

    def _tool(self, tool: str, place: YamlPath) -> None:
        known = self._definition.tools.keys() | INTERNAL_TOOLS
        if tool not in known:
            self._undefined(place, f"there is no tool `{tool}`; {did_you_mean(tool, known)}")

    def _worker(self, step: RunWorker, place: YamlPath) -> None:
        worker, known = step.worker, self._surroundings.workers
        if not is_slug(worker):
            self._wrong((*place, "worker"), f"`{worker}` is no slug of a worker: lower-case letters, digits and `-`")
        elif known is not None and worker not in known:
            self._wrong((*place, "worker"), f"there is no worker `{worker}`; {did_you_mean(worker, known)}")
        elif known is not None:
            self._called(step, known[worker], place)

    def _called(self, step: RunWorker, called: Definition | None, place: YamlPath) -> None:
        worker = step.worker
        if called is None:
            hint = f"`shopfloor workers check {worker}` says why"
            self._wrong((*place, "worker"), f"the worker `{worker}` cannot be run itself; {hint}")
            return
        # A value that is not known yet is taken to fit.
        unknown = {name for name, value in step.input.items() if placeholders(value)}
        for name, reason in input_problems(called, step.input, unknown=unknown):
            at = (*place, "input", name) if name in step.input else (*place, "input")
            self._wrong(at, f"the input of `{worker}`: {reason}")

    def _command(self, step: CommandStep, scope: _Scope, place: YamlPath) -> None:
        self._names(step.command, scope, (*place, "command"))
        if isinstance(step.command, str):
            for _, reason in shell_problems(step.command):
                self._wrong((*place, "command"), reason)
        elif not step.command:
            self._wrong((*place, "command"), "`command` needs a program")
        else:
            for reason in argv_problems(step.command):
                self._wrong((*place, "command"), reason)
        self._names(step.cwd, scope, (*place, "cwd"))
        self._names(step.env, scope, (*place, "env"))

    def _agent(self, step: Agent, scope: _Scope, place: YamlPath) -> None:
        if (step.prompt is None) == (step.text is None):
            self._wrong(place, "an `agent` step needs either `prompt` or `text`")
        said = {name: getattr(step, name) for name in ("provider", "text", "model", "cwd", "resume")}
        for name, value in said.items():
            self._names(value, scope, (*place, name))
        for name, (_, value, shape) in _no_texts(step).items():
            self._names(value, scope, (*place, name))
            if isinstance(value, str) and not is_single_placeholder(value):
                self._wrong((*place, name), f"`{name}` is to be {shape}, or `{{{{NAME}}}}` of one")
        for index, name in enumerate(step.own_tools):
            known = self._definition.tools
            if name not in known:
                self._undefined((*place, "ownTools", index), f"there is no tool `{name}`; {did_you_mean(name, known)}")
            elif known[name].handler is None:
                self._wrong((*place, "ownTools", index), f"`{name}` has no `handler` that could be called")
        self._prompt(step.prompt, step.input, scope, place, "prompt")
        self._prompt(step.system, step.input, scope, place, "system")
        if self._surroundings.check_agent is not None and not placeholders(step.provider):
            self._provider(step, self._surroundings.check_agent, place)

    def _provider(self, step: Agent, check: Callable[[str, Mapping[str, Any]], None], place: YamlPath) -> None:
        """What the provider says to each option by itself, so that all refusals are told at once."""
        try:
            check(step.provider, {PROMPT: "…"})
        except ShopfloorError as error:
            self._refused((*place, "provider"), error)
            return
        prompts = self._definition.prompts
        text = step.text if step.prompt is None else prompts.get(step.prompt)
        system = None if step.system is None else prompts.get(step.system)
        asked: dict[str, tuple[str, Any]] = {
            "prompt" if step.prompt is not None else "text": (PROMPT, text),
            "system": ("system", system),
            "model": ("model", step.model),
            "resume": ("resume", step.resume),
            "ownTools": (
                "own_tools",
                [own_tool_spec(name, self._definition.tools.get(name)) for name in step.own_tools],
            ),
        }
        # A text in their place has been told of already, or is the name of a value.
        others = {name: one for name, one in _no_texts(step).items() if not isinstance(one[1], str)}
        asked |= {name: (option, value) for name, (option, value, _) in others.items()}
        model = {} if step.model is None or placeholders(step.model) else {"model": step.model}
        if step.max_budget is not None and step.model is not None and not model:
            # Whether there is a price depends on the model, which is not known yet.
            asked.pop("maxBudget", None)
        for name, (option, value) in asked.items():
            if value is None or value is False or value == [] or placeholders(value):
                continue
            try:
                check(step.provider, {PROMPT: "…", **model, option: value})
            except ShopfloorError as error:
                self._refused((*place, name), error)

    def _condition(self, condition: Condition | None, scope: _Scope, place: YamlPath) -> None:
        if condition is not None:
            said = (condition.value, condition.is_, condition.not_, condition.less, condition.more, condition.contains)
            self._names([*said, condition.within], scope, place)

    def _prompt(self, name: str | None, allowed: list[str], scope: _Scope, place: YamlPath, field: str) -> None:
        for index, value in enumerate(allowed):
            if value not in scope.names:
                self._undefined(
                    (*place, "input", index), f"nothing defines `{value}`; {did_you_mean(value, scope.names)}"
                )
        if name is None:
            return
        text = self._definition.prompts.get(name)
        if text is None:
            reason = f"there is no prompt `{name}` (prompts/{name}.md)"
            self._wrong((*place, field), f"{reason}; {did_you_mean(name, self._definition.prompts)}")
            return
        known = set(allowed) or scope.names
        file = self._file.parent / "prompts" / f"{name}.md"
        for start, reason in invalid_placeholders(text, scope.names):
            self.problems.append(Problem(file, text.count("\n", 0, start) + 1, reason))
        for start, value in find_placeholders(text):
            if value not in known and not self._shapes.incomplete:
                why = "is not in the `input` of its step" if value in scope.names else "is nothing that is defined"
                line = text.count("\n", 0, start) + 1
                self.problems.append(Problem(file, line, f"`{{{{{value}}}}}` {why}; {did_you_mean(value, known)}"))

    def _names(self, template: Any, scope: _Scope, place: YamlPath) -> None:
        for name in sorted(placeholders(template) - scope.names):
            at = next(_places_of(name, template, place), place)
            reason = f"`{{{{{name}}}}}` is nothing that is defined before; {did_you_mean(name, scope.names)}"
            self._undefined(at, reason)
        for at, text in _texts_in(template, place):
            for _, reason in invalid_placeholders(text, scope.names):
                self._wrong(at, reason)


def _no_texts(step: Agent) -> dict[str, tuple[str, Any, str]]:
    """The options that are no text: their name in an agent's order, their value, and what they are to be."""
    return {
        "tools": ("tools", step.tools, "a list"),
        "readOnly": ("read_only", step.read_only, "true or false"),
        "sandbox": ("sandbox", step.sandbox, "true or false"),
        "maxTurns": ("max_turns", step.max_turns, "a whole number"),
        "maxBudget": ("max_budget", step.max_budget, "a number"),
    }


def _texts_in(template: Any, place: YamlPath) -> Iterator[tuple[YamlPath, str]]:
    """Every text of a template, with its place."""
    if isinstance(template, str):
        yield place, template
    elif isinstance(template, dict):
        for key, value in cast("dict[str, Any]", template).items():
            yield from _texts_in(value, (*place, key))
    elif isinstance(template, list):
        for index, value in enumerate(cast("list[Any]", template)):
            yield from _texts_in(value, (*place, index))


def _places_of(name: str, template: Any, place: YamlPath) -> Iterator[YamlPath]:
    """Where inside of a template that name stands."""
    return (at for at, text in _texts_in(template, place) if name in placeholders(text))
