"""`shopfloor stats` and the columns, orders and filters of `shopfloor list`, with the installed command."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shopfloor.log import (
    AssistantMessage,
    Cost,
    RunCompleted,
    RunError,
    RunStarted,
    Session,
    StepStarted,
    ToolCall,
    Usage,
    new_run_id,
)
from shopfloor.record import Recorder, Storage


@pytest.fixture
def runs(env) -> dict[str, str]:
    """Runs that cost 1.50 and 0.25 dollars, and one of unknown cost that the first one called."""
    env["TZ"] = "UTC"
    storage = Storage(Path(env["SHOPFLOOR_STORAGE"]))
    ids = {name: new_run_id() for name in ("dear", "cheap", "sub")}
    spent = {"dear": ("opus", 1.5), "cheap": ("gpt", 0.25), "sub": ("local", None)}
    for name, run_id in ids.items():
        parent = ids["dear"] if name == "sub" else None
        with Recorder(storage.log_path(run_id), run_id, parent_run_id=parent) as recorder:
            recorder.append(
                RunStarted(name=f"{name}-worker", kind="worker", attempt=1, host="h", task=f"the {name} one")
            )
            model, usd = spent[name]
            provider = Session(provider="codex" if name == "cheap" else "claude-code")
            recorder.append(StepStarted(name="s", kind="agent", try_=1, session=provider), path="s")
            cost = None if usd is None else Cost(usd=usd, source="agent")
            usage = Usage(input=1_000, output=500)
            recorder.append(AssistantMessage(model=model, usage=usage, cost=cost, blocks=[]), path="s")
            call = ToolCall(name="Bash", call_id="1", input={}, output=None, fidelity="agent_emitted")
            recorder.append(call, path="s")
            error = RunError(code="tool_failed", message="exit code 3") if name == "cheap" else None
            status = "failed" if error else "completed"
            recorder.append(RunCompleted(name=name, kind="worker", status=status, error=error, duration_ms=len(name)))
    return ids


def lines_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


@pytest.mark.req("SF-50")
def test_stats_shows_tables_with_headers_and_bars(shopfloor, runs) -> None:
    today = datetime.now(UTC).date().isoformat()
    shown = shopfloor("stats", "--since", "2d")
    assert shown.returncode == 0, shown.stderr
    title, now, _, head, _, last = shown.stdout.splitlines()
    assert title.endswith(f"to {today}: 3 runs, 1 of 3 failed (33.3 %), $1.75 spent, 1.5k tokens without a price")
    assert now == "now 0 running, 0 queued, 0 waiting for a person · today 1 of 3 failed, $1.75 spent"
    assert head.split() == ["DAY", "RUNS", "FAILED", "TOKENS", "UNPRICED", "COST"]
    assert last.split() == [today, "3", "1", "4.5k", "1.5k", "$1.75", "█" * 24]
    assert lines_of(shopfloor("stats", "--by", "model").stdout)[3:] == [
        ["MODEL", "TOKENS", "UNPRICED", "COST"],
        ["opus", "1.5k", "$1.50", "█" * 24],
        ["gpt", "1.5k", "$0.2500", "█" * 4],
        ["local", "1.5k", "1.5k", "unknown"],
    ]
    by_provider = lines_of(shopfloor("stats", "--by", "provider", "--worker", "cheap-worker").stdout)[3:]
    assert by_provider == [["PROVIDER", "TOKENS", "UNPRICED", "COST"], ["codex", "1.5k", "$0.2500", "█" * 24]]
    assert lines_of(shopfloor("stats", "--by", "worker").stdout)[4][0] == "dear-worker"
    assert lines_of(shopfloor("stats", "--by", "tool").stdout)[3:] == [
        ["TOOL", "CALLS", "FAILED"],
        ["Bash", "3", "0", "█" * 24],
    ]
    assert "tool_failed: exit code 3     1" in shopfloor("stats", "--by", "error").stdout
    answer = json.loads(shopfloor("stats", "--json", "--model", "gpt").stdout)
    assert (answer["totals"]["cost_usd"], answer["range"]["tz"]) == (0.25, "UTC")


@pytest.mark.req("SF-50")
@pytest.mark.parametrize("zone", ["America/Los_Angeles", "-08:00", "Asia/Kolkata"])
def test_dates_are_days_of_the_time_zone_that_was_requested(shopfloor, env, zone: str) -> None:
    env["TZ"] = "Asia/Tokyo"
    shown = shopfloor("stats", "--since", "2026-11-15", "--until", "2026-11-16", f"--tz={zone}", "--json")
    assert [day["day"] for day in json.loads(shown.stdout)["days"]] == ["2026-11-15", "2026-11-16"]


def test_stats_follows_a_deletion_and_a_rebuild(shopfloor, runs) -> None:
    before = json.loads(shopfloor("stats", "--json").stdout)
    assert shopfloor("rebuild").returncode == 0
    assert json.loads(shopfloor("stats", "--json").stdout) == before
    assert shopfloor("delete", runs["dear"]).returncode == 0
    after = json.loads(shopfloor("stats", "--json").stdout)
    assert (after["totals"]["cost_usd"], after["totals"]["runs"]) == (0.25, 1)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--since", "soon"], "must be a time such as"),
        (["--by", "colour"], "invalid choice: 'colour'"),
        (["--tz", "Mars/Base"], "unknown time zone 'Mars/Base'"),
        (["--since", "900d"], "at most 366 days"),
        (["--max-cost", "-1"], "must be an amount in US dollars"),
    ],
)
def test_stats_refuses_what_it_cannot_show(shopfloor, words: list[str], problem: str) -> None:
    done = shopfloor("stats", *words)
    assert done.returncode == 2
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.req("SF-51")
def test_list_has_headers_cost_and_model_and_only_roots_by_default(shopfloor, env, runs) -> None:
    env["COLUMNS"] = "120"
    head, *rows, total = shopfloor("list", "--sort", "cost").stdout.splitlines()
    assert head.split() == ["ID", "STATUS", "STARTED", "DURATION", "COST", "MODEL", "WORKER", "TASK"]
    assert [row.split()[0] for row in rows] == [runs[name][:8] for name in ("dear", "cheap")]
    assert rows[0].split()[-6:] == ["$1.50", "opus", "dear-worker", "the", "dear", "one"]
    assert rows[0].index("the dear one") == head.index("TASK")
    assert total == "2 of 2 runs"
    assert shopfloor("list", "--all").stdout.splitlines()[-1] == "3 of 3 runs"
    assert shopfloor("list", "--roots").stdout.splitlines()[-1] == "2 of 2 runs"
    assert shopfloor("list", "--parent", runs["dear"]).stdout.splitlines()[-1] == "1 of 1 runs"
    columns = shopfloor("list", "--columns", "task,cost,error", "--model", "gpt").stdout
    assert lines_of(columns)[:-1] == [["TASK", "COST", "ERROR"], ["the", "cheap", "one", "$0.2500", "tool_failed"]]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--min-cost", "$1"], ["dear"]),
        (["--max-cost", "1", "--provider", "codex"], ["cheap"]),
        (["--error", "tool_failed"], ["cheap"]),
        (["--max-duration", "1s", "--sort", "duration"], ["cheap", "dear"]),
        (["--sort", "oldest", "--since", "1h"], ["dear", "cheap"]),
    ],
)
def test_list_finds_runs_by_cost_duration_and_error(shopfloor, runs, words: list[str], found: list[str]) -> None:
    listed = json.loads(shopfloor("list", "--json", *words).stdout)["workers"]
    assert [run["id"] for run in listed] == [runs[name] for name in found]


@pytest.mark.req("SF-51")
def test_a_date_means_the_same_for_list_and_stats(shopfloor, env, runs) -> None:
    today = datetime.now(UTC).date()
    tomorrow = (today + timedelta(days=1)).isoformat()
    env["TZ"] = "Asia/Tokyo"
    for since in (today.isoformat(), f"{today.isoformat()}T00:00", f"{today.isoformat()} 00:00:00"):
        assert len(json.loads(shopfloor("list", "--json", "--since", since, "--tz", "UTC").stdout)["workers"]) == 2
    # The day begins half a day later there, and tomorrow has not begun there yet.
    assert json.loads(shopfloor("list", "--json", "--since", tomorrow, "--tz=-12:00").stdout)["workers"] == []
    ended = json.loads(shopfloor("list", "--json", "--ended-since", today.isoformat(), "--tz", "UTC").stdout)["workers"]
    assert len(ended) == 2
    assert json.loads(shopfloor("list", "--json", "--ended-until", "1h").stdout)["workers"] == []
    refused = shopfloor("list", "--since", tomorrow, "--tz", "Mars/Base")
    assert (refused.returncode, "unknown time zone 'Mars/Base'" in refused.stderr) == (2, True)


def test_list_refuses_an_unknown_column(shopfloor) -> None:
    done = shopfloor("list", "--columns", "id,colour")
    assert done.returncode == 2
    assert "must be a list of id, status" in done.stderr
