"""The overview at `/`: figures, spend per day, failures and ranked runs, each a link to the runs behind it."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, Request, Route, expect
from tests.browser.axe import COLORS, problems
from tests.browser.fleet_states import RUN_ID, at
from tests.browser.page_elements import card, cards, pill, region, run_list
from tests.browser.server import Server
from tests.browser.tabs import PHONE, Tabs
from tests.browser.test_screens import overflow

from shopfloor.server.page_files import PAGE_FOLDER

FIRST_VIEW_BYTES = 250_000
UNKNOWN = "\N{EN DASH}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with runs of several outcomes."""
    with Server(tmp_path_factory.mktemp("overview")) as server:
        server.command("echo fine")
        for _ in range(2):
            server.wait_for_status(server.dispatch("picky", owner="ada", GO="x"), "failed")
        server.wait_for_status(server.dispatch("asker", owner="ada"), "waiting")
        server.wait_for_status(server.dispatch("sleeper", owner="ada"), "running")
        yield server


def tile(page: Page, name: str) -> Locator:
    return page.get_by_role("navigation", name="Figures").get_by_role("link", name=re.compile(name))


def look(page: Page, name: str) -> None:
    """Save a screenshot to the folder that SHOPFLOOR_LOOK names."""
    if (folder := os.environ.get("SHOPFLOOR_LOOK")) is not None:
        page.screenshot(path=Path(folder) / f"{name}.png", animations="disabled")


@pytest.mark.req("WT-79")
def test_the_figures_are_those_of_the_server_and_lead_to_their_runs(tabs: Tabs, runs: Server) -> None:
    stats = runs.get("/api/stats")["tiles"]
    assert (stats["running"], stats["waiting"], stats["failed_today"]) == (1, 1, 2)
    page = tabs.open(runs)
    expect(tile(page, "Running")).to_contain_text("1")
    expect(tile(page, "Waiting for you")).to_contain_text("1")
    expect(tile(page, "Failed today")).to_contain_text("of 3 · 66.7 %")
    expect(cards(page)).to_have_count(5)
    tile(page, "Failed today").click()
    expect(cards(page)).to_have_count(2)
    expect(page).to_have_url(re.compile("/agents/all/workers.*status=failed"))
    expect(page.get_by_text("Select a worker to view details")).to_be_visible()
    pill(page, "All").click()
    expect(cards(page)).to_have_count(3)
    chip = page.get_by_role("button", name=re.compile("^Ended: since "))
    chip.click()
    expect(chip).to_have_count(0)
    expect(page).not_to_have_url(re.compile("endedSince="))
    page.go_back()
    page.goto(f"{runs.url}/")
    tile(page, "Waiting for you").click()
    expect(page.get_by_role("region", name="Needs you")).to_be_focused()
    expect(page.get_by_role("region", name="Needs you").get_by_role("article")).to_have_count(1)
    tile(page, "Running").click()
    expect(cards(page)).to_have_count(1)


@pytest.mark.req("WT-79")
def test_failures_are_grouped_and_runs_are_ranked(tabs: Tabs, runs: Server) -> None:
    page = tabs.open(runs)
    (group,) = runs.get("/api/stats")["failures"]
    failures = region(page, "Failures")
    expect(failures.get_by_role("listitem")).to_have_count(1)
    expect(failures.get_by_role("listitem")).to_contain_text(re.compile(f"2.*{group['code']} · picky", re.DOTALL))
    page.get_by_role("radiogroup", name="Order").get_by_role("radio", name="Slowest").click()
    slowest = region(page, "Slowest runs").get_by_role("link")
    expect(slowest.first).to_be_visible()
    failures.get_by_role("listitem").get_by_role("link").click()
    expect(page).to_have_url(re.compile(f"error={group['code']}"))
    expect(cards(page)).to_have_count(2)


@pytest.mark.req("WT-79")
def test_going_back_from_a_run_that_a_key_selected_shows_the_overview(tabs: Tabs, runs: Server) -> None:
    page = tabs.open(runs)
    expect(cards(page).first).to_be_visible()
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile("worker="))
    page.keyboard.press("j")
    page.go_back()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def test_a_run_of_the_list_opens_from_the_overview(tabs: Tabs, runs: Server) -> None:
    page = tabs.open(runs)
    run_id = runs.runs(status="waiting")[0]["id"]
    card(page, run_id).click()
    expect(page).to_have_url(re.compile(rf"/agents/all/workers\?worker={run_id}$"))
    page.go_back()
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    expect(run_list(page)).to_be_visible()


@pytest.mark.req("WT-80")
def test_the_filters_of_the_list_and_the_range_apply(tabs: Tabs, runs: Server) -> None:
    page = tabs.open(runs)
    expect(tile(page, "Running")).to_contain_text("1")

    def is_filtered(request: Request) -> bool:
        return "/api/stats" in request.url and parse_qs(urlsplit(request.url).query).get("status") == ["failed"]

    with page.expect_request(is_filtered):
        pill(page, "Failed").click()
    expect(tile(page, "Running")).to_contain_text("0")
    expect(page.get_by_text("failed ·")).to_be_visible()
    page.get_by_role("radiogroup", name="Range").get_by_role("radio", name="7 d").click()
    expect(page).to_have_url(re.compile(r"/\?.*range=7d"))
    expect(page.locator("[data-day]")).to_have_count(7)
    page.reload()
    expect(page.locator("[data-day]")).to_have_count(7)
    expect(tile(page, "Running")).to_contain_text("0")
    page.get_by_role("button", name="Clear filters").click()
    expect(tile(page, "Running")).to_contain_text("1")


