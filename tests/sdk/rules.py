"""What holds for every stream, whoever made it: each event is one that the TypeScript SDK takes, each input and each
result is told once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec
from tests.sdk.vocabulary import event_faults

from shopfloor.log import Delta, Event
from shopfloor.views import StreamState, encode_event, stream_step

Wire = dict[str, Any]


def folded(ones: Iterable[Event | Delta]) -> list[Wire]:
    """What a stream tells of these, as it is sent."""
    state = StreamState()
    events: list[Wire] = []
    for one in ones:
        state, told = stream_step(state, one)
        events += [msgspec.json.decode(encode_event(event)) for event in told]
    return events


def checked(events: list[Wire]) -> list[Wire]:
    """The events, if they keep the rules. An agent may use an id again once its call has a result: that is another call."""
    assert [fault for event in events for fault in event_faults(event)] == []
    told: dict[str, str] = {}
    for place, event in enumerate(events):
        call_id = event.get("toolCallId", "")
        match event["type"]:
            case "tool-input-available":
                assert told.get(call_id) != "input", f"the input of {call_id} is told twice"
                told[call_id] = "input"
                assert json.loads(inputs_of(events[:place])[call_id]) == event["input"]
            case "tool-output-available" | "tool-output-error":
                assert told.get(call_id) != "output", f"the result of {call_id} is told twice"
                told[call_id] = "output"
            case _:
                pass
    return events


def inputs_of(events: list[Wire]) -> dict[str, str]:
    """The deltas of each call together; one that begins anew counts from there."""
    inputs: dict[str, str] = {}
    for event in events:
        if event["type"] == "tool-input-start":
            inputs[event["toolCallId"]] = ""
        elif event["type"] == "tool-input-delta":
            inputs[event["toolCallId"]] += event["inputTextDelta"]
    return inputs
