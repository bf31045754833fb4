"""Whether an agent succeeded: one rule for all providers, over what each of them says of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec

from shopfloor.engine.agents.truncation import truncate_to_line
from shopfloor.engine.workers.definition import path_segment
from shopfloor.errors import AgentFailed, ExecutionCancelled
from shopfloor.limits import AGENT_CALLS, UNTIMED_EVENTS
from shopfloor.log import (
    FORMAT,
    AssistantMessage,
    CallCompleted,
    CallStarted,
    Cost,
    Covers,
    Masking,
    PartialMessage,
    Payload,
    RunCompleted,
    RunError,
    RunStarted,
    Session,
    StepCompleted,
    StepStarted,
    TextBlock,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    supersedes_chunks,
)
from shopfloor.ports import (
    MAIN_AGENT,
    AgentExit,
    AgentReport,
    MessageDelta,
    SessionEnded,
    SubAgentEnded,
    SubAgentStarted,
    TranscriptItem,
    UsageDelta,
)
from shopfloor.views import add_usage


def resolve_outcome(ended: SessionEnded, exit_: AgentExit | None) -> SessionEnded:
    """Return the end of a session by the rule: an agent has succeeded only if it says so in its own final record, and
    neither a signal nor a non-zero exit code ended its process. Without `exit_` the final record decides.
    """
    if ended.status != "completed" or (ended.is_final and (exit_ is None or exit_.is_success)):
        return ended
    why = "the agent ended without its final record"
    if ended.is_final and exit_ is not None:
        why = f"the agent gave its answer, and its process did not end well: {exit_.description()}"
    is_cancelled = exit_ is not None and exit_.cancelled
    kind = ExecutionCancelled if is_cancelled else AgentFailed
    return msgspec.structs.replace(
        ended,
        status="cancelled" if is_cancelled else "failed",
        error=RunError(code=kind.code, message=why, retryable=kind.retryable),
        text=None,
        structured=None,
    )


def assign_timestamps(
    writes: Iterable[PendingEvent], *, has_timestamps: bool, clock: Callable[[], str]
) -> Iterator[tuple[PendingEvent, str]]:
    """Yield each event with its timestamp. Events without a time of the agent's own, or with one before that of the
    event before it, are marked `clock: reader` and get the time of the event before it.

    The first events have none before them: they wait for the first that has a time and get that one; where none comes
    soon, or the agent never tells times, the time of reading is used.
    """
    last: dict[str, str] = {}
    """By log."""
    newest = ""
    """The newest time of the agent's own."""

    def stamp(write: PendingEvent) -> tuple[PendingEvent, str]:
        nonlocal newest
        before = last.get(write.run_id, "")
        newest = max(newest, write.at or "")
        timestamp = max(before, write.at or newest or clock())
        last[write.run_id] = timestamp
        if timestamp == write.at:
            return write, timestamp
        payload = msgspec.structs.replace(write.payload, clock="reader")
        return msgspec.structs.replace(write, payload=payload), timestamp

    held: list[PendingEvent] | None = [] if has_timestamps else None
    for write in writes:
        if held is not None:
            held.append(write)
            if write.at is None and len(held) < UNTIMED_EVENTS:
                continue
            newest, waiting, held = write.at or "", held, None
            yield from map(stamp, waiting)
        else:
            yield stamp(write)
    yield from map(stamp, held or [])


NO_PRICE = Cost(usd=None, source="unknown")


class Prices(Protocol):
    def __call__(self, model: str, usage: Usage) -> Cost:
        """What so many tokens of a model cost; without a sum where its price is not known."""
        ...


class PendingEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that is to be appended."""

    run_id: str
    parent_run_id: str | None = None
    payload: Payload
    path: str = ""
    child_run_id: str | None = None
    at: str | None = None
    """Its time; None where it is that of writing."""


class AgentEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a session ended, with what it cost."""

    ended: SessionEnded
    cost: Cost | None
    """Of the session alone."""
    sub_usage: Usage | None = None
    """What its sub-agents have spent beside what they told themselves."""
    sub_cost: Cost | None = None
    covers: Covers | None = None
    """What the usage and the cost are of; None where it had no sub-agents."""


class _Agent(msgspec.Struct):
    """One that reports: the session itself, or a sub-agent of it, which is a run of its own."""

    run_id: str
    path: str
    parent: _Agent | None = None
    called_at: str = ""
    """The path of the call, in its parent's log."""
    name: str = ""
    depth: int = 0
    called: int = 0
    """How many others it has called."""
    over: bool = False
    calls: dict[str, None] = {}
    """The newest calls of tools that its log has."""


