"""Operations that read runs: list, detail, timeline, log, pins and channels."""

import gzip
import re
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone
from typing import Any

import httpx
import msgspec
import pytest
from tests.server.recorded_runs import CHANNEL, RecordedRuns, record, run_completed, run_started, user
from tests.server.server import RunningServer, open_server

from shopfloor.log import ToolCall, new_run_id
from shopfloor.record import Storage
from shopfloor.server.limits import EVENTS_MAX
from shopfloor.server.runs import decompress_archive

ITEM_OF_SEED = [
    *("id", "task", "status", "worker_type", "channel_id", "channel_name", "started_at", "completed_at"),
    *("event_count", "has_transcript"),
]
MORE_OF_ITEM = [
    *(
        "agent_id",
        "client",
        "based_on",
        "parent_run_id",
        "root_run_id",
        "name",
        "kind",
        "duration_ms",
        "tool_calls",
        "usage",
        "cost_usd",
    ),
    *("tree_usage", "tree_cost_usd", "error", "pinned", "provider", "model", "children", "waits_for"),
    *("asks", "interrupted", "interruptions", "priority", "progress", "activity", "search_stopped_at"),
    *("queue_reason", "snippet"),
]
DETAIL_OF_SEED = {
    *("id", "task", "result", "status", "worker_type", "channel_id", "channel_name", "started_at", "completed_at"),
    "transcript",
}
MORE_OF_DETAIL = {
    "awaits",
    "summary",
    "questions",
    "decisions",
    "artifacts",
    "transcript_omitted",
    "queued_at",
    "host",
    "attempt",
    "last_seq",
    "continued_by",
}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def get_json(client: httpx.Client, address: str, **params: Any) -> Any:
    got = client.get(address, params=params)
    assert got.status_code == 200, got.text
    assert got.headers["content-type"] == "application/json"
    return got.json()


def list_ids(client: httpx.Client, **params: Any) -> list[str]:
    return [item["id"] for item in get_json(client, "/api/agents/workers", **params)["workers"]]


def detail(client: httpx.Client, run_id: str, **params: Any) -> Any:
    return get_json(client, "/api/agents/workers/detail", worker_id=run_id, **params)


def timeline(client: httpx.Client, run_id: str, **params: Any) -> Any:
    return get_json(client, "/api/agents/workers/events", worker_id=run_id, **params)


# The list


@pytest.mark.req("WT-31", "WT-32")
def test_a_list_item_has_the_documented_fields_first(client: httpx.Client) -> None:
    page = get_json(client, "/api/agents/workers")
    assert list(page) == ["workers", "total", "next"]
    assert {tuple(item) for item in page["workers"]} == {(*ITEM_OF_SEED, *MORE_OF_ITEM)}


@pytest.mark.req("WT-1", "WT-2", "WT-3", "WT-32", "WT-33")
def test_a_list_item_describes_its_run(client: httpx.Client, runs: RecordedRuns) -> None:
    (item,) = (run for run in get_json(client, "/api/agents/workers")["workers"] if run["id"] == runs.done)
    assert TIME.fullmatch(item.pop("started_at"))
    assert TIME.fullmatch(item.pop("completed_at"))
    assert item == {
        "id": runs.done,
        "task": "run the test suite",
        "status": "done",
        "worker_type": "claude-code",
        "channel_id": CHANNEL,
        "channel_name": "#general",
        "event_count": 5,
        "has_transcript": True,
        "agent_id": "ada",
        "client": None,
        "parent_run_id": None,
        "root_run_id": runs.done,
        "name": "tester",
        "kind": "worker",
        "duration_ms": 1234,
        "tool_calls": 1,
        "usage": {"input": 100, "output": 20, "cache_read": 3, "cache_write": 0, "reasoning": 0},
        "cost_usd": 0.25,
        "tree_usage": {"input": 100, "output": 20, "cache_read": 3, "cache_write": 0, "reasoning": 0},
        "tree_cost_usd": 0.25,
        "error": None,
        "pinned": False,
        "provider": "claude-code",
        "model": None,
        "children": 0,
        "waits_for": None,
        "asks": None,
        "interrupted": False,
        "interruptions": 0,
        "priority": 0,
        "progress": None,
        "activity": None,
        "search_stopped_at": None,
        "queue_reason": None,
        "based_on": None,
        "snippet": None,
    }


