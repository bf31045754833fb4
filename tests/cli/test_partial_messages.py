"""What was shown of a message that never completes is on record: with the installed command, and a scripted model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.test_run import events_of, only_path
from tests.cli.test_server import server
from tests.timeouts import wait_until

__all__ = ["server"]

WORDS = " ".join(f"word-{n:03}" for n in range(200))
GREETS = ("run", "hello", "-i", f"NAME={WORDS}")
NOT_COMPLETED = "the message was not completed"


@pytest.fixture(autouse=True)
def _slow(env: dict[str, str]) -> None:
    env["SHOPFLOOR_SCRIPT_DELAY_MS"] = "50"


def shown(process: subprocess.Popen[bytes], word: str) -> str:
    """Read until the word is on the screen, and return all the text up to there.

    Reads the descriptor itself: `communicate` would not see what the buffer of `process.stdout` had read ahead.
    """
    assert process.stdout is not None
    got = b""
    while not got.endswith(word.encode()):
        byte = os.read(process.stdout.fileno(), 1)
        assert byte, got
        got += byte
    return got.decode()


def messages(path: Path) -> list[dict]:
    return [event["payload"] for event in events_of(path) if event["type"] == "message.assistant"]


def texts(path: Path) -> list[tuple[str, str | None]]:
    """The texts of messages, each with why its message stopped."""
    found = [(block, one.get("stop_reason")) for one in messages(path) for block in one["blocks"]]
    return [(block["text"], why) for block, why in found if block["type"] == "text"]


def pieces(path: Path) -> list[dict]:
    """The blocks that are pieces of the newest message that has any, none of them lost or repeated."""
    written = [one for one in messages(path) if one["blocks"] and "offset" in one["blocks"][0]]
    blocks = [block for one in written for block in one["blocks"] if one["message_id"] == written[-1]["message_id"]]
    length = 0
    for block in blocks:
        assert (block["type"], block["kind"], block["block"], block["offset"]) == ("stream", "text", 0, length)
        length += len(block["chunk"])
    return blocks


def typed(paths: list[Path]) -> str:
    """What the pieces say, joined."""
    return "".join(block["chunk"] for block in pieces(only_path(paths))) if paths else ""


def ms_between(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds() * 1000


def once(text: str, shopfloor: Cli, *words: str) -> bool:
    """Whether a text is printed once, be it on several lines."""
    printed = " ".join(shopfloor(*words).stdout.split())
    assert printed.count(" ".join(text.split())) == 1, printed
    return True


def is_fine(shopfloor: Cli) -> bool:
    checked = shopfloor("verify", "--all")
    assert checked.returncode == 0, checked.stdout
    return True


@pytest.mark.req("TR-56")
def test_text_shown_before_ctrl_c_is_recorded(start, transcripts, shopfloor):
    process = start(*GREETS)
    seen = shown(process, "word-010 ")
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    ((text, why),) = texts(only_path(transcripts()))
    # All that was shown, to the last word.
    assert (text.strip(), why) == ((seen + rest.decode()).strip(), "interrupted")
    assert is_fine(shopfloor)
    assert once(text, shopfloor, "show", "last", "--full")
    assert once(NOT_COMPLETED, shopfloor, "show", "last")
    (found,) = json.loads(shopfloor("list", "--search", '"word-009 word-010"', "--json").stdout)["workers"]
    assert found["status"] == "cancelled"


@pytest.mark.req("TR-56", "TR-58")
def test_text_of_a_killed_host_is_shown_and_the_next_attempt_continues(start, env, transcripts, shopfloor, server):
    process = start(*GREETS)
    wait_until(lambda: "word-040" in typed(transcripts()), "what was typed on record")
    process.kill()
    process.communicate()
    log, text = only_path(transcripts()), typed(transcripts())
    assert texts(log) == []
    assert once(text, shopfloor, "show", "last", "--full")
    assert once(NOT_COMPLETED, shopfloor, "show", "last")
    assert once(text, shopfloor, "tail", "last")
    assert is_fine(shopfloor)
    env["SHOPFLOOR_SCRIPT_DELAY_MS"] = "0"
    up = server()
    wait_until(lambda: events_of(log)[-1]["type"] == "run.completed", "the outcome")
    cut, whole = texts(log)
    assert cut == (text, "interrupted")
    # The model was asked again without the half message: it begins anew.
    assert whole[0].startswith(text)
    assert events_of(log)[-1]["payload"]["result"] == whole[0]
    assert once(NOT_COMPLETED, shopfloor, "show", "last")
    assert is_fine(shopfloor)
    wait_until(lambda: up.runs(q="word-030")[0]["status"] == "done", "the row")


@pytest.mark.req("TR-56")
def test_a_message_that_stops_halfway_is_recorded(start, env, transcripts):
    """Nothing more comes that could have it written."""
    env["SHOPFLOOR_SCRIPT_DELAY_MS"] = "8000"
    process = start("run", "hello", "-i", "NAME=Ada")
    seen = shown(process, " ")
    wait_until(lambda: typed(transcripts()) == seen, "what was shown on record")
    assert process.poll() is None


@pytest.mark.req("TR-57")
def test_a_complete_message_has_the_same_text_and_at_most_one_chunk_per_second(env, transcripts, shopfloor, tmp_path):
    env["SHOPFLOOR_SCRIPT_DELAY_MS"] = "12"
    done = shopfloor(*GREETS)
    log = only_path(transcripts())
    ((text, _),) = texts(log)
    assert done.stdout == text + "\n"
    written = pieces(log)
    assert text.startswith("".join(block["chunk"] for block in written))
    events = [event for event in events_of(log) if event["type"] == "message.assistant"]
    times = [event["timestamp"] for event in events if "offset" in event["payload"]["blocks"][0]]
    assert times
    # Timestamps of events and the measured second come from different clocks.
    assert all(ms_between(earlier, later) >= 990 for earlier, later in pairwise(times))
    assert all("usage" not in one for one in messages(log) if "offset" in one["blocks"][0])
    jq = ["jq", "-r", 'select(.type == "message.assistant") | .payload.blocks[] | select(.type == "text") | .text']
    assert subprocess.run([*jq, str(log)], capture_output=True, text=True, check=True).stdout == text + "\n"
    assert once(text, shopfloor, "show", "last", "--full")
    assert NOT_COMPLETED not in shopfloor("show", "last").stdout
    assert is_fine(shopfloor)


@pytest.mark.req("TR-59")
def test_a_secret_streamed_in_deltas_is_in_no_chunk(start, env, transcripts, shopfloor):
    env["SECRET"] = " ".join(WORDS.split()[5:190])
    process = start(*GREETS, "--mask-env", "SECRET")
    wait_until(lambda: typed(transcripts()), "a piece")
    before = typed(transcripts())
    assert before.endswith("word-004 ")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    ((text, _),) = texts(only_path(transcripts()))
    assert text == f"{before}[masked]"
    assert "word-005" not in json.dumps(messages(only_path(transcripts())))
    assert is_fine(shopfloor)
