"""The fleet on the page: hosts, providers, the queue and events of a real server with hosts as processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect
from tests.browser.axe import COLORS, problems
from tests.browser.fleet_states import answer_fleet
from tests.browser.page_elements import button, region, run_list
from tests.browser.server import SHOPFLOOR, Server
from tests.browser.tabs import PHONE, Tabs
from tests.browser.test_screens import overflow
from tests.timeouts import TIMEOUT_SECONDS, wait_until

LABEL = "region=eu"


class Host:
    """A `shopfloor host` beside a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        known = {host["id"] for host in hosts_of(server) if host["labels"]}
        words = (
            "host",
            "--slots",
            "2",
            "--label",
            LABEL,
            "--heartbeat",
            "1",
            "--workers",
            str(server.folder / "workers"),
        )
        silent = subprocess.DEVNULL
        self.process = subprocess.Popen(
            [SHOPFLOOR, *words], env=server.env, cwd=server.folder, stdout=silent, stderr=silent
        )
        found: list[str] = []

        def is_idle() -> bool:
            # The host of the server itself has no labels.
            others = [host for host in hosts_of(server) if host["labels"] and host["id"] not in known]
            found[:] = [host["id"] for host in others if host["status"] == "idle"]
            return bool(found)

        wait_until(is_idle, "the host to be idle")
        self.id = found[0]

    @property
    def status(self) -> str:
        return next(host["status"] for host in hosts_of(self._server) if host["id"] == self.id)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)