@pytest.mark.req("WT-2")
def test_a_failed_run_has_an_error(client: httpx.Client, runs: RecordedRuns) -> None:
    (item,) = get_json(client, "/api/agents/workers", status="failed")["workers"]
    assert item["error"] == {"code": "command_failed", "message": "exit code 1"}
    assert item["worker_type"] == "builtin"


@pytest.mark.req("WT-28")
def test_without_an_owner_all_runs_are_listed_newest_first(client: httpx.Client, runs: RecordedRuns) -> None:
    assert list_ids(client) == runs.newest_first()


@pytest.mark.req("WT-28", "WT-30")
@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({"agent_id": "ada"}, ["running", "silent", "done"]),
        ({"agent_id": "nobody"}, []),
        ({"status": "done"}, ["child", "parent", "silent", "done"]),
        ({"status": "failed"}, ["failed"]),
        ({"status": "running"}, ["running"]),
        ({"status": "waiting"}, ["waiting"]),
        ({"status": "cancelled"}, ["cancelled"]),
        ({"status": "queued"}, []),
        ({"status": "done", "agent_id": "ada"}, ["silent", "done"]),
        ({"worker_type": "claude-code"}, ["done"]),
        ({"channel_id": CHANNEL}, ["silent", "done"]),
        ({"q": "zebra"}, ["done"]),
        ({"q": "12 passed"}, ["done"]),
        ({"q": "nowhere"}, []),
        ({"q": "zebra", "agent_id": "bob"}, []),
        ({"roots": "true"}, ["running", "waiting", "parent", "cancelled", "silent", "failed", "done"]),
        ({"roots": "true", "status": "done"}, ["parent", "silent", "done"]),
        ({"worker": "planner"}, ["parent"]),
        ({"worker": "tester", "agent_id": "bob"}, ["waiting", "child", "cancelled", "failed"]),
        ({"worker": "tester", "agent_id": "bob", "roots": "true"}, ["waiting", "cancelled", "failed"]),
        ({"worker": "test"}, []),
        ({"since": "2099-01-01T00:00:00Z"}, []),
        ({"until": "2000-01-01T00:00:00+02:00"}, []),
    ],
)
def test_the_list_can_be_filtered(
    client: httpx.Client, runs: RecordedRuns, params: dict[str, str], names: list[str]
) -> None:
    assert list_ids(client, **params) == [getattr(runs, name) for name in names]
    assert get_json(client, "/api/agents/workers", **params)["total"] == len(names)


def test_all_statuses_and_an_empty_search_list_every_run(client: httpx.Client, runs: RecordedRuns) -> None:
    assert list_ids(client, status="all", q="", roots="false", since="2000-01-01T00:00:00Z") == runs.newest_first()


def test_the_children_of_a_run_can_be_listed(client: httpx.Client, runs: RecordedRuns) -> None:
    (child,) = get_json(client, "/api/agents/workers", parent=runs.parent)["workers"]
    assert (child["id"], child["parent_run_id"], child["root_run_id"]) == (runs.child, runs.parent, runs.parent)


def test_a_run_has_the_number_of_its_children_and_its_waits(client: httpx.Client, runs: RecordedRuns) -> None:
    found = {run["id"]: run for run in get_json(client, "/api/agents/workers")["workers"]}
    assert {run["children"] for run in found.values()} == {0, 1}
    assert found[runs.parent]["children"] == 1
    assert found[runs.waiting]["waits_for"] == ["question"]
    assert {run["waits_for"] for run_id, run in found.items() if run_id != runs.waiting} == {None}
    assert detail(client, runs.waiting)["waits_for"] == ["question"]


def test_times_are_compared_across_time_zones(client: httpx.Client, runs: RecordedRuns) -> None:
    started = detail(client, runs.silent)["started_at"]
    assert list_ids(client, until=started) == [runs.failed, runs.done]
    assert list_ids(client, until=_in_another_zone(started)) == [runs.failed, runs.done]


def _in_another_zone(time_text: str) -> str:
    return datetime.fromisoformat(time_text).astimezone(timezone(timedelta(hours=-5))).isoformat()


def test_a_search_returns_snippets(client: httpx.Client) -> None:
    (item,) = get_json(client, "/api/agents/workers", q="zebra")["workers"]
    assert "\ue000zebra\ue001" in item["snippet"]


