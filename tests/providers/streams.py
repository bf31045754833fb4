"""Recorded streams of real agents, and their transcripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from tests.sample_events import GOLDEN

from shopfloor.adapters.providers import PROVIDER_NAMES, normalizer, provider
from shopfloor.adapters.providers.usage import price
from shopfloor.engine import transcribe
from shopfloor.ports import AgentExit, Normalizer

FIXTURES = Path(__file__).parent / "fixtures"
TRANSCRIPTS = GOLDEN / "providers"
PROGRAMS = tuple(name for name in PROVIDER_NAMES if name != "claude-sdk")
"""The providers with their own recordings. The SDK prints the stream of Claude Code."""
CLOCK = "2026-11-15T10:30:00.000Z"
"""The time of reading, in every test."""


class Stream(msgspec.Struct, frozen=True):
    """A recorded output of a provider, and its exit."""

    provider: str
    scenario: str

    @property
    def data(self) -> bytes:
        return (FIXTURES / self.provider / f"{self.scenario}.jsonl").read_bytes()

    @property
    def ended(self) -> AgentExit:
        exit_file = FIXTURES / self.provider / f"{self.scenario}.exit.json"
        stderr = FIXTURES / self.provider / f"{self.scenario}.stderr"
        text = stderr.read_text(errors="replace") if stderr.exists() else ""
        return AgentExit(**json.loads(exit_file.read_text()), stderr=text)

    @property
    def golden(self) -> Path:
        return TRANSCRIPTS / self.provider / f"{self.scenario}.jsonl"

    def normalizer(self) -> Normalizer:
        return provider(self.provider).normalizer(resumed=self.scenario == "resume")

    def transcript(self, *chunks: bytes) -> list[bytes]:
        return list(
            transcribe(
                self.provider,
                self.normalizer(),
                chunks or (self.data,),
                prices=price,
                source=f"{self.scenario}.jsonl",
                ended=self.ended,
                clock=lambda: CLOCK,
            )
        )


def streams(name: str | None = None) -> list[Stream]:
    """Return all recordings, or those of one provider."""
    return [
        Stream(one, path.name.removesuffix(".jsonl"))
        for one in PROGRAMS
        if name in (None, one)
        for path in sorted((FIXTURES / one).glob("*.jsonl"))
    ]


def ids(stream: Stream) -> str:
    return f"{stream.provider}-{stream.scenario}"


def as_read(line: bytes) -> dict[str, Any]:
    """Decode a line of a transcript, without the version of the price list."""
    event = json.loads(line)
    for cost in (event["payload"].get("cost"), event["payload"].get("sub_cost")):
        if cost and cost.get("source") == "genai-prices":
            cost.pop("prices", None)
    return event


def by_run(lines: list[bytes]) -> dict[str, list[bytes]]:
    runs: dict[str, list[bytes]] = {}
    for line in lines:
        runs.setdefault(json.loads(line)["run_id"], []).append(line)
    return runs


def strings_in(value: Any) -> Iterator[str]:
    """Yield every string inside a value."""
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from strings_in(inner)
        case list():
            for inner in value:
                yield from strings_in(inner)
        case _:
            pass


__all__ = [
    "CLOCK",
    "FIXTURES",
    "PROGRAMS",
    "TRANSCRIPTS",
    "Stream",
    "as_read",
    "by_run",
    "ids",
    "normalizer",
    "streams",
    "strings_in",
]
