"""Client tools of sub-runs, as the client of the run above them is asked for them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar, cast

import msgspec

from shopfloor.limits import OPEN_BRANCHES, PREVIEW_CHARS
from shopfloor.log import (
    CallCompleted,
    CallStarted,
    Event,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
    is_run_id,
)
from shopfloor.views.stream_events import RequestedCall
from shopfloor.views.truncation import as_text

_SEPARATOR = ":"


class SubRunCalls(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The client tools that the runs below a run wait for, at a time when everything in its tree waits.

    No single log tells this, so a stream of the run gets it beside the log. The id of each call names its run.
    """

    tool_calls: list[RequestedCall]
    waits: bool = False
    """There are no such calls, nothing in the tree works any more, and the run's log has been silent for a while."""


def join_call_id(run_id: str, call_id: str) -> str:
    """The id under which a call of a sub-run is known to the client of a run above it."""
    return f"{run_id}{_SEPARATOR}{call_id}"


def split_call_id(text: str) -> tuple[str | None, str]:
    """The sub-run that made a call, and the call's id there; None where the id names no run."""
    run_id, separator, call_id = text.partition(_SEPARATOR)
    return (run_id, call_id) if separator and call_id and is_run_id(run_id) else (None, text)


T = TypeVar("T")
QUESTION = "question"
"""The kind of a wait for a person's answer."""
RATE_LIMIT = "rate_limit"
"""The kind of a wait that ends by itself: the provider has said when it will answer again."""
DEFINITION_CHANGED = "definition_changed"
"""The kind of a wait that holds the whole run: its worker is not the one that the run began with."""

_RUN = "run"


