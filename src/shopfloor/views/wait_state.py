"""The wait state of a run: a run waits when all its open branches wait."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar, cast

import msgspec

from shopfloor.limits import OPEN_BRANCHES, PREVIEW_CHARS, REQUEST_OPTIONS_MAX, REQUEST_TEXT_CHARS
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
)
from shopfloor.views.approvals import APPROVAL_OPTIONS, approval_question, describe_approval
from shopfloor.views.truncation import as_text

T = TypeVar("T")
QUESTION = "question"
"""The kind of a wait for a person's answer."""
APPROVAL = "approval"
"""The kind of a wait for a person's permission to call a tool or to run a command; also the name of such a call."""
RATE_LIMIT = "rate_limit"
"""The kind of a wait that ends by itself, at the time that the provider has announced."""
DEFINITION_CHANGED = "definition_changed"
"""The kind of a wait that holds the whole run, because its worker's definition changed since the run started."""
ENGINE_CALLS = frozenset({APPROVAL, DEFINITION_CHANGED, RATE_LIMIT})
"""The names of the calls by which the engine waits. They are recorded as calls, and are no calls of a tool."""

_RUN_KIND = "run"
_WITHOUT_ANSWER = (RATE_LIMIT, DEFINITION_CHANGED)
"""The kinds of waits that no answer ends."""


class PersonRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a pending call asks of a person or a client. Bounded: long texts and lists of options are cut."""

    since: str
    """When the call was made."""
    text: str
    """The question, or the tool and its input."""
    options: tuple[str, ...] = ()


class WaitState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of the fold. Bounded: has the newest `OPEN_BRANCHES` open branches and calls."""

    steps: dict[str, int] = {}
    """The open steps by step key; 1 if the step is a sub-run, for which the run waits, otherwise 0."""
    runs: dict[str, str] = {}
    """The ids of the sub-runs that the run waits for, by step key."""
    calls: dict[str, str] = {}
    """The step keys of the calls that a client or a person has to answer, by call id."""
    until: dict[str, str] = {}
    """The time when a wait ends by itself, by call id."""
    kinds: dict[str, str] = {}
    """What would answer each call (a client tool, a question, an approval), by call id."""
    asks: dict[str, str] = {}
    """What each call asks for, on one line, by call id."""
    requests: dict[str, PersonRequest] = {}
    """What each call that a person or a client has to answer asks for, by call id."""
    since: dict[str, str] = {}
    """When each call was made, by call id."""
    announced: tuple[str, ...] = msgspec.field(default=(), name="coming")
    """The step keys where further calls or branches are announced and not in the log yet: these do not wait."""

    @property
    def awaits_definition(self) -> bool:
        """True if the whole run waits until its worker has the definition again that the run started with."""
        return DEFINITION_CHANGED in self.kinds.values()

    @property
    def is_waiting(self) -> bool:
        """True if there is an open branch and every open branch waits."""
        if self.awaits_definition:
            return True
        waiting = {*self.calls.values(), *(step_key for step_key, is_call in self.steps.items() if is_call)}
        if self.announced or not waiting:
            return False
        # A step with open steps inside it is not active itself.
        inside = {outer for step_key in (*self.steps, *waiting) for outer in _enclosing_paths(step_key)}
        return all(step_key in waiting or _path(step_key) in inside for step_key in self.steps)

    @property
    def waits_for(self) -> list[str]:
        """The kinds of what the run waits for, each once; `run` for a run that it called."""
        sub_runs = [_RUN_KIND] if any(self.steps.values()) else []
        # A wait that holds the whole run comes first: no other answer makes the run continue.
        holds = [DEFINITION_CHANGED] if self.awaits_definition else []
        calls = (self.kinds[call] for call in self.calls if call in self.kinds)
        return list(dict.fromkeys([*holds, *calls, *sub_runs]))

    def lines(self, *, answered: Collection[str] = ()) -> list[str]:
        """Return what the calls ask for, one line each, without the calls in `answered`."""
        return [self.asks[call] for call in self.calls if call in self.asks and call not in answered]

    @property
    def person_since(self) -> str | None:
        """Since when the first of the calls waits for which a person or a client has to act; None if there is none."""
        return min((self.since[call] for call in self.person_calls), default=None)

    @property
    def person_calls(self) -> list[str]:
        """The ids of the calls for which a person or a client has to act."""
        return [call for call in self.since if self.kinds.get(call) != RATE_LIMIT]

    @property
    def hold_reason(self) -> str | None:
        """The reason why the whole run is held, on one line; None if it is not."""
        return next((self.asks.get(call) for call, kind in self.kinds.items() if kind == DEFINITION_CHANGED), None)

    @property
    def wake_at(self) -> str | None:
        """When the first wait ends by itself; empty, which sorts before any time, if it may end at any time."""
        return "" if self.awaits_definition else min(self.until.values(), default=None)


