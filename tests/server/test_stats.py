"""Statistics, counts, and the filters and orders of the list, over HTTP."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from tests.server.recorded_runs import USAGE, RecordedRuns, record, run_completed, run_started
from tests.server.server import RunningServer, open_server
from tests.server.test_runs import get_json, list_ids

from shopfloor.log import AssistantMessage, Cost, RunError, Session, StepCompleted, StepStarted, ToolCall, ToolResult
from shopfloor.record import Storage


def stats(client: httpx.Client, **params: Any) -> Any:
    return get_json(client, "/api/stats", **params)


@pytest.mark.req("SF-50")
def test_statistics_have_tiles_days_tools_failures_and_top_runs(client: httpx.Client, runs: RecordedRuns) -> None:
    found = stats(client)
    assert [*found] == ["range", "tiles", "days", "totals", "by", "tools", "failures", "costliest", "slowest"]
    assert found["tiles"] | {"longest_waiting_since": None} == {
        "running": 1,
        "queued": 0,
        "oldest_queued_at": None,
        "waiting": 1,
        "longest_waiting_since": None,
        "failed_today": 1,
        "ended_today": 6,
        "failed_percent_range": 16.7,
        "spent_today_usd": 0.25,
        "unpriced_today": 0,
    }
    assert found["tiles"]["longest_waiting_since"] <= datetime.now(UTC).isoformat()
    assert len(found["days"]) == 14
    today = found["days"][-1]
    assert today["day"] == datetime.now(UTC).date().isoformat()
    assert (today["runs"], today["failed"], today["cost_usd"]) == (8, 1, 0.25)
    assert today["by"]["worker"] == {"tester": 0.25}
    assert today["by"]["provider"] == {"claude-code": 0.25}
    assert found["totals"] == {
        "runs": 8,
        "ended": 6,
        "failed": 1,
        "cost_usd": 0.25,
        "tokens": USAGE.input + USAGE.output + USAGE.cache_read,
        "unpriced_tokens": 0,
    }
    assert found["tools"] == [{"name": "ask", "calls": 1, "failed": 0}, {"name": "shell", "calls": 1, "failed": 0}]
    (failure,) = found["failures"]
    assert (failure["code"], failure["message"], failure["workers"]) == ("command_failed", "exit code 1", ["tester"])
    assert failure["per_day"] == [0] * 13 + [1]
    (costliest,) = found["costliest"]
    assert costliest == {
        "run_id": runs.done,
        "title": "run the test suite",
        "worker": "tester",
        "status": "done",
        "cost_usd": 0.25,
        "duration_ms": 1234,
    }
    assert runs.child not in [run["run_id"] for run in found["slowest"]]


@pytest.mark.parametrize(
    ("filters", "totals"),
    [
        ({"worker": "indexer"}, (1, 0, 0.0)),
        ({"agent_id": "bob"}, (5, 1, 0.0)),
        ({"provider": "claude-code"}, (1, 0, 0.25)),
        ({"roots": True}, (7, 1, 0.25)),
        ({"status": "failed"}, (1, 1, 0.0)),
        ({"q": "deployment"}, (1, 1, 0.0)),
        ({"min_cost": 0.3}, (0, 0, 0.0)),
    ],
)
def test_statistics_take_the_filters_of_the_list(
    client: httpx.Client, filters: dict[str, Any], totals: tuple[int, int, float]
) -> None:
    found = stats(client, **filters)["totals"]
    assert (found["runs"], found["failed"], found["cost_usd"]) == totals


def test_days_are_those_of_the_time_zone(client: httpx.Client) -> None:
    for zone, offset in (("Asia/Kolkata", timedelta(hours=5, minutes=30)), ("-03:00", timedelta(hours=-3))):
        found = stats(client, tz=zone, since=(datetime.now(UTC) - timedelta(days=1)).isoformat())
        assert [day["day"] for day in found["days"]] == [
            (datetime.now(UTC) + offset - timedelta(days=ago)).date().isoformat() for ago in (1, 0)
        ]
        assert found["days"][-1]["runs"] == 8
        start = datetime.fromisoformat(found["range"]["since"]) + offset
        assert (start.hour, start.minute) == (0, 0)
    # A plus sign that is not encoded arrives as a space.
    expected = stats(client, tz="+05:30")["range"]
    assert expected["tz"] == "+05:30"
    assert stats(client, tz=" 05:30")["range"] == expected
    assert stats(client, tz=" 0530")["range"] == expected


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"tz": "Mars/Base"}, "tz: unknown time zone 'Mars/Base'"),
        ({"tz": "../etc/passwd"}, "tz: unknown time zone"),
        ({"tz": "+99:00"}, "tz: +99:00 is the offset of no time zone"),
        ({"since": "2024-01-01T00:00:00Z"}, "since: statistics have at most 366 days"),
        ({"since": "2999-01-01T00:00:00Z"}, "is after"),
        ({"since": "9999-12-31T23:59:59Z", "until": "9999-12-31T23:59:59Z"}, "is not a range of days"),
        ({"since": "yesterday"}, "since: must be"),
        ({"min_cost": "-1"}, "min_cost: "),
        ({"status": "interrupted"}, "status: "),
    ],
)
def test_invalid_parameters_are_refused(client: httpx.Client, params: dict[str, str], problem: str) -> None:
    got = client.get("/api/stats", params=params)
    assert got.status_code == 400
    assert problem in got.json()["error"]["message"]


def test_spending_belongs_to_the_model_and_provider_that_spent_it(own_storage: Storage) -> None:
    def message(model: str, usd: float | None) -> AssistantMessage:
        cost = None if usd is None else Cost(usd=usd, source="agent")
        return AssistantMessage(model=model, usage=USAGE, cost=cost, blocks=[])

    call: dict[str, Any] = {"name": "Bash", "call_id": "1", "fidelity": "agent_emitted"}
    record(
        own_storage,
        run_started(),
        StepStarted(name="test", kind="agent", try_=1, session=Session(provider="claude-code")),
        message("opus", 0.5),
        ToolCall(**call, input={}, output=None),
        ToolResult(**call, input=None, output="", error="denied"),
        message("haiku", 0.25),
        StepCompleted(name="test", kind="agent", try_=1),
        StepStarted(name="test", kind="agent", try_=2, session=Session(provider="opencode")),
        message("local", None),
        run_completed("failed", error=RunError(code="tool_failed", message="no")),
    )
    with open_server(own_storage) as server, server.client() as client:
        found = stats(client)
        assert found["days"][-1]["by"] == {
            "model": {"opus": 0.5, "haiku": 0.25, "local": None},
            "provider": {"claude-code": 0.75, "opencode": None},
            "worker": {"tester": 0.75},
        }
        assert found["by"]["model"][-1] == {"name": "local", "cost_usd": None, "tokens": 123, "unpriced_tokens": 123}
        assert found["tiles"]["unpriced_today"] == 1
        assert found["tools"] == [{"name": "Bash", "calls": 1, "failed": 1}]


@pytest.mark.req("SF-51")
def test_the_list_has_orders_filters_and_counts(client: httpx.Client, runs: RecordedRuns) -> None:
    assert list_ids(client, sort="oldest") == [*reversed(runs.newest_first())]
    assert list_ids(client, sort="cost")[0] == runs.done
    assert list_ids(client, min_cost=0.2) == [runs.done]
    assert list_ids(client, error="command_failed") == [runs.failed]
    assert list_ids(client, provider="claude-code") == [runs.done]
    assert set(list_ids(client, min_duration_ms=1)) == {
        *(runs.done, runs.failed, runs.silent, runs.cancelled, runs.parent, runs.child)
    }
    counts = get_json(client, "/api/agents/workers/counts")
    assert counts == {
        "all": 8,
        "queued": 0,
        "running": 1,
        "waiting": 1,
        "done": 4,
        "failed": 1,
        "cancelled": 1,
    }
    of_bob = get_json(client, "/api/agents/workers/counts", agent_id="bob", status="failed")
    assert (of_bob["all"], of_bob["failed"], of_bob["running"]) == (5, 1, 0)


def test_interrupted_runs_are_listed_by_their_word(own_storage: Storage) -> None:
    interrupted = record(own_storage, run_started())
    record(own_storage, run_started(), run_completed())
    with open_server(own_storage) as server, server.client() as client:
        assert list_ids(client, status="interrupted") == [interrupted]
        assert list_ids(client, status="interrupted", offset=1) == []
        assert client.get("/api/agents/workers", params={"status": "interrupted", "cursor": "x"}).status_code == 400


def test_a_viewer_may_read_statistics_and_nobody_without_a_token(server: RunningServer) -> None:
    with httpx.Client(base_url=server.url) as stranger, server.client("viewer") as viewer:
        for path in ("/api/stats", "/api/agents/workers/counts"):
            assert (stranger.get(path).status_code, viewer.get(path).status_code) == (401, 200)


@pytest.mark.req("SF-51")
def test_a_failure_of_the_statistics_leads_to_the_runs_that_it_counts(client: httpx.Client, runs: RecordedRuns) -> None:
    (failure, *_) = client.get("/api/stats").json()["failures"]
    today = datetime.now(UTC).date().isoformat()
    filters = {"error": failure["code"], "error_group": failure["group"], "ended_since": f"{today}T00:00:00Z"}
    listed = client.get("/api/agents/workers", params=filters).json()
    assert listed["total"] == failure["total"]
    assert {run["error"]["message"] for run in listed["workers"]} == {failure["message"]}
    assert client.get("/api/agents/workers/counts", params=filters).json()["failed"] == failure["total"]
    for other in ({"error_group": "another"}, {"ended_until": f"{today}T00:00:00Z"}, {"id_prefix": "0" * 36}):
        assert client.get("/api/agents/workers", params=filters | other).json()["total"] == 0, other
    refused = client.get("/api/agents/workers", params={"id_prefix": "x"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_parameter")
    assert client.get("/api/agents/workers", params={"ended_since": "today"}).status_code == 400
