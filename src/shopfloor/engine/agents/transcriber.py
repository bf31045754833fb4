"""Transcriber: converts the reports of an agent to events, and decides to which log and path each belongs.

It uses no clock and no I/O. `resolve_outcome` is the one rule for all providers of whether an agent has succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from shopfloor.engine.agents.truncation import truncate_to_line
from shopfloor.engine.workers.definition import path_segment
from shopfloor.errors import AgentFailed, ExecutionCancelled
from shopfloor.limits import AGENT_CALLS
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
    """Return the end of a session with its final status.

    An agent has succeeded only if its own final record says so, and neither a signal nor a non-zero exit code ended its
    process. Without `exit_` the final record decides.
    """
    if ended.status != "completed" or (ended.is_final and (exit_ is None or exit_.is_success)):
        return ended
    message = "the agent ended without its final record"
    if ended.is_final and exit_ is not None:
        message = f"the agent gave its answer, and its process did not end well: {exit_.description()}"
    is_cancelled = exit_ is not None and exit_.cancelled
    kind = ExecutionCancelled if is_cancelled else AgentFailed
    return msgspec.structs.replace(
        ended,
        status="cancelled" if is_cancelled else "failed",
        error=RunError(code=kind.code, message=message, retryable=kind.retryable),
        text=None,
        structured=None,
    )


def build_agent_result(ended: SessionEnded, exit_: AgentExit | None = None) -> dict[str, Any]:
    """Return the result of an agent step, without empty fields."""
    fields: dict[str, Any] = {
        "text": ended.text,
        "data": ended.structured,
        "turns": ended.turns,
        "exit_code": exit_.code if exit_ else None,
        "signal": exit_.signal if exit_ else None,
        "unparsed": ended.unparsed or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


NO_PRICE = Cost(usd=None, source="unknown")


class Prices(Protocol):
    """A function that returns the price of tokens."""

    def __call__(self, model: str, usage: Usage) -> Cost:
        """Return the cost of this usage; `usd` is None if the price of the model is unknown."""
        ...


class PendingEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to be appended to a log."""

    run_id: str
    parent_run_id: str | None = None
    payload: Payload
    path: str = ""
    child_run_id: str | None = None
    at: str | None = None
    """The event's time; None for the time of writing."""


class AgentEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a session ended, and its cost."""

    ended: SessionEnded
    cost: Cost | None
    """Cost of the session without sub-agents."""
    sub_usage: Usage | None = None
    """Usage of sub-agents that they did not report themselves."""
    sub_cost: Cost | None = None
    covers: Covers | None = None
    """What usage and cost include; None if there were no sub-agents."""


class _Agent(msgspec.Struct):
    """An agent that reports: the main agent of the session, or a sub-agent, which has a run of its own."""

    run_id: str
    path: str
    parent: _Agent | None = None
    call_path: str = ""
    """The path of the call in the parent's log."""
    name: str = ""
    depth: int = 0
    sub_agent_count: int = 0
    """Number of sub-agents that it has called."""
    is_ended: bool = False
    calls: dict[str, None] = {}
    """Ids of the newest tool calls in its log."""