def spending() -> dict[str, Any]:
    """Return statistics with costs, which the workers of these tests do not have."""
    models = {"sonnet": 16.0, "opus": 6.0, "codex": 4.0, "gemini": 1.0, "flash": 0.2, "mini": 0.1}
    days = [
        {
            "day": at(86_400 * (number - 13))[:10],
            "runs": 40,
            "failed": number % 3,
            "cost_usd": round(sum(models.values()) * number, 2),
            "by": {
                "model": {name: usd * number for name, usd in models.items()},
                "provider": {"anthropic": 22.0 * number},
                "worker": {"repair": 27.3 * number},
            },
        }
        for number in range(14)
    ]
    run = {"run_id": RUN_ID, "title": "Split the module", "worker": "repair", "status": "done", "cost_usd": 9.09}
    ranked = [{**run, "duration_ms": 992_000}, {**run, "run_id": RUN_ID[::-1], "cost_usd": None, "duration_ms": None}]
    return {
        "range": {"since": days[0]["day"] + "T00:00:00Z", "until": at(0), "tz": "UTC"},
        "tiles": {
            "running": 6,
            "queued": 9,
            "oldest_queued_at": at(-720),
            "waiting": 3,
            "longest_waiting_since": at(-2_280),
            "failed_today": 5,
            "ended_today": 63,
            "failed_percent_range": 5.1,
            "spent_today_usd": 41.27,
            "unpriced_today": 0,
        },
        "days": days,
        "totals": {"runs": 560, "failed": 16, "cost_usd": 2_484.3, "tokens": 81_234_567},
        "tools": [{"name": "Bash", "calls": 412, "failed": 25}, {"name": "Read", "calls": 388, "failed": 1}],
        "failures": [
            {
                "code": "rate_limited",
                "message": "429 on opus",
                "total": 7,
                "workers": ["repair"],
                "last_at": at(-540),
                "per_day": [0] * 12 + [3, 4],
            }
        ],
        "costliest": ranked,
        "slowest": ranked,
    }


@pytest.mark.req("WT-81")
@pytest.mark.parametrize("colors", COLORS)
def test_the_chart_has_a_bar_per_day_for_pointer_and_keyboard(tabs: Tabs, runs: Server, colors: str) -> None:
    context = tabs.context(color_scheme=colors, viewport={"width": 1440, "height": 900})
    context.route("**/api/stats?*", lambda route: route.fulfill(json=spending()))
    page = tabs.open(runs, context=context)
    bars = page.locator("[data-day]")
    expect(bars).to_have_count(14)
    expect(page.get_by_role("list", name="Spend by model").get_by_role("listitem")).to_have_text(
        [re.compile(name) for name in ("sonnet", "opus", "codex", "gemini", "other")]
    )
    tip = page.locator(".tip")
    bars.nth(6).hover()
    expect(tip).to_contain_text("$163.80")
    page.mouse.move(0, 0)
    expect(tip).to_have_count(0)
    assert page.locator("[data-day][tabindex='0']").count() == 1
    bars.last.focus()
    page.keyboard.press("ArrowLeft")
    expect(bars.nth(12)).to_be_focused()
    expect(tip).to_contain_text("$327.60")
    expect(bars.nth(12)).to_have_attribute("aria-label", re.compile(r"\$327\.60, sonnet \$192\.00, .*40 runs"))
    look(page, f"overview-1440-{colors}")
    for width in (1440, 1024, PHONE["width"]):
        page.set_viewport_size({"width": width, "height": 844})
        assert problems(page) == [], width
        assert overflow(page) == [], width
        look(page, f"overview-{width}-{colors}")
    page.get_by_role("radiogroup", name="Stack by").get_by_role("radio", name="Provider").click()
    expect(page.get_by_role("list", name="Spend by provider")).to_contain_text("anthropic")
    bars.nth(12).focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("since=.*until="))
    (since,) = parse_qs(urlsplit(page.url).query)["since"]
    assert since.strip('"') == spending()["days"][12]["day"] + "T00:00:00.000Z"


@pytest.mark.req("WT-81")
def test_an_overview_that_cannot_be_loaded_says_so_and_retries(tabs: Tabs, runs: Server) -> None:
    tabs.allow_errors("503")
    refusal = {"error": {"code": "store_error", "message": "the database is locked", "hint": None}}

    def refuse(route: Route) -> None:
        route.fulfill(status=503, json=refusal)

    context = tabs.context()
    context.route("**/api/stats?*", refuse)
    page = tabs.open(runs, context=context)
    overview = region(page, "Overview")
    expect(overview.get_by_role("alert")).to_contain_text("The overview cannot be shown: the database is locked")
    expect(tile(page, "Running")).to_contain_text(UNKNOWN)
    assert problems(page) == []
    context.unroute("**/api/stats?*", refuse)
    overview.get_by_role("button", name="Retry").click()
    expect(tile(page, "Running")).to_contain_text("1")


@pytest.mark.req("WT-82")
def test_the_first_view_is_small_and_other_pages_are_loaded_when_they_are_opened(tabs: Tabs, runs: Server) -> None:
    page = tabs.open(runs)
    expect(tile(page, "Running")).to_contain_text("1")
    expect(cards(page).first).to_be_visible()
    names = {urlsplit(url).path.rsplit("/", 1)[1] for url in tabs.paths(r"/assets/")}
    assert not [name for name in names if name.startswith("FleetPage")]
    sizes = {name: len(gzip.compress((PAGE_FOLDER / "assets" / name).read_bytes(), 9)) for name in names}
    assert sum(sizes.values()) < FIRST_VIEW_BYTES, sizes