class Transcriber:
    """Keeps which sub-agents there are and which messages are not complete, and nothing else of what was said."""

    def __init__(
        self,
        first: RunStarted,
        *,
        run_id: str,
        path: str,
        provider: str,
        prices: Prices,
        new_id: Callable[[str], str],
        model: str | None = None,
        called: int = 0,
        mask: Masking | None = None,
        open_calls: Iterable[str] = (),
    ) -> None:
        """`first` is the run's own: sub-agents have its owner and channel. `new_id` makes a run's id of a key.
        `called` is how many others it has called before, `open_calls` are the calls of tools in its log that have no
        result yet, `mask` is what is kept out of the log."""
        self._first = first
        self._provider = provider
        self._prices = prices
        self._new_id = new_id
        self._model = model
        self._mask = mask
        self._agents = {MAIN_AGENT: _Agent(run_id=run_id, path=path, called=called, calls=dict.fromkeys(open_calls))}
        self._sub_costs = 0.0
        self._sub_usage = Usage()
        self._spent: dict[str | None, Usage] = {}
        self._partial: dict[tuple[str, str], PartialMessage] = {}
        """Messages that are not complete, by the agent and the message's id."""

    def grow(self, typed: MessageDelta) -> tuple[PartialMessage, int]:
        """Add text that is being typed. Gives its message, and how many characters of the block come before it."""
        key = (typed.agent, typed.message_id)
        partial = self._partial.get(key)
        if partial is None:
            complete = [one for one, known in self._partial.items() if one[0] == typed.agent and not known.has_text]
            for one in complete:
                del self._partial[one]
            partial = self._partial[key] = PartialMessage(typed.message_id)
        tool = {"tool_name": typed.tool_name, "tool_id": typed.tool_id}
        return partial, partial.append_text(typed.block, typed.kind, typed.text, **tool)

    def _cut_off(self, agent: str, at: str | None) -> list[PendingEvent]:
        """The messages of an agent whose whole will not come, as far as they were typed."""
        writes: list[PendingEvent] = []
        for key in [key for key in self._partial if key[0] == agent]:
            message = self._partial.pop(key).interrupted(self._mask and self._mask.mask_truncated)
            writes += [] if message is None else self._told(TranscriptItem(agent=agent, payload=message, at=at))
        return writes

    def set_default_model(self, model: str | None) -> None:
        """Set the model whose prices hold for tokens of which no model is told."""
        self._model = model

    def take(self, report: AgentReport) -> list[PendingEvent]:
        match report:
            case TranscriptItem(agent=agent, payload=AssistantMessage() as message, at=at):
                partial = self._partial.get((agent, message.message_id or ""))
                if partial is not None and supersedes_chunks(message):
                    partial.clear()
                # A call of the model that is made again, or given up: what it had said so far was all.
                broken = message.note is not None and message.note.kind in {"retry", "error"}
                return [*(self._cut_off(agent, at) if broken else []), *self._told(report)]
            case TranscriptItem():
                return self._told(report)
            case MessageDelta():
                self.grow(report)
                return []
            case SubAgentStarted():
                return self._started(report)
            case SubAgentEnded(agent=agent, at=at):
                return [*self._cut_off(agent, at), *self._ended(report)]
            case UsageDelta(model=model, usage=usage):
                self._spent[model] = add_usage(self._spent.get(model, Usage()), usage)
                return []
            case _:
                return []

    def end(self, ended: SessionEnded, exit_: AgentExit | None) -> tuple[list[PendingEvent], AgentEnd]:
        """What is left to write when the session has ended. Sub-agents end with it, the innermost first."""
        ended = truncate_to_line(resolve_outcome(ended, exit_))
        kind = ExecutionCancelled if ended.status == "cancelled" else AgentFailed
        error = RunError(code=kind.code, message="the agent that it worked for ended first")
        status = "cancelled" if ended.status == "cancelled" else "failed"
        writes: list[PendingEvent] = []
        for key in [*reversed(self._agents)]:
            writes += self._cut_off(key, ended.at)
            writes += self._ended(SubAgentEnded(agent=key, status=status, error=error, at=ended.at))
        sub_usage = self._untold(ended)
        sub_cost = None if sub_usage is None else self._cost(self._untold_by_model(ended), sub_usage)
        if len(self._agents) == 1:
            return writes, AgentEnd(ended=ended, cost=self._own_cost(ended))
        if ended.cost_usd is not None and not self._is_divisible(ended, sub_cost):
            # The agent's price is of all, and what of it was sub-agents' is not known: so the tokens are of all, too.
            ended = msgspec.structs.replace(
                ended, usage=total_usage(list(self._spent.values())), includes_sub_agents=True
            )
            sub_usage = sub_cost = None
        self._sub_costs += (sub_cost and sub_cost.usd) or 0.0
        cost, covers = self._own_cost(ended), None
        if ended.usage is not None or cost is not None:
            covers = "own_and_sub_agents" if ended.includes_sub_agents else "own"
        return writes, AgentEnd(ended=ended, cost=cost, sub_usage=sub_usage, sub_cost=sub_cost, covers=covers)

    def _is_divisible(self, ended: SessionEnded, sub_cost: Cost | None) -> bool:
        """Whether it is known what of the agent's total cost was its sub-agents'."""
        if ended.usage is None or not self._spent:
            return True
        rest = subtract_usage(total_usage(list(self._spent.values())), add_usage(ended.usage, self._sub_usage))
        return rest is not None and (rest == Usage() or (sub_cost is not None and sub_cost.usd is not None))

    def _untold(self, ended: SessionEnded) -> Usage | None:
        """What was spent in all, less what the session and its sub-agents say that they have spent."""
        if ended.usage is None or len(self._agents) == 1:
            return None
        rest = subtract_usage(total_usage(list(self._spent.values())), add_usage(ended.usage, self._sub_usage))
        return None if rest is None or rest == Usage() else rest

    def _untold_by_model(self, ended: SessionEnded) -> dict[str, Usage]:
        """The same by model, where nothing else is to be taken off."""
        own = ended.models
        if not own and len(self._spent) == 1:
            own = {model: ended.usage or Usage() for model in self._spent if model is not None}
        known = {model: spent for model, spent in self._spent.items() if model is not None}
        rest = {model: subtract_usage(spent, own.get(model, Usage())) for model, spent in known.items()}
        return {model: usage for model, usage in rest.items() if usage is not None and usage != Usage()}

    def _told(self, told: TranscriptItem) -> list[PendingEvent]:
        writes: list[PendingEvent] = []
        if told.agent not in self._agents:
            # It was never introduced; what it says is kept all the same.
            writes += self._started(SubAgentStarted(agent=told.agent, name="agent", at=told.at))
        agent = self._agents[told.agent]
        payload = truncate_to_line(told.payload)
        if told.at is None:
            payload = msgspec.structs.replace(payload, clock="reader")
        match payload:
            case ToolCall(call_id=call_id):
                self._remember(agent, call_id)
            case ToolResult(name=name, call_id=call_id, clock=clock) if call_id not in self._log_of(agent).calls:
                # Of a call that an earlier process made: there was one, and more is not known of it.
                self._remember(agent, call_id)
                call = ToolCall(
                    name=name, call_id=call_id, input=None, output=None, clock=clock, fidelity="agent_emitted"
                )
                writes.append(self._write(agent, call, at=told.at))
            case _:
                pass
        return [*writes, self._write(agent, payload, at=told.at)]

    def _remember(self, agent: _Agent, call_id: str) -> None:
        calls = self._log_of(agent).calls
        calls[call_id] = None
        if len(calls) > AGENT_CALLS:
            del calls[next(iter(calls))]

    def _log_of(self, agent: _Agent) -> _Agent:
        """Whose log gets what it says: after its outcome, that of the agent that called it."""
        while agent.over and agent.parent is not None:
            agent = agent.parent
        return agent

    def _started(self, started: SubAgentStarted) -> list[PendingEvent]:
        if started.agent in self._agents:
            return []
        parent = self._agents.get(started.parent) or self._agents[MAIN_AGENT]
        while parent.over and parent.parent is not None:
            # Nothing can follow an outcome: whoever called that one has called this one, too.
            parent = parent.parent
        parent.called += 1
        segment = path_segment(started.name) or "agent"
        agent = _Agent(
            run_id=self._new_id(started.agent),
            path=segment,
            parent=parent,
            called_at=f"{parent.path}.{segment}-{parent.called}",
            name=started.name,
            depth=parent.depth + 1,
        )
        self._agents[started.agent] = agent
        given = {} if started.task is None else {"prompt": started.task}
        call = CallStarted(name=started.name, kind="agent", try_=1, worker=self._provider, input=given)
        writes = [
            self._in(parent, call, path=agent.called_at, child_run_id=agent.run_id, at=started.at),
            self._in(agent, self._run_started(agent, started), path="", at=started.at),
            self._write(
                agent,
                StepStarted(name=agent.name, kind="agent", try_=1, session=Session(provider=self._provider)),
                at=started.at,
            ),
        ]
        if started.task is not None:
            said = UserMessage(blocks=[TextBlock(fidelity="agent_emitted", text=started.task)])
            writes.append(self._write(agent, said, at=started.at))
        return writes

    def _run_started(self, agent: _Agent, started: SubAgentStarted) -> RunStarted:
        first, parent = self._first, agent.parent or agent
        depth = (first.parent or {}).get("depth", 0) + agent.depth
        return RunStarted(
            name=started.name,
            kind="agent",
            attempt=1,
            host=first.host,
            task=started.task or started.name,
            input={"prompt": started.task} if started.task is not None else {},
            worker_type=self._provider,
            agent_id=first.agent_id,
            channel_id=first.channel_id,
            channel_name=first.channel_name,
            root_run_id=first.root_run_id or self._agents[MAIN_AGENT].run_id,
            queued_at=started.at,
            parent={"run_id": parent.run_id, "depth": depth, "call_id": started.agent},
            import_source=first.import_source,
            format=FORMAT,
        )

    def _ended(self, ended: SubAgentEnded) -> list[PendingEvent]:
        ended = truncate_to_line(ended)
        agent = self._agents.get(ended.agent)
        if agent is None or agent.parent is None or agent.over:
            return []
        cost = self._cost(ended.models, ended.usage)
        self._sub_costs += (cost and cost.usd) or 0.0
        self._sub_usage = add_usage(self._sub_usage, ended.usage)
        error = ended.error.message if ended.error else None
        step = StepCompleted(
            name=agent.name,
            kind="agent",
            try_=1,
            error=error,
            error_code=ended.error.code if ended.error else None,
            result={"text": ended.text} if ended.text is not None else None,
            usage=ended.usage,
            cost=cost,
        )
        outcome = RunCompleted(
            name=agent.name,
            kind="agent",
            status=ended.status,
            error=ended.error,
            result=ended.text,
            usage=ended.usage,
            cost=cost,
        )
        call = CallCompleted(
            name=agent.name, kind="agent", try_=1, error=error, usage=ended.usage, cost=cost, result=ended.text
        )
        writes = [self._write(agent, step, at=ended.at), self._in(agent, outcome, path="", at=ended.at)]
        if not agent.parent.over:
            # Where who called it ended first, the call stays dangling in that one's log: this one's tells how it ended.
            called = self._in(agent.parent, call, path=agent.called_at, child_run_id=agent.run_id, at=ended.at)
            writes.append(called)
        agent.over = True
        return writes

    def _own_cost(self, ended: SessionEnded) -> Cost | None:
        """The agent's own total where it gives one, less what its sub-agents are known to have cost."""
        if ended.cost_usd is not None:
            return Cost(usd=round(max(0.0, ended.cost_usd - self._sub_costs), 10), source="agent")
        return self._cost(ended.models, ended.usage)

    def _cost(self, models: dict[str, Usage], usage: Usage | None) -> Cost | None:
        if usage is None:
            return None
        if not models and self._model is not None:
            models = {self._model: usage}
        costs = [self._prices(model, used) for model, used in models.items()]
        sums = [cost.usd for cost in costs if cost.usd is not None]
        if not costs or len(sums) < len(costs) or total_usage(list(models.values())) != usage:
            # A part of it has no price, so the whole has none.
            return costs[0] if costs and costs[0].usd is None else NO_PRICE
        return msgspec.structs.replace(costs[0], usd=sum(sums))

    def _write(self, agent: _Agent, payload: Payload, *, at: str | None = None) -> PendingEvent:
        """Into its own log; what comes after its outcome is told where it was called."""
        if agent.over and agent.parent is not None:
            return self._in(agent.parent, payload, path=agent.called_at, at=at)
        return self._in(agent, payload, path=agent.path, at=at)

    def _in(
        self, agent: _Agent, payload: Payload, *, path: str, child_run_id: str | None = None, at: str | None = None
    ) -> PendingEvent:
        while agent.over and agent.parent is not None:
            agent, path = agent.parent, agent.called_at
        return PendingEvent(
            run_id=agent.run_id,
            parent_run_id=agent.parent.run_id if agent.parent else None,
            payload=payload,
            path=path,
            child_run_id=child_run_id,
            at=at,
        )


def subtract_usage(whole: Usage, part: Usage) -> Usage | None:
    """What is left; None where the part is no part of it."""
    rest = {name: getattr(whole, name) - getattr(part, name) for name in Usage.__struct_fields__}
    return Usage(**rest) if all(count >= 0 for count in rest.values()) else None


def total_usage(usages: list[Usage]) -> Usage:
    total = Usage()
    for usage in usages:
        total = add_usage(total, usage)
    return total
