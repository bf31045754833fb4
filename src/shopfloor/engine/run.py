"""`Run`, the handle of a Python worker: each step it awaits is executed once, even across crashes and restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

import msgspec

from shopfloor.decoding import convert
from shopfloor.engine.agents.request import AgentOptions
from shopfloor.engine.approvals import ApprovalGate, ApprovalRules
from shopfloor.engine.attempt import ROOT_KEY, Attempt, StepResult, StepTry
from shopfloor.engine.engine_ports import StepContext
from shopfloor.engine.replay_state import StepKey
from shopfloor.engine.steps.agent import AgentResult, AgentStepRunner
from shopfloor.engine.steps.builtin_tools import ASK, worker_memory
from shopfloor.engine.steps.command import CommandResult, CommandStepRunner
from shopfloor.engine.steps.conversation import Thread
from shopfloor.engine.steps.model import ModelStepRunner
from shopfloor.engine.steps.operation import OPERATION, OperationRequest, OperationStepRunner
from shopfloor.engine.steps.shell_process import StepCommand, shell_argv
from shopfloor.engine.steps.tool_definitions import Tool, ToolContext, build_tool
from shopfloor.engine.steps.tools import Tools, call_function
from shopfloor.engine.worker_memory import COMPACT_PROMPT, Memory, WorkerMemory, add_memories, compactable
from shopfloor.engine.worker_output import capture_output
from shopfloor.engine.workers.approval_patterns import check_patterns
from shopfloor.engine.workers.definition import Retry, path_segment
from shopfloor.engine.workers.python import PythonTool
from shopfloor.errors import DefinitionChanged, RunFailed, StepFailed, ToolFailed
from shopfloor.ports import OwnTool
from shopfloor.views import LOG_QUESTION, RECORD_DECISION, STORE_MEMORY, SUBMIT_RESULT, UPDATE_SUMMARY

COMPACT_MEMORY = "compact-memory"
"""The name of the step in which a model condenses the memories of the worker."""
_current_step: ContextVar[str | None] = ContextVar("current_step", default=None)
"""The name of the `Run.step` whose function is being executed."""


class Run:
    """One run, as its worker sees it.

    The function of the worker is called again in every attempt, and steps that were completed before return their
    results from the log. So every effect must be inside a step, and each attempt must call the same steps in the
    same order.
    """

    def __init__(
        self,
        attempt: Attempt,
        step_context: StepContext,
        *,
        worker_input: Mapping[str, Any],
        tools: Mapping[str, Tool] | None = None,
        step_key: StepKey = ROOT_KEY,
    ) -> None:
        """Create a handle whose steps are inside the step `step_key`."""
        self.id = attempt.run_id
        self.input = dict(worker_input)
        self.attempt = attempt.replay_state.attempt
        self._attempt = attempt
        self._step_context = step_context
        self._tools = dict(tools or {})
        self._gate = ApprovalGate(
            attempt, ApprovalRules(step_context.blobs), step_context.approve, step_context.approve_timeout
        )
        self._outer_key = step_key
        self._step_counts: Counter[str] = Counter()

    def _next_step_key(self, name: str, kind: str) -> StepKey:
        """Return the key of the next step with this name. The same name again is the next iteration."""
        if (outer := _current_step.get()) is not None:
            raise StepFailed(
                f"the step {name!r} cannot be inside the step {outer!r}", hint=f"call {name!r} outside of {outer!r}"
            )
        segment = path_segment(name)
        path = f"{self._outer_key.path}.{segment}" if self._outer_key.path else segment
        step_key = StepKey(path, self._outer_key.iteration + self._step_counts[path])
        self._step_counts[path] += 1
        known = self._attempt.replay_state.steps.get(step_key)
        if known is not None and known.kind != kind:
            raise DefinitionChanged(
                f"the step {path!r} was a {known.kind} step when the run started and is now a {kind} step",
                hint="a worker must call the same steps in the same order in every attempt",
            )
        return step_key

    async def step(
        self, name: str, work: Callable[..., Any], *args: Any, retry: Retry | None = None, safe: bool = False
    ) -> Any:
        """Call `work(*args)`, async or not, and return its result, which is recorded as JSON.

        With `safe`, calling it twice does no harm: then the step is repeated after a crash, instead of failing.
        """

        async def execute(step_try: StepTry) -> StepResult:
            async with self._attempt.hold_slot():
                token = _current_step.set(name)
                try:
                    with capture_output(self._attempt, step_try.step_key):
                        value = await call_function(work, *args)
                finally:
                    _current_step.reset(token)
            return StepResult(as_json(name, value))

        return await self._attempt.step(
            self._next_step_key(name, "step"), execute, name=name, kind="step", retry=retry, repeatable=safe
        )

    async def model(
        self,
        model: str,
        prompt: str,
        *,
        system: str | None = None,
        tools: Sequence[PythonTool[Any, Any] | str] = (),
        schema: dict[str, Any] | None = None,
        name: str = "model",
        max_steps: int = 10,
        thinking: Literal["low", "medium", "high"] | None = None,
        temperature: float | None = None,
        backup_model: str | None = None,
        approve: Sequence[str] = (),
        retry: Retry | None = None,
        timeout_seconds: float | None = None,
    ) -> Any:
        """Ask a model; return its text, or with `schema` its value. The tools that the model calls are executed.

        A tool is a function with `@tool`, or the name of a tool of the worker. `approve` has patterns of calls that a
        person has to approve. Raises `StepTimeout` if the last try took longer than `timeout_seconds`.
        """
        functions = {
            tool.name: build_tool(tool.name, tool.definition, tool) for tool in tools if not isinstance(tool, str)
        }
        thread = Thread(
            model=model,
            system=await self._with_memory(system, model),
            tools=[tool if isinstance(tool, str) else tool.name for tool in tools],
            max_steps=max_steps,
            thinking=thinking,
            temperature=temperature,
            backup_model=backup_model,
            messages=[],
        )
        return await self._reply(
            thread,
            name=name,
            tools=functions,
            schema=schema,
            prompt=prompt,
            approve=approve,
            retry=retry,
            timeout_seconds=timeout_seconds,
        )

    async def _reply(
        self,
        thread: Thread,
        *,
        name: str,
        tools: Mapping[str, Tool] | None = None,
        schema: dict[str, Any] | None = None,
        prompt: str | None = None,
        approve: Sequence[str] = (),
        retry: Retry | None = None,
        timeout_seconds: float | None = None,
    ) -> Any:
        """Let the model answer in a thread, after `prompt` if set. `tools` are added to those of the worker."""
        known = self._all_tools(tools, approve)
        step = ModelStepRunner(self._attempt, self._step_context.models, known, thread, schema=schema, prompt=prompt)
        step_key = self._next_step_key(name, "next-message")
        return await step.run(step_key, name=name, retry=retry, timeout_seconds=timeout_seconds)

    async def command(
        self,
        line: str | Sequence[str],
        *,
        name: str = "command",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        allow_failure: bool = False,
        approve: Sequence[str] = (),
        retry: Retry | None = None,
    ) -> CommandResult:
        """Run a shell script, or a program with a list of arguments; return its `stdout` and `exit_code`.

        With `approve=["command"]`, or a pattern that the command matches, a person has to approve it first.
        `variables` are environment variables that are recorded with the command; those in `env` are not. Raises
        `StepTimeout` if the last try took longer than `timeout_seconds`.
        """
        command = StepCommand(
            argv=shell_argv(line) if isinstance(line, str) else list(line),
            cwd=self._folder(cwd),
            env=dict(env or {}),
            variables=dict(variables or {}),
        )
        processes = self._step_context.processes
        step = CommandStepRunner(
            self._attempt,
            processes,
            command,
            timeout_seconds=timeout_seconds,
            allow_failure=allow_failure,
            gate=self._step_gate(approve),
        )
        return await step.run(self._next_step_key(name, "command"), name=name, retry=retry)

    async def agent(
        self,
        provider: str,
        prompt: str,
        *,
        name: str | None = None,
        system: str | None = None,
        model: str | None = None,
        tools: Sequence[str] | None = None,
        own_tools: Sequence[OwnTool | Mapping[str, Any]] = (),
        read_only: bool = False,
        sandbox: bool = False,
        max_turns: int | None = None,
        max_budget: float | None = None,
        cwd: str | None = None,
        resume: str | None = None,
        approve: Sequence[str] = (),
        retry: Retry | None = None,
        timeout_seconds: float | None = None,
    ) -> AgentResult:
        """Hand a task to an agent; return its `text`, and the `session_id` that `resume` takes to continue.

        `approve` has patterns of calls that a person has to approve, for agents that can ask. Raises `StepTimeout` if
        the last try took longer than `timeout_seconds`.
        """
        name = name or provider
        gate = self._step_gate(approve)
        fields = {
            "provider": provider,
            "prompt": prompt,
            "system": await self._with_memory(system),
            "model": model,
            "tools": tools,
            "own_tools": own_tools,
            "read_only": read_only,
            "sandbox": sandbox,
            "max_turns": max_turns,
            "max_budget": max_budget,
            "cwd": self._folder(cwd),
            "resume": resume,
        }
        try:
            options = convert(fields, AgentOptions)
        except msgspec.ValidationError as error:
            raise StepFailed(f"invalid options for the agent step {name!r}: {error}") from error
        if gate is not None:
            executed_here = {*self._step_context.own_tools} - {tool.name for tool in options.own_tools}
            options = msgspec.structs.replace(options, approve=gate.agent_patterns(executed_here))
        step = AgentStepRunner(self._attempt, self._step_context.agents, options, gate=gate)
        step_key = self._next_step_key(name, "agent")
        return await step.run(step_key, name=name, retry=retry, timeout_seconds=timeout_seconds)

    async def worker(
        self,
        slug: str,
        given: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        retry: Retry | None = None,
    ) -> Any:
        """Run another worker as a sub-run; return its output."""
        name = name or slug

        async def call(step_try: StepTry) -> StepResult:
            return await self._step_context.call_worker(self._attempt, step_try, slug, dict(given or {}))

        return await self._attempt.step(
            self._next_step_key(name, "call_workflow"),
            call,
            name=name,
            kind="call_workflow",
            retry=retry,
            repeatable=True,
            starts_itself=True,
        )

    async def tool(
        self,
        tool: str,
        given: Any,
        *,
        name: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it lasts over restarts
        approve: Sequence[str] = (),
        retry: Retry | None = None,
    ) -> Any:
        """Call a tool of the worker; wait for the result if the tool is executed by the client.

        `given` has the arguments, or is a function that returns them, which is called after the start of the step.
        """
        name = name or tool
        step_key = self._next_step_key(name, "tool-call")

        async def execute(step_try: StepTry) -> StepResult:
            arguments = given() if callable(given) else given
            result = await self._all_tools(approve=approve).call(
                self._attempt, step_key, tool, arguments, try_=step_try.try_, timeout_seconds=timeout
            )
            if result.error is not None:
                raise ToolFailed(f"the tool {tool!r} failed: {result.error}")
            return StepResult(result.output)

        return await self._attempt.step(step_key, execute, name=name, kind="tool-call", retry=retry, repeatable=True)

    async def operation(
        self,
        plugin: str,
        tool: str,
        given: Mapping[str, Any] | Callable[[], Any] | None = None,
        *,
        name: str | None = None,
        approve: Sequence[str] = (),
        retry: Retry | None = None,
    ) -> Any:
        """Call a tool of a plugin; return its text, or its content if that is not only text.

        `given` has the arguments, or is a function that returns them. They are checked against the tool's schema before
        the plugin gets them. Raises `ToolFailed` for a failure of the tool, `PluginFailed` for one of the protocol.
        """
        name, context = name or tool, self._step_context
        request = OperationRequest(plugin=plugin, tool=tool, arguments=given or {})
        step = OperationStepRunner(
            self._attempt, context.plugins, context.blobs, request, gate=self._step_gate(approve)
        )
        return await step.run(self._next_step_key(name, OPERATION), name=name, retry=retry)

    async def ask(
        self,
        question: str,
        *,
        options: Sequence[str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it lasts over restarts
        name: str = ASK,
    ) -> Any:
        """Ask a person and wait for the answer, for days if need be. Raises `AnswerTimeout` after `timeout` seconds."""
        arguments, step_key = _question(question, options), self._next_step_key(name, "ask")
        tools = Tools({}, self._step_context.blobs)
        result = await tools.call(self._attempt, step_key, ASK, arguments, timeout_seconds=timeout)
        if result.error is not None:
            raise ToolFailed(f"the question got no answer: {result.error}")
        return result.output

    async def log_question(self, question: str, *, options: Sequence[str] | None = None) -> None:
        """Record a question for viewers, without waiting for an answer."""
        await self._call_builtin(LOG_QUESTION, _question(question, options))

    async def summary(self, text: str) -> None:
        """Record in one line what the worker is doing, for the timeline."""
        await self._call_builtin(UPDATE_SUMMARY, {"summary": text})

    async def progress(self, done: float, total: float = 1, *, summary: str | None = None) -> None:
        """Record how far the run is, for lists: `done` of `total`, e.g. of the files to read. `summary` says more.

        Raises `StepFailed` unless `done` is between 0 and `total`.
        """
        if not 0 <= done <= total or not total:
            raise StepFailed(f"the progress must be between 0 and {total:g}, got {done:g}")
        text = summary or f"{done:g} of {total:g}"
        await self._call_builtin(UPDATE_SUMMARY, {"summary": text, "progress": round(done / total, 4)})

    async def record_decision(self, question: str, decision: str, reasoning: str) -> None:
        """Record a decision that the worker made because the task left it open."""
        fields = {"question": question, "decision": decision, "reasoning": reasoning}
        await self._call_builtin(RECORD_DECISION, fields)

    async def store_memory(self, key: str, content: str) -> None:
        """Keep a text for later runs of this worker; overwrite the one with the same key.

        With `@worker(memory=True)` the newest memories are part of the system prompts of models and agents.
        """
        await self._call_builtin(STORE_MEMORY, {"key": key, "content": content})

    async def submit_result(self, text: str, artifacts: Mapping[str, str] | None = None) -> None:
        """Submit the result of the run, whatever the worker returns, and `artifacts`: files by their names."""
        files = [{"name": name, "content": content} for name, content in (artifacts or {}).items()]
        await self._call_builtin(SUBMIT_RESULT, {"text": text, **({"artifacts": files} if files else {})})

    async def _call_builtin(self, tool: str, arguments: dict[str, Any]) -> None:
        tools = Tools({}, self._step_context.blobs)
        result = await tools.call(self._attempt, self._next_step_key(tool, tool), tool, arguments)
        if result.error is not None:
            raise ToolFailed(f"the tool {tool!r} failed: {result.error}")

    def _all_tools(self, more: Mapping[str, Tool] | None = None, approve: Sequence[str] = ()) -> Tools:
        return Tools({**self._tools, **(more or {})}, self._step_context.blobs, self._step_gate(approve))

    def _step_gate(self, approve: Sequence[str]) -> ApprovalGate | None:
        """Return the gate of a step with these patterns of its own; None if no call needs an approval."""
        check_patterns(approve)
        gate = self._gate.with_patterns(tuple(approve))
        return gate if gate.patterns else None

    async def _with_memory(self, system: str | None, model: str | None = None) -> str | None:
        """Return a system prompt with what the worker remembers. `model` condenses the memories if there are many."""
        if not self._step_context.has_memory:
            return system
        memory = worker_memory(ToolContext(self._attempt, self._step_context.blobs))
        memories = await memory.load()
        if model is not None and (condensed := compactable(memories)):
            memories = await self._compact_memory(memory, condensed, model) or memories
        return add_memories(system, memories)

    async def _compact_memory(self, memory: WorkerMemory, condensed: list[Memory], model: str) -> list[Memory] | None:
        """Condense memories and return all of them; None if that failed, and the next run tries again."""
        step_key = self._next_step_key(COMPACT_MEMORY, "next-message")
        if step_key in self._attempt.replay_state.steps:
            # An earlier attempt has condensed memories that may have changed since.
            return None
        thread = Thread(model=model, system=COMPACT_PROMPT, messages=[])
        prompt = "\n".join(each.markdown for each in condensed)
        step = ModelStepRunner(self._attempt, self._step_context.models, self._all_tools(), thread, prompt=prompt)
        try:
            text = await step.run(step_key, name=COMPACT_MEMORY)
        except RunFailed:
            return None
        return await memory.load() if await memory.replace(condensed, text) else None

    def _folder(self, cwd: str | None) -> str:
        """Resolve a folder relative to the folder of the run."""
        return str(Path(self._step_context.cwd) / cwd) if cwd else self._step_context.cwd


def _question(question: str, options: Sequence[str] | None) -> dict[str, Any]:
    return {"question": question, **({"options": list(options)} if options else {})}


def as_json(name: str, value: Any) -> Any:
    """Return the result of a step or worker as the log will return it. Raises `StepFailed` if it is not JSON."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise StepFailed(f"the result of {name!r} is not JSON: {error}") from error
