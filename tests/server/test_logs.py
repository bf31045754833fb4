"""Operations on a run's log: brief pages, download, search and spans."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import httpx
import pytest
from tests.server.recorded_runs import (
    RecordedRuns,
    assistant,
    open_announced_log,
    open_recorder,
    record,
    run_completed,
    run_started,
    user,
    write,
)
from tests.server.server import RunningServer, open_server, queue_run

from shopfloor.adapters.local import LocalLogReader
from shopfloor.errors import RunNotFound
from shopfloor.limits import TRUNCATED_TEXT_CHARS
from shopfloor.log import CallCompleted, CallStarted, Entry, ToolCall, ToolResult, new_run_id
from shopfloor.ports import Store
from shopfloor.record import Storage
from shopfloor.server.limits import FIND_EVENTS, RESULT_LOOKAHEAD_EVENTS, SPAN_CACHE_RUNS
from shopfloor.views import EXPORT_POLICY

MEGABYTE = 1_000_000


def get_json(client: httpx.Client, address: str, **params: Any) -> Any:
    got = client.get(address, params=params)
    assert got.status_code == 200, got.text
    return got.json()


def get_brief_page(client: httpx.Client, run_id: str, **params: Any) -> Any:
    return get_json(client, f"/api/runs/{run_id}/log", brief=True, **params)


def call(call_id: str, **arguments: Any) -> ToolCall:
    return ToolCall(name="Bash", call_id=call_id, input=arguments, output=None, fidelity="router")


def result(call_id: str, output: Any = "ok", **more: Any) -> ToolResult:
    return ToolResult(name="Bash", call_id=call_id, input=None, output=output, fidelity="router", **more)


# Brief pages


def test_a_result_of_five_megabytes_does_not_make_a_page_large(own_storage: Storage) -> None:
    run_id = record(
        own_storage, run_started(), call("c"), result("c", "x" * 5 * MEGABYTE), assistant("a" * 10_000), run_completed()
    )
    with open_server(own_storage) as server, server.client() as client:
        got = client.get(f"/api/runs/{run_id}/log", params={"brief": True})
        events = got.json()["events"]
        assert len(got.content) < 20_000
        assert events[2]["payload"]["output"] == "x" * TRUNCATED_TEXT_CHARS
        whole = own_storage.log_path(run_id).read_bytes().splitlines()
        assert [event.get("cut") for event in events] == [None, None, len(whole[2]), None, None]
        assert events[3] == json.loads(whole[3])
        assert len(client.get(f"/api/runs/{run_id}/log", params={"after": 2, "limit": 1}).content) > 5 * MEGABYTE


def test_a_brief_page_of_short_events_has_the_bytes_that_were_written(
    client: httpx.Client, server: RunningServer, runs: RecordedRuns
) -> None:
    lines = server.storage.log_path(runs.done).read_bytes().splitlines()
    got = client.get(f"/api/runs/{runs.done}/log", params={"brief": "true"})
    assert got.content == b'{"events":[' + b",".join(lines) + b'],"more":false,"later":[]}'
    assert "later" not in get_json(client, f"/api/runs/{runs.done}/log")


def test_results_after_a_page_are_added_to_it(own_storage: Storage) -> None:
    child = new_run_id()
    with open_announced_log(own_storage, new_run_id()) as recorder:
        write(recorder, run_started(), call("a"), call("b"), result("a"))
        step: dict[str, Any] = {"path": "call", "child_run_id": child}
        recorder.append(CallStarted(name="call", kind="call_workflow", try_=1), **step)
        write(recorder, call("c"), result("c"), assistant("between"), result("b", "y" * 9_000))
        recorder.append(CallCompleted(name="call", kind="call_workflow", try_=1), **step)
        write(recorder, run_completed())
    with open_server(own_storage) as server, server.client() as client:
        page = get_brief_page(client, recorder.run_id, limit=5)
        assert [event["seq"] for event in page["events"]] == [1, 2, 3, 4, 5]
        assert [event["seq"] for event in page["later"]] == [9, 10]
        assert page["later"][0]["payload"]["output"] == "y" * TRUNCATED_TEXT_CHARS
        assert page["later"][0]["cut"] > 9_000
        assert [event["seq"] for event in get_brief_page(client, recorder.run_id, limit=3, before=6)["later"]] == [
            9,
            10,
        ]
        assert get_brief_page(client, recorder.run_id, after=5)["later"] == []
        assert [event["seq"] for event in get_brief_page(client, recorder.run_id, after=5, limit=1)["later"]] == [7]


def test_results_are_searched_within_a_limit(own_storage: Storage) -> None:
    between = [assistant(str(number)) for number in range(RESULT_LOOKAHEAD_EVENTS - 1)]
    near = record(own_storage, run_started(), call("a"), *between, result("a"), run_completed())
    far = record(own_storage, run_started(), call("a"), *between, assistant("one more"), result("a"), run_completed())
    with open_server(own_storage) as server, server.client() as client:
        assert [event["seq"] for event in get_brief_page(client, near, limit=2)["later"]] == [
            RESULT_LOOKAHEAD_EVENTS + 2
        ]
        assert get_brief_page(client, far, limit=2)["later"] == []


def test_an_unanswered_call_has_no_result(client: httpx.Client, runs: RecordedRuns) -> None:
    assert get_brief_page(client, runs.waiting)["later"] == []


# Download


def test_the_log_can_be_downloaded(client: httpx.Client, server: RunningServer, runs: RecordedRuns) -> None:
    got = client.get(f"/api/runs/{runs.done}/log.jsonl")
    assert got.status_code == 200
    assert got.headers["content-type"] == "application/x-ndjson"
    assert got.headers["content-disposition"] == f'attachment; filename="{runs.done}.jsonl"'
    assert got.content == server.storage.log_path(runs.done).read_bytes()


@pytest.mark.req("SF-62")
@pytest.mark.parametrize("document", ["md", "html"])
def test_an_exported_document_keeps_its_stricter_policy(
    client: httpx.Client, runs: RecordedRuns, document: str
) -> None:
    got = client.get(f"/api/runs/{runs.done}/export", params={"format": document})
    policies = got.headers.get_list("content-security-policy")
    assert policies == [f"sandbox; {EXPORT_POLICY}; frame-ancestors 'none'"]
    assert got.headers["x-content-type-options"] == "nosniff"


def test_a_line_that_is_being_written_is_not_in_the_file(own_storage: Storage) -> None:
    with open_server(own_storage) as server, server.client() as client, open_recorder(own_storage) as recorder:
        write(recorder, run_started(), user("Hi"))
        path = own_storage.log_path(recorder.run_id)
        whole = path.read_bytes()
        with path.open("ab") as other:
            other.write(b'{"seq":3,"run_id":')
        assert client.get(f"/api/runs/{recorder.run_id}/log.jsonl").content == whole


def test_invalid_lines_are_in_the_file(own_storage: Storage) -> None:
    run_id = record(own_storage, run_started(), run_completed())
    path = own_storage.log_path(run_id)
    strange = path.read_bytes() + b"\0\0\0\nno event\n"
    path.write_bytes(strange)
    with open_server(own_storage) as server, server.client() as client:
        assert client.get(f"/api/runs/{run_id}/log.jsonl").content == strange


def test_events_after_the_request_are_not_in_the_file(own_storage: Storage) -> None:
    with open_server(own_storage) as server, server.client() as client, open_recorder(own_storage) as recorder:
        write(recorder, run_started(), *[user("x" * MEGABYTE) for _ in range(20)])
        before = own_storage.log_path(recorder.run_id).read_bytes()
        with client.stream("GET", f"/api/runs/{recorder.run_id}/log.jsonl") as got:
            pieces = got.iter_raw()
            first = next(pieces)
            write(recorder, *[user("y" * MEGABYTE) for _ in range(5)], run_completed())
            assert first + b"".join(pieces) == before


# Search


def search(client: httpx.Client, run_id: str, q: str, **params: Any) -> Any:
    return get_json(client, f"/api/runs/{run_id}/find", q=q, **params)


def test_a_text_is_found_in_messages_and_calls(client: httpx.Client, runs: RecordedRuns) -> None:
    assert search(client, runs.done, "TEST SUITE") == {
        "hits": [
            {"seq": 1, "type": "run.started", "snippet": "run the \ue000test suite\ue001"},
            {"seq": 3, "type": "message.user", "snippet": "Run the \ue000test suite\ue001 in ~/app"},
        ],
        "more": False,
        "searched_to": 8,
    }
    assert [hit["seq"] for hit in search(client, runs.done, "pytest")["hits"]] == [4]
    assert search(client, runs.done, "call_id")["hits"] == []
    assert search(client, runs.done, "nowhere") == {"hits": [], "more": False, "searched_to": 8}


def test_hits_are_paged(own_storage: Storage) -> None:
    run_id = record(own_storage, run_started(), *[assistant(f"word {number}") for number in range(5)], run_completed())
    with open_server(own_storage) as server, server.client() as client:
        first = search(client, run_id, "word", limit=2)
        assert ([hit["seq"] for hit in first["hits"]], first["more"], first["searched_to"]) == ([2, 3], True, 3)
        rest = search(client, run_id, "word", after=3, limit=3)
        assert ([hit["seq"] for hit in rest["hits"]], rest["more"], rest["searched_to"]) == ([4, 5, 6], True, 6)
        none = search(client, run_id, "word", after=6)
        assert (none["hits"], none["more"], none["searched_to"]) == ([], False, 7)
        past = search(client, run_id, "word", after=99)
        assert (past["hits"], past["more"]) == ([], False)


def test_a_long_log_is_searched_in_several_requests(own_storage: Storage) -> None:
    with open_server(own_storage) as server, server.client() as client:
        run_id = record(own_storage, run_started())
        head = b'"run_id":"r","type":"x","path":"","iteration":0,"timestamp":"t"'
        line = b'{"seq":%d,' + head + b',"payload":{"text":"straw"}}\n'
        with own_storage.log_path(run_id).open("ab") as file:
            file.writelines(line % seq for seq in range(2, FIND_EVENTS + 2))
            file.write(line.replace(b"straw", b"needle") % (FIND_EVENTS + 2))
        assert search(client, run_id, "needle") == {"hits": [], "more": True, "searched_to": FIND_EVENTS}
        rest = search(client, run_id, "needle", after=FIND_EVENTS)
        assert ([hit["seq"] for hit in rest["hits"]], rest["more"]) == ([FIND_EVENTS + 2], False)


# Spans


def spans(client: httpx.Client, run_id: str) -> Any:
    return get_json(client, f"/api/runs/{run_id}/spans")


def test_a_run_has_spans(client: httpx.Client, runs: RecordedRuns) -> None:
    got = spans(client, runs.done)
    figures = ["files_changed", "lines_added", "lines_removed", "calls_failed", "context_tokens"]
    assert sorted(got) == sorted(["spans", "last_seq", "started_at", "ended_at", *figures])
    assert [(span["kind"], span["name"], span["seq"], span["end_seq"]) for span in got["spans"]] == [
        ("step", "test", 2, 7),
        ("tool", "shell", 4, 5),
    ]
    assert (got["last_seq"], got["spans"][1]["duration_ms"]) == (8, 4200)
    events = get_json(client, f"/api/runs/{runs.done}/log")["events"]
    assert (got["started_at"], got["ended_at"]) == (events[0]["timestamp"], events[-1]["timestamp"])
    (child,) = spans(client, runs.parent)["spans"]
    assert (child["kind"], child["name"], child["child_run_id"]) == ("run", "tester", runs.child)


def test_spans_are_extended_as_the_run_continues(own_storage: Storage) -> None:
    with open_server(own_storage) as server, server.client() as client, open_recorder(own_storage) as recorder:
        write(recorder, run_started(), call("a"), assistant("hm"))
        got = spans(client, recorder.run_id)
        assert (got["spans"][0]["end_seq"], got["last_seq"], got["ended_at"]) == (None, 3, None)
        assert spans(client, recorder.run_id) == got
        write(recorder, result("a"), call("b"))
        assert [span["end_seq"] for span in spans(client, recorder.run_id)["spans"]] == [4, None]
        write(recorder, result("b"), run_completed())
        got = spans(client, recorder.run_id)
        assert ([span["end_seq"] for span in got["spans"]], got["last_seq"]) == ([4, 6], 7)
        # The same as without a cache.
    with open_server(own_storage) as server, server.client() as client:
        assert spans(client, recorder.run_id) == got


def test_spans_of_a_truncated_log_are_rebuilt(own_storage: Storage) -> None:
    run_id = record(own_storage, run_started(), call("a"), call("b"))
    path = own_storage.log_path(run_id)
    log_lines = path.read_bytes().splitlines(keepends=True)
    with open_server(own_storage) as server, server.client() as client:
        assert [span["name"] for span in spans(client, run_id)["spans"]] == ["Bash", "Bash"]
        path.write_bytes(b"".join(log_lines[:2]))
        assert [span["seq"] for span in spans(client, run_id)["spans"]] == [2]
        path.write_bytes(b"".join([*log_lines[:1], log_lines[1].replace(b"Bash", b"Read")]))
        assert [span["name"] for span in spans(client, run_id)["spans"]] == ["Read"]


def test_spans_of_a_few_runs_only_are_cached(own_storage: Storage) -> None:
    ids = [
        record(own_storage, run_started(), call(str(number)), run_completed()) for number in range(SPAN_CACHE_RUNS + 2)
    ]
    with open_server(own_storage) as server, server.client() as client:
        for run_id in ids:
            assert len(spans(client, run_id)["spans"]) == 1
        assert list(server.app.state.spans.cached) == ids[2:]


def test_a_deleted_run_has_no_spans(own_storage: Storage) -> None:
    run_id = record(own_storage, run_started(), run_completed())
    with open_server(own_storage) as server, server.client() as client:
        assert spans(client, run_id)["last_seq"] == 2
        shutil.rmtree(own_storage.transcripts)
        assert client.get(f"/api/runs/{run_id}/spans").json()["error"]["code"] == "run_not_found"


def test_a_queued_run_has_no_spans_yet(own_storage: Storage) -> None:
    with open_server(own_storage) as server, server.client() as client:
        assert spans(client, queue_run(server))["spans"] == []


class StartsRunReader(LocalLogReader):
    """Starts a run right after a reader was told that the run has no log."""

    store: Store

    async def batches(self, run_id: str, *, after: int = 0) -> AsyncGenerator[list[Entry]]:
        try:
            async for batch in super().batches(run_id, after=after):
                yield batch
        except RunNotFound:
            with open_recorder(self._storage, run_id) as recorder:
                write(recorder, run_started(), call("a"), result("a"), run_completed())
            while (run := await self.store.get_run(run_id)) is None or run.row.status == "queued":
                await anyio.sleep(0.01)
            raise


def test_a_run_that_starts_while_its_spans_are_read_has_spans(own_storage: Storage) -> None:
    reader = StartsRunReader(own_storage)
    with open_server(own_storage, logs=reader) as server, server.client() as client:
        reader.store = server.app.state.services.store
        assert [span["seq"] for span in spans(client, queue_run(server))["spans"]] == [2]


@pytest.mark.parametrize("what", ["log", "log.jsonl", "find?q=x", "spans"])
def test_a_missing_log_is_not_found(client: httpx.Client, what: str) -> None:
    got = client.get(f"/api/runs/{new_run_id()}/{what}")
    assert (got.status_code, got.json()["error"]["code"]) == (404, "run_not_found")


@pytest.mark.parametrize(
    "params", [{}, {"q": ""}, {"q": "x" * 1_001}, {"q": "x", "limit": 0}, {"q": "x", "limit": 1001}]
)
def test_an_invalid_search_is_refused(client: httpx.Client, runs: RecordedRuns, params: dict[str, Any]) -> None:
    got = client.get(f"/api/runs/{runs.done}/find", params=params)
    assert (got.status_code, got.json()["error"]["code"]) == (400, "invalid_parameter")
