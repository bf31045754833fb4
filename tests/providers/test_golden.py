"""Recorded streams of every agent as transcripts: all messages and calls, once, in order, and nothing else."""

from __future__ import annotations

import json

import pytest
from tests.providers.streams import PROGRAMS, Stream, as_read, by_run, ids, streams

from shopfloor.log import Verifier
from shopfloor.ports import SessionEnded

pytestmark = pytest.mark.parametrize("stream", streams(), ids=ids)


@pytest.mark.req("TR-12")
def test_a_recorded_stream_has_its_golden_transcript(stream: Stream) -> None:
    golden = [json.loads(line) for line in stream.golden.read_text().split("\n")[:-1]]
    assert [as_read(line) for line in stream.transcript()] == golden


def test_each_run_of_a_transcript_keeps_every_rule_of_the_format(stream: Stream) -> None:
    for run_id, lines in by_run(stream.transcript()).items():
        verifier = Verifier(run_id)
        assert [broken for line in lines for broken in verifier.line(line + b"\n")] == []
        assert verifier.ended


def test_sub_runs_are_linked_both_ways(stream: Stream) -> None:
    events = [json.loads(line) for line in stream.transcript()]
    called = {event["child_run_id"]: event["run_id"] for event in events if "child_run_id" in event}
    linked = {event["run_id"]: event["parent_run_id"] for event in events if "parent_run_id" in event}
    assert called == linked


def test_a_stream_cut_anywhere_gives_the_same_transcript(stream: Stream) -> None:
    data = stream.data
    whole = stream.transcript()
    step = max(1, len(data) // 997)
    assert stream.transcript(*(data[at : at + step] for at in range(0, len(data), step))) == whole


def test_there_is_one_end_and_it_comes_last(stream: Stream) -> None:
    normalizer = stream.normalizer()
    reported = [*normalizer.feed(stream.data), *normalizer.finish(stream.ended)]
    assert [number for number, report in enumerate(reported) if isinstance(report, SessionEnded)] == [len(reported) - 1]


def test_every_agent_has_its_eighteen_scenarios(stream: Stream) -> None:
    assert all(len(streams(name)) >= 18 for name in PROGRAMS)
    assert stream.golden.exists()
