"""Streams that are cut, joined, shuffled or corrupted: no exception, and no loss of lines that are still complete."""

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
"""Batches per agent, which can run in parallel."""
LONGEST = 30_000
"""Longer streams are left to other tests, because this one reads each stream many times."""
MIN_TEXT_CHARS = 4
"""Shorter texts occur by chance."""
CORRUPTIONS = (b"\x00", b"\xff", b"{", b'"', b"}", b"\\", b"\xe2\x80\xa8", b"[", b",", b"9", b"null")


@cache
def lines_of(stream: Stream) -> list[bytes]:
    return stream.data.split(b"\n")[:-1]


@cache
def reported_texts(stream: Stream) -> list[list[str]]:
    """Return for each line the texts in it that were reported when the line was fed."""
    normalizer = stream.normalizer()
    texts_by_line: list[list[str]] = []
    for line in lines_of(stream):
        texts = [text for report in normalizer.feed(line + b"\n") for text in texts_in(report)]
        # A delta of Claude Code does not count: the complete message is another line with the same text.
        inside = set() if b'"type":"stream_event"' in line else set(strings_in(json.loads(line)))
        texts_by_line.append([text for text in texts if len(text) >= MIN_TEXT_CHARS and text in inside])
    return texts_by_line


def texts_in(report: AgentReport) -> list[str]:
    match report:
        case TranscriptItem(payload=AssistantMessage(blocks=blocks)):
            texts = [block.text for block in blocks if isinstance(block, TextBlock)]
            return texts + [block.thinking for block in blocks if isinstance(block, ThinkingBlock)]
        case TranscriptItem(payload=ToolCall(input=tool_input)):
            return list(strings_in(tool_input))
        case TranscriptItem(payload=ToolResult(output=output, error=error)):
            return list(strings_in([output, error]))
        case MessageDelta(text=text, kind="text"):
            # Counts for messages that are never completed; a complete message repeats the text.
            return [text]
        case _:
            return []


def is_in(text: str, recorded: str) -> bool:
    """Return whether a text was recorded, as it is or inside a line that was kept verbatim."""
    return text in recorded or any(json.dumps(text, ensure_ascii=plain)[1:-1] in recorded for plain in (True, False))


def completes_message(line: bytes, number: int, stream: Stream) -> bool:
    """Return whether a line is the complete message of a delta: then its text counts, not that of the delta."""
    try:
        whole = json.loads(line.decode("utf-8", "replace"), strict=False)
        piece = json.loads(lines_of(stream)[number])
    except ValueError:
        return False
    data = whole.get("data") if isinstance(whole, dict) else None
    return isinstance(data, dict) and data.get("messageId") == piece.get("data", {}).get("messageId")


def mutated(stream: Stream, chance: random.Random) -> tuple[bytes, list[int]]:
    """Return the damaged bytes, and the numbers of the lines that are still complete."""
    lines = [(number, line) for number, line in enumerate(lines_of(stream))]
    ends = [b"\n"] * len(lines)
    whole = set(range(len(lines)))
    for _ in range(chance.randint(1, 4)):
        index = chance.randrange(len(lines))
        number, line = lines[index]
        match chance.choice(("cut", "join", "swap", "drop", "corrupt", "repeat")):
            case "cut":
                lines[index] = (number, line[: chance.randrange(len(line) + 1)])
                whole.discard(number)
            case "join" if index + 1 < len(lines):
                ends[index] = b""
                whole -= {number, lines[index + 1][0]}
            case "swap":
                other = chance.randrange(len(lines))
                lines[index], lines[other] = lines[other], lines[index]
            case "drop":
                lines[index] = (number, b"")
                whole.discard(number)
            case "corrupt":
                at = chance.randrange(len(line) + 1)
                lines[index] = (number, line[:at] + chance.choice(CORRUPTIONS) + line[at + 1 :])
                whole.discard(number)
            case _:
                lines[index] = (number, line + b"\n" + line)
    # A swap may have brought a whole line beside a lost line's end.
    for index, end in enumerate(ends):
        if not end:
            whole -= {lines[index][0], *([lines[index + 1][0]] if index + 1 < len(lines) else [])}
    return b"".join(line + end for (_, line), end in zip(lines, ends, strict=True)), sorted(whole)


def pieces(data: bytes, chance: random.Random) -> list[bytes]:
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randint(0, 5)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("name", PROGRAMS)
def test_damage_to_a_stream_raises_nothing_and_loses_no_complete_line(name: str, batch: int) -> None:
    checked = 0
    short = [stream for stream in streams(name) if 0 < len(stream.data) < LONGEST]
    for case in range(CASES // (len(PROGRAMS) * BATCHES)):
        chance = random.Random(f"{name} {batch} {case}")
        stream = chance.choice(short)
        data, whole = mutated(stream, chance)
        transcript = stream.transcript(*pieces(data, chance))
        recorded = "\n".join(text for line in transcript for text in strings_in(json.loads(line)["payload"]))
        for number in whole:
            for text in reported_texts(stream)[number]:
                checked += 1
                # Damage may leave a valid line that completes a message with other text than its deltas.
                assert is_in(text, recorded) or any(
                    completes_message(line, number, stream)
                    for line in data.split(b"\n")
                    if line not in lines_of(stream)
                ), f"{stream} case {case}: line {number} is complete, but its text is lost: {text!r}"
        if case % 20 == 0:
            for run_id, lines in by_run(transcript).items():
                verifier = Verifier(run_id)
                assert [broken for line in lines for broken in verifier.line(line + b"\n")] == [], (stream, case)
                assert verifier.ended
    assert checked > CASES // (len(PROGRAMS) * BATCHES)
