"""Locators for the parts of the page, by their accessible names."""

from __future__ import annotations

from playwright.sync_api import Locator, Page


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
    return region(page, "Result")


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)
