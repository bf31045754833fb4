"""A stream that an agent printed as a transcript: the events of its run, and those of its sub-agents' runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from shopfloor.engine.agents.timing import timed
from shopfloor.engine.agents.transcript import Prices, Transcriber, Write
from shopfloor.limits import LINE_BUFFER_BYTES
from shopfloor.log import FORMAT, Line, RunCompleted, RunStarted, Session, StepCompleted, StepStarted, encode, now
from shopfloor.ports import AgentExit, Ended, Normaliser, Report


def transcribed(
    provider: str,
    normaliser: Normaliser,
    chunks: Iterable[bytes],
    *,
    prices: Prices,
    source: str | None = None,
    ended: AgentExit | None = None,
    clock: Callable[[], str] = now,
) -> Iterator[bytes]:
    """The lines of the transcript, as they can be told. The same stream twice has the same ids."""
    coming = iter(chunks)
    head = _first_line(coming)
    transcript = _Transcript(provider, run_id_of(provider, head), prices, source)
    seqs: dict[str, int] = {}
    writes = _writes(transcript, normaliser, head, coming, ended)
    for write, timestamp in timed(writes, tells_time=normaliser.tells_time, clock=clock):
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
    transcript: _Transcript, normaliser: Normaliser, head: bytes, rest: Iterable[bytes], ended: AgentExit | None
) -> Iterator[Write]:
    yield from transcript.beginning()
    for chunk in chain([head], rest):
        for report in normaliser.feed(chunk):
            yield from transcript.take(report)
    for report in normaliser.finish(ended):
        yield from transcript.take(report, ended)


def _first_line(chunks: Iterator[bytes]) -> bytes:
    """The beginning, up to at least the end of the first line unless that is very long."""
    head = b""
    while b"\n" not in head and len(head) < LINE_BUFFER_BYTES and (chunk := next(chunks, None)) is not None:
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
            new_id=lambda key: run_id_of(run_id, key.encode()),
        )

    def beginning(self) -> list[Write]:
        started = StepStarted(name=self._provider, kind="agent", try_=1, session=Session(provider=self._provider))
        return [self._write(self._first, path=""), self._write(started)]

    def take(self, report: Report, exit_: AgentExit | None = None) -> list[Write]:
        return self._end(report, exit_) if isinstance(report, Ended) else self._transcriber.take(report)

    def _end(self, ended: Ended, exit_: AgentExit | None) -> list[Write]:
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
            result=result_of(ended, exit_),
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

    def _write(self, payload: Any, *, path: str | None = None, at: str | None = None) -> Write:
        return Write(run_id=self._run_id, payload=payload, path=self._provider if path is None else path, at=at)


def result_of(ended: Ended, exit_: AgentExit | None = None) -> dict[str, Any]:
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


def run_id_of(name: str, data: bytes) -> str:
    """An id in the shape of every run's, always the same for the same bytes."""
    first_line = data.split(b"\n", 1)[0]
    digest = bytearray(hashlib.sha256(name.encode() + b"\n" + first_line).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x40
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