@pytest.mark.req("WT-29", "WT-31")
def test_pages_by_offset_cover_the_list_and_total_counts_all_of_it(client: httpx.Client, runs: RecordedRuns) -> None:
    found: list[str] = []
    for offset in range(0, 9, 3):
        page = get_json(client, "/api/agents/workers", limit=3, offset=offset)
        assert page["total"] == len(runs.newest_first())
        found += [item["id"] for item in page["workers"]]
    assert found == runs.newest_first()


@pytest.mark.parametrize("params", [{}, {"agent_id": "bob"}, {"status": "done"}, {"q": "test"}])
def test_pages_by_cursor_cover_the_list_and_the_last_has_no_next(client: httpx.Client, params: dict[str, str]) -> None:
    all_ids = list_ids(client, **params)
    found: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(len(all_ids)):
        page = get_json(client, "/api/agents/workers", limit=1, **params, **cursor)
        found += [item["id"] for item in page["workers"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert found == all_ids


@pytest.mark.req("WT-20", "WT-29", "WT-37")
def test_pages_have_fifty_runs_and_two_hundred_rows_by_default(own_storage: Storage) -> None:
    call = ToolCall(name="shell", call_id="c", input={"command": "x" * 300}, output=None, fidelity="router")
    long_run = record(own_storage, run_started(), *[call] * 200, run_completed())
    for _ in range(50):
        record(own_storage, run_started())
    with open_server(own_storage) as server, server.client() as client:
        page = get_json(client, "/api/agents/workers")
        assert (len(page["workers"]), page["total"]) == (50, 51)
        assert list_ids(client, offset=50) == [long_run]
        rows = timeline(client, long_run)
        assert (len(rows["events"]), rows["more"]) == (200, True)
        assert set(rows["events"][1]["data"]) == {"tool_name", "preview"}
        assert len(rows["events"][1]["data"]["preview"]) == 200


# The detail


@pytest.mark.req("WT-35")
def test_the_detail_has_the_documented_fields_and_those_of_the_item(client: httpx.Client, runs: RecordedRuns) -> None:
    assert set(detail(client, runs.done)) == (
        DETAIL_OF_SEED | set(ITEM_OF_SEED) | set(MORE_OF_ITEM) - {"snippet"} | MORE_OF_DETAIL
    )


@pytest.mark.req("WT-8", "WT-9", "WT-10", "WT-11", "WT-35")
def test_the_detail_has_the_result_and_the_decompressed_transcript(client: httpx.Client, runs: RecordedRuns) -> None:
    got = detail(client, runs.done)
    assert got["result"] == "12 passed, 0 failed"
    assert got["transcript_omitted"] is None
    assert got["transcript"] == [
        {"role": "user", "content": [{"type": "text", "text": "Run the test suite in ~/app"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_call", "id": "shell:0", "name": "shell", "args": '{"command": "pytest"}'}],
        },
        {"role": "user", "content": [{"type": "tool_result", "call_id": "shell:0", "text": "12 passed, 0 failed"}]},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "All 12 tests passed, says the <b>zebra</b>."}],
        },
    ]


@pytest.mark.req("WT-7")
def test_a_failed_run_has_its_transcript_too(client: httpx.Client, runs: RecordedRuns) -> None:
    assert detail(client, runs.failed)["transcript"] == [
        {"role": "user", "content": [{"type": "text", "text": "Check it"}]}
    ]


@pytest.mark.req("WT-1", "WT-36")
@pytest.mark.parametrize(("name", "status"), [("running", "running"), ("waiting", "waiting")])
def test_the_transcript_is_null_while_a_run_is_running(
    client: httpx.Client, runs: RecordedRuns, name: str, status: str
) -> None:
    got = detail(client, getattr(runs, name))
    assert (got["status"], got["transcript"], got["has_transcript"]) == (status, None, False)
    assert (got["completed_at"], got["result"]) == (None, None)


@pytest.mark.req("WT-36")
def test_the_transcript_is_null_without_messages(client: httpx.Client, runs: RecordedRuns) -> None:
    got = detail(client, runs.silent)
    assert (got["status"], got["transcript"], got["has_transcript"]) == ("done", None, False)


@pytest.mark.req("WT-4", "WT-33")
def test_a_run_without_a_channel_shows_none(client: httpx.Client, runs: RecordedRuns) -> None:
    got = detail(client, runs.cancelled)
    assert (got["channel_id"], got["channel_name"]) == (None, None)


@pytest.mark.req("WT-33")
def test_the_name_of_a_channel_is_looked_up_from_the_channel(client: httpx.Client, runs: RecordedRuns) -> None:
    assert detail(client, runs.silent)["channel_name"] == "#general"  # the run's own log has no name of the channel


@pytest.mark.parametrize("address", ["/api/agents/workers/detail", "/api/agents/workers/events"])
def test_a_run_of_another_owner_is_not_found(client: httpx.Client, runs: RecordedRuns, address: str) -> None:
    assert client.get(address, params={"worker_id": runs.done, "agent_id": "ada"}).status_code == 200
    refused = client.get(address, params={"worker_id": runs.done, "agent_id": "bob"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "run_not_found")


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (gzip.compress(b"[" + b" " * 100 + b"]"), "larger than 100 bytes"),
        (gzip.compress(b"[]")[:-9], "is incomplete"),
        (b"no archive", "cannot be decompressed"),
    ],
    ids=["too large", "cut", "broken"],
)
def test_a_transcript_that_is_omitted_has_a_reason(packed: bytes, why: str) -> None:
    data, omitted = decompress_archive(packed, limit_bytes=100)
    assert data is None
    assert why in (omitted or "")