class WaitState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of the fold. Bounded: beyond a thousand open branches or calls the oldest are forgotten."""

    steps: dict[str, int] = {}
    """The open steps by their place; 1 where the step is a sub-run, which waits by itself."""
    runs: dict[str, str] = {}
    """The sub-runs that are waited for: place to run."""
    calls: dict[str, str] = {}
    """The calls that wait for somebody outside: id to place."""
    until: dict[str, str] = {}
    """When a wait ends by itself, by call."""
    kinds: dict[str, str] = {}
    """What would answer each call: a client tool, a question, an approval."""
    asks: dict[str, str] = {}
    """What each call asks for, on one line."""
    coming: tuple[str, ...] = ()
    """Where more has been announced, calls of a step or branches of one, and is not there yet: it does not wait."""

    @property
    def awaits_definition(self) -> bool:
        """The whole run waits until its worker is again the one that it began with."""
        return DEFINITION_CHANGED in self.kinds.values()

    @property
    def is_waiting(self) -> bool:
        """Every branch that is open waits, and there is one."""
        if self.awaits_definition:
            return True
        waiting = {*self.calls.values(), *(place for place, is_call in self.steps.items() if is_call)}
        if self.coming or not waiting:
            return False
        # A step with open steps inside it does nothing by itself.
        inside = {outer for place in (*self.steps, *waiting) for outer in _outside(place)}
        return all(place in waiting or _path(place) in inside for place in self.steps)

    @property
    def waits_for(self) -> list[str]:
        """The kinds of what it waits for, each once; `run` for a run that it called."""
        called = [_RUN] if any(self.steps.values()) else []
        # What holds the run as a whole comes first: no other answer makes the run go on.
        held = [DEFINITION_CHANGED] if self.awaits_definition else []
        return list(dict.fromkeys([*held, *(self.kinds[call] for call in self.calls if call in self.kinds), *called]))

    def lines(self, *, answered: Collection[str] = ()) -> list[str]:
        """What the calls ask for, each on one line, without the calls in `answered`."""
        return [self.asks[call] for call in self.calls if call in self.asks and call not in answered]

    @property
    def hold_reason(self) -> str | None:
        """Why the whole run waits, on one line, where it does."""
        return next((self.asks.get(call) for call, kind in self.kinds.items() if kind == DEFINITION_CHANGED), None)

    @property
    def outside(self) -> bool:
        """Somebody outside has to act: a client, or a person."""
        return bool(self.calls)

    @property
    def wake_at(self) -> str | None:
        """When the first of the waits ends by itself; empty, which is before any time, where it may end at any time."""
        return "" if self.awaits_definition else min(self.until.values(), default=None)


NO_WAITS = WaitState()


def wait_state_step(state: WaitState, event: Event) -> WaitState:
    match event.payload:
        case RunStarted() | RunCompleted():
            # An attempt goes on with the steps that are open; the outcome leaves none.
            return state if isinstance(event.payload, RunStarted) else NO_WAITS
        case StepStarted() | CallStarted() as step:
            # A sub-agent works while its agent does; only for another run does one wait.
            waits = isinstance(step, CallStarted) and step.kind != "agent"
            opened = {**state.steps, step_key_of(event): int(waits)}
            runs = (
                {**state.runs, step_key_of(event): event.child_run_id} if waits and event.child_run_id else state.runs
            )
            begun = {event.path, *_outside(event.path)}
            coming = tuple(one for one in state.coming if one not in begun)
            if isinstance(step, StepStarted) and step.branches:
                coming += tuple(f"{event.path}.{branch}" for branch in step.branches)
            return msgspec.structs.replace(
                state, steps=keep_newest(opened), runs=keep_newest(runs), coming=coming[-OPEN_BRANCHES:]
            )
        case StepCompleted() | CallCompleted():
            place = step_key_of(event)
            ended = _without(state, place) if state.coming or place in state.calls.values() else state
            return msgspec.structs.replace(ended, steps=_dropped(state.steps, place), runs=_dropped(state.runs, place))
        case ToolCall(awaits=awaits, call_id=call_id) if awaits is not None:
            place = step_key_of(event)
            others = tuple(one for one in state.coming if one != place)
            return msgspec.structs.replace(
                state,
                calls=keep_newest({**state.calls, call_id: place}),
                until=state.until if awaits.until is None else keep_newest({**state.until, call_id: awaits.until}),
                kinds=keep_newest({**state.kinds, call_id: awaits.kind}),
                asks=keep_newest(
                    {**state.asks, call_id: describe_pending_call(event.payload.name, awaits.kind, event.payload.input)}
                ),
                coming=(*others, place) if awaits.more else others,
            )
        case ToolResult(call_id=call_id) if call_id in state.calls:
            return msgspec.structs.replace(
                state,
                calls=_dropped(state.calls, call_id),
                until=_dropped(state.until, call_id),
                kinds=_dropped(state.kinds, call_id),
                asks=_dropped(state.asks, call_id),
            )
        case _:
            return state


def describe_pending_call(name: str, kind: str, given: Any) -> str:
    """What a call asks somebody outside for: a question with its options, or a tool and its input."""
    fields = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    if kind == RATE_LIMIT:
        return "a rate limit"
    if kind == QUESTION and "question" in fields:
        options = cast("list[Any]", fields["options"]) if isinstance(fields.get("options"), list) else []
        among = " / ".join(f"{number}. {option}" for number, option in enumerate(options, start=1))
        text = f"{fields['question']} ({among})" if among else str(fields["question"])
    elif kind == DEFINITION_CHANGED:
        text = definition_wait_message(given)
    else:
        text = f"{name} {as_text(given)}" if given not in (None, {}, "") else name
    line = " ".join(text[: PREVIEW_CHARS * 4].split())
    return line if len(line) <= PREVIEW_CHARS else f"{line[: PREVIEW_CHARS - 1]}…"


def definition_wait_message(given: Any) -> str:
    """Say why a run waits for its definition, and what to do, from what the call of that wait was given."""
    said: Any = cast("dict[str, Any]", given).get("message") if isinstance(given, dict) else None
    return f"waits for its definition: {said or 'its worker changed'}; put it back, or cancel the run"


def _dropped(known: dict[str, T], key: str) -> dict[str, T]:
    """A copy without this key. A filter by a comprehension takes many times as long."""
    rest = dict(known)
    rest.pop(key, None)
    return rest


def _without(state: WaitState, place: str) -> WaitState:
    """A step that has ended waits for nothing any more."""
    calls = {call: at for call, at in state.calls.items() if at != place}
    return msgspec.structs.replace(
        state,
        calls=calls,
        until={call: at for call, at in state.until.items() if call in calls},
        kinds={call: kind for call, kind in state.kinds.items() if call in calls},
        asks={call: line for call, line in state.asks.items() if call in calls},
        coming=tuple(one for one in state.coming if one != place and _path(place) not in _outside(one)),
    )


def step_key_of(event: Event) -> str:
    """The step that it belongs to, and which round of it."""
    return format_step_key(event.path, event.iteration)


def format_step_key(path: str, iteration: int) -> str:
    return f"{path}#{iteration}" if iteration else path


def _path(place: str) -> str:
    return place.partition("#")[0]


def _outside(place: str) -> list[str]:
    """The places that this one stands in: `a.3.b` in `a.3` and `a`, in whatever round."""
    parts = _path(place).split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


def keep_newest(known: dict[str, T]) -> dict[str, T]:
    """The newest of them, where they are too many."""
    return known if len(known) <= OPEN_BRANCHES else dict(list(known.items())[-OPEN_BRANCHES:])
