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
    segment_of,
)
from shopfloor.engine.workers.document import Document, Place
from shopfloor.engine.workers.inputs import type_problem
from shopfloor.engine.workers.problems import Problem, did_you_mean
from shopfloor.engine.workers.values import NAME, placed, placeholders, shell_problems
from shopfloor.errors import ShopfloorError

CheckModel = Callable[[str], None]
"""Raises where nobody could ever answer under that name."""


class _Scope(msgspec.Struct):
    """What a step may speak of."""

    names: set[str]
    threads: set[str]

    def copy(self) -> _Scope:
        return _Scope(set(self.names), set(self.threads))

    def take(self, other: _Scope) -> None:
        self.names |= other.names
        self.threads |= other.threads


class Meaning:
    def __init__(
        self,
        definition: Definition,
        document: Document,
        file: Path,
        *,
        check_model: CheckModel | None = None,
        workers: Collection[str] | None = None,
    ) -> None:
        self._definition = definition
        self._document = document
        self._file = file
        self._check_model = check_model
        self._workers = workers
        self.problems: list[Problem] = []

    def check(self) -> list[Problem]:
        definition = self._definition
        self._declared()
        scope = _Scope({*definition.input, *definition.variables}, set())
        self._steps(definition.steps, scope, ("steps",))
        output = definition.output
        if isinstance(output, str) and NAME.fullmatch(output) and output not in scope.names:
            reason = f"`output` names `{output}`, which nothing sets"
            self._wrong(("output",), f"{reason}; {did_you_mean(output, scope.names)}")
        self._names(output, scope, ("output",))
        return self.problems

    def _wrong(self, place: Place, reason: str) -> None:
        self.problems.append(Problem(self._file, self._document.line_of(place), reason))

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

    def _steps(self, steps: dict[str, Step], scope: _Scope, place: Place) -> None:
        self._segments(steps, place, "step")
        for name, step in steps.items():
            self._step(step, scope, (*place, name))

    def _segments(self, names: Collection[str], place: Place, what: str) -> None:
        seen: dict[str, str] = {}
        for name in names:
            segment = segment_of(name)
            if not segment:
                self._wrong((*place, name), f"the name of the {what} `{name}` has no letter or digit")
            elif segment in seen:
                other = seen[segment]
                self._wrong((*place, name), f"the {what}s `{other}` and `{name}` would both be `{segment}` in the log")
            seen.setdefault(segment, name)

    def _step(self, step: Step, scope: _Scope, place: Place) -> None:
        match step:
            case StartThread() | AddMessage() | NextMessage() | SerializeThread():
                self._in_thread(step, scope, place)
            case CallTool():
                self._tool(step.tool, (*place, "tool"))
                self._names(step.input, scope, (*place, "input"))
            case RunWorker():
                self._worker(step.worker, (*place, "worker"))
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

    def _with_steps(self, step: Parallel | ForEach | While, scope: _Scope, place: Place) -> None:
        match step:
            case Parallel():
                self._segments(step.branches, (*place, "branches"), "branch")
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
                scope.take(inside)

    def _each(self, step: ForEach, scope: _Scope, place: Place) -> None:
        self._names(step.each, scope, (*place, "each"))
        if not isinstance(step.each, list) and not placeholders(step.each):
            self._wrong((*place, "each"), "`each` is to be a list, or `{{NAME}}` of one")
        if not NAME.fullmatch(step.as_):
            self._wrong((*place, "as"), f"`{step.as_}` cannot be a name: letters, digits, `_` and `-`")
        inside = scope.copy()
        inside.names |= {step.as_, "ROUND"}
        self._steps(step.steps, inside, (*place, "steps"))
        if step.collect is not None and step.collect not in inside.names:
            reason = f"`collect` names `{step.collect}`, which nothing sets"
            self._wrong((*place, "collect"), f"{reason}; {did_you_mean(step.collect, inside.names)}")
        if step.output is not None and step.collect is None:
            self._wrong((*place, "output"), "`output` needs `collect`: which value of each round is kept")
        # What a round sets is its own: nothing of it can be spoken of after the loop.

    def _in_thread(
        self, step: StartThread | AddMessage | NextMessage | SerializeThread, scope: _Scope, place: Place
    ) -> None:
        if isinstance(step, StartThread):
            self._start(step, scope, place)
        elif step.thread not in scope.threads:
            reason = f"the thread `{step.thread}` is not started before this step"
            self._wrong((*place, "thread"), f"{reason}; {did_you_mean(step.thread, scope.threads)}")
            # Said once is enough.
            scope.threads.add(step.thread)
        if isinstance(step, AddMessage):
            if (step.prompt is None) == (step.text is None):
                self._wrong(place, "an `add-message` step needs either `prompt` or `text`")
            self._names(step.text, scope, (*place, "text"))
            self._prompt(step.prompt, step.input, scope, place, "prompt")

    def _start(self, step: StartThread, scope: _Scope, place: Place) -> None:
        for name, model in (("model", step.model), ("backupModel", step.backup_model)):
            if model is not None:
                self._model(model, scope, (*place, name))
        for index, tool in enumerate(step.tools):
            self._tool(tool, (*place, "tools", index))
        self._prompt(step.system, step.input, scope, place, "system")
        scope.threads.add(step.thread)

    def _model(self, model: str, scope: _Scope, place: Place) -> None:
        if placeholders(model):
            self._names(model, scope, place)
            return
        provider, _, name = model.partition("/")
        if not provider or not name:
            self._wrong(place, f"the model `{model}` is to be `provider/name`, as in `anthropic/claude-sonnet-4-5`")
        elif self._check_model is not None:
            try:
                self._check_model(model)
            except ShopfloorError as error:
                self._wrong(place, error.message + (f" ({error.hint})" if error.hint else ""))

    def _tool(self, tool: str, place: Place) -> None:
        known = self._definition.tools.keys() | INTERNAL_TOOLS
        if tool not in known:
            self._wrong(place, f"there is no tool `{tool}`; {did_you_mean(tool, known)}")

    def _worker(self, worker: str, place: Place) -> None:
        if not is_slug(worker):
            self._wrong(place, f"`{worker}` is no slug of a worker: lower-case letters, digits and `-`")
        elif self._workers is not None and worker not in self._workers:
            self._wrong(place, f"there is no worker `{worker}`; {did_you_mean(worker, self._workers)}")

    def _command(self, step: CommandStep, scope: _Scope, place: Place) -> None:
        self._names(step.command, scope, (*place, "command"))
        if isinstance(step.command, str):
            for _, reason in shell_problems(step.command):
                self._wrong((*place, "command"), reason)
        elif not step.command:
            self._wrong((*place, "command"), "`command` needs a program")
        self._names(step.cwd, scope, (*place, "cwd"))
        self._names(step.env, scope, (*place, "env"))

    def _agent(self, step: Agent, scope: _Scope, place: Place) -> None:
        if (step.prompt is None) == (step.text is None):
            self._wrong(place, "an `agent` step needs either `prompt` or `text`")
        said = {name: getattr(step, name) for name in ("provider", "text", "model", "cwd", "resume")}
        for name, value in said.items():
            self._names(value, scope, (*place, name))
        for name, value in {"tools": step.tools, "maxTurns": step.max_turns, "maxBudget": step.max_budget}.items():
            self._names(value, scope, (*place, name))
            if isinstance(value, str) and not placeholders(value):
                self._wrong((*place, name), f"`{name}` is to be a value, or `{{{{NAME}}}}` of one")
        for index, name in enumerate(step.own_tools):
            self._tool(name, (*place, "ownTools", index))
            defined = self._definition.tools.get(name)
            if defined is not None and defined.handler is None:
                self._wrong((*place, "ownTools", index), f"`{name}` has no `handler` that could be called")
        self._prompt(step.prompt, step.input, scope, place, "prompt")
        self._prompt(step.system, step.input, scope, place, "system")

    def _condition(self, condition: Condition | None, scope: _Scope, place: Place) -> None:
        if condition is not None:
            said = (condition.value, condition.is_, condition.not_, condition.less, condition.more, condition.contains)
            self._names([*said, condition.within], scope, place)

    def _prompt(self, name: str | None, allowed: list[str], scope: _Scope, place: Place, field: str) -> None:
        for index, value in enumerate(allowed):
            if value not in scope.names:
                self._wrong((*place, "input", index), f"nothing defines `{value}`; {did_you_mean(value, scope.names)}")
        if name is None:
            return
        text = self._definition.prompts.get(name)
        if text is None:
            reason = f"there is no prompt `{name}` (prompts/{name}.md)"
            self._wrong((*place, field), f"{reason}; {did_you_mean(name, self._definition.prompts)}")
            return
        known = set(allowed) or scope.names
        for start, value in placed(text):
            if value not in known:
                file = self._file.parent / "prompts" / f"{name}.md"
                why = "is not in the `input` of its step" if value in scope.names else "is nothing that is defined"
                line = text.count("\n", 0, start) + 1
                self.problems.append(Problem(file, line, f"`{{{{{value}}}}}` {why}; {did_you_mean(value, known)}"))

    def _names(self, template: Any, scope: _Scope, place: Place) -> None:
        for name in sorted(placeholders(template) - scope.names):
            at = next(_places_of(name, template, place), place)
            self._wrong(at, f"`{{{{{name}}}}}` is nothing that is defined before; {did_you_mean(name, scope.names)}")


def _places_of(name: str, template: Any, place: Place) -> Iterator[Place]:
    """Where inside of a template that name stands."""
    if isinstance(template, str):
        if name in placeholders(template):
            yield place
    elif isinstance(template, dict):
        for key, value in cast("dict[str, Any]", template).items():
            yield from _places_of(name, value, (*place, key))
    elif isinstance(template, list):
        for index, value in enumerate(cast("list[Any]", template)):
            yield from _places_of(name, value, (*place, index))
