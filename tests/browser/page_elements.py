"""Locators for the parts of the page, by their accessible names."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect


def run_list(page: Page) -> Locator:
    return page.get_by_role("list", name="Runs list")


def card(page: Page, run_id: str) -> Locator:
    return run_list(page).locator(f'a[data-run="{run_id}"]')


def cards(page: Page) -> Locator:
    return run_list(page).locator("a[data-run]")


def selected(page: Page) -> Locator:
    return region(page, "Selected run")


def task(page: Page) -> Locator:
    return page.get_by_role("heading", level=1)


def search(page: Page) -> Locator:
    return page.get_by_role("searchbox", name="Search runs")


def pill(page: Page, name: str) -> Locator:
    return page.get_by_role("group", name="Status").get_by_role("button", name=name, exact=True)


def region(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name, exact=True)


def transcript(page: Page) -> Locator:
    return region(page, "Transcript")


def row(page: Page, seq: int) -> Locator:
    return transcript(page).locator(f'[data-seq="{seq}"]')


def timeline(page: Page) -> Locator:
    return region(page, "Event timeline")


def result(page: Page) -> Locator:
    """The line with the result of the run; `open_result` shows the rest."""
    return region(page, "Result")


def open_result(page: Page) -> Locator:
    """Open the result, unless it is open."""
    fold = result(page).get_by_role("button").first
    fold.wait_for()
    if fold.get_attribute("aria-expanded") == "false":
        fold.click()
    return result(page)


def show_timeline(page: Page) -> None:
    """Choose the tab of the timeline, where the timeline has no room beside the transcript."""
    tab = page.get_by_role("tab", name="Timeline")
    if tab.is_visible():
        tab.click()


def set_filter(page: Page, field: str, choice: str) -> None:
    """Choose an option of a filter of the list. An option that is set is removed."""
    page.get_by_role("button", name="Filters").click()
    menu = page.get_by_role("dialog", name="Filters")
    menu.get_by_role("option", name=field).click()
    menu.get_by_role("option", name=choice, exact=True).click()
    expect(menu).to_be_hidden()


def run_action(page: Page, name: str) -> Locator:
    """Open the menu of the selected run, and return one of its items."""
    button(page, "Rerun").click()
    return page.get_by_role("menuitem", name=name, exact=True)


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)