def test_an_archive_is_decompressed_up_to_its_limit() -> None:
    assert decompress_archive(gzip.compress(b"[1]"), limit_bytes=3) == (b"[1]", None)


# The timeline


@pytest.mark.req("WT-18", "WT-19", "WT-21", "WT-37")
def test_the_timeline_has_the_events_in_order(client: httpx.Client, runs: RecordedRuns) -> None:
    got = timeline(client, runs.done)
    assert list(got) == ["events", "more"]
    assert {tuple(event) for event in got["events"]} == {("id", "event_type", "data", "created_at", "seq")}
    assert [(event["event_type"], event["data"], event["seq"]) for event in got["events"]] == [
        ("status", {"status": "starting"}, 1),
        ("status", {"status": "test"}, 2),
        ("tool_started", {"tool_name": "shell", "preview": "pytest"}, 4),
        ("tool_completed", {"tool_name": "shell", "duration_ms": 4200, "call_seq": 4}, 5),
        ("status", {"status": "completed"}, 8),
    ]
    ids = [event["id"] for event in got["events"]]
    assert ids == sorted(set(ids))
    assert all(TIME.fullmatch(event["created_at"]) for event in got["events"])


@pytest.mark.req("WT-18", "WT-22")
def test_an_error_is_on_the_timeline_with_its_message(client: httpx.Client, runs: RecordedRuns) -> None:
    errors = [event["data"] for event in timeline(client, runs.failed)["events"] if event["event_type"] == "error"]
    assert [error["message"] for error in errors] == ["exit code 1"]


@pytest.mark.req("WT-27")
def test_the_timeline_is_there_while_a_run_is_running(client: httpx.Client, runs: RecordedRuns) -> None:
    assert [event["data"] for event in timeline(client, runs.running)["events"]] == [{"status": "starting"}]


@pytest.mark.req("WT-37")
def test_the_timeline_is_paged(client: httpx.Client, runs: RecordedRuns) -> None:
    all_ids = timeline(client, runs.done)["events"]
    found: list[Any] = []
    for more in (True, True, False):
        page = timeline(client, runs.done, limit=2, after=found[-1]["id"] if found else 0)
        assert page["more"] is more
        found += page["events"]
    assert found == all_ids


# The log


def test_the_log_has_the_bytes_that_were_written(
    client: httpx.Client, server: RunningServer, runs: RecordedRuns
) -> None:
    lines = server.storage.log_path(runs.done).read_bytes().splitlines()
    got = client.get(f"/api/runs/{runs.done}/log")
    assert got.content == b'{"events":[' + b",".join(lines) + b'],"more":false}'


@pytest.mark.parametrize(
    ("params", "seqs", "more"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7, 8], False),
        ({"limit": 8}, [1, 2, 3, 4, 5, 6, 7, 8], False),
        ({"limit": 3}, [1, 2, 3], True),
        ({"limit": 3, "after": 5}, [6, 7, 8], False),
        ({"after": 8}, [], False),
        ({"after": 1000}, [], False),
        ({"limit": 3, "before": 6}, [3, 4, 5], True),
        ({"limit": 3, "before": 4}, [1, 2, 3], False),
        ({"before": 1}, [], False),
        ({"limit": 2, "after": 2, "before": 6}, [3, 4], True),
        ({"limit": 9, "after": 2, "before": 6}, [3, 4, 5], False),
        ({"limit": 3, "before": 9}, [6, 7, 8], True),
    ],
)
def test_pages_of_the_log_are_limited_by_seq(
    client: httpx.Client, runs: RecordedRuns, params: dict[str, int], seqs: list[int], more: bool
) -> None:
    got = get_json(client, f"/api/runs/{runs.done}/log", **params)
    assert ([event["seq"] for event in got["events"]], got["more"]) == (seqs, more)


