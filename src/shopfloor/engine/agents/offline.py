"""Transcription of a recorded stream: the events of the agent's run and of its sub-agents' runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from shopfloor.engine.agents.transcriber import PendingEvent, Prices, Transcriber, build_agent_result
from shopfloor.limits import RUN_ID_BYTES, RUN_ID_LINES, UNTIMED_EVENTS
from shopfloor.log import FORMAT, Line, RunCompleted, RunStarted, Session, StepCompleted, StepStarted, encode, now
from shopfloor.ports import AgentExit, AgentReport, Normalizer, SessionEnded


def transcribe(
    provider: str,
    normalizer: Normalizer,
    chunks: Iterable[bytes],
    *,
    prices: Prices,
    source: str | None = None,
    ended: AgentExit | None = None,
    clock: Callable[[], str] = now,
) -> Iterator[bytes]:
    """Yield the lines of the transcript as chunks arrive, from the moment the run's id is known.

    The id is a hash of the stream's first lines, so the same stream always gets the same ids. The first line alone is
    not enough: a run and its resume both begin with the id of their session.
    """
    chunk_iterator = iter(chunks)
    head = _read_head(chunk_iterator)
    identity = b"\n".join(head[:RUN_ID_BYTES].split(b"\n")[:RUN_ID_LINES]).rstrip()
    transcript = _Transcript(provider, _stable_run_id(provider, identity), prices, source)
    seqs: dict[str, int] = {}
    events = _pending_events(transcript, normalizer, head, chunk_iterator, ended)
    for event, timestamp in _assign_timestamps(events, has_timestamps=normalizer.has_timestamps, clock=clock):
        seq = seqs[event.run_id] = seqs.get(event.run_id, 0) + 1
        yield encode(
            Line(
                seq=seq,
                run_id=event.run_id,
                parent_run_id=event.parent_run_id,
                child_run_id=event.child_run_id,
                type=event.payload.event_type,
                path=event.path,
                iteration=0,
                timestamp=timestamp,
                payload=event.payload,
            )
        )


def _pending_events(
    transcript: _Transcript, normalizer: Normalizer, head: bytes, rest: Iterable[bytes], ended: AgentExit | None
) -> Iterator[PendingEvent]:
    yield from transcript.first_events()
    for chunk in chain([head], rest):
        for report in normalizer.feed(chunk):
            yield from transcript.process_report(report)
    for report in normalizer.finish(ended):
        yield from transcript.process_report(report, ended)


def _read_head(chunks: Iterator[bytes]) -> bytes:
    """Read the lines that determine the run's id, with the rest of their last chunk."""
    head = b""
    while head.count(b"\n") < RUN_ID_LINES and len(head) < RUN_ID_BYTES:
        if (chunk := next(chunks, None)) is None:
            break
        head += chunk
    return head


class _Transcript:
    """The run of a recorded stream, which has one step."""

    def __init__(self, provider: str, run_id: str, prices: Prices, source: str | None) -> None:
        self._provider = provider
        self._run_id = run_id
        self._run_started = RunStarted(
            name=provider,
            kind="agent",
            attempt=1,
            host="normalize",
            worker_type=provider,
            agent_id=provider,
            channel_id="cli",
            channel_name="cli",
            root_run_id=run_id,
            import_source={"provider": provider, **({"file": source} if source else {})},
            format=FORMAT,
        )
        self._transcriber = Transcriber(
            self._run_started,
            run_id=run_id,
            path=provider,
            provider=provider,
            prices=prices,
            new_id=lambda key: _stable_run_id(run_id, key.encode()),
        )

    def first_events(self) -> list[PendingEvent]:
        started = StepStarted(name=self._provider, kind="agent", try_=1, session=Session(provider=self._provider))
        return [self._event(self._run_started, path=""), self._event(started)]

    def process_report(self, report: AgentReport, exit_: AgentExit | None = None) -> list[PendingEvent]:
        return (
            self._end(report, exit_) if isinstance(report, SessionEnded) else self._transcriber.process_report(report)
        )

    def _end(self, ended: SessionEnded, exit_: AgentExit | None) -> list[PendingEvent]:
        events, end = self._transcriber.end(ended, exit_)
        ended = end.ended
        error = ended.error
        step = StepCompleted(
            name=self._provider,
            kind="agent",
            try_=1,
            error=error.message if error else None,
            error_code=error.code if error else None,
            error_hint=(error.hint or None) if error else None,
            retryable=error.retryable if error else None,
            result=build_agent_result(ended, exit_),
            usage=ended.usage,
            cost=end.cost,
            sub_usage=end.sub_usage,
            sub_cost=end.sub_cost,
            covers=end.covers,
            session=Session(provider=self._provider, session_id=ended.session_id, usage=ended.session_usage),
            rate_limits=ended.limits or None,
        )
        outcome = RunCompleted(
            name=self._provider,
            kind="agent",
            status=ended.status,
            error=error,
            result=ended.text,
            usage=ended.usage,
            cost=end.cost,
            sub_usage=end.sub_usage,
            sub_cost=end.sub_cost,
            covers=end.covers,
        )
        return [*events, self._event(step, at=ended.at), self._event(outcome, path="", at=ended.at)]

    def _event(self, payload: Any, *, path: str | None = None, at: str | None = None) -> PendingEvent:
        return PendingEvent(run_id=self._run_id, payload=payload, path=self._provider if path is None else path, at=at)


def _assign_timestamps(
    events: Iterable[PendingEvent], *, has_timestamps: bool, clock: Callable[[], str]
) -> Iterator[tuple[PendingEvent, str]]:
    """Yield each event with its timestamp. Timestamps never go back within a log.

    An event without a timestamp from the agent, or with one before that of the previous event, gets the timestamp of
    the previous event and is marked `clock: reader`.

    The first events have no previous one: they are held back and get the first timestamp that arrives. If none arrives
    soon, or if the agent never reports times, the time of reading is used.
    """
    last: dict[str, str] = {}
    """The last timestamp of each log."""
    newest = ""
    """The newest timestamp from the agent."""

    def stamp(event: PendingEvent) -> tuple[PendingEvent, str]:
        nonlocal newest
        before = last.get(event.run_id, "")
        newest = max(newest, event.at or "")
        timestamp = max(before, event.at or newest or clock())
        last[event.run_id] = timestamp
        if timestamp == event.at:
            return event, timestamp
        payload = msgspec.structs.replace(event.payload, clock="reader")
        return msgspec.structs.replace(event, payload=payload), timestamp

    untimed: list[PendingEvent] | None = [] if has_timestamps else None
    for event in events:
        if untimed is not None:
            untimed.append(event)
            if event.at is None and len(untimed) < UNTIMED_EVENTS:
                continue
            newest, waiting, untimed = event.at or "", untimed, None
            yield from map(stamp, waiting)
        else:
            yield stamp(event)
    yield from map(stamp, untimed or [])


def _stable_run_id(name: str, data: bytes) -> str:
    """Return a run id (with the form of a random UUID) that depends only on the name and the bytes."""
    digest = bytearray(hashlib.sha256(name.encode() + b"\n" + data).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x40
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
