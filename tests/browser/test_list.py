"""The list of runs: cards, search, filters and live updates."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from tests.browser.colors import background, color_name, contrast, rgb
from tests.browser.conftest import Demo, RecordedRuns
from tests.browser.page_elements import (
    button,
    card,
    cards,
    pill,
    run_action,
    run_list,
    search,
    selected,
    set_filter,
    task,
)
from tests.browser.server import Server
from tests.browser.tabs import Tabs


@pytest.mark.req("WT-39")
def test_search_finds_words_of_the_task_and_highlights_them(tabs: Tabs, server: Server, owner: str) -> None:
    found = server.command("echo looking for the armadillo in the garden", "--owner", owner)
    other = server.command("echo something else", "--owner", owner)
    page = tabs.open(server, f"/agents/{owner}/workers")
    expect(card(page, other)).to_be_visible()
    search(page).fill("armadillo")
    expect(card(page, other)).to_have_count(0)
    expect(card(page, found)).to_be_visible()
    expect(card(page, found).locator("mark").first).to_have_text("armadillo")
    expect(page).to_have_url(re.compile("q=armadillo"))
    expect(page.get_by_text("1 run", exact=True)).to_be_visible()
    search(page).fill("")
    expect(card(page, other)).to_be_visible()


def test_a_search_is_undone_by_going_back(tabs: Tabs, server: Server, owner: str) -> None:
    found = server.command("echo the aardvark", "--owner", owner)
    other = server.command("echo something else", "--owner", owner)
    page = tabs.open(server, f"/agents/{owner}/workers")
    expect(card(page, other)).to_be_visible()
    for part in ("aard", "var", "k"):
        search(page).press_sequentially(part)
        expect(page).to_have_url(re.compile(rf"q=\w*{part}$"))
    expect(card(page, other)).to_have_count(0)
    page.go_back()
    expect(page).not_to_have_url(re.compile("q="))
    expect(search(page)).to_have_value("")
    expect(card(page, other)).to_be_visible()
    page.go_forward()
    expect(page).to_have_url(re.compile("q=aardvark$"))
    expect(card(page, other)).to_have_count(0)
    # Another search adds another history entry.
    card(page, found).click()
    search(page).fill("else")
    expect(card(page, other)).to_be_visible()
    page.go_back()
    expect(search(page)).to_have_value("aardvark")
    expect(task(page)).to_have_text("echo the aardvark")


def test_a_search_and_a_status_are_cleared_where_they_are_set(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, "/agents/stories/workers")
    expect(cards(page).first).to_be_visible()
    total = cards(page).count()
    top = run_list(page).bounding_box()
    pill(page, "Failed").click()
    expect(cards(page)).to_have_count(1)
    assert run_list(page).bounding_box() == top
    pill(page, "All").click()
    search(page).fill("quetzalcoatl")
    expect(cards(page)).to_have_count(1)
    assert run_list(page).bounding_box() == top
    button(page, "Clear search").click()
    expect(search(page)).to_be_focused()
    expect(search(page)).to_have_value("")
    expect(cards(page)).to_have_count(total)
    expect(page).not_to_have_url(re.compile("q="))


def test_search_finds_words_of_messages_too(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, "/agents/stories/workers")
    search(page).fill("quetzalcoatl")
    expect(cards(page)).to_have_count(1)
    expect(card(page, recorded_runs.stories.everything)).to_contain_text("quetzalcoatl")


def test_a_hit_in_the_task_is_highlighted_there_and_not_repeated(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, "/agents/stories/workers?q=nothing")
    found = card(page, recorded_runs.stories.no_messages)
    expect(found.locator("mark")).to_have_text(["Nothing"])
    assert found.inner_text().count("Nothing was said") == 1


def test_a_search_without_results_shows_a_message(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, "/agents/stories/workers?q=neverheardof")
    expect(search(page)).to_have_value("neverheardof")
    expect(
        page.get_by_role("region", name="Runs")
        .get_by_text(re.compile("no (run|worker)s?|nothing", re.IGNORECASE))
        .first
    ).to_be_visible()
    expect(page.get_by_text("0 runs", exact=True)).to_be_visible()


@pytest.mark.req("WT-40", "WT-41")
def test_pills_filter_by_status_and_the_count_follows(tabs: Tabs, server: Server, owner: str) -> None:
    done = server.command("echo fine", "--owner", owner)
    failed = server.command("exit 3", "--owner", owner)
    running = server.start_command("sleep 600", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers")
    expect(page.get_by_text("3 runs", exact=True)).to_be_visible()
    expect(pill(page, "All")).to_have_attribute("aria-pressed", "true")
    for name, run_id in (("Running", running), ("Done", done), ("Failed", failed)):
        pill(page, name).click()
        expect(pill(page, name)).to_have_attribute("aria-pressed", "true")
        expect(cards(page)).to_have_count(1)
        expect(card(page, run_id)).to_be_visible()
        expect(page).to_have_url(re.compile(f"status={name.lower()}"))
        expect(page.get_by_text("1 run", exact=True)).to_be_visible()
    for name in ("Waiting", "Queued", "Cancelled"):
        pill(page, name).click()
        expect(cards(page)).to_have_count(0)
    pill(page, "All").click()
    expect(cards(page)).to_have_count(3)
    # Each pill has its number, also while another one is chosen.
    pill(page, "Done").click()
    for name, count in {"All": 3, "Running": 1, "Done": 1, "Failed": 1, "Waiting": 0}.items():
        expect(pill(page, name)).to_have_attribute("title", f"{name}: {count}")
    server.command("exit 4", "--owner", owner)
    expect(pill(page, "Failed")).to_have_attribute("title", "Failed: 2")


def test_runs_are_filtered_by_worker_and_by_channel(tabs: Tabs, server: Server, owner: str) -> None:
    here = server.command("echo here", "--owner", owner, "--channel", "irc:1", "--channel-name", "#tea-room")
    there = server.command("echo there", "--owner", owner, "--channel", "irc:2", "--channel-name", "#attic")
    child = server.dispatch("child", owner=owner, PART="x")
    server.wait_for_status(child, "done")
    page = tabs.open(server, f"/agents/{owner}/workers")
    expect(cards(page)).to_have_count(3)
    set_filter(page, "Channel", "#attic")
    expect(cards(page)).to_have_count(1)
    expect(card(page, there)).to_be_visible()
    button(page, "Channel is #attic").click()
    expect(card(page, here)).to_be_visible()
    set_filter(page, "Worker", "child")
    expect(cards(page)).to_have_count(1)
    expect(card(page, child)).to_be_visible()
    page.reload()
    expect(cards(page)).to_have_count(1)


def open_filters(page: Page) -> None:
    button(page, "Filters").click()
    expect(page.get_by_role("combobox", name="Filter by")).to_be_focused()


@pytest.mark.req("WT-80", "WT-94")
def test_runs_are_found_by_time_model_cost_duration_and_error_and_sorted(tabs: Tabs, demo: Demo) -> None:
    page = tabs.open(demo.server, "/agents/all/workers")
    first = cards(page).first
    everything = page.get_by_text(re.compile(r"^\d+ runs$"))
    total = everything.inner_text()
    set_filter(page, "Model", "gemini-2.5-pro")
    expect(page).to_have_url(re.compile("model=gemini-2.5-pro"))
    expect(everything).not_to_have_text(total)
    found = int(everything.inner_text().split()[0])
    # The numbers of the pills follow the filter.
    expect(pill(page, "All")).to_have_attribute("title", f"All: {found}")
    set_filter(page, "Model", "gemini-2.5-pro")
    expect(everything).to_have_text(total)
    # By keys: a text finds choices of all fields.
    open_filters(page)
    page.keyboard.type("rate_lim")
    expect(page.get_by_role("option")).to_have_text("rate_limit_errorError")
    page.keyboard.press("Enter")
    expect(first).to_contain_text("Import the invoices of October")
    button(page, "rate_limit_error").click()
    # An amount that is typed.
    open_filters(page)
    page.keyboard.type("cost")
    page.keyboard.press("Enter")
    expect(page.get_by_role("combobox", name="Filter by cost")).to_be_focused()
    page.keyboard.type("20")
    page.keyboard.press("Enter")
    expect(button(page, "Cost at least $20.00")).to_be_visible()
    expect(everything).not_to_have_text(total)
    costs = [float(text.split("$")[1]) for text in cards(page).all_inner_texts()]
    assert costs
    assert min(costs) >= 20
    button(page, "Sort").click()
    page.get_by_role("menuitemradio", name="Most expensive first").click()
    expect(page).to_have_url(re.compile("sort=cost"))
    expect(first).to_contain_text(f"${max(costs):.2f}")
    assert [float(text.split("$")[1]) for text in cards(page).all_inner_texts()] == sorted(costs, reverse=True)
    page.get_by_role("button", name="Clear").click()
    expect(everything).to_have_text(total)
    set_filter(page, "Time", "Last hour")
    expect(everything).to_have_text(re.compile(r"^\d runs$"))
    set_filter(page, "Duration", "At least 10m")
    expect(cards(page)).to_have_count(0)
    # The overview beside the list has the same filters.
    page.goto(demo.server.url)
    tools = page.get_by_role("region", name="Tools")
    expect(tools).to_contain_text("TodoWrite")
    set_filter(page, "Model", "gemini-2.5-pro")
    expect(tools).not_to_contain_text("TodoWrite")


@pytest.mark.req("WT-42")
def test_a_card_of_two_lines_shows_the_task_the_status_where_it_came_from_its_age_and_cost(
    tabs: Tabs, server: Server, recorded_runs: RecordedRuns, owner: str
) -> None:
    long = server.command(f"echo {'many words ' * 40}", "--owner", owner)
    page = tabs.open(server, f"/agents/{owner}/workers")
    box = card(page, long).bounding_box()
    assert box
    assert box["height"] == 48
    task_text = card(page, long).get_by_text("echo many words")
    assert task_text.evaluate("one => one.scrollWidth > one.clientWidth"), "the task is not cut"
    page = tabs.open(recorded_runs.server, "/agents/stories/workers")
    shown = card(page, recorded_runs.stories.everything)
    for text in ("Find out what is wrong", "claude-code", "#general", "1h", "$0.04"):
        expect(shown).to_contain_text(text)
    expect(shown.get_by_role("img", name="done", exact=True)).to_be_visible()
    expect(shown.locator("time")).to_have_attribute("title", re.compile(r"20\d\d.*\d\d:\d\d:\d\d"))


def test_the_second_line_of_a_card_tells_why_to_look_at_the_run(
    tabs: Tabs, server: Server, recorded_runs: RecordedRuns, owner: str
) -> None:
    run_id = server.dispatch("asker", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers")
    expect(card(page, run_id)).to_contain_text("Which colour shall it be?")
    assert color_name(rgb(card(page, run_id).get_by_text("Which colour"))) == "blue"
    page = tabs.open(recorded_runs.server, "/agents/stories/workers")
    error = card(page, recorded_runs.stories.failed).get_by_text("the provider refuses for now")
    expect(error).to_be_visible()
    assert color_name(rgb(error)) == "red"


def test_the_title_of_a_run_is_its_worker_and_the_values_it_was_given(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.dispatch("form", owner=owner, TITLE="Jon", COUNT=5)
    page = tabs.open(server, f"/agents/{owner}/workers")
    expect(card(page, run_id)).to_contain_text("Form · Jon, COUNT=5")


@pytest.mark.req("WT-43")
def test_statuses_are_amber_green_red_and_blue(tabs: Tabs, server: Server, owner: str) -> None:
    runs = {
        "green": (server.command("echo fine", "--owner", owner), "done"),
        "red": (server.command("exit 3", "--owner", owner), "failed"),
        "amber": (server.start_command("sleep 600", owner=owner), "running"),
        "blue": (server.dispatch("asker", owner=owner), "waiting"),
    }
    for colors in ("light", "dark"):
        page = tabs.open(server, f"/agents/{owner}/workers", color_scheme=colors)
        for color, (run_id, status) in runs.items():
            icon = card(page, run_id).get_by_role("img", name=re.compile(f"^{status}"))
            expect(icon).to_be_visible()
            assert color_name(rgb(icon)) == color, (status, colors)
            # Also for those who cannot tell the colors apart: each status has a shape of its own.
            assert contrast(rgb(icon), background(icon)) >= 3
        for run_id, status in runs.values():
            card(page, run_id).click()
            badge = selected(page).locator("header").first.locator("li").locator(f'[data-status="{status}"]')
            expect(badge).to_have_text(re.compile(f"^{status}"))
            assert contrast(rgb(badge), background(badge)) >= 4.5
        shapes = (
            run_list(page)
            .locator("[data-status] path")
            .evaluate_all("all => new Set(all.map(one => one.getAttribute('d'))).size")
        )
        assert shapes >= 4


@pytest.mark.req("WT-44")
def test_the_selected_run_is_highlighted(tabs: Tabs, server: Server, owner: str) -> None:
    first, second = (server.command(f"echo {word}", "--owner", owner) for word in ("first", "second"))
    page = tabs.open(server, f"/agents/{owner}/workers")
    card(page, first).click()
    expect(card(page, first)).to_have_attribute("aria-current", "true")
    expect(card(page, second)).not_to_have_attribute("aria-current", "true")
    page.mouse.move(640, 790)
    assert background(card(page, first)) != background(card(page, second))


def test_the_selected_card_shows_its_wait_and_its_origin(tabs: Tabs, server: Server, owner: str) -> None:
    order = {"worker": "asker", "input": {}, "owner": owner, "channel_id": "irc:1", "channel_name": "#workshop"}
    run_id = server.http.post("/api/runs", json=order).json()["run_id"]
    server.wait_for_status(run_id, "waiting")
    for colors in ("light", "dark"):
        page = tabs.open(server, f"/agents/all/workers?of=asker&worker={run_id}", color_scheme=colors)
        expect(card(page, run_id)).to_have_attribute("aria-current", "true")
        icon = card(page, run_id).get_by_role("img", name="waiting: question", exact=True)
        assert contrast(rgb(icon), background(icon)) >= 3
        line = card(page, run_id).get_by_text("#workshop")
        expect(line).to_contain_text("Which colour shall it be?")
        assert contrast(rgb(line), background(line)) >= 4.5


def test_a_card_is_a_link_that_can_be_opened_in_another_tab(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.command("echo linked", "--owner", owner)
    page = tabs.open(server, f"/agents/{owner}/workers")
    with page.context.expect_page() as opened:
        card(page, run_id).click(modifiers=["ControlOrMeta"])
    expect(task(opened.value)).to_have_text("echo linked")


@pytest.mark.req("WT-83")
def test_sub_runs_are_folded_below_the_run_that_called_them(tabs: Tabs, server: Server, owner: str) -> None:
    parent = server.dispatch("parent", owner=owner)
    server.wait_for_status(parent, "done")
    children = [run["id"] for run in server.runs(parent=parent)]
    assert len(children) == 2
    page = tabs.open(server, f"/agents/{owner}/workers")
    expect(cards(page)).to_have_count(1)
    expect(button(page, "Show sub-runs")).to_have_attribute("title", "Show sub-runs (2)")
    button(page, "Show sub-runs").click()
    for child in children:
        expect(card(page, child)).to_be_visible()
    outer, inner = card(page, parent).bounding_box(), card(page, children[0]).bounding_box()
    assert outer
    assert inner
    assert inner["y"] > outer["y"]
    assert inner["height"] == 32
    button(page, "Hide sub-runs").click()
    expect(cards(page)).to_have_count(1)
    # By keys too: a fold is no stop of the Tab key.
    card(page, parent).focus()
    page.keyboard.press("ArrowRight")
    expect(cards(page)).to_have_count(3)
    page.keyboard.press("ArrowLeft")
    expect(cards(page)).to_have_count(1)
    # A list without folds has sub-runs like all other runs.
    button(page, "Filters").click()
    page.get_by_role("checkbox", name="List sub-runs").check()
    expect(cards(page)).to_have_count(3)
    expect(page).to_have_url(re.compile("flat=true"))
    expect(button(page, "Show sub-runs")).to_have_count(0)


def test_the_tree_expands_down_to_the_selected_run(tabs: Tabs, server: Server, owner: str) -> None:
    top = server.dispatch("grandparent", owner=owner)
    server.wait_for_status(top, "done")
    (parent,) = [run["id"] for run in server.runs(parent=top)]
    child, other = [run["id"] for run in server.runs(parent=parent)]
    page = tabs.open(server, f"/agents/{owner}/workers?worker={child}")
    expect(card(page, child)).to_have_attribute("aria-current", "true")
    expect(card(page, child)).to_be_in_viewport()
    # A branch that the user collapses stays collapsed.
    button(page, "Hide sub-runs").first.click()
    expect(cards(page)).to_have_count(1)
    page.wait_for_timeout(500)
    expect(cards(page)).to_have_count(1)
    page.get_by_role("link", name="Parent run").click()
    expect(card(page, parent)).to_have_attribute("aria-current", "true")
    # The path also expands when the list gets its folds back.
    page.goto(f"{server.url}/agents/{owner}/workers?flat=true&worker={other}")
    expect(cards(page)).to_have_count(4)
    button(page, "Filters").click()
    page.get_by_role("checkbox", name="List sub-runs").uncheck()
    expect(card(page, other)).to_be_in_viewport()
    expect(run_list(page).get_by_role("button", name="Hide sub-runs")).to_have_count(2)


@pytest.mark.req("WT-45")
def test_a_new_run_appears_live_and_is_updated(tabs: Tabs, server: Server, owner: str) -> None:
    page = tabs.open(server, f"/agents/{owner}/workers")
    expect(page.get_by_text("0 runs", exact=True)).to_be_visible()
    run_id = server.dispatch("asker", owner=owner)
    expect(card(page, run_id).get_by_role("img", name="waiting: question")).to_be_visible()
    expect(page.get_by_text("1 run", exact=True)).to_be_visible()
    newer = server.command("echo newer", "--owner", owner)
    expect(cards(page).first).to_have_attribute("data-run", newer)
    call_id = server.detail(run_id)["awaits"][0]["call_id"]
    server.http.post(f"/api/runs/{run_id}/answer", json={"call_id": call_id, "answer": "blue"})
    expect(card(page, run_id).get_by_role("img", name="done")).to_be_visible()


def test_a_run_that_is_deleted_in_one_tab_disappears_in_the_others(tabs: Tabs, server: Server, owner: str) -> None:
    remaining, deleted = (server.command(f"echo {word}", "--owner", owner) for word in ("kept", "doomed"))
    address = f"/agents/{owner}/workers?worker={deleted}"
    here = tabs.open(server, address)
    there = tabs.open(server, address, context=here.context)
    expect(task(there)).to_have_text("echo doomed")
    expect(card(there, deleted)).to_be_visible()
    button(here, "Pin").click()
    expect(button(there, "Unpin")).to_be_visible()
    run_action(here, "Delete…").click()
    here.get_by_role("button", name="Delete permanently").click()
    expect(here.get_by_text("Select a worker to view details")).to_be_visible()
    expect(selected(there)).to_contain_text("Run not found")
    for page in (here, there):
        expect(card(page, deleted)).to_have_count(0)
        expect(card(page, remaining)).to_be_visible()
        expect(page.get_by_text("1 run", exact=True)).to_be_visible()


def test_an_empty_list_shows_a_message(own_server: Server, tabs: Tabs) -> None:
    page = tabs.open(own_server, "/agents/all/workers")
    expect(
        page.get_by_role("region", name="Runs").get_by_text(re.compile("no (run|worker)s", re.IGNORECASE)).first
    ).to_be_visible()
    expect(cards(page)).to_have_count(0)


def test_screen_readers_see_the_cards_as_a_list(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, "/agents/stories/workers")
    expect(run_list(page)).to_be_visible()
    expect(run_list(page).get_by_role("listitem").first).to_be_visible()
