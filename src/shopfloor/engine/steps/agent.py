"""Agent steps: a program that works by itself, heard live, and stopped when that is asked for."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from shopfloor.engine.agents import AgentEnd, Prices, Transcriber, Write
from shopfloor.engine.agents.transcribing import result_of
from shopfloor.engine.attempt import Attempt, EndedBadly, StepResult, Trying
from shopfloor.engine.cancel import Cancellation
from shopfloor.engine.journal import AGENT, Place, read_journal
from shopfloor.engine.steps.stopping import stop_once, stopped_when_left
from shopfloor.engine.workers.bare import MODELS
from shopfloor.engine.workers.definition import Retry
from shopfloor.errors import (
    AgentFailed,
    AgentMissing,
    BudgetExceeded,
    CommandNotFound,
    ExecutionCancelled,
    OutcomeUnknown,
    ProcessError,
    RunFailed,
    StepFailed,
    StorageError,
    UnsupportedOption,
    error_of,
)
from shopfloor.limits import AGENT_STDERR_CHARS, RATE_LIMIT_WAIT_SECONDS, RATE_LIMIT_WAITS, STOP_GRACE_SECONDS
from shopfloor.log import Process, RunError, Session, TextBlock, UserMessage, is_run_id, new_run_id
from shopfloor.ports import (
    SELF,
    AgentExit,
    AgentRequest,
    Child,
    Command,
    Ended,
    Exit,
    Launch,
    Log,
    LogReader,
    Logs,
    Normaliser,
    OwnTool,
    Processes,
    Provider,
    Report,
    Spent,
    Typed,
)
from shopfloor.views import RATE_LIMIT

GO_ON = "Go on with what you were doing."
"""What a session is told that was cut off in the middle."""


class AgentDesk(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent step works with."""

    provider: Callable[[str], Provider]
    processes: Processes
    logs: Logs
    reader: LogReader
    prices: Prices
    env: Mapping[str, str]

    def check(self, provider: str, given: Mapping[str, Any]) -> None:
        """Raises `UnsupportedOption` where a bare provider cannot be asked for that."""
        if provider in MODELS:
            return
        asked = {name: value for name, value in given.items() if value is not None}
        order = msgspec.convert({**asked, "provider": provider, "cwd": "."}, AgentOrder)
        self.launch(self.provider(provider), _request(order, order.resume, order.cwd))

    def launch(self, provider: Provider, request: AgentRequest) -> Launch:
        """How a provider is started for this. Raises `UnsupportedOption` where it cannot be asked so."""
        capabilities = provider.capabilities
        if request.own_tools and not capabilities.own_tools:
            raise UnsupportedOption(f"{provider.name} cannot call tools of a worker's own", hint="claude-sdk can")
        if request.sandbox and not capabilities.sandbox:
            raise UnsupportedOption(f"{provider.name} has no sandbox to ask for", hint="claude-sdk has one")
        return provider.launch(request, self.env)


class AgentOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks an agent for."""

    provider: str
    prompt: str
    system: str | None = None
    model: str | None = None
    tools: list[str] | None = None
    own_tools: list[OwnTool] = []
    read_only: bool = False
    sandbox: bool = False
    max_turns: int | None = None
    max_budget: float | None = None
    cwd: str
    resume: str | None = None
    """A run, or a session of the provider's."""


class AgentResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent gave."""

    text: str
    data: Any = None
    """Its answer as data, where it gives that."""
    session_id: str | None = None


async def run_agent(
    attempt: Attempt, desk: AgentDesk, order: AgentOrder, place: Place, *, name: str, retry: Retry | None = None
) -> AgentResult:
    provider = desk.provider(order.provider)
    session_id, cwd = order.resume, order.cwd
    if order.resume is not None and is_run_id(order.resume):
        session_id, cwd = await _session_of(desk, provider, order.resume)
    request = _request(order, session_id, cwd)
    return await AgentWork(attempt, desk, provider, request).run(place, name=name, retry=retry)


def _request(order: AgentOrder, session_id: str | None, cwd: str) -> AgentRequest:
    return AgentRequest(
        prompt=order.prompt,
        cwd=cwd,
        model=order.model,
        system_prompt=order.system,
        max_turns=order.max_turns,
        max_budget_usd=order.max_budget,
        tools=order.tools,
        own_tools=order.own_tools,
        read_only=order.read_only,
        sandbox=order.sandbox,
        resume=session_id,
        session_id=str(uuid.uuid4()),
    )


async def _session_of(desk: AgentDesk, provider: Provider, run_id: str) -> tuple[str, str]:
    """The session that an earlier run worked in, and its folder: providers find their sessions by that."""
    journal = await read_journal(desk.reader, run_id)
    sessions = [step.session for step in journal.steps.values() if step.session is not None]
    known = [one for one in sessions if one.provider == provider.name and one.session_id and one.process]
    if not known:
        raise StepFailed(
            f"the run {run_id} has no session of {provider.name} that could be gone on with",
            hint="`shopfloor show` tells what it did",
        )
    last = known[-1]
    return last.session_id or "", last.process.cwd if last.process else ""


class AgentWork:
    """The work of one agent step. While it goes on it does not see a cancellation: it is stopped in stages."""

    def __init__(self, attempt: Attempt, desk: AgentDesk, provider: Provider, request: AgentRequest) -> None:
        self._attempt = attempt
        self._desk = desk
        self._provider = provider
        self._request = request

    async def run(self, place: Place, *, name: str, retry: Retry | None = None) -> AgentResult:
        ended = await self._attempt.step(
            place,
            self._work,
            name=name,
            kind=AGENT,
            retry=retry,
            repeatable=self._provider.capabilities.resume,
            starts_itself=True,
        )
        record = self._attempt.journal.steps[place]
        session_id = record.session.session_id if record.session else None
        return AgentResult(text=ended.get("text") or "", data=ended.get("data"), session_id=session_id)

    async def _work(self, trying: Trying) -> StepResult:
        await self._attempt.rest_on(trying.place, RATE_LIMIT)
        request = self._again(trying) if trying.resumed else self._request
        for _ in range(RATE_LIMIT_WAITS):
            sitting = Sitting(self._attempt, self._desk, self._provider, request, trying)
            async with self._attempt.working():
                result, failure = await sitting.sit()
            trying.resumed = True
            if failure is None:
                return result
            wait = failure.retry_after
            if failure.code != "rate_limit_error" or wait is None or wait > RATE_LIMIT_WAIT_SECONDS:
                raise EndedBadly(failure, result)
            await self._attempt.rest_for(trying.place, RATE_LIMIT, wait)
            request = self._again(trying)
        raise AgentFailed(f"{self._provider.name} still limits our rate after {RATE_LIMIT_WAITS} waits")

    def _again(self, trying: Trying) -> AgentRequest:
        """The same session, told to go on; where it cannot be, nobody knows what it has done."""
        record = self._attempt.journal.steps.get(trying.place)
        session_id = record.session.session_id if record is not None and record.session is not None else None
        if session_id is None or not self._provider.capabilities.resume:
            raise OutcomeUnknown(
                f"{self._provider.name} was cut off, and in which session it worked is not known",
                hint="look at what it did; `retry: {always: true}` lets such a step be done again",
            )
        return msgspec.structs.replace(self._request, prompt=GO_ON, resume=session_id)


class Sitting:
    """One process of an agent, from its start to its exit."""

    def __init__(
        self, attempt: Attempt, desk: AgentDesk, provider: Provider, request: AgentRequest, trying: Trying
    ) -> None:
        self._attempt = attempt
        self._desk = desk
        self._provider = provider
        self._request = request
        self._trying = trying
        self._cancellation = Cancellation()
        self._normaliser: Normaliser = provider.normaliser(resumed=request.resume is not None)
        self._transcriber = Transcriber(
            _first_of(attempt),
            run_id=attempt.run_id,
            path=trying.place.path,
            provider=provider.name,
            prices=desk.prices,
            new_id=lambda key: new_run_id(),
            model=request.model,
        )
        self._logs: dict[str, Log] = {}
        self._opened = AsyncExitStack()
        self._typing = ""
        self._typed: dict[int, int] = {}
        """How much has been typed of each block of the message that is being typed."""
        self._stderr = ""
        self._spent = 0.0
        self._failure: RunFailed | StorageError | None = None
        """What ended it from our side."""

    async def sit(self) -> tuple[StepResult, RunFailed | None]:
        """What it gave, and what went wrong."""
        launch = self._desk.launch(self._provider, self._request)
        command = Command(argv=launch.argv, cwd=self._request.cwd, env=launch.env, stdin=launch.stdin)
        exit_: Exit | None = None
        async with self._opened, stopped_when_left(self._attempt, self._cancellation):
            try:
                async with self._desk.processes.start(command, run_id=self._attempt.run_id) as child:
                    exit_ = await self._serve(child, launch)
            except CommandNotFound as missing:
                self._fail(self._missing(missing))
            except ProcessError as error:
                self._fail(StepFailed(error.message, hint=error.hint))
            end = await self._end(exit_)
        result = StepResult(
            result_of(end.ended, self._exit(exit_)),
            end.ended.usage,
            end.cost,
            self._session(launch, end.ended.session_id),
            end.ended.limits or None,
            end.sub_usage,
            end.sub_cost,
        )
        if isinstance(self._failure, StorageError):
            raise self._failure
        if self._attempt.leaving == "cancelled":
            # On record with what it cost; the run itself sees its cancellation next.
            reason = self._attempt.cancellation.reason or "cancelled"
            await self._attempt.end(self._trying, result, ExecutionCancelled(reason))
        await anyio.lowlevel.checkpoint()
        return result, self._failure or _failure(end.ended)

    async def _serve(self, child: Child, launch: Launch) -> Exit | None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._obey, child)
            try:
                await self._begin(child, launch)
                while (piece := await child.read()) is not None:
                    if piece.stream == "stderr":
                        self._stderr = (self._stderr + piece.data.decode(errors="replace"))[-AGENT_STDERR_CHARS:]
                    else:
                        await self._hear(self._normaliser.feed(piece.data))
            except StorageError as error:
                self._fail(error)
                await child.kill()
            try:
                return await child.wait()
            except ProcessError as error:
                self._fail(StepFailed(error.message, hint=error.hint))
                return None
            finally:
                tasks.cancel_scope.cancel()

    async def _begin(self, child: Child, launch: Launch) -> None:
        """Intent before effect: the step, its session and the prompt are on record before the agent does anything."""
        if not self._trying.resumed:
            process = Process(pid=child.pid, command=launch.argv[0], args=launch.argv[1:], cwd=self._request.cwd)
            session = msgspec.structs.replace(self._session(launch, None), process=process)
            await self._attempt.begin(self._trying, session=session)
        said = TextBlock(fidelity="router", text=self._request.prompt)
        message = UserMessage(system_prompt=self._request.system_prompt, blocks=[said])
        await self._attempt.append(message, self._trying.place)
        child.release()

    def _missing(self, error: CommandNotFound) -> RunFailed:
        if not Path(self._request.cwd).is_dir():
            return StepFailed(error.message, hint=error.hint)
        return AgentMissing(f"{self._provider.name} is not installed; to install it: {self._provider.install}")

    def _session(self, launch: Launch, session_id: str | None) -> Session:
        return Session(
            provider=self._provider.name,
            access_mode=launch.access_mode,
            session_id=session_id or launch.session_id or self._request.resume,
            capabilities=msgspec.to_builtins(self._provider.capabilities),
            resumed=self._request.resume is not None,
        )

    async def _hear(self, reports: list[Report]) -> None:
        for report in reports:
            match report:
                case Typed():
                    self._tell(report)
                case Spent():
                    self._transcriber.take(report)
                    self._meter(report)
                case _:
                    for write in self._transcriber.take(report):
                        await self._write(write)

    def _tell(self, typed: Typed) -> None:
        """Only of the session itself: who watches a run sees its own text being typed."""
        if typed.agent != SELF:
            return
        if typed.message_id != self._typing:
            self._typing, self._typed = typed.message_id, {}
        offset = self._typed.get(typed.block, 0)
        self._typed[typed.block] = offset + len(typed.text)
        self._attempt.tell(
            self._trying,
            typed.message_id,
            block=typed.block,
            kind=typed.kind,
            offset=offset,
            text=typed.text,
            tool_name=typed.tool_name,
            tool_id=typed.tool_id,
        )

    async def _write(self, write: Write) -> None:
        if write.run_id == self._attempt.run_id:
            place = Place(write.path, self._trying.place.iteration)
            await self._attempt.append(write.payload, place, child_run_id=write.child_run_id, at=write.at)
            return
        log = self._logs.get(write.run_id)
        if log is None:
            opened = self._desk.logs.open(write.run_id, parent_run_id=write.parent_run_id)
            log = self._logs[write.run_id] = await self._opened.enter_async_context(opened)
        await log.append(write.payload, path=write.path, child_run_id=write.child_run_id, at=write.at)

    def _meter(self, spent: Spent) -> None:
        budget = self._request.max_budget_usd
        model = spent.model or self._request.model
        usd = spent.cost_usd
        if usd is None and model is not None:
            usd = self._desk.prices(model, spent.usage).usd
        self._spent += usd or 0.0
        if budget is not None and self._spent > budget:
            self._fail(BudgetExceeded(f"it has spent ${self._spent:.4f} of the ${budget:g} that it was allowed"))
            stop_once(self._cancellation, "the budget is spent")

    async def _obey(self, child: Child) -> None:
        await self._cancellation.requested.wait()
        await child.stop(STOP_GRACE_SECONDS)

    async def _end(self, exit_: Exit | None) -> AgentEnd:
        """The last reports, on record also where the run is being left."""
        *reports, last = self._normaliser.finish(self._exit(exit_))
        ended = last if isinstance(last, Ended) else Ended(status="failed")
        try:
            await self._hear(reports)
            writes, end = self._transcriber.end(ended)
            for write in writes:
                await self._write(write)
        except StorageError as error:
            self._fail(error)
            _, end = self._transcriber.end(ended)
        return end

    def _exit(self, exit_: Exit | None) -> AgentExit:
        cancelled = self._cancellation.reason is not None
        if exit_ is None:
            return AgentExit(stderr=self._stderr, cancelled=cancelled)
        code = exit_.code if exit_.signal is None else None
        return AgentExit(code=code, signal=exit_.signal, stderr=self._stderr, cancelled=cancelled)

    def _fail(self, error: RunFailed | StorageError) -> None:
        if self._failure is None:
            self._failure = error


def _first_of(attempt: Attempt) -> Any:
    first = attempt.journal.first
    if first is None:
        raise StepFailed("the log does not say what was to be done")
    return first


def _failure(ended: Ended) -> RunFailed | None:
    """How it ended, as an error again."""
    if ended.status == "completed":
        return None
    error = ended.error or RunError(code=AgentFailed.code, message="the agent did not end well")
    kind = error_of(error.code)
    retry_after = error.retry_after if isinstance(error.retry_after, float | int) else None
    if not issubclass(kind, RunFailed):
        kind = AgentFailed
    return kind(error.message, retry_after=retry_after)
