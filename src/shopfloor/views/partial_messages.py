"""Messages that a log has in chunks (ADR 14).

The complete message replaces its chunks; if it never follows, the chunks are shown as an interrupted message.
"""

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

_RELEVANT_PAYLOADS = (AssistantMessage, StepCompleted, CallCompleted, RunCompleted)
"""The payloads that can complete or interrupt a message in chunks."""


class PartialMessages:
    """A fold over the events of a run, in order. Its only state is the text of incomplete messages."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Event, PartialMessage]] = {}
        """The incomplete messages by id, each with the event of its first chunk."""

    def feed(self, event: Event) -> list[Event]:
        """Return the events to show for the next event.

        A chunk shows nothing. The end of a step is preceded by the messages that it interrupted.
        """
        match event.payload:
            case AssistantMessage(message_id=message_id) as message if message_id is not None:
                if is_message_chunk(message):
                    _, partial = self._open.setdefault(message_id, (event, PartialMessage(message_id)))
                    partial.merge_chunk(message)
                    return []
                if supersedes_chunks(message):
                    self._open.pop(message_id, None)
            case StepCompleted() | CallCompleted() if self._open:
                step = (event.path, event.iteration)
                interrupted = [key for key, (first, _) in self._open.items() if (first.path, first.iteration) == step]
                return [*self._close_interrupted(interrupted), event]
            case RunCompleted() if self._open:
                return [*self.rest(), event]
            case _:
                pass
        return [event]

    def feed_all(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events to show for the next events."""
        for event in events:
            payload = event.payload
            # Most logs have no chunks: then no event affects another.
            if (
                isinstance(payload, _RELEVANT_PAYLOADS)
                if self._open
                else isinstance(payload, AssistantMessage) and is_message_chunk(payload)
            ):
                yield from self.feed(event)
            else:
                yield event

    @property
    def is_open(self) -> bool:
        """True if there are incomplete messages."""
        return bool(self._open)

    def rest(self) -> list[Event]:
        """Return the messages that are incomplete at the end of the log, as events of interrupted messages."""
        return self._close_interrupted(list(self._open))

    def settle(self, later: Iterable[Event]) -> None:
        """Forget the messages that `later` events complete. The later events themselves are not shown."""
        for event in later if self._open else ():
            if isinstance(event.payload, AssistantMessage) and supersedes_chunks(event.payload):
                self._open.pop(event.payload.message_id or "", None)
            if not self._open:
                return

    def _close_interrupted(self, message_ids: list[str]) -> list[Event]:
        events: list[Event] = []
        for message_id in message_ids:
            first, partial = self._open.pop(message_id)
            if (message := partial.interrupted()) is not None:
                events.append(replace(first, payload=message))
        return events


def without_chunks(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events with complete messages only; an interrupted message comes before the end of its step."""
    partial = PartialMessages()
    yield from partial.feed_all(events)
    yield from partial.rest()
