"""Messages of which a log has pieces. The whole message takes the place of its pieces; if it never follows, they are
shown as the message that was cut off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from shopfloor.log import (
    AssistantMessage,
    CallCompleted,
    Event,
    PartialMessage,
    RunCompleted,
    StepCompleted,
    is_message_chunk,
    supersedes_chunks,
)

_CONCERNED = (AssistantMessage, StepCompleted, CallCompleted, RunCompleted)
"""What a message of which there are pieces may depend on."""


class PartialMessages:
    """Folds the events of a run, in order. Keeps the text of messages that are not complete, and nothing else."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Event, PartialMessage]] = {}
        """By the message's id, with the event of its first piece."""

    def feed(self, event: Event) -> list[Event]:
        """The events to show when this one comes: none for a piece, and before the end of a step what it cut off."""
        match event.payload:
            case AssistantMessage(message_id=message_id) as message if message_id is not None:
                if is_message_chunk(message):
                    _, partial = self._open.setdefault(message_id, (event, PartialMessage(message_id)))
                    partial.join(message)
                    return []
                if supersedes_chunks(message):
                    self._open.pop(message_id, None)
            case StepCompleted() | CallCompleted() if self._open:
                here = (event.path, event.iteration)
                ended = [key for key, (first, _) in self._open.items() if (first.path, first.iteration) == here]
                return [*self._cut_off(ended), event]
            case RunCompleted() if self._open:
                return [*self.rest(), event]
            case _:
                pass
        return [event]

    def feed_all(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events to show when these come."""
        for event in events:
            payload = event.payload
            # Most logs have no pieces: then no message depends on another.
            if (
                isinstance(payload, _CONCERNED)
                if self._open
                else isinstance(payload, AssistantMessage) and is_message_chunk(payload)
            ):
                yield from self.feed(event)
            else:
                yield event

    @property
    def is_open(self) -> bool:
        """Whether there are messages that are not complete."""
        return bool(self._open)

    def rest(self) -> list[Event]:
        """The messages that are not complete where the log ends, each as the event of one that was cut off."""
        return self._cut_off(list(self._open))

    def settle(self, later: Iterable[Event]) -> None:
        """Forget the messages whose whole is among later events, which are not shown themselves."""
        for event in later if self._open else ():
            if isinstance(event.payload, AssistantMessage) and supersedes_chunks(event.payload):
                self._open.pop(event.payload.message_id or "", None)
            if not self._open:
                return

    def _cut_off(self, message_ids: list[str]) -> list[Event]:
        events: list[Event] = []
        for message_id in message_ids:
            first, partial = self._open.pop(message_id)
            if (message := partial.interrupted()) is not None:
                events.append(replace(first, payload=message))
        return events


def without_chunks(events: Iterable[Event]) -> Iterator[Event]:
    """The events with whole messages only. One that was cut off stands where that is known for sure."""
    partial = PartialMessages()
    yield from partial.feed_all(events)
    yield from partial.rest()