NO_WAITS = WaitState()


def wait_state_step(state: WaitState, event: Event) -> WaitState:
    """Return the state after the next event of its run."""
    match event.payload:
        case RunStarted() | RunCompleted():
            # A new attempt continues the open steps; the outcome closes all.
            return state if isinstance(event.payload, RunStarted) else NO_WAITS
        case StepStarted() | CallStarted() as step:
            # A sub-agent works together with its agent; only a call of another run waits.
            waits = isinstance(step, CallStarted) and step.kind != "agent"
            opened = {**state.steps, step_key_of(event): int(waits)}
            runs = (
                {**state.runs, step_key_of(event): event.child_run_id} if waits and event.child_run_id else state.runs
            )
            started = {event.path, *_enclosing_paths(event.path)}
            announced = tuple(key for key in state.announced if key not in started)
            if isinstance(step, StepStarted) and step.branches:
                announced += tuple(f"{event.path}.{branch}" for branch in step.branches)
            return msgspec.structs.replace(
                state, steps=keep_newest(opened), runs=keep_newest(runs), announced=announced[-OPEN_BRANCHES:]
            )
        case StepCompleted() | CallCompleted():
            step_key = step_key_of(event)
            ended = _without_step(state, step_key) if state.announced or step_key in state.calls.values() else state
            return msgspec.structs.replace(
                ended, steps=_without_key(state.steps, step_key), runs=_without_key(state.runs, step_key)
            )
        case ToolCall(awaits=awaits, call_id=call_id) if awaits is not None:
            step_key = step_key_of(event)
            others = tuple(key for key in state.announced if key != step_key)
            return msgspec.structs.replace(
                state,
                calls=keep_newest({**state.calls, call_id: step_key}),
                until=state.until if awaits.until is None else keep_newest({**state.until, call_id: awaits.until}),
                kinds=keep_newest({**state.kinds, call_id: awaits.kind}),
                asks=keep_newest(
                    {**state.asks, call_id: describe_pending_call(event.payload.name, awaits.kind, event.payload.input)}
                ),
                requests=state.requests
                if awaits.kind in _WITHOUT_ANSWER
                else keep_newest({**state.requests, call_id: _person_request(event, event.payload, awaits.kind)}),
                since=keep_newest({**state.since, call_id: event.timestamp}),
                announced=(*others, step_key) if awaits.more else others,
            )
        case ToolResult(call_id=call_id) if call_id in state.calls:
            return msgspec.structs.replace(
                state,
                calls=_without_key(state.calls, call_id),
                until=_without_key(state.until, call_id),
                kinds=_without_key(state.kinds, call_id),
                asks=_without_key(state.asks, call_id),
                requests=_without_key(state.requests, call_id),
                since=_without_key(state.since, call_id),
            )
        case _:
            return state


