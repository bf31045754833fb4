"""Workers in YAML: their steps, one after another, on what the log has of them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, cast

import anyio
import anyio.lowlevel
import msgspec

from shopfloor.engine.attempt import Attempt, Finished, StepResult, StepTry
from shopfloor.engine.engine_ports import StepContext
from shopfloor.engine.error_mapping import CANCELLATION_EXCEPTIONS
from shopfloor.engine.replay_state import StepKey
from shopfloor.engine.run import Run
from shopfloor.engine.steps.conversation import Thread, as_markdown
from shopfloor.engine.steps.model import add_message
from shopfloor.engine.steps.tools import build_tools
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
    Retry,
    RunWorker,
    SerializeThread,
    StartThread,
    Step,
    Terminal,
    While,
    own_tool_spec,
    path_segment,
)
from shopfloor.engine.workers.imports import load_object
from shopfloor.engine.workers.templating import (
    as_argument,
    evaluate_condition,
    fill,
    fill_argv,
    fill_shell,
    output_value,
)
from shopfloor.errors import StepFailed
from shopfloor.limits import LOOP_ITERATIONS, OPEN_BRANCHES
from shopfloor.log import TextBlock


class BlockRun(Run):
    """A run as one of its blocks sees it: what the handle does is done at a place inside of that block."""

    def branch(self, segment: str) -> BlockRun:
        """The handle for the steps of a branch of this block."""
        return self._at(StepKey(f"{self._outer.path}.{segment}", self._outer.iteration))

    def round(self, number: int) -> BlockRun:
        """The handle for the steps of one round of this block, which is a loop."""
        return self._at(StepKey(f"{self._outer.path}.{number}", number))

    def _at(self, step_key: StepKey, given: Mapping[str, Any] | None = None) -> BlockRun:
        given = self.input if given is None else given
        return BlockRun(self._attempt, self._workshop, given=given, tools=self._tools, step_key=step_key)

    async def block(
        self, name: str, kind: str, work: Callable[[BlockRun], Awaitable[Any]], *, branches: Sequence[str] = ()
    ) -> Any:
        """Do a step that has no effects but those of the steps inside it, so that it can be resumed at any time.

        One that is done is walked again, for what its steps set: the results of all of them are known.
        """
        step_key = self._place(name, kind)
        known = self._attempt.replay_state.steps.get(step_key)
        if known is not None and known.done is not None and known.done.error is None:
            return await work(self._at(step_key))

        async def walked(step_try: StepTry) -> StepResult:
            return StepResult(await work(self._at(step_key)))

        begun = [*branches[:OPEN_BRANCHES]] or None
        return await self._attempt.step(step_key, walked, name=name, kind=kind, repeatable=True, branches=begun)

    async def custom(
        self,
        name: str,
        kind: str,
        work: Callable[..., Awaitable[Any]],
        given: Mapping[str, Any],
        *,
        retry: Retry | None = None,
    ) -> Any:
        """Do a step of a kind that the worker defines: `work` gets a handle for steps inside it, and `given`."""
        step_key = self._place(name, kind)

        async def called(step_try: StepTry) -> StepResult:
            # The handle is made anew for each try: it counts its steps from the first again.
            return StepResult(await work(self._at(step_key, given), **given))

        return await self._attempt.step(step_key, called, name=name, kind=kind, retry=retry, repeatable=True)

    def results(self, kind: str) -> Iterator[Any]:
        """The results of the steps of this kind that are done, anywhere in the run."""
        for step in self._attempt.replay_state.steps.values():
            if step.kind == kind and step.done is not None and step.done.error is None:
                yield step.done.result

    async def add_message(self, thread: Thread, text: str, *, role: str) -> None:
        """Add a message to a thread, on record at the place of this block."""
        await add_message(self._attempt, thread, self._outer, [TextBlock(fidelity="router", text=text)], role=role)

    async def reply(
        self, thread: Thread, *, name: str, schema: dict[str, Any] | None, prompt: str | None, retry: Retry | None
    ) -> Any:
        """Have the model answer in a thread; `prompt` is said first. Return its text, or with `schema` its value."""
        return await self._reply(thread, name=name, schema=schema, prompt=prompt, retry=retry)


_TERMINAL = "terminal"
BEGIN = "Begin."
"""What a model is told in a thread in which nobody has said anything: every provider wants something."""


ROUND = "ROUND"


class Scope(msgspec.Struct, frozen=True):
    """Where steps are: the handle for their places, and the values and threads that they see."""

    run: BlockRun
    values: MutableMapping[str, Any]
    threads: MutableMapping[str, Thread]

    def at(self, run: BlockRun) -> Scope:
        return Scope(run, self.values, self.threads)

    def counted(self, loop: BlockRun, number: int) -> Scope:
        """A round of a loop on a condition."""
        return Scope(loop.round(number), _Counted({ROUND: number}, self.values), self.threads)

    def round(self, loop: BlockRun, number: int, values: dict[str, Any]) -> Scope:
        """A round of a loop over items: what it sets is its own."""
        return Scope(loop.round(number), ChainMap(values, self.values), ChainMap({}, self.threads))


class _Counted(ChainMap[str, Any]):
    """The number of the round is the round's own; what its steps set is everybody's."""

    def __setitem__(self, key: str, value: Any) -> None:
        self.maps[1][key] = value


class Interpreter:
    """One run of a worker in YAML."""

    def __init__(self, attempt: Attempt, workshop: StepContext, definition: Definition, given: dict[str, Any]) -> None:
        self._run = BlockRun(attempt, workshop, given=given, tools=build_tools(definition))
        self._definition = definition

    async def run(self) -> Any:
        definition = self._definition
        for result in self._run.results(_TERMINAL):
            # A run that has come to its end ends there, whatever other branches were at.
            raise finished(result)
        values = {name: variable.default for name, variable in definition.variables.items()} | self._run.input
        await self._steps(definition.steps, Scope(self._run, values, {}))
        return output_value(definition, values)

    async def _steps(self, steps: dict[str, Step], scope: Scope) -> None:
        for name, step in steps.items():
            await self._DOERS[type(step)](self, name, step, scope)

    # Threads.

    async def _start_thread(self, name: str, step: StartThread, scope: Scope) -> None:
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
        await scope.run.block(name, "start-thread", _nothing)

    async def _add_message(self, name: str, step: AddMessage, scope: Scope) -> None:
        thread = self._thread(step.thread, scope)
        text = str(self._text(step, scope))
        await scope.run.block(name, "add-message", lambda block: block.add_message(thread, text, role=step.role))

    async def _next_message(self, name: str, step: NextMessage, scope: Scope) -> None:
        thread = self._thread(step.thread, scope)
        prompt = None if thread.messages else BEGIN
        value = await scope.run.reply(thread, name=name, schema=step.schema, prompt=prompt, retry=step.retry)
        self._set(step.output, value, scope)

    async def _serialize(self, name: str, step: SerializeThread, scope: Scope) -> None:
        thread = self._thread(step.thread, scope)
        value: Any = as_markdown(thread)
        if step.format == "json":
            value = msgspec.to_builtins(thread.messages)
        await scope.run.block(name, "serialize-thread", _nothing)
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

    def _text(self, step: AddMessage | Agent, scope: Scope) -> Any:
        """What a step says: the text of a prompt, or its own."""
        if step.prompt is not None:
            return self._prompt(step.prompt, step.input, scope)
        return fill(step.text, scope.values)

    # What has effects.

    async def _call_tool(self, name: str, step: CallTool, scope: Scope) -> None:
        value = await scope.run.tool(step.tool, lambda: fill(step.input, scope.values), name=name, retry=step.retry)
        self._set(step.output, value, scope)

    async def _command(self, name: str, step: CommandStep, scope: Scope) -> None:
        variables: dict[str, str] = {}
        cwd = str(fill(step.cwd, scope.values)) if step.cwd else None
        if isinstance(step.command, str):
            script = fill_shell(step.command, scope.values)
            line, variables = script.text, script.variables
        else:
            line = fill_argv(step.command, scope.values)
        ended = await scope.run.command(
            line,
            name=name,
            cwd=cwd,
            env={key: as_argument(f"`{key}`", fill(value, scope.values)) for key, value in step.env.items()},
            variables=variables,
            timeout=step.timeout,
            allow_failure=step.allow_failure,
            retry=step.retry,
        )
        # As a shell's `$(…)` gives it.
        self._set(step.output, ended.stdout.rstrip("\n"), scope)

    async def _agent(self, name: str, step: Agent, scope: Scope) -> None:
        values = scope.values
        result = await scope.run.agent(
            fill(step.provider, values),
            str(self._text(step, scope)),
            name=name,
            system=self._prompt(step.system, step.input, scope) if step.system is not None else None,
            model=fill(step.model, values),
            tools=fill(step.tools, values),
            own_tools=[own_tool_spec(one, self._definition.tools.get(one)) for one in step.own_tools],
            read_only=fill(step.read_only, values) or False,
            sandbox=fill(step.sandbox, values) or False,
            max_turns=fill(step.max_turns, values),
            max_budget=fill(step.max_budget, values),
            cwd=fill(step.cwd, values),
            resume=fill(step.resume, values),
            retry=step.retry,
        )
        self._set(step.output, result.data if result.data is not None else result.text, scope)

    async def _run_worker(self, name: str, step: RunWorker, scope: Scope) -> None:
        given = fill(step.input, scope.values)
        self._set(step.output, await scope.run.worker(step.worker, given, name=name, retry=step.retry), scope)

    async def _custom(self, name: str, step: Custom, scope: Scope) -> None:
        function = load_object(self._definition.kinds[step.kind])
        given = fill(step.with_, scope.values)
        self._set(step.output, await scope.run.custom(name, step.kind, function, given, retry=step.retry), scope)

    # Composites.

    async def _parallel(self, name: str, step: Parallel, scope: Scope) -> None:
        async def all_branches(block: BlockRun) -> None:
            async def branch(branch_name: str) -> None:
                await self._steps(step.branches[branch_name], scope.at(block.branch(path_segment(branch_name))))

            await run_concurrently(branch, list(step.branches), at_once)

        at_once = step.concurrency or len(step.branches)
        begun = [path_segment(one) for one, steps in [*step.branches.items()][:at_once] if _is_told_of(steps)]
        await scope.run.block(name, "parallel", all_branches, branches=begun)

    async def _for_each(self, name: str, step: ForEach, scope: Scope) -> None:
        items: Any = fill(step.each, scope.values)
        if not isinstance(items, list):
            raise StepFailed(f"{name!r} goes over a list, and {step.each!r} is {type(items).__name__}")
        todo = cast("list[Any]", items)
        if len(todo) > LOOP_ITERATIONS:
            raise StepFailed(f"{name!r} has {len(todo):,} items, and {LOOP_ITERATIONS:,} is the most")

        async def each(block: BlockRun) -> list[Any] | None:
            kept: list[Any] = [None] * len(todo)

            async def one(number: int) -> None:
                inner = scope.round(block, number, {step.as_: todo[number], ROUND: number})
                await self._steps(step.steps, inner)
                kept[number] = inner.values.get(step.collect) if step.collect else None

            if step.concurrency > 1:
                await run_concurrently(one, list(range(len(todo))), step.concurrency)
            else:
                for number in range(len(todo)):
                    await one(number)
                    await anyio.lowlevel.checkpoint()
            return kept if step.output else None

        begun = [str(number) for number in range(min(step.concurrency, len(todo)))] if _is_told_of(step.steps) else []
        self._set(step.output, await scope.run.block(name, "for_each", each, branches=begun), scope)

    async def _while(self, name: str, step: While, scope: Scope) -> None:
        async def rounds(block: BlockRun) -> None:
            for number in range(min(step.max_rounds, LOOP_ITERATIONS)):
                inner = scope.counted(block, number)
                if not evaluate_condition(step.condition, inner.values):
                    return
                await self._steps(step.steps, inner)
                await anyio.lowlevel.checkpoint()
            if evaluate_condition(step.condition, scope.values):
                raise StepFailed(f"{name!r} did not end after {step.max_rounds:,} rounds", hint="raise `maxRounds`")

        await scope.run.block(name, "while", rounds)

    async def _terminal(self, name: str, step: Terminal, scope: Scope) -> None:
        if step.when is not None and not evaluate_condition(step.when, scope.values):
            return
        output = fill(step.output, scope.values)
        if isinstance(step.output, str) and step.output in scope.values:
            output = scope.values[step.output]
        failed = None
        if step.status == "failed":
            failed = str(fill(step.message, scope.values) if step.message else "the worker ended the run as failed")

        async def ended(block: BlockRun) -> dict[str, Any]:
            return {"output": output, "failed": failed}

        raise finished(await scope.run.block(name, _TERMINAL, ended))

    def _set(self, name: str | None, value: Any, scope: Scope) -> None:
        if name is not None:
            scope.values[name] = value

    # By functions, not by bound methods: a reference of the interpreter to itself would keep its values in memory until
    # a full collection.
    _DOERS: ClassVar[dict[type[Step], Callable[[Interpreter, str, Any, Scope], Awaitable[None]]]] = {
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


async def _nothing(block: BlockRun) -> None:
    """What is to be on record, and has no effect."""


async def run_concurrently(work: Callable[[Any], Awaitable[None]], todo: list[Any], at_once: int) -> None:
    """All of them, at most so many at a time. The first that fails ends the others, and is raised."""
    limiter = anyio.CapacityLimiter(max(1, at_once))
    raised: list[BaseException] = []
    async with anyio.create_task_group() as tasks:

        async def one(item: Any) -> None:
            try:
                async with limiter:
                    await work(item)
            except CANCELLATION_EXCEPTIONS:
                raise
            except BaseException as error:  # noqa: BLE001 - raised below
                raised.append(error)
                tasks.cancel_scope.cancel()

        for item in todo:
            tasks.start_soon(one, item)
    if raised:
        raise raised[0]
