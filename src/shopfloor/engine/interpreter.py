"""The interpreter of YAML workers: executes their blocks in order through a `BlockRun`, replaying what the log has."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, cast

import anyio
import anyio.lowlevel
import msgspec

from shopfloor.engine.attempt import Attempt, Finished, StepResult, StepTry
from shopfloor.engine.engine_ports import StepContext
from shopfloor.engine.error_mapping import CANCELLATION_EXCEPTIONS
from shopfloor.engine.replay_state import PLUGIN_JOB, StepKey
from shopfloor.engine.run import Run
from shopfloor.engine.steps.conversation import Thread, as_markdown, session_id_of
from shopfloor.engine.steps.model import add_message
from shopfloor.engine.steps.plugin import JobRequest, PluginResult, PluginStepRunner
from shopfloor.engine.steps.tool_definitions import build_tools
from shopfloor.engine.workers.definition import (
    AddMessage,
    Agent,
    CallTool,
    CommandStep,
    Custom,
    Definition,
    ForEach,
    NextMessage,
    Operation,
    Parallel,
    PluginJob,
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
from shopfloor.log import TextBlock, parse_duration
from shopfloor.views import preview

_TERMINAL = "terminal"
BEGIN = "Begin."
"""The prompt for a thread without messages: every provider requires at least one."""
ROUND = "ROUND"
"""The variable that has the number of the current round of a loop."""


class BlockRun(Run):
    """A run handle for the steps inside one block: their keys are below the key of that block."""

    def branch(self, segment: str) -> BlockRun:
        """Return the handle for the steps of a branch of this block."""
        return self._at(StepKey(f"{self._outer_key.path}.{segment}", self._outer_key.iteration))

    def round(self, number: int) -> BlockRun:
        """Return the handle for the steps of one round of this block, which is a loop."""
        return self._at(StepKey(f"{self._outer_key.path}.{number}", number))

    def _at(self, step_key: StepKey, arguments: Mapping[str, Any] | None = None) -> BlockRun:
        worker_input = self.input if arguments is None else arguments
        return BlockRun(
            self._attempt, self._step_context, worker_input=worker_input, tools=self._tools, step_key=step_key
        )

    async def block(
        self, name: str, kind: str, work: Callable[[BlockRun], Awaitable[Any]], *, branches: Sequence[str] = ()
    ) -> Any:
        """Execute a step whose only effects are those of the steps inside it, so that it can be resumed at any time.

        A completed block is run through again to restore its variables; its steps return their recorded results.
        """
        step_key = self._next_step_key(name, kind)
        known = self._attempt.replay_state.steps.get(step_key)
        if known is not None and known.done is not None and known.done.error is None:
            return await work(self._at(step_key))

        async def execute(step_try: StepTry) -> StepResult:
            return StepResult(await work(self._at(step_key)))

        recorded = [*branches[:OPEN_BRANCHES]] or None
        return await self._attempt.step(step_key, execute, name=name, kind=kind, repeatable=True, branches=recorded)

    async def custom(
        self,
        name: str,
        kind: str,
        work: Callable[..., Awaitable[Any]],
        arguments: Mapping[str, Any],
        *,
        retry: Retry | None = None,
    ) -> Any:
        """Execute a step of a kind that the worker defines. `work` gets a handle for inner steps, and the arguments."""
        step_key = self._next_step_key(name, kind)

        async def execute(step_try: StepTry) -> StepResult:
            # A new handle for each try: it counts its steps from the first again.
            return StepResult(await work(self._at(step_key, arguments), **arguments))

        return await self._attempt.step(step_key, execute, name=name, kind=kind, retry=retry, repeatable=True)

    async def plugin_job(self, name: str, request: JobRequest) -> PluginResult:
        """Hand a task to a plugin, and return the result of its job."""
        context = self._step_context
        step = PluginStepRunner(self._attempt, context.plugins, context.find_job_claims, request)
        return await step.run(self._next_step_key(name, PLUGIN_JOB), name=name)

    def results(self, kind: str) -> Iterator[Any]:
        """Yield the results of the completed steps of this kind, anywhere in the run."""
        for step in self._attempt.replay_state.steps.values():
            if step.kind == kind and step.done is not None and step.done.error is None:
                yield step.done.result

    async def add_message(self, thread: Thread, text: str, *, role: str) -> None:
        """Add a message to a thread, recorded under the key of this block."""
        await add_message(self._attempt, thread, self._outer_key, [TextBlock(fidelity="router", text=text)], role=role)

    async def with_memory(self, system: str | None, model: str) -> str | None:
        """Return the system prompt of a thread with what the worker remembers."""
        return await self._with_memory(system, model)

    async def start_thread(self, thread: Thread) -> None:
        """Name a conversation after this block, which starts it."""
        thread.session_id = session_id_of(self._outer_key)

    async def reply(self, thread: Thread, **options: Any) -> Any:
        """Let the model answer in a thread, with the options of `Run._reply`."""
        return await self._reply(thread, **options)


class Scope(msgspec.Struct, frozen=True):
    """The handle, the variables and the threads that the steps of a block use."""

    run: BlockRun
    values: MutableMapping[str, Any]
    threads: MutableMapping[str, Thread]

    def at(self, run: BlockRun) -> Scope:
        """Return the same scope with another handle."""
        return Scope(run, self.values, self.threads)

    def while_round(self, loop: BlockRun, number: int) -> Scope:
        """Return the scope of a round of a `while` loop: its steps set the variables of the outer scope."""
        return Scope(loop.round(number), _WhileValues({ROUND: number}, self.values), self.threads)

    def item_round(self, loop: BlockRun, number: int, values: dict[str, Any]) -> Scope:
        """Return the scope of a round of a `for_each` loop: the variables that its steps set are local."""
        return Scope(loop.round(number), ChainMap(values, self.values), ChainMap({}, self.threads))


class _WhileValues(ChainMap[str, Any]):
    """The variables of a `while` round. The round number is local; all others are set in the outer scope."""

    def __setitem__(self, key: str, value: Any) -> None:
        self.maps[1][key] = value


class Interpreter:
    """One run of a YAML worker."""

    def __init__(
        self, attempt: Attempt, step_context: StepContext, definition: Definition, worker_input: dict[str, Any]
    ) -> None:
        self._run = BlockRun(attempt, step_context, worker_input=worker_input, tools=build_tools(definition))
        self._definition = definition

    async def run(self) -> Any:
        """Execute the steps and return the output. Raises `Finished` at a `terminal` step."""
        definition = self._definition
        for result in self._run.results(_TERMINAL):
            # A run that has reached a `terminal` step ends there, even if other branches were still open.
            raise finished(result)
        values = {name: variable.default for name, variable in definition.variables.items()} | self._run.input
        await self._steps(definition.steps, Scope(self._run, values, {}))
        return output_value(definition, values)

    async def _steps(self, steps: dict[str, Step], scope: Scope) -> None:
        for name, step in steps.items():
            await self._STEP_HANDLERS[type(step)](self, name, step, scope)

    # Threads.

    async def _start_thread(self, name: str, step: StartThread, scope: Scope) -> None:
        system = self._prompt(step.system, step.input, scope) if step.system is not None else None
        model = str(fill(step.model, scope.values))
        thread = scope.threads[step.thread] = Thread(
            model=model,
            system=await scope.run.with_memory(system, model),
            tools=step.tools,
            max_steps=step.max_steps,
            thinking=step.thinking,
            temperature=step.temperature,
            backup_model=None if step.backup_model is None else str(fill(step.backup_model, scope.values)),
            messages=[],
        )
        await scope.run.block(name, "start-thread", lambda block: block.start_thread(thread))

    async def _add_message(self, name: str, step: AddMessage, scope: Scope) -> None:
        thread = self._thread(step.thread, scope)
        text = str(self._text(step, scope))
        await scope.run.block(name, "add-message", lambda block: block.add_message(thread, text, role=step.role))

    async def _next_message(self, name: str, step: NextMessage, scope: Scope) -> None:
        thread = self._thread(step.thread, scope)
        prompt = None if thread.messages else BEGIN
        value = await scope.run.reply(
            thread,
            name=name,
            schema=step.schema,
            prompt=prompt,
            approve=step.approve,
            retry=step.retry,
            timeout_seconds=_time_limit(step, scope),
        )
        self._set(step.output, value, scope)

    async def _serialize(self, name: str, step: SerializeThread, scope: Scope) -> None:
        thread = self._thread(step.thread, scope)
        value: Any = as_markdown(thread)
        if step.format == "json":
            value = msgspec.to_builtins(thread.messages)
        await scope.run.block(name, "serialize-thread", _do_nothing)
        self._set(step.output, value, scope)

    def _thread(self, name: str, scope: Scope) -> Thread:
        thread = scope.threads.get(name)
        if thread is None:
            raise StepFailed(f"the thread {name!r} has not been started", hint="start it with a `start-thread` step")
        return thread

    def _prompt(self, name: str, names: list[str], scope: Scope) -> str:
        text = self._definition.prompts.get(name)
        if text is None:
            raise StepFailed(f"the worker has no prompt {name!r}", hint=f"add the file prompts/{name}.md")
        visible = {variable: scope.values.get(variable) for variable in names} if names else scope.values
        return str(fill(text, visible))

    def _text(self, step: AddMessage | Agent, scope: Scope) -> Any:
        """Return the text of a step: that of its prompt file, or its inline text."""
        if step.prompt is not None:
            return self._prompt(step.prompt, step.input, scope)
        return fill(step.text, scope.values)

    # Steps with effects.

    async def _call_tool(self, name: str, step: CallTool, scope: Scope) -> None:
        value = await scope.run.tool(
            step.tool, lambda: fill(step.input, scope.values), name=name, approve=step.approve, retry=step.retry
        )
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
            timeout_seconds=_time_limit(step, scope),
            allow_failure=step.allow_failure,
            approve=step.approve,
            retry=step.retry,
        )
        # Without trailing newlines, like `$(…)` in a shell.
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
            own_tools=[own_tool_spec(tool, self._definition.tools.get(tool)) for tool in step.own_tools],
            read_only=fill(step.read_only, values) or False,
            sandbox=fill(step.sandbox, values) or False,
            max_turns=fill(step.max_turns, values),
            max_budget=fill(step.max_budget, values),
            cwd=fill(step.cwd, values),
            resume=fill(step.resume, values),
            approve=step.approve,
            retry=step.retry,
            timeout_seconds=_time_limit(step, scope),
        )
        self._set(step.output, result.data if result.data is not None else result.text, scope)

    async def _operation(self, name: str, step: Operation, scope: Scope) -> None:
        value = await scope.run.operation(
            step.plugin,
            step.tool,
            lambda: fill(step.input, scope.values),
            name=name,
            approve=step.approve,
            retry=step.retry,
        )
        self._set(step.output, value, scope)

    async def _plugin_job(self, name: str, step: PluginJob, scope: Scope) -> None:
        task = str(fill(step.task, scope.values))
        request = JobRequest(
            plugin=step.plugin,
            task=task,
            description=str(fill(step.label, scope.values) or preview(task)),
            config=fill(step.config, scope.values) or {},
        )
        self._set(step.output, (await scope.run.plugin_job(name, request)).text, scope)

    async def _run_worker(self, name: str, step: RunWorker, scope: Scope) -> None:
        worker_input = fill(step.input, scope.values)
        self._set(step.output, await scope.run.worker(step.worker, worker_input, name=name, retry=step.retry), scope)

    async def _custom(self, name: str, step: Custom, scope: Scope) -> None:
        function = load_object(self._definition.kinds[step.kind])
        arguments = fill(step.with_, scope.values)
        self._set(step.output, await scope.run.custom(name, step.kind, function, arguments, retry=step.retry), scope)

    # Steps with inner steps.

    async def _parallel(self, name: str, step: Parallel, scope: Scope) -> None:
        async def all_branches(block: BlockRun) -> None:
            async def branch(branch_name: str) -> None:
                await self._steps(step.branches[branch_name], scope.at(block.branch(path_segment(branch_name))))

            await run_concurrently(branch, list(step.branches), concurrency)

        concurrency = step.concurrency or len(step.branches)
        first_branches = [
            path_segment(branch_name)
            for branch_name, steps in [*step.branches.items()][:concurrency]
            if _has_recorded_start(steps)
        ]
        await scope.run.block(name, "parallel", all_branches, branches=first_branches)

    async def _for_each(self, name: str, step: ForEach, scope: Scope) -> None:
        value: Any = fill(step.each, scope.values)
        if not isinstance(value, list):
            raise StepFailed(f"{name!r} needs a list to iterate over, but {step.each!r} is {type(value).__name__}")
        items = cast("list[Any]", value)
        if len(items) > LOOP_ITERATIONS:
            raise StepFailed(f"{name!r} has {len(items):,} items, but the maximum is {LOOP_ITERATIONS:,}")

        async def each(block: BlockRun) -> list[Any] | None:
            collected: list[Any] = [None] * len(items)

            async def execute_round(number: int) -> None:
                inner = scope.item_round(block, number, {step.as_: items[number], ROUND: number})
                await self._steps(step.steps, inner)
                collected[number] = inner.values.get(step.collect) if step.collect else None

            if step.concurrency > 1:
                await run_concurrently(execute_round, list(range(len(items))), step.concurrency)
            else:
                for number in range(len(items)):
                    await execute_round(number)
                    await anyio.lowlevel.checkpoint()
            return collected if step.output else None

        first_branches: list[str] = []
        if _has_recorded_start(step.steps):
            first_branches = [str(number) for number in range(min(step.concurrency, len(items)))]
        self._set(step.output, await scope.run.block(name, "for_each", each, branches=first_branches), scope)

    async def _while(self, name: str, step: While, scope: Scope) -> None:
        async def rounds(block: BlockRun) -> None:
            for number in range(min(step.max_rounds, LOOP_ITERATIONS)):
                inner = scope.while_round(block, number)
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

    # Functions, not bound methods: a reference cycle would keep the values in memory until a full collection.
    _STEP_HANDLERS: ClassVar[dict[type[Step], Callable[[Interpreter, str, Any, Scope], Awaitable[None]]]] = {
        StartThread: _start_thread,
        AddMessage: _add_message,
        NextMessage: _next_message,
        SerializeThread: _serialize,
        CallTool: _call_tool,
        CommandStep: _command,
        Agent: _agent,
        Operation: _operation,
        PluginJob: _plugin_job,
        RunWorker: _run_worker,
        Custom: _custom,
        Parallel: _parallel,
        ForEach: _for_each,
        While: _while,
        Terminal: _terminal,
    }


def finished(result: dict[str, Any]) -> Finished:
    """Return the exception that ends a run with the result of a `terminal` step."""
    return Finished(result["output"], failed=result["failed"])


def _has_recorded_start(steps: dict[str, Step]) -> bool:
    """Return whether starting these steps always appends an event: a conditional `terminal` step may append none."""
    first = next(iter(steps.values()), None)
    return first is not None and not (isinstance(first, Terminal) and first.when is not None)


def _time_limit(step: NextMessage | CommandStep | Agent, scope: Scope) -> float | None:
    """Return the time limit of a step in seconds; None if it has none."""
    value: Any = fill(step.timeout, scope.values)
    if value is None or value == "":
        return None
    seconds = parse_duration(value) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise StepFailed(
            f"invalid time limit {value!r}", hint="use seconds, or a duration such as `90s`, `10m` or `2h`"
        )
    return float(seconds)


async def _do_nothing(block: BlockRun) -> None:
    """Do nothing: the step is only recorded."""


async def run_concurrently(work: Callable[[Any], Awaitable[None]], items: list[Any], concurrency: int) -> None:
    """Call `work` for every item, at most `concurrency` at a time. The first error cancels the others and is raised."""
    limiter = anyio.CapacityLimiter(max(1, concurrency))
    raised: list[BaseException] = []
    async with anyio.create_task_group() as tasks:

        async def execute(item: Any) -> None:
            try:
                async with limiter:
                    await work(item)
            except CANCELLATION_EXCEPTIONS:
                raise
            except BaseException as error:  # noqa: BLE001 - raised below
                raised.append(error)
                tasks.cancel_scope.cancel()

        for item in items:
            tasks.start_soon(execute, item)
    if raised:
        raise raised[0]