def hosts_of(server: Server) -> list[dict[str, Any]]:
    return server.get("/api/hosts")["hosts"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("fleet")
    with Server(folder, SHOPFLOOR_HEARTBEAT="1", PATH=f"{folder}:/usr/bin:/bin") as server:
        yield server


@pytest.fixture(scope="module")
def host(fleet: Server) -> Iterator[Host]:
    host = Host(fleet)
    yield host
    host.kill()


def host_row(page: Page, text: str | re.Pattern[str] = LABEL) -> Locator:
    return page.get_by_role("table", name="Hosts").get_by_role("row").filter(has_text=text)


def look(page: Page, name: str) -> None:
    """Save a screenshot to the folder that SHOPFLOOR_LOOK names."""
    if (folder := os.environ.get("SHOPFLOOR_LOOK")) is not None:
        page.screenshot(path=Path(folder) / f"{name}.png", animations="disabled")


@pytest.mark.req("WT-74")
def test_a_host_shows_its_state_its_load_and_the_runs_it_executes(tabs: Tabs, fleet: Server, host: Host) -> None:
    page = tabs.open(fleet, "/fleet")
    expect(host_row(page)).to_contain_text("idle")
    expect(host_row(page).get_by_role("img", name=re.compile("CPU of"))).to_be_visible()
    expect(host_row(page).get_by_role("meter", name=re.compile("Memory of"))).to_have_attribute(
        "aria-valuenow", re.compile(r"^\d+$")
    )
    run_id = fleet.dispatch("sleeper", owner="fleet", task="Count to six hundred")
    fleet.wait_for_status(run_id, "running")
    busy = host_row(page, "1 running")
    expect(busy).to_contain_text("busy")
    busy.get_by_role("button", name="1 running").click()
    runs = page.get_by_role("list", name=re.compile("^Runs on "))
    expect(runs.get_by_role("link")).to_contain_text("Count to six hundred")
    runs.get_by_role("link").click()
    expect(page).to_have_url(re.compile(f"worker={run_id}"))
    fleet.http.post(f"/api/runs/{run_id}/cancel", json={})


@pytest.mark.req("WT-74")
def test_a_host_is_drained_and_the_drain_is_undone(tabs: Tabs, fleet: Server, host: Host) -> None:
    page = tabs.open(fleet, "/fleet")
    host_row(page).get_by_role("button", name=re.compile("^Drain ")).click()
    expect(host_row(page)).to_contain_text("draining")
    wait_until(lambda: host.status == "draining", "the host to be draining")
    host_row(page).get_by_role("button", name=re.compile("^Undo ")).click()
    expect(host_row(page)).to_contain_text("idle")
    wait_until(lambda: host.status == "idle", "the host to be idle again")


@pytest.mark.req("WT-75")
def test_a_run_that_no_host_can_take_is_in_the_queue_with_its_reason(tabs: Tabs, fleet: Server) -> None:
    body = {"worker": "sleeper", "input": {}, "task": "Needs a graphics card", "labels": {"gpu": "yes"}, "priority": 7}
    answer = fleet.http.post("/api/runs", json=body)
    assert answer.status_code == 200, answer.text
    run_id = answer.json()["run_id"]
    page = tabs.open(fleet, "/fleet")
    group = page.get_by_role("region", name=re.compile("gpu=yes"))
    expect(group).to_contain_text("1 run")
    expect(group.get_by_role("link")).to_contain_text("Needs a graphics card")
    expect(group.get_by_role("link")).to_contain_text("+7")
    group.get_by_role("button", name="Add a host with gpu=yes").click()
    dialog = page.get_by_role("dialog", name="Add a host")
    expect(dialog).to_contain_text("shopfloor host --slots 4 --label gpu=yes")
    page.keyboard.press("Escape")
    fleet.http.post(f"/api/runs/{run_id}/cancel", json={})
    expect(region(page, "Queue")).to_contain_text("Nothing waits")


@pytest.mark.req("WT-76")
def test_a_provider_is_switched_off_and_on(tabs: Tabs, fleet: Server) -> None:
    page = tabs.open(fleet, "/fleet")
    providers = region(page, "Providers")
    providers.get_by_role("button", name=re.compile("not set up")).click()
    name = next(item["name"] for item in fleet.get("/api/providers")["providers"])
    assert fleet.http.post(f"/api/providers/{name}/disable", json={"maintenance": True}).status_code == 200
    item = providers.get_by_role("listitem").filter(has=page.get_by_text(name, exact=True))
    button(page, "Check now").click()
    expect(item).to_contain_text("off for maintenance")
    item.get_by_role("button", name=f"Enable {name}").click()
    expect(item).not_to_contain_text("off for maintenance")
    assert all(item["status"] != "disabled" for item in fleet.get("/api/providers")["providers"])


@pytest.mark.req("WT-77")
def test_events_arrive_live_can_be_filtered_and_held(tabs: Tabs, fleet: Server, host: Host) -> None:
    page = tabs.open(fleet, "/fleet")
    events = page.get_by_role("list", name="Events")
    expect(events).to_contain_text("worker.heartbeat")
    run_id = fleet.dispatch("picky", owner="fleet", GO="x")
    fleet.wait_for_status(run_id, "failed")
    completed = events.get_by_role("link").filter(has_text="worker.task_completed")
    expect(completed.first).to_contain_text("failed")
    kinds = page.get_by_role("radiogroup", name="Kind of event")
    kinds.get_by_role("radio", name="Agent").click()
    expect(events).not_to_contain_text("worker.")
    kinds.get_by_role("radio", name="Worker").click()
    expect(events).to_contain_text("worker.task_completed")
    button(page, "Pause").click()
    before = events.get_by_text("worker.task_completed").count()
    second = fleet.dispatch("picky", owner="fleet", GO="x")
    fleet.wait_for_status(second, "failed")
    expect(button(page, "Pause")).to_have_count(0)
    resume = page.get_by_role("button", name=re.compile(r"^Continue, [1-9]\d* new$"))
    expect(resume).to_be_visible()
    assert events.get_by_text("worker.task_completed").count() == before
    resume.click()
    expect(events.get_by_text("worker.task_completed")).to_have_count(before + 1)
    completed.first.click()
    expect(page).to_have_url(re.compile(f"worker={second}"))


@pytest.mark.req("WT-78")
def test_a_viewer_sees_the_fleet_without_buttons(tabs: Tabs, fleet: Server, host: Host) -> None:
    words = (SHOPFLOOR, "tokens", "new", "reader", "--role", "viewer")
    made = subprocess.run(words, env=fleet.env, check=True, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    token = made.stdout.strip().splitlines()[-1].split()[-1]
    assert fleet.get("/api/health")["role"] == "admin"
    page = tabs.context().new_page()
    page.goto(f"{fleet.url}/login?token={token}&next=/fleet")
    expect(host_row(page)).to_contain_text("idle")
    expect(page.get_by_role("list", name="Providers").get_by_role("listitem").first).to_be_visible()
    for name in ("Drain", "Disable", "Enable", "Check now"):
        expect(page.get_by_role("button", name=re.compile(f"^{name}"))).to_have_count(0)


@pytest.mark.req("WT-77")
def test_a_lost_server_is_named_with_the_age_of_the_page_and_missed_events_are_loaded(
    tabs: Tabs, own_server: Server
) -> None:
    tabs.allow_errors("ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY|Failed to load")
    page = tabs.open(own_server, "/fleet")
    expect(page.get_by_role("table", name="Hosts")).to_be_visible()
    own_server.kill()
    expect(page.get_by_text(re.compile(r"Not connected\. State of [\d:]+, \d+ s ago"))).to_be_visible()
    expect(page.get_by_role("table", name="Hosts")).to_be_visible()
    own_server.start()
    expect(page.get_by_text(re.compile("Not connected"))).to_have_count(0)
    expect(region(page, "Events")).to_contain_text(
        re.compile(r"[1-9]\d* events? (was|were) missed and ha(s|ve) been loaded")
    )


@pytest.mark.req("WT-78")
@pytest.mark.parametrize("colors", COLORS)
def test_every_state_is_accessible_and_fits_the_screen(tabs: Tabs, fleet: Server, colors: str) -> None:
    tabs.allow_errors("503")
    context = tabs.context(color_scheme=colors, viewport={"width": 1440, "height": 900})
    answer_fleet(context)
    page = tabs.open(fleet, "/fleet", context=context)
    for text in ("1 up · 1 draining · 1 silent", "draining, 6m", "no heartbeat", "offline"):
        expect(page.get_by_text(text).first).to_be_visible()
    expect(region(page, "Providers").get_by_role("timer")).to_have_text(re.compile(r"^1:1\d:\d\d$"))
    expect(region(page, "Queue")).to_contain_text("and 24 more")
    page.get_by_role("button", name="1 running").click()
    expect(page.get_by_role("meter", name="Progress of Fix the flaky test")).to_have_attribute("aria-valuenow", "40")
    for width in (1440, 1024, PHONE["width"]):
        page.set_viewport_size({"width": width, "height": 844})
        page.mouse.move(0, 0)
        assert problems(page) == [], width
        assert overflow(page) == [], width
        look(page, f"fleet-{width}-{colors}")
    refusal = {"error": {"code": "store_error", "message": "the database is locked", "hint": "wait a little"}}

    def refuse(route: Route) -> None:
        route.fulfill(status=503, json=refusal)

    for path in ("hosts", "providers", "queue", "events?*"):
        context.route(f"**/api/{path}", refuse)
    page.reload()
    expect(page.get_by_role("alert")).to_have_count(4)
    expect(page.get_by_role("alert").first).to_contain_text("the database is locked")
    assert problems(page) == [], "errors"
    context.unroute("**/api/hosts", refuse)
    page.get_by_role("alert").filter(has_text="hosts").get_by_role("button", name="Retry").click()
    expect(page.get_by_role("table", name="Hosts")).to_be_visible()


@pytest.mark.req("WT-78")
def test_each_list_is_one_tab_stop_and_keys_change_the_page(tabs: Tabs, fleet: Server) -> None:
    context = tabs.context()
    answer_fleet(context)
    page = tabs.open(fleet, "/fleet", context=context)
    queue = region(page, "Queue")
    expect(queue.get_by_role("link")).to_have_count(4)
    for area in (queue, page.get_by_role("table", name="Hosts"), page.get_by_role("list", name="Providers")):
        assert area.locator("a[tabindex='0'], button[tabindex='0']").count() == 1
    queue.get_by_role("link").first.focus()
    page.keyboard.press("ArrowDown")
    expect(queue.get_by_role("link").nth(1)).to_be_focused()
    page.keyboard.press("End")
    expect(queue.get_by_role("link").last).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("o")
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("r")
    expect(page.get_by_text("Select a worker to view details")).to_be_visible()
    expect(run_list(page).or_(page.get_by_text("No runs yet")).first).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page.get_by_role("heading", name="Fleet", level=1)).to_be_visible()


@pytest.mark.req("WT-74")
def test_a_host_that_was_killed_is_shown_as_gone(tabs: Tabs, fleet: Server) -> None:
    second = Host(fleet)
    page = tabs.open(fleet, "/fleet")
    expect(host_row(page)).not_to_have_count(0)
    before = host_row(page, "offline").count()
    second.process.send_signal(signal.SIGKILL)
    second.process.wait(TIMEOUT_SECONDS)
    expect(host_row(page, re.compile("offline|no heartbeat"))).to_have_count(before + 1)