def describe_pending_call(name: str, kind: str, arguments: Any) -> str:
    """Return what a pending call asks for, on one line: a question with its options, or a tool and its input."""
    fields = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}
    if kind == RATE_LIMIT:
        return "a rate limit"
    if kind == QUESTION and "question" in fields:
        options = cast("list[Any]", fields["options"]) if isinstance(fields.get("options"), list) else []
        choices = " / ".join(f"{number}. {option}" for number, option in enumerate(options, start=1))
        text = f"{fields['question']} ({choices})" if choices else str(fields["question"])
    elif kind == APPROVAL:
        text = describe_approval(fields)
    elif kind == DEFINITION_CHANGED:
        text = definition_wait_message(arguments)
    else:
        text = f"{name} {as_text(arguments)}" if arguments not in (None, {}, "") else name
    line = " ".join(text[: PREVIEW_CHARS * 4].split())
    return line if len(line) <= PREVIEW_CHARS else f"{line[: PREVIEW_CHARS - 1]}…"


def _person_request(event: Event, call: ToolCall, kind: str) -> PersonRequest:
    arguments: Any = call.input
    fields = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}
    options: list[Any] = []
    if kind == APPROVAL:
        options, text = [*APPROVAL_OPTIONS], approval_question(fields)
    elif kind == QUESTION and "question" in fields:
        options = cast("list[Any]", fields["options"]) if isinstance(fields.get("options"), list) else []
        text = as_text(fields["question"])
    else:
        text = f"{call.name} {as_text(arguments)}" if arguments not in (None, {}, "") else call.name
    return PersonRequest(
        since=event.timestamp,
        text=_shorten(text, REQUEST_TEXT_CHARS),
        options=tuple(_shorten(as_text(option), PREVIEW_CHARS) for option in options[:REQUEST_OPTIONS_MAX]),
    )


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def definition_wait_message(arguments: Any) -> str:
    """Return why a run waits for its definition and what to do, from the input of the pending call."""
    reason: Any = cast("dict[str, Any]", arguments).get("message") if isinstance(arguments, dict) else None
    return f"waits for its definition: {reason or 'its worker changed'}; restore it, or cancel the run"


def _without_key(entries: dict[str, T], key: str) -> dict[str, T]:
    """Return a copy without this key. A filter by a comprehension takes many times as long."""
    rest = dict(entries)
    rest.pop(key, None)
    return rest


def _without_step(state: WaitState, step_key: str) -> WaitState:
    """Remove the waits of a step that has ended."""
    calls = {call: at for call, at in state.calls.items() if at != step_key}
    return msgspec.structs.replace(
        state,
        calls=calls,
        until={call: at for call, at in state.until.items() if call in calls},
        kinds={call: kind for call, kind in state.kinds.items() if call in calls},
        asks={call: line for call, line in state.asks.items() if call in calls},
        requests={call: request for call, request in state.requests.items() if call in calls},
        since={call: at for call, at in state.since.items() if call in calls},
        announced=tuple(
            key for key in state.announced if key != step_key and _path(step_key) not in _enclosing_paths(key)
        ),
    )


def step_key_of(event: Event) -> str:
    """Return the key of the step that an event belongs to: its path and iteration."""
    return format_step_key(event.path, event.iteration)


def format_step_key(path: str, iteration: int) -> str:
    """Return the key of a step: its path, followed by `#<iteration>` in later iterations of a loop."""
    return f"{path}#{iteration}" if iteration else path


def _path(step_key: str) -> str:
    return step_key.partition("#")[0]


def _enclosing_paths(step_key: str) -> list[str]:
    """Return the paths around a step, without iterations: `a` and `a.3` for `a.3.b`."""
    parts = _path(step_key).split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


def keep_newest(entries: dict[str, T]) -> dict[str, T]:
    """Return the newest `OPEN_BRANCHES` entries."""
    return entries if len(entries) <= OPEN_BRANCHES else dict(list(entries.items())[-OPEN_BRANCHES:])
