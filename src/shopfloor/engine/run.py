"""The handle that a worker in Python works with. What it awaits is done once, whatever dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

import msgspec

from shopfloor.decoding import convert
from shopfloor.engine.agents.request import AgentOptions
from shopfloor.engine.attempt import ROOT_KEY, Attempt, StepResult, StepTry
from shopfloor.engine.engine_ports import StepContext
from shopfloor.engine.replay_state import StepKey
from shopfloor.engine.steps.agent import AgentResult, AgentStepRunner
from shopfloor.engine.steps.command import CommandResult, CommandStepRunner
from shopfloor.engine.steps.conversation import Thread
from shopfloor.engine.steps.model import ModelStepRunner
from shopfloor.engine.steps.shell_process import StepCommand, shell_argv
from shopfloor.engine.steps.tools import ASK, LOG_QUESTION, UPDATE_SUMMARY, Tool, Tools, build_tool, call_function
from shopfloor.engine.workers.definition import Retry, path_segment
from shopfloor.engine.workers.python import PythonTool
from shopfloor.errors import DefinitionChanged, StepFailed, ToolFailed
from shopfloor.ports import OwnTool

_inside: ContextVar[str | None] = ContextVar("inside", default=None)
"""The step of a worker's own that is being done."""


class Run:
    """One run, as its worker sees it.

    The function is called anew in every attempt; what these methods did before is given back from the log. So what
    has an effect goes into a step, and the same steps are asked for in the same order.
    """

    def __init__(
        self,
        attempt: Attempt,
        workshop: StepContext,
        *,
        given: Mapping[str, Any],
        tools: Mapping[str, Tool] | None = None,
        step_key: StepKey = ROOT_KEY,
    ) -> None:
        """`step_key` is that of the step that the steps of this handle are inside of."""
        self.id = attempt.run_id
        self.input = dict(given)
        self.attempt = attempt.replay_state.attempt
        self._attempt = attempt
        self._workshop = workshop
        self._tools = dict(tools or {})
        self._outer = step_key
        self._used: Counter[str] = Counter()

    def _place(self, name: str, kind: str) -> StepKey:
        """Where the next step of that name is: the same name again is the next round."""
        if (outer := _inside.get()) is not None:
            raise StepFailed(
                f"the step {outer!r} cannot have the step {name!r} inside it", hint="a step is done as a whole"
            )
        segment = path_segment(name)
        path = f"{self._outer.path}.{segment}" if self._outer.path else segment
        step_key = StepKey(path, self._outer.iteration + self._used[path])
        self._used[path] += 1
        known = self._attempt.replay_state.steps.get(step_key)
        if known is not None and known.kind != kind:
            raise DefinitionChanged(
                f"the log has a step {path!r} of kind {known.kind}, and the worker now asks for one of kind {kind}",
                hint="a worker has to ask for the same steps in the same order each time",
            )
        return step_key

    async def step(
        self, name: str, work: Callable[..., Any], *args: Any, retry: Retry | None = None, safe: bool = False
    ) -> Any:
        """Calls `work(*args)`, async or not, and keeps what it gives (as JSON).

        `safe` says that doing it twice does no harm: then a crash in the middle is no reason to fail.
        """

        async def done(step_try: StepTry) -> StepResult:
            async with self._attempt.hold_slot():
                token = _inside.set(name)
                try:
                    value = await call_function(work, *args)
                finally:
                    _inside.reset(token)
            return StepResult(as_json(name, value))

        return await self._attempt.step(
            self._place(name, "step"), done, name=name, kind="step", retry=retry, repeatable=safe
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
        retry: Retry | None = None,
    ) -> Any:
        """Asks a model; gives its text, or with `schema` the value it made. Tools are called as it asks for them.

        A tool is a function with `@tool`, or the name of one that the worker was defined with.
        """
        given = {one.name: build_tool(one.name, one.definition, one) for one in tools if not isinstance(one, str)}
        thread = Thread(
            model=model,
            system=system,
            tools=[one if isinstance(one, str) else one.name for one in tools],
            max_steps=max_steps,
            thinking=thinking,
            temperature=temperature,
            backup_model=backup_model,
            messages=[],
        )
        return await self._reply(thread, name=name, tools=given, schema=schema, prompt=prompt, retry=retry)

    async def _reply(
        self,
        thread: Thread,
        *,
        name: str,
        tools: Mapping[str, Tool] | None = None,
        schema: dict[str, Any] | None = None,
        prompt: str | None = None,
        retry: Retry | None = None,
    ) -> Any:
        """Have the model answer in a thread. `prompt` is said first; `tools` are added to those of the worker."""
        known = Tools({**self._tools, **(tools or {})})
        step = ModelStepRunner(self._attempt, self._workshop.models, known, thread, schema=schema, prompt=prompt)
        return await step.run(self._place(name, "next-message"), name=name, retry=retry)

    async def command(
        self,
        line: str | Sequence[str],
        *,
        name: str = "command",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the command is stopped in stages, not cancelled
        allow_failure: bool = False,
        retry: Retry | None = None,
    ) -> CommandResult:
        """Run a shell script, or a program with its arguments given as a list; return its `stdout` and `exit_code`.

        `variables` are environment variables that are on record with the command; those in `env` are not.
        """
        command = StepCommand(
            argv=shell_argv(line) if isinstance(line, str) else list(line),
            cwd=self._folder(cwd),
            env=dict(env or {}),
            variables=dict(variables or {}),
        )
        processes = self._workshop.processes
        work = CommandStepRunner(self._attempt, processes, command, timeout=timeout, allow_failure=allow_failure)
        return await work.run(self._place(name, "command"), name=name, retry=retry)

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
        retry: Retry | None = None,
    ) -> AgentResult:
        """Hands a task to an agent; gives its `text`, and the `session_id` by which it can be gone on with."""
        name = name or provider
        asked = {
            "provider": provider,
            "prompt": prompt,
            "system": system,
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
            order = convert(asked, AgentOptions)
        except msgspec.ValidationError as error:
            raise StepFailed(f"invalid options for the agent step {name!r}: {error}") from error
        work = AgentStepRunner(self._attempt, self._workshop.agents, order)
        return await work.run(self._place(name, "agent"), name=name, retry=retry)

    async def worker(
        self,
        slug: str,
        given: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        retry: Retry | None = None,
    ) -> Any:
        """A sub-run of another worker; gives its output."""
        name = name or slug

        async def call(step_try: StepTry) -> StepResult:
            return await self._workshop.call_worker(self._attempt, step_try, slug, dict(given or {}))

        return await self._attempt.step(
            self._place(name, "call_workflow"),
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
        retry: Retry | None = None,
    ) -> Any:
        """Calls a tool of the worker; one that nobody here executes is waited for.

        `given` may be a function that makes the arguments: then it is called when the step has begun.
        """
        name = name or tool
        step_key = self._place(name, "tool-call")

        async def answered(step_try: StepTry) -> StepResult:
            arguments = given() if callable(given) else given
            tools = Tools(self._tools)
            result = await tools.call(
                self._attempt, step_key, tool, arguments, try_=step_try.try_, timeout_seconds=timeout
            )
            if result.error is not None:
                raise ToolFailed(f"the tool {tool!r} failed: {result.error}")
            return StepResult(result.output)

        return await self._attempt.step(step_key, answered, name=name, kind="tool-call", retry=retry, repeatable=True)

    async def ask(
        self,
        question: str,
        *,
        options: Sequence[str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it lasts over restarts
        name: str = ASK,
    ) -> Any:
        """Asks a person and waits, for days if need be. Raises `AnswerTimeout` where nobody answers in time."""
        given = _question(question, options)
        result = await Tools({}).call(self._attempt, self._place(name, "ask"), ASK, given, timeout_seconds=timeout)
        if result.error is not None:
            raise ToolFailed(f"the question got no answer: {result.error}")
        return result.output

    async def log_question(self, question: str, *, options: Sequence[str] | None = None) -> None:
        """Notes a question for whoever looks, and goes on."""
        step_key = self._place(LOG_QUESTION, "log_question")
        await Tools({}).call(self._attempt, step_key, LOG_QUESTION, _question(question, options))

    async def summary(self, text: str) -> None:
        """Says in a line what is being done: the timeline shows it."""
        step_key = self._place(UPDATE_SUMMARY, "summary")
        await Tools({}).call(self._attempt, step_key, UPDATE_SUMMARY, {"summary": text})

    def _folder(self, cwd: str | None) -> str:
        """A folder as the worker names it: relative to that of the run."""
        return str(Path(self._workshop.cwd) / cwd) if cwd else self._workshop.cwd


def _question(question: str, options: Sequence[str] | None) -> dict[str, Any]:
    return {"question": question, **({"options": list(options)} if options else {})}


def as_json(name: str, value: Any) -> Any:
    """What a step or a worker gave, as the log will give it back."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, msgspec.MsgspecError) as error:
        raise StepFailed(f"{name!r} gave what is no JSON: {error}") from error