def test_the_log_of_a_running_run_can_be_read(client: httpx.Client, runs: RecordedRuns) -> None:
    assert len(get_json(client, f"/api/runs/{runs.running}/log")["events"]) == 3


# The rest


def test_channels_are_listed_with_their_names(client: httpx.Client) -> None:
    got = get_json(client, "/api/channels")
    assert sorted(got["channels"], key=lambda run: run["id"]) == [
        {"id": "cli", "name": "cli"},
        {"id": CHANNEL, "name": "#general"},
    ]


def test_health_has_the_version(client: httpx.Client) -> None:
    assert get_json(client, "/api/health") == {"version": "1.2.3", "role": "admin"}


def test_a_run_can_be_pinned_and_unpinned(own_storage: Storage) -> None:
    run_id = record(own_storage, run_started(), user("Hi"), run_completed())
    with open_server(own_storage) as server, server.client() as client:
        for pinned in (True, True, False):
            got = client.post(f"/api/runs/{run_id}/pin", json={"pinned": pinned})
            assert (got.status_code, got.json()["id"], got.json()["pinned"]) == (200, run_id, pinned)
            assert get_json(client, "/api/agents/workers")["workers"][0]["pinned"] is pinned


@pytest.mark.req("WT-34")
def test_the_list_never_reads_an_archive(own_storage: Storage) -> None:
    record(own_storage, run_started(), user("Hi"), run_completed())
    with open_server(own_storage) as server, server.client() as client:
        _change(own_storage, "DROP TABLE worker_transcripts")
        assert get_json(client, "/api/agents/workers")["workers"][0]["has_transcript"] is True


def test_a_corrupt_archive_does_not_affect_the_rest_of_the_detail(own_storage: Storage) -> None:
    run_id = record(own_storage, run_started(), user("Hi"), run_completed(result="fine"))
    with open_server(own_storage) as server, server.client() as client:
        _change(own_storage, "UPDATE worker_transcripts SET transcript = x'00'")
        got = detail(client, run_id)
        assert (got["result"], got["transcript"]) == ("fine", None)
        assert "cannot be decompressed" in got["transcript_omitted"] or "is incomplete" in got["transcript_omitted"]


def _change(storage: Storage, statement: str) -> None:
    with closing(sqlite3.connect(storage.database)) as database:
        database.execute(statement)
        database.commit()


def test_limits_of_pages_hold(own_storage: Storage) -> None:
    long = record(own_storage, run_started(), *[user(str(n)) for n in range(EVENTS_MAX + 5)], run_completed())
    with open_server(own_storage) as server, server.client() as client:
        page = get_json(client, f"/api/runs/{long}/log", limit=EVENTS_MAX)
        assert (len(page["events"]), page["more"]) == (EVENTS_MAX, True)
        rest = get_json(client, f"/api/runs/{long}/log", limit=EVENTS_MAX, after=page["events"][-1]["seq"])
        assert (len(rest["events"]), rest["more"]) == (7, False)


def test_nothing_is_re_encoded(own_storage: Storage) -> None:
    """Large numbers and the order of keys are preserved."""
    run_id = new_run_id()
    line = (
        b'{"seq":1,"run_id":"%b","type":"run.started","path":"","iteration":0,"timestamp":"2026-01-01T00:00:00.000Z",'
        b'"payload":{"z":1,"a":123456789012345678901234567890,"kind":"worker","name":"n","attempt":1,"host":"h"}}'
    ) % run_id.encode()
    path = own_storage.log_path(run_id)
    path.parent.mkdir(parents=True)
    path.write_bytes(line + b"\n")
    assert msgspec.json.decode(line)
    with open_server(own_storage) as server, server.client() as client:
        assert line in client.get(f"/api/runs/{run_id}/log").content
        assert line in client.get(f"/api/runs/{run_id}/stream").content
