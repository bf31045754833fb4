"""Workers in YAML: their steps, one after another, on what the log has of them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, ClassVar, cast

import anyio
import anyio.lowlevel
import msgspec

from shopfloor.engine.agents.asking import AgentOrder
from shopfloor.engine.attempt import Attempt, Finished, StepResult, Trying
from shopfloor.engine.journal import Place
from shopfloor.engine.results import LEAVING
from shopfloor.engine.run import Run
from shopfloor.engine.steps.agent import run_agent
from shopfloor.engine.steps.command import CommandWork
from shopfloor.engine.steps.model import ModelStep, say
from shopfloor.engine.steps.serving import StepCommand, shell_argv
from shopfloor.engine.steps.threads import Thread, as_markdown
from shopfloor.engine.steps.tools import Tools, tools_of
from shopfloor.engine.workers.definition import (
    AddMessage,
    Agent,
    CallTool,
    CommandStep,
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
    own_tool,
    segment_of,
)
from shopfloor.engine.workers.loading import load_object
from shopfloor.engine.workers.values import as_argument, fill, fill_argv, fill_shell, holds, output_value
from shopfloor.engine.workshop import Workshop
from shopfloor.errors import StepFailed, ToolFailed
from shopfloor.limits import LOOP_ROUNDS, OPEN_BRANCHES
from shopfloor.log import TextBlock

_TERMINAL = "terminal"
BEGIN = "Begin."
"""What a model is told in a thread in which nobody has said anything: every provider wants something."""


ROUND = "ROUND"


class Scope(msgspec.Struct, frozen=True):
    """Where steps are: what they see, and how their places begin."""

    values: MutableMapping[str, Any]
    threads: MutableMapping[str, Thread]
    path: str = ""
    iteration: int = 0

    def inner(self, *segments: str, iteration: int | None = None) -> Scope:
        path = ".".join((*((self.path,) if self.path else ()), *segments))
        return msgspec.structs.replace(self, path=path, iteration=self.iteration if iteration is None else iteration)

    def counted(self, segment: str, number: int) -> Scope:
        """A round of a loop on a condition."""
        inner = self.inner(segment, str(number), iteration=number)
        return msgspec.structs.replace(inner, values=_Counted({ROUND: number}, self.values))

    def round(self, segment: str, number: int, values: dict[str, Any]) -> Scope:
        """A round of a loop over items: what it sets is its own."""
        inner = self.inner(segment, str(number), iteration=number)
        return msgspec.structs.replace(inner, values=ChainMap(values, self.values), threads=ChainMap({}, self.threads))


class _Counted(ChainMap[str, Any]):
    """The number of the round is the round's own; what its steps set is everybody's."""

    def __setitem__(self, key: str, value: Any) -> None:
        self.maps[1][key] = value


class Interpreter:
    """One run of a worker in YAML."""

    def __init__(self, attempt: Attempt, workshop: Workshop, definition: Definition, given: dict[str, Any]) -> None:
        self._attempt = attempt
        self._workshop = workshop
        self._definition = definition
        self._given = given
        self._tools = tools_of(definition)

    async def run(self) -> Any:
        definition = self._definition
        values = {name: variable.default for name, variable in definition.variables.items()} | self._given
        scope = Scope(values, {})
        self._finish_as_begun()
        await self._steps(definition.steps, scope)
        return output_value(definition, values)

    async def _steps(self, steps: dict[str, Step], scope: Scope) -> None:
        for name, step in steps.items():
            await self._step(name, step, scope)

    async def _step(self, name: str, step: Step, scope: Scope) -> None:
        place = Place(scope.inner(segment_of(name)).path, scope.iteration)
        await self._DOERS[type(step)](self, name, step, scope, place)

    async def _compose(
        self,
        name: str,
        kind: str,
        place: Place,
        work: Callable[[], Awaitable[Any]],
        branches: Sequence[str] = (),
    ) -> Any:
        """A step that does nothing by itself, so it can be gone on with at any time.

        One that is done is walked again, for what its steps set: every one of them is known.
        """

        async def composed(trying: Trying) -> StepResult:
            return StepResult(await work())

        known = self._attempt.journal.steps.get(place)
        if known is not None and known.done is not None and known.done.error is None:
            return await work()

        return await self._attempt.step(
            place, composed, name=name, kind=kind, repeatable=True, branches=[*branches[:OPEN_BRANCHES]] or None
        )

    # Threads.

    async def _start_thread(self, name: str, step: StartThread, scope: Scope, place: Place) -> None:
        system = self._prompt(step.system, step.input, scope) if step.system is not None else None
        scope.threads[step.thread] = Thread(
            model=str(fill(step.model, scope.values)),
            system=system,
            tools=step.tools,
            max_steps=step.max_steps,
            thinking=step.thinking,
            temperature=step.temperature,
            backup_model=None if step.backup_model is None else str(fill(step.backup_model, scope.values)),
            messages=[],
        )
        await self._compose(name, "start-thread", place, _nothing)

    async def _add_message(self, name: str, step: AddMessage, scope: Scope, place: Place) -> None:
        thread = self._thread(step.thread, scope)
        text = (
            self._prompt(step.prompt, step.input, scope)
            if step.prompt is not None
            else str(fill(step.text, scope.values))
        )
        blocks = [TextBlock(fidelity="router", text=text)]

        async def said() -> None:
            await say(self._attempt, thread, place, [*blocks], role=step.role)

        await self._compose(name, "add-message", place, said)

    async def _next_message(self, name: str, step: NextMessage, scope: Scope, place: Place) -> None:
        thread = self._thread(step.thread, scope)
        model = ModelStep(
            self._attempt,
            self._workshop.models,
            Tools(self._tools),
            thread,
            schema=step.schema,
            prompt=None if thread.messages else BEGIN,
        )
        value = await model.run(place, name=name, retry=step.retry)
        self._set(step.output, value, scope)

    async def _serialize(self, name: str, step: SerializeThread, scope: Scope, place: Place) -> None:
        thread = self._thread(step.thread, scope)
        value: Any = as_markdown(thread)
        if step.format == "json":
            value = msgspec.to_builtins(thread.messages)
        await self._compose(name, "serialize-thread", place, _nothing)
        self._set(step.output, value, scope)

    def _thread(self, name: str, scope: Scope) -> Thread:
        thread = scope.threads.get(name)
        if thread is None:
            raise StepFailed(f"there is no thread {name!r} yet", hint="begin it with a `start-thread` step")
        return thread

    def _prompt(self, name: str, names: list[str], scope: Scope) -> str:
        text = self._definition.prompts.get(name)
        if text is None:
            raise StepFailed(f"there is no prompt {name!r}", hint=f"it belongs into prompts/{name}.md")
        seen = {one: scope.values.get(one) for one in names} if names else scope.values
        return str(fill(text, seen))

    # What has effects.

    async def _call_tool(self, name: str, step: CallTool, scope: Scope, place: Place) -> None:
        async def called(trying: Trying) -> StepResult:
            given = fill(step.input, scope.values)
            result = await Tools(self._tools).call(self._attempt, place, step.tool, given, try_=trying.try_)
            if result.error is not None:
                raise ToolFailed(f"the tool {step.tool!r} failed: {result.error}")
            return StepResult(result.output)

        value = await self._attempt.step(place, called, name=name, kind="tool-call", retry=step.retry, repeatable=True)
        self._set(step.output, value, scope)

    async def _command(self, name: str, step: CommandStep, scope: Scope, place: Place) -> None:
        cwd = str(fill(step.cwd, scope.values)) if step.cwd else "."
        if isinstance(step.command, str):
            script = fill_shell(step.command, scope.values)
            argv, variables = shell_argv(script.text), script.variables
        else:
            argv, variables = fill_argv(step.command, scope.values), {}
        command = StepCommand(
            argv=argv,
            cwd=str(anyio.Path(self._workshop.cwd) / cwd),
            env={key: as_argument(f"`{key}`", fill(value, scope.values)) for key, value in step.env.items()},
            variables=variables,
        )
        work = CommandWork(
            self._attempt,
            self._workshop.processes,
            command,
            timeout=step.timeout,
            allow_failure=step.allow_failure,
        )
        ended = await work.run(place, name=name, retry=step.retry)
        # As a shell's `$(…)` gives it.
        self._set(step.output, ended.stdout.rstrip("\n"), scope)

    async def _agent(self, name: str, step: Agent, scope: Scope, place: Place) -> None:
        text = fill(step.text, scope.values) if step.prompt is None else self._prompt(step.prompt, step.input, scope)
        asked = {
            "provider": fill(step.provider, scope.values),
            "prompt": str(text),
            "system": self._prompt(step.system, step.input, scope) if step.system is not None else None,
            "model": fill(step.model, scope.values),
            "tools": fill(step.tools, scope.values),
            "own_tools": [own_tool(one, self._definition.tools.get(one)) for one in step.own_tools],
            "read_only": fill(step.read_only, scope.values) or False,
            "sandbox": fill(step.sandbox, scope.values) or False,
            "max_turns": fill(step.max_turns, scope.values),
            "max_budget": fill(step.max_budget, scope.values),
            "cwd": fill(step.cwd, scope.values) or self._workshop.cwd,
            "resume": fill(step.resume, scope.values),
        }
        try:
            order = msgspec.convert(asked, AgentOrder)
        except msgspec.ValidationError as error:
            raise StepFailed(f"{name!r} cannot be asked so: {error}") from error
        result = await run_agent(self._attempt, self._workshop.agents, order, place, name=name, retry=step.retry)
        self._set(step.output, result.data if result.data is not None else result.text, scope)

    async def _run_worker(self, name: str, step: RunWorker, scope: Scope, place: Place) -> None:
        async def called(trying: Trying) -> StepResult:
            given = fill(step.input, scope.values)
            return await self._workshop.call_worker(self._attempt, trying, step.worker, given)

        value = await self._attempt.step(
            place,
            called,
            name=name,
            kind="call_workflow",
            retry=step.retry,
            repeatable=True,
            starts_itself=True,
        )
        self._set(step.output, value, scope)

    async def _custom(self, name: str, step: Custom, scope: Scope, place: Place) -> None:
        function = load_object(self._definition.kinds[step.kind])
        given = fill(step.with_, scope.values)

        async def called(trying: Trying) -> StepResult:
            # Anew for each try: its steps are counted from the first again, and what is done of them is known.
            run = Run(
                self._attempt,
                self._workshop,
                given=given,
                tools=self._tools,
                path=place.path,
                iteration=place.iteration,
            )
            return StepResult(await function(run, **given))

        value = await self._attempt.step(place, called, name=name, kind=step.kind, retry=step.retry, repeatable=True)
        self._set(step.output, value, scope)

    # Composites.

    async def _parallel(self, name: str, step: Parallel, scope: Scope, place: Place) -> None:
        segment = segment_of(name)

        async def branch(branch_name: str) -> None:
            await self._steps(step.branches[branch_name], scope.inner(segment, segment_of(branch_name)))

        async def all_branches() -> None:
            await together(branch, list(step.branches), at_once)

        at_once = step.concurrency or len(step.branches)
        begun = [segment_of(one) for one, steps in [*step.branches.items()][:at_once] if _is_told_of(steps)]
        await self._compose(name, "parallel", place, all_branches, begun)

    async def _for_each(self, name: str, step: ForEach, scope: Scope, place: Place) -> None:
        items: Any = fill(step.each, scope.values)
        if not isinstance(items, list):
            raise StepFailed(f"{name!r} goes over a list, and {step.each!r} is {type(items).__name__}")
        todo = cast("list[Any]", items)
        if len(todo) > LOOP_ROUNDS:
            raise StepFailed(f"{name!r} has {len(todo):,} items, and {LOOP_ROUNDS:,} is the most")
        kept: list[Any] = [None] * len(todo)

        async def one(number: int) -> None:
            inner = scope.round(segment_of(name), number, {step.as_: todo[number], ROUND: number})
            await self._steps(step.steps, inner)
            kept[number] = inner.values.get(step.collect) if step.collect else None

        async def each() -> None:
            if step.concurrency > 1:
                await together(one, list(range(len(todo))), step.concurrency)
            else:
                for number in range(len(todo)):
                    await one(number)
                    await anyio.lowlevel.checkpoint()

        async def collected() -> list[Any] | None:
            await each()
            return kept if step.output else None

        begun = [str(number) for number in range(min(step.concurrency, len(todo)))] if _is_told_of(step.steps) else []
        self._set(step.output, await self._compose(name, "for_each", place, collected, begun), scope)

    async def _while(self, name: str, step: While, scope: Scope, place: Place) -> None:
        async def rounds() -> None:
            for number in range(min(step.max_rounds, LOOP_ROUNDS)):
                inner = scope.counted(segment_of(name), number)
                if not holds(step.condition, inner.values):
                    return
                await self._steps(step.steps, inner)
                await anyio.lowlevel.checkpoint()
            if holds(step.condition, scope.values):
                raise StepFailed(f"{name!r} did not end after {step.max_rounds:,} rounds", hint="raise `maxRounds`")

        await self._compose(name, "while", place, rounds)

    async def _terminal(self, name: str, step: Terminal, scope: Scope, place: Place) -> None:
        if step.when is not None and not holds(step.when, scope.values):
            return
        output = fill(step.output, scope.values)
        if isinstance(step.output, str) and step.output in scope.values:
            output = scope.values[step.output]
        failed = None
        if step.status == "failed":
            failed = str(fill(step.message, scope.values) if step.message else "the worker ended the run as failed")

        async def ended(trying: Trying) -> StepResult:
            return StepResult({"output": output, "failed": failed})

        raise finished(await self._attempt.step(place, ended, name=name, kind=_TERMINAL, repeatable=True))

    def _finish_as_begun(self) -> None:
        """A run that has come to its end ends there, whatever other branches were at."""
        for step in self._attempt.journal.steps.values():
            if step.kind == _TERMINAL and step.done is not None and step.done.error is None:
                raise finished(step.done.result)

    def _set(self, name: str | None, value: Any, scope: Scope) -> None:
        if name is not None:
            scope.values[name] = value

    # By functions, not by bound methods: a reference of the interpreter to itself would keep its values in memory until
    # a full collection.
    _DOERS: ClassVar[dict[type[Step], Callable[[Interpreter, str, Any, Scope, Place], Awaitable[None]]]] = {
        StartThread: _start_thread,
        AddMessage: _add_message,
        NextMessage: _next_message,
        SerializeThread: _serialize,
        CallTool: _call_tool,
        CommandStep: _command,
        Agent: _agent,
        RunWorker: _run_worker,
        Custom: _custom,
        Parallel: _parallel,
        ForEach: _for_each,
        While: _while,
        Terminal: _terminal,
    }


def finished(result: dict[str, Any]) -> Finished:
    return Finished(result["output"], failed=result["failed"])


def _is_told_of(steps: dict[str, Step]) -> bool:
    """Whether the log sees these begin, whatever their values are."""
    first = next(iter(steps.values()), None)
    return first is not None and not (isinstance(first, Terminal) and first.when is not None)


async def _nothing() -> None:
    """What is to be on record, and has no effect."""


async def together(work: Callable[[Any], Awaitable[None]], todo: list[Any], at_once: int) -> None:
    """All of them, at most so many at a time. The first that fails ends the others, and is raised."""
    limiter = anyio.CapacityLimiter(max(1, at_once))
    raised: list[BaseException] = []
    async with anyio.create_task_group() as tasks:

        async def one(item: Any) -> None:
            try:
                async with limiter:
                    await work(item)
            except LEAVING:
                raise
            except BaseException as error:  # noqa: BLE001 - raised below
                raised.append(error)
                tasks.cancel_scope.cancel()

        for item in todo:
            tasks.start_soon(one, item)
    if raised:
        raise raised[0]