class Transcriber:
    """Converter of reports to events. Remembers the sub-agents and the incomplete messages, and no other content."""

    def __init__(
        self,
        run_started: RunStarted,
        *,
        run_id: str,
        path: str,
        provider: str,
        prices: Prices,
        new_id: Callable[[str], str],
        model: str | None = None,
        sub_agent_count: int = 0,
        mask: Masking | None = None,
        open_calls: Iterable[str] = (),
    ) -> None:
        """Create a transcriber for one session.

        `run_started` is the first event of the session's run: sub-agents get its owner and channel. `new_id` returns a
        run id for a key. `sub_agent_count` is the number of sub-agents called by earlier processes, `open_calls` are
        the tool calls in the log that have no result yet, `mask` masks secrets.
        """
        self._run_started = run_started
        self._provider = provider
        self._prices = prices
        self._new_id = new_id
        self._model = model
        self._mask = mask
        self._agents = {
            MAIN_AGENT: _Agent(
                run_id=run_id, path=path, sub_agent_count=sub_agent_count, calls=dict.fromkeys(open_calls)
            )
        }
        self._usage_by_model: dict[str | None, Usage] = {}
        self._partial: dict[tuple[str, str], PartialMessage] = {}
        """Incomplete messages, by agent and message id."""

    def add_delta(self, delta: MessageDelta) -> tuple[PartialMessage, int]:
        """Add a delta to its message.

        Return the message, and the number of characters that precede the delta in its block.
        """
        key = (delta.agent, delta.message_id)
        partial = self._partial.get(key)
        if partial is None:
            finished = [k for k, message in self._partial.items() if k[0] == delta.agent and not message.has_text]
            for finished_key in finished:
                del self._partial[finished_key]
            partial = self._partial[key] = PartialMessage(delta.message_id)
        tool = {"tool_name": delta.tool_name, "tool_id": delta.tool_id}
        return partial, partial.append_text(delta.block, delta.kind, delta.text, **tool)

    def _interrupt_messages(self, agent: str, at: str | None) -> list[PendingEvent]:
        """Return the incomplete messages of an agent as events, marked as interrupted."""
        events: list[PendingEvent] = []
        for key in [key for key in self._partial if key[0] == agent]:
            message = self._partial.pop(key).interrupted(self._mask and self._mask.mask_truncated)
            events += [] if message is None else self._item_events(TranscriptItem(agent=agent, payload=message, at=at))
        return events

    def set_default_model(self, model: str | None) -> None:
        """Set the model whose price applies to usage that is reported without a model."""
        self._model = model

    def process_report(self, report: AgentReport) -> list[PendingEvent]:
        """Return the events that a report results in."""
        match report:
            case TranscriptItem(agent=agent, payload=AssistantMessage() as message, at=at):
                partial = self._partial.get((agent, message.message_id or ""))
                if partial is not None and supersedes_chunks(message):
                    partial.clear()
                # The model call is repeated or given up, so the rest of its message will not come.
                is_broken = message.note is not None and message.note.kind in {"retry", "error"}
                return [*(self._interrupt_messages(agent, at) if is_broken else []), *self._item_events(report)]
            case TranscriptItem():
                return self._item_events(report)
            case MessageDelta():
                self.add_delta(report)
                return []
            case SubAgentStarted():
                return self._start_sub_agent(report)
            case SubAgentEnded(agent=agent, at=at):
                return [*self._interrupt_messages(agent, at), *self._end_sub_agent(report)]
            case UsageDelta(model=model, usage=usage):
                self._usage_by_model[model] = add_usage(self._usage_by_model.get(model, Usage()), usage)
                return []
            case _:
                return []

    def end(self, ended: SessionEnded, exit_: AgentExit | None) -> tuple[list[PendingEvent], AgentEnd]:
        """Return the remaining events at the end of the session. Sub-agents end with it, the innermost first."""
        ended = truncate_to_line(resolve_outcome(ended, exit_))
        kind = ExecutionCancelled if ended.status == "cancelled" else AgentFailed
        error = RunError(code=kind.code, message="the agent that it worked for ended first")
        status = "cancelled" if ended.status == "cancelled" else "failed"
        events: list[PendingEvent] = []
        for key in [*reversed(self._agents)]:
            events += self._interrupt_messages(key, ended.at)
            events += self._end_sub_agent(SubAgentEnded(agent=key, status=status, error=error, at=ended.at))
        sub_usage = self._unreported_usage(ended)
        sub_cost = None if sub_usage is None else self._cost(self._unreported_by_model(ended), sub_usage)
        if len(self._agents) == 1:
            return events, AgentEnd(ended=ended, cost=self._own_cost(ended))
        if ended.cost_usd is not None and not self._is_divisible(ended, sub_cost):
            # The agent's total cost includes an unknown share of sub-agents, so report the usage with sub-agents, too.
            ended = msgspec.structs.replace(
                ended, usage=_total_usage(list(self._usage_by_model.values())), includes_sub_agents=True
            )
            sub_usage = sub_cost = None
        cost, covers = self._own_cost(ended, (sub_cost and sub_cost.usd) or 0.0), None
        if ended.usage is not None or cost is not None:
            covers = "own_and_sub_agents" if ended.includes_sub_agents else "own"
        return events, AgentEnd(ended=ended, cost=cost, sub_usage=sub_usage, sub_cost=sub_cost, covers=covers)

    def _is_divisible(self, ended: SessionEnded, sub_cost: Cost | None) -> bool:
        """Return whether the sub-agents' share of the agent's total cost is known."""
        if ended.usage is None or not self._usage_by_model:
            return True
        rest = _subtract_usage_or_none(_total_usage(list(self._usage_by_model.values())), ended.usage)
        return rest is not None and (rest == Usage() or (sub_cost is not None and sub_cost.usd is not None))

    def _unreported_usage(self, ended: SessionEnded) -> Usage | None:
        """Return the total usage minus what the session and its sub-agents reported themselves."""
        if ended.usage is None or len(self._agents) == 1:
            return None
        rest = _subtract_usage_or_none(_total_usage(list(self._usage_by_model.values())), ended.usage)
        return None if rest is None or rest == Usage() else rest

    def _unreported_by_model(self, ended: SessionEnded) -> dict[str, Usage]:
        """Return the usage of each model minus the session's own; models without a rest are left out."""
        own = ended.models
        if not own and len(self._usage_by_model) == 1:
            own = {model: ended.usage or Usage() for model in self._usage_by_model if model is not None}
        total = {model: usage for model, usage in self._usage_by_model.items() if model is not None}
        rest = {model: _subtract_usage_or_none(usage, own.get(model, Usage())) for model, usage in total.items()}
        return {model: usage for model, usage in rest.items() if usage is not None and usage != Usage()}

    def _item_events(self, item: TranscriptItem) -> list[PendingEvent]:
        events: list[PendingEvent] = []
        if item.agent not in self._agents:
            # No report has introduced this agent; keep its messages all the same.
            events += self._start_sub_agent(SubAgentStarted(agent=item.agent, name="agent", at=item.at))
        agent = self._agents[item.agent]
        payload = truncate_to_line(item.payload)
        if item.at is None:
            payload = msgspec.structs.replace(payload, clock="reader")
        match payload:
            case ToolCall(call_id=call_id):
                self._remember_call(agent, call_id)
            case ToolResult(name=name, call_id=call_id, clock=clock) if call_id not in self._active_agent(agent).calls:
                # An earlier process made this call. Add the call, of which nothing else is known, so that no result is
                # without one.
                self._remember_call(agent, call_id)
                call = ToolCall(
                    name=name, call_id=call_id, input=None, output=None, clock=clock, fidelity="agent_emitted"
                )
                events.append(self._event(agent, call, at=item.at))
            case _:
                pass
        return [*events, self._event(agent, payload, at=item.at)]

    def _remember_call(self, agent: _Agent, call_id: str) -> None:
        calls = self._active_agent(agent).calls
        calls[call_id] = None
        if len(calls) > AGENT_CALLS:
            del calls[next(iter(calls))]

    def _active_agent(self, agent: _Agent) -> _Agent:
        """Return the agent, or its nearest active ancestor if it has ended: the one whose log gets its events."""
        while agent.is_ended and agent.parent is not None:
            agent = agent.parent
        return agent

    def _start_sub_agent(self, started: SubAgentStarted) -> list[PendingEvent]:
        if started.agent in self._agents:
            return []
        parent = self._agents.get(started.parent) or self._agents[MAIN_AGENT]
        while parent.is_ended and parent.parent is not None:
            # Nothing may follow an outcome, so the call belongs to the nearest active ancestor.
            parent = parent.parent
        parent.sub_agent_count += 1
        segment = path_segment(started.name) or "agent"
        agent = _Agent(
            run_id=self._new_id(started.agent),
            path=segment,
            parent=parent,
            call_path=f"{parent.path}.{segment}-{parent.sub_agent_count}",
            name=started.name,
            depth=parent.depth + 1,
        )
        self._agents[started.agent] = agent
        input_ = {} if started.task is None else {"prompt": started.task}
        call = CallStarted(name=started.name, kind="agent", try_=1, worker=self._provider, input=input_)
        events = [
            self._event_in(parent, call, path=agent.call_path, child_run_id=agent.run_id, at=started.at),
            self._event_in(agent, self._sub_run_started(agent, started), path="", at=started.at),
            self._event(
                agent,
                StepStarted(name=agent.name, kind="agent", try_=1, session=Session(provider=self._provider)),
                at=started.at,
            ),
        ]
        if started.task is not None:
            prompt = UserMessage(blocks=[TextBlock(fidelity="agent_emitted", text=started.task)])
            events.append(self._event(agent, prompt, at=started.at))
        return events

    def _sub_run_started(self, agent: _Agent, started: SubAgentStarted) -> RunStarted:
        root, parent = self._run_started, agent.parent or agent
        depth = (root.parent or {}).get("depth", 0) + agent.depth
        return RunStarted(
            name=started.name,
            kind="agent",
            attempt=1,
            host=root.host,
            task=started.task or started.name,
            input={"prompt": started.task} if started.task is not None else {},
            worker_type=self._provider,
            agent_id=root.agent_id,
            channel_id=root.channel_id,
            channel_name=root.channel_name,
            root_run_id=root.root_run_id or self._agents[MAIN_AGENT].run_id,
            queued_at=started.at,
            parent={"run_id": parent.run_id, "depth": depth, "call_id": started.agent},
            import_source=root.import_source,
            format=FORMAT,
        )

    def _end_sub_agent(self, ended: SubAgentEnded) -> list[PendingEvent]:
        ended = truncate_to_line(ended)
        agent = self._agents.get(ended.agent)
        if agent is None or agent.parent is None or agent.is_ended:
            return []
        error = ended.error.message if ended.error else None
        step = StepCompleted(
            name=agent.name,
            kind="agent",
            try_=1,
            error=error,
            error_code=ended.error.code if ended.error else None,
            result={"text": ended.text} if ended.text is not None else None,
        )
        outcome = RunCompleted(
            name=agent.name,
            kind="agent",
            status=ended.status,
            error=ended.error,
            result=ended.text,
        )
        call = CallCompleted(name=agent.name, kind="agent", try_=1, error=error, result=ended.text)
        events = [self._event(agent, step, at=ended.at), self._event_in(agent, outcome, path="", at=ended.at)]
        if not agent.parent.is_ended:
            # If the parent ended first, its log keeps a call without a result; the sub-agent's own log has the outcome.
            call_ended = self._event_in(
                agent.parent, call, path=agent.call_path, child_run_id=agent.run_id, at=ended.at
            )
            events.append(call_ended)
        agent.is_ended = True
        return events

    def _own_cost(self, ended: SessionEnded, sub_cost_usd: float = 0.0) -> Cost | None:
        """Return the agent's total minus the known cost of its sub-agents, else the cost by our prices."""
        if ended.cost_usd is not None:
            return Cost(usd=round(max(0.0, ended.cost_usd - sub_cost_usd), 10), source="agent")
        return self._cost(ended.models, ended.usage)

    def _cost(self, models: dict[str, Usage], usage: Usage | None) -> Cost | None:
        if usage is None:
            return None
        if not models and self._model is not None:
            models = {self._model: usage}
        costs = [self._prices(model, used) for model, used in models.items()]
        sums = [cost.usd for cost in costs if cost.usd is not None]
        if not costs or len(sums) < len(costs) or _total_usage(list(models.values())) != usage:
            # A part has no price, so the sum has none.
            return costs[0] if costs and costs[0].usd is None else NO_PRICE
        return msgspec.structs.replace(costs[0], usd=sum(sums))

    def _event(self, agent: _Agent, payload: Payload, *, at: str | None = None) -> PendingEvent:
        """Return an event for the agent's own log, or for the call in its parent's log after the agent's outcome."""
        if agent.is_ended and agent.parent is not None:
            return self._event_in(agent.parent, payload, path=agent.call_path, at=at)
        return self._event_in(agent, payload, path=agent.path, at=at)

    def _event_in(
        self, agent: _Agent, payload: Payload, *, path: str, child_run_id: str | None = None, at: str | None = None
    ) -> PendingEvent:
        while agent.is_ended and agent.parent is not None:
            agent, path = agent.parent, agent.call_path
        return PendingEvent(
            run_id=agent.run_id,
            parent_run_id=agent.parent.run_id if agent.parent else None,
            payload=payload,
            path=path,
            child_run_id=child_run_id,
            at=at,
        )


def _subtract_usage_or_none(total: Usage, part: Usage) -> Usage | None:
    """Return the difference, or None if a number would become negative."""
    rest = {name: getattr(total, name) - getattr(part, name) for name in Usage.__struct_fields__}
    return Usage(**rest) if all(count >= 0 for count in rest.values()) else None


def _total_usage(usages: list[Usage]) -> Usage:
    total = Usage()
    for usage in usages:
        total = add_usage(total, usage)
    return total
