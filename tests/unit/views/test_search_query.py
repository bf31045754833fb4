"""The searchable text of a run in chunks, and the terms of a query."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract.view_changes import assistant_message, run, tool_call, tool_result, user_message

from shopfloor import limits
from shopfloor.log import AssistantMessage, Event, Payload, StepCompleted, StreamBlock, TextBlock, ThinkingBlock
from shopfloor.views import RunRow, SearchState, Term, parse_query, plain_text, row_fold, search_fold, search_index


def printed(text: str, stream: str = "stdout") -> AssistantMessage:
    return AssistantMessage(blocks=[TextBlock(fidelity="router", text=text, stream=stream)])  # type: ignore[arg-type]


def folded(events: Sequence[Event], sizes: Sequence[int] = ()) -> tuple[SearchState, dict[int, str]]:
    """Fold the events in batches of these sizes, the rest at once; return the state and the chunks by number."""
    state, row, found = SearchState(), RunRow(), dict[int, str]()
    rest = list(events)
    for size in (*sizes, len(rest)):
        some, rest = rest[:size], rest[size:]
        row = row_fold(row, some)
        state, pieces = search_fold(state, row, some)
        found |= {piece.number: piece.text for piece in pieces}
    return state, found


def text_of(*payloads: Payload) -> str:
    return "\n".join(folded(run("task", *payloads))[1].values())


@pytest.mark.parametrize(
    "payload",
    [
        assistant_message("needle"),
        user_message("needle"),
        printed("needle"),
        AssistantMessage(blocks=[ThinkingBlock(fidelity="agent_emitted", thinking="needle")]),
        AssistantMessage(blocks=[StreamBlock(fidelity="agent_emitted", chunk="needle", unparsed=True)]),
        tool_call("c", {"command": "cat needle"}),
        tool_call("c", {"deep": [1, {"needle": None}]}),
        tool_call("c", "first\nneedle"),
        tool_result("c", ["needle"]),
        StepCompleted(name="s", kind="command", try_=1, result={"x": "needle"}),
        StepCompleted(name="s", kind="command", try_=1, error="needle"),
    ],
)
def test_every_text_of_an_event_is_searched(payload: Payload) -> None:
    assert "needle" in text_of(payload).split()


def test_chunks_of_a_streaming_message_are_not_indexed() -> None:
    thinking = StreamBlock(fidelity="agent_emitted", chunk="let me think", kind="thinking", block=0, offset=0)
    text = StreamBlock(fidelity="agent_emitted", chunk="Hello wor", kind="text", block=1, offset=0)
    whole = AssistantMessage(
        message_id="m",
        blocks=[
            ThinkingBlock(fidelity="agent_emitted", thinking="let me think"),
            TextBlock(fidelity="agent_emitted", text="Hello world"),
        ],
    )
    piece = AssistantMessage(message_id="m", blocks=[thinking, text])
    assert text_of(piece, whole) == text_of(whole)
    assert {"think", "Hello", "world"} <= set(text_of(piece, whole).split())


def test_output_in_parts_is_one_text_without_terminal_escapes() -> None:
    found = text_of(printed("one nee"), printed("dle \x1b[3"), printed("1mred\x1b"), printed("[0mdish\n"))
    assert "one needle reddish" in found
    assert "nee\ndle" in text_of(printed("nee"), printed("dle", "stderr"))


@pytest.mark.parametrize(
    "escaped",
    [
        *("\x1b[31m{}\x1b[0m", "\x1b[38;5;12m{}", "\x9b1m{}", "\x1b]0;title\x07{}", "\x1b]8;;https://x.org\x1b\\{}"),
        *("\x1bP1;2|data\x1b\\{}", "\x1b(B{}", "\x1bM{}", "{}\x1b", "{}\x1b[3", "{}\x1b]0;tit", "\x1b[?25l{}\x1b[2K"),
    ],
)
def test_terminal_escapes_are_removed(escaped: str) -> None:
    assert plain_text(escaped.format("red")) == "red"


def test_an_escape_that_never_ends_does_not_swallow_the_next_lines() -> None:
    assert "next" in plain_text("\x1b]0;title\nnext")


@given(
    texts=st.lists(st.text(alphabet="ab \n", max_size=40), max_size=12),
    sizes=st.lists(st.integers(1, 4), max_size=6),
)
def test_the_chunks_do_not_depend_on_the_batches_of_events(texts: list[str], sizes: list[int]) -> None:
    events = run(
        "task", *(printed(text) if number % 3 else assistant_message(text) for number, text in enumerate(texts))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_index, "SEARCH_CHUNK_CHARS", 24)
        patch.setattr(search_index, "SEARCH_OVERLAP_CHARS", 8)
        assert folded(events, sizes) == folded(events)


def test_no_word_or_phrase_is_lost_between_two_chunks() -> None:
    words = [f"w{number}" for number in range(limits.SEARCH_CHUNK_CHARS)]
    _, found = folded(run("task", *(printed(f"{word} ") for word in words)))
    assert len(found) > 3
    indexed = [piece.split() for piece in found.values()]
    pairs = {pair for piece in indexed for pair in pairwise(piece)}
    assert set(pairwise(words)) <= pairs
    assert all(len(piece) <= limits.SEARCH_CHUNK_CHARS for piece in found.values())


def test_the_event_at_the_limit_is_known_and_the_state_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "SEARCH_RUN_CHARS", 100_000)
    events = run(
        "task", assistant_message("early"), assistant_message("x " * 60_000), assistant_message("late"), status=None
    )
    state, found = folded(events)
    text = "\n".join(found.values())
    assert (state.stopped_at, "early" in text, "late" in text) == (3, True, False)
    assert len(text) < 110_000
    assert len(state.text) <= limits.SEARCH_CHUNK_CHARS
    assert folded(run("task", assistant_message("early")))[0].stopped_at is None


def test_the_cost_of_a_new_event_does_not_grow_with_the_run() -> None:
    """Measured in indexed characters, not in seconds."""
    state, row, indexed = SearchState(), RunRow(), 0
    events = run("task", *(printed("a line of output\n") for _ in range(5_000)), status=None)
    for event in events:
        row = row_fold(row, [event])
        state, pieces = search_fold(state, row, [event])
        indexed += max((len(piece.text) for piece in pieces), default=0)
    assert indexed <= len(events) * limits.SEARCH_CHUNK_CHARS
    assert sum(len(piece) for piece in folded(events)[1].values()) < 1.1 * 17 * len(events)


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("", []),
        ("One two", [Term("one", ("one",)), Term("two", ("two",), is_prefix=True)]),
        ("one t", [Term("one", ("one",)), Term("t", ("t",))]),
        ('"one  Two" x', [Term("one two", ("one", "two")), Term("x", ("x",))]),
        ('x "one two"', [Term("x", ("x",)), Term("one two", ("one", "two"))]),
        ('"one tw', [Term("one tw", ("one", "tw"), is_prefix=True)]),
        ('"c++"', [Term("c++", ("c",))]),
        ("c++", [Term("c", ("c",))]),
        ("++", [Term("++", ())]),
        ('"" " "', []),
        (' "', [Term('"', ())]),
        ("foo/bar", [Term("foo", ("foo",)), Term("bar", ("bar",), is_prefix=True)]),
        ("北京", [Term("北京", ("北", "京"))]),
        ("same same", [Term("same", ("same",), is_prefix=True)]),
        ("foo bar foo", [Term("foo", ("foo",), is_prefix=True), Term("bar", ("bar",))]),
        ("\u0301", []),
    ],
)
def test_a_query_is_words_and_quoted_phrases(query: str, terms: list[Term]) -> None:
    assert list(parse_query(query)) == terms


@given(st.text())
def test_any_text_is_a_query(query: str) -> None:
    assert len(parse_query(query)) <= limits.SEARCH_TERMS
