"""A stream that an agent printed as a transcript: the events of its run, and those of its sub-agents' runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from shopfloor.engine.agents.transcriber import PendingEvent, Prices, Transcriber, assign_timestamps
from shopfloor.limits import RUN_ID_BYTES, RUN_ID_LINES
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

    The id is a hash of the stream's first lines, so the same stream always has the same ids. The very first line is not
    enough: a run and its resume both begin with the id of their session.
    """
    coming = iter(chunks)
    head = _read_head(coming)
    identity = b"\n".join(head[:RUN_ID_BYTES].split(b"\n")[:RUN_ID_LINES]).rstrip()
    transcript = _Transcript(provider, _id_from(provider, identity), prices, source)
    seqs: dict[str, int] = {}
    writes = _writes(transcript, normalizer, head, coming, ended)
    for write, timestamp in assign_timestamps(writes, has_timestamps=normalizer.has_timestamps, clock=clock):
        seq = seqs[write.run_id] = seqs.get(write.run_id, 0) + 1
        yield encode(
            Line(
                seq=seq,
                run_id=write.run_id,
                parent_run_id=write.parent_run_id,
                child_run_id=write.child_run_id,
                type=write.payload.event_type,
                path=write.path,
                iteration=0,
                timestamp=timestamp,
                payload=write.payload,
            )
        )


def _writes(
    transcript: _Transcript, normalizer: Normalizer, head: bytes, rest: Iterable[bytes], ended: AgentExit | None
) -> Iterator[PendingEvent]:
    yield from transcript.beginning()
    for chunk in chain([head], rest):
        for report in normalizer.feed(chunk):
            yield from transcript.take(report)
    for report in normalizer.finish(ended):
        yield from transcript.take(report, ended)


def _read_head(chunks: Iterator[bytes]) -> bytes:
    """Read the lines that a run's id is made from, and whatever else came with them."""
    head = b""
    while head.count(b"\n") < RUN_ID_LINES and len(head) < RUN_ID_BYTES:
        if (chunk := next(chunks, None)) is None:
            break
        head += chunk
    return head


class _Transcript:
    """One run, of the one step that the stream is."""

    def __init__(self, provider: str, run_id: str, prices: Prices, source: str | None) -> None:
        self._provider = provider
        self._run_id = run_id
        self._first = RunStarted(
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
            self._first,
            run_id=run_id,
            path=provider,
            provider=provider,
            prices=prices,
            new_id=lambda key: _id_from(run_id, key.encode()),
        )

    def beginning(self) -> list[PendingEvent]:
        started = StepStarted(name=self._provider, kind="agent", try_=1, session=Session(provider=self._provider))
        return [self._write(self._first, path=""), self._write(started)]

    def take(self, report: AgentReport, exit_: AgentExit | None = None) -> list[PendingEvent]:
        return self._end(report, exit_) if isinstance(report, SessionEnded) else self._transcriber.take(report)

    def _end(self, ended: SessionEnded, exit_: AgentExit | None) -> list[PendingEvent]:
        writes, end = self._transcriber.end(ended, exit_)
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
        return [*writes, self._write(step, at=ended.at), self._write(outcome, path="", at=ended.at)]

    def _write(self, payload: Any, *, path: str | None = None, at: str | None = None) -> PendingEvent:
        return PendingEvent(run_id=self._run_id, payload=payload, path=self._provider if path is None else path, at=at)


def build_agent_result(ended: SessionEnded, exit_: AgentExit | None = None) -> dict[str, Any]:
    """What an agent's step says of how it went."""
    told: dict[str, Any] = {
        "text": ended.text,
        "data": ended.structured,
        "turns": ended.turns,
        "exit_code": exit_.code if exit_ else None,
        "signal": exit_.signal if exit_ else None,
        "unparsed": ended.unparsed or None,
    }
    return {name: value for name, value in told.items() if value is not None}


def _id_from(name: str, data: bytes) -> str:
    """Make a run id (the form of a random UUID) that is always the same for the same name and bytes."""
    digest = bytearray(hashlib.sha256(name.encode() + b"\n" + data).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x40
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
