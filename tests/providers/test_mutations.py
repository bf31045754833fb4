"""Streams that were cut, joined, shuffled or corrupted: nothing is raised, and what was still whole is not lost."""

from __future__ import annotations

import json
import os
import random
from functools import cache

import pytest
from tests.providers.streams import PROGRAMS, Stream, by_run, streams, strings_in

from shopfloor.log import AssistantMessage, TextBlock, ThinkingBlock, ToolCall, ToolResult, Verifier
from shopfloor.ports import AgentReport, MessageDelta, TranscriptItem

LONG = os.environ.get("SHOPFLOOR_TEST_LONG") == "1"
CASES = 1_000_000 if LONG else 10_000
BATCHES = 4
"""Per agent, so that they can be worked on side by side."""
LONGEST = 30_000
"""Streams that are longer are for other tests: these take many turns."""
TELLING = 4
"""Shorter texts are in anything."""
CORRUPTIONS = (b"\x00", b"\xff", b"{", b'"', b"}", b"\\", b"\xe2\x80\xa8", b"[", b",", b"9", b"null")


@cache
def lines_of(stream: Stream) -> list[bytes]:
    return stream.data.split(b"\n")[:-1]


@cache
def told_by(stream: Stream) -> list[list[str]]:
    """By line, what was said or done by it: texts that are in it, and were reported when it came."""
    normalizer = stream.normalizer()
    found: list[list[str]] = []
    for line in lines_of(stream):
        texts = [text for report in normalizer.feed(line + b"\n") for text in said_in(report)]
        # What Claude types is no line of its own: its whole is another line, with the same words.
        inside = set() if b'"type":"stream_event"' in line else set(strings_in(json.loads(line)))
        found.append([text for text in texts if len(text) >= TELLING and text in inside])
    return found


def said_in(report: AgentReport) -> list[str]:
    match report:
        case TranscriptItem(payload=AssistantMessage(blocks=blocks)):
            texts = [block.text for block in blocks if isinstance(block, TextBlock)]
            return texts + [block.thinking for block in blocks if isinstance(block, ThinkingBlock)]
        case TranscriptItem(payload=ToolCall(input=given)):
            return list(strings_in(given))
        case TranscriptItem(payload=ToolResult(output=output, error=error)):
            return list(strings_in([output, error]))
        case MessageDelta(text=text, kind="text"):
            # Of what never became whole; the rest is said again as a whole.
            return [text]
        case _:
            return []


def is_in(text: str, kept: str) -> bool:
    """As it is, or inside of a line that was kept as it came."""
    return text in kept or any(json.dumps(text, ensure_ascii=plain)[1:-1] in kept for plain in (True, False))


def says_anew(line: bytes, number: int, stream: Stream) -> bool:
    """Whether a line tells the whole of that message of which another is a piece: what it says counts then."""
    try:
        whole = json.loads(line.decode("utf-8", "replace"), strict=False)
        piece = json.loads(lines_of(stream)[number])
    except ValueError:
        return False
    data = whole.get("data") if isinstance(whole, dict) else None
    return isinstance(data, dict) and data.get("messageId") == piece.get("data", {}).get("messageId")


def mutated(stream: Stream, chance: random.Random) -> tuple[bytes, list[int]]:
    """The bytes after some harm, and the lines that are still whole."""
    lines = [(number, line) for number, line in enumerate(lines_of(stream))]
    ends = [b"\n"] * len(lines)
    whole = set(range(len(lines)))
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(lines))
        number, line = lines[place]
        match chance.choice(("cut", "join", "swap", "drop", "corrupt", "repeat")):
            case "cut":
                lines[place] = (number, line[: chance.randrange(len(line) + 1)])
                whole.discard(number)
            case "join" if place + 1 < len(lines):
                ends[place] = b""
                whole -= {number, lines[place + 1][0]}
            case "swap":
                other = chance.randrange(len(lines))
                lines[place], lines[other] = lines[other], lines[place]
            case "drop":
                lines[place] = (number, b"")
                whole.discard(number)
            case "corrupt":
                at = chance.randrange(len(line) + 1)
                lines[place] = (number, line[:at] + chance.choice(CORRUPTIONS) + line[at + 1 :])
                whole.discard(number)
            case _:
                lines[place] = (number, line + b"\n" + line)
    # A swap may have brought a whole line beside a lost line's end.
    for place, end in enumerate(ends):
        if not end:
            whole -= {lines[place][0], *([lines[place + 1][0]] if place + 1 < len(lines) else [])}
    return b"".join(line + end for (_, line), end in zip(lines, ends, strict=True)), sorted(whole)


def pieces(data: bytes, chance: random.Random) -> list[bytes]:
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randint(0, 5)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("name", PROGRAMS)
def test_harm_to_a_stream_raises_nothing_and_loses_nothing_that_is_whole(name: str, batch: int) -> None:
    checked = 0
    short = [stream for stream in streams(name) if 0 < len(stream.data) < LONGEST]
    for case in range(CASES // (len(PROGRAMS) * BATCHES)):
        chance = random.Random(f"{name} {batch} {case}")
        stream = chance.choice(short)
        data, whole = mutated(stream, chance)
        transcript = stream.transcript(*pieces(data, chance))
        kept = "\n".join(text for line in transcript for text in strings_in(json.loads(line)["payload"]))
        for number in whole:
            for text in told_by(stream)[number]:
                checked += 1
                # Harm may leave a line that can be read, and says the whole of a message with other words than its
                # pieces did.
                assert is_in(text, kept) or any(
                    says_anew(line, number, stream) for line in data.split(b"\n") if line not in lines_of(stream)
                ), f"{stream} case {case}: line {number} is whole, and this is lost: {text!r}"
        if case % 20 == 0:
            for run_id, lines in by_run(transcript).items():
                verifier = Verifier(run_id)
                assert [broken for line in lines for broken in verifier.line(line + b"\n")] == [], (stream, case)
                assert verifier.ended
    assert checked > CASES // (len(PROGRAMS) * BATCHES)
