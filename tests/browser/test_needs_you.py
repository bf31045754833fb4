"""What waits for a person: answered in place on the overview and above the list, counted in the browser tab."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, Route, expect
from tests.browser.axe import COLORS, problems
from tests.browser.page_elements import button, card, region, result, run_action, search, selected, task
from tests.browser.server import Server
from tests.browser.tabs import PHONE, Tabs
from tests.browser.test_screens import overflow
from tests.timeouts import wait_until

KEYLESS = """
name: Keyless
steps:
  Begin: {block: start-thread, model: openai/gpt-test}
  Ask: {block: add-message, text: "Hello"}
  Answer: {block: next-message, output: SAID}
output: SAID
"""

PRESS_W_AT_ONCE = """
new MutationObserver((_, observer) => {
  if (document.querySelector("article[data-waiting]") === null) return;
  observer.disconnect();
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "w", bubbles: true }));
}).observe(document, { childList: true, subtree: true });
"""
"""Press a key in the moment in which the page has rendered an item, before the browser paints it."""


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of this module alone: everything that waits is shown to everyone."""
    server = Server(tmp_path_factory.mktemp("needs_you"), OPENAI_API_KEY="")
    home = server.folder / "workers" / "keyless"
    home.mkdir()
    (home / "worker.yaml").write_text(KEYLESS, encoding="utf-8")
    with server:
        yield server


@pytest.fixture(autouse=True)
def nothing_waits_afterwards(floor: Server) -> Iterator[None]:
    yield
    for item in floor.get("/api/waiting")["items"]:
        action = "dismiss" if "dismiss" in item["actions"] else "cancel"
        floor.http.post(f"/api/runs/{item['run_id']}/{action}", json={})
    wait_until(lambda: floor.get("/api/waiting")["total"] == 0, "nothing to wait")


@pytest.mark.req("WT-88")
def test_a_question_and_an_approval_are_answered_on_the_overview_by_mouse(tabs: Tabs, floor: Server) -> None:
    question, approval = _waiting(floor, "chooser"), _waiting(floor, "pusher")
    page = tabs.open(floor, "/")
    expect(_items(page)).to_have_count(2)
    expect(region(page, "Runs").get_by_text("shown at right")).to_be_visible()
    expect(_item(page, approval).get_by_text("printf pushed")).to_be_visible()
    expect(_item(page, approval).get_by_text("Denied automatically in 23h.")).to_be_visible()
    _item(page, approval).get_by_role("button", name="Approve once").click()
    expect(_items(page)).to_have_count(1)
    assert floor.wait_for_status(approval, "done")["result"] == "pushed"
    _item(page, question).get_by_role("button", name="No, stop").click()
    expect(_needs_you(page)).to_contain_text("Nothing waits for you.")
    assert floor.wait_for_status(question, "done")["result"] == "No, stop"


@pytest.mark.req("WT-88")
def test_keys_answer_the_marked_question_and_then_the_next(tabs: Tabs, floor: Server) -> None:
    question, approval = _waiting(floor, "chooser"), _waiting(floor, "pusher")
    page = tabs.open(floor, "/")
    expect(_marked(page)).to_contain_text("Shall we go on?")
    page.keyboard.press("w")
    expect(_item(page, question)).to_be_focused()
    page.keyboard.press("w")
    expect(_item(page, approval)).to_be_focused()
    expect(_marked(page)).to_contain_text("printf pushed")
    _press_until(page, "4", lambda: _items(page).count() == 1)
    assert floor.wait_for_status(approval, "failed")["error"]["message"] == "the command was denied"
    expect(_marked(page)).to_contain_text("Shall we go on?")
    _press_until(page, "1", lambda: _items(page).count() == 0)
    assert floor.wait_for_status(question, "done")["result"] == "Yes, go on"


@pytest.mark.req("WT-88")
def test_a_key_that_is_pressed_as_soon_as_an_item_is_there_is_not_lost(tabs: Tabs, floor: Server) -> None:
    question = _waiting(floor, "chooser")
    context = tabs.context()
    context.add_init_script(PRESS_W_AT_ONCE)
    page = tabs.open(floor, "/", context=context)
    expect(_item(page, question)).to_be_focused()


@pytest.mark.req("WT-88")
def test_what_waits_is_pinned_above_the_list_and_answered_there(tabs: Tabs, floor: Server) -> None:
    other = floor.command("echo beside")
    question, free = _waiting(floor, "chooser"), _waiting(floor, "asker")
    page = tabs.open(floor, f"/agents/all/workers?worker={other}")
    pinned = region(page, "Needs you")
    expect(pinned.get_by_role("listitem")).to_have_count(2)
    # No key answers what the user has not chosen.
    page.keyboard.press("1")
    page.keyboard.press("w")
    expect(button(page, "Yes, go on")).to_be_visible()
    _press_until(page, "2", lambda: pinned.get_by_role("listitem").count() == 1)
    assert floor.wait_for_status(question, "done")["result"] == "No, stop"
    button(page, "Answer here").click()
    button(page, "Answer…").click()
    page.get_by_role("textbox", name="Your answer").fill("sea green")
    page.keyboard.press("Enter")
    expect(pinned).to_have_count(0)
    assert floor.wait_for_status(free, "done")["result"] == "painted in sea green"


@pytest.mark.req("WT-88")
def test_what_waits_is_one_line_during_a_search(tabs: Tabs, floor: Server) -> None:
    _waiting(floor, "chooser")
    page = tabs.open(floor, "/agents/all/workers")
    pinned = region(page, "Needs you")
    expect(pinned.get_by_role("listitem")).to_have_count(1)
    search(page).fill("nothing of this kind")
    expect(pinned.get_by_role("listitem")).to_have_count(0)
    expect(pinned).to_contain_text("1")
    button(page, "Clear search").click()
    expect(pinned.get_by_role("listitem")).to_have_count(1)
    search(page).fill("nothing of this kind")
    expect(pinned.get_by_role("listitem")).to_have_count(0)
    page.keyboard.press("Escape")
    page.keyboard.press("w")
    expect(button(page, "Yes, go on")).to_be_visible()


@pytest.mark.req("WT-88")
def test_a_key_answers_the_approval_of_the_active_column(tabs: Tabs, floor: Server) -> None:
    selected_run, pinned_run = _waiting(floor, "pusher"), _waiting(floor, "pusher")
    page = tabs.open(floor, f"/agents/all/workers?worker={selected_run}")
    pinned = region(page, "Needs you")
    _item(page, pinned_run).get_by_role("button", name="Answer here").click()
    in_list = pinned.get_by_role("button", name="Approve once")
    in_detail = region(page, "Waiting for your answer").get_by_role("button", name="Approve once")
    expect(in_list).to_have_attribute("aria-keyshortcuts", "1")
    expect(in_detail).not_to_have_attribute("aria-keyshortcuts", "1")
    task(page).click()
    expect(in_detail).to_have_attribute("aria-keyshortcuts", "1")
    expect(in_list).not_to_have_attribute("aria-keyshortcuts", "1")
    _press_until(page, "1", lambda: in_detail.count() == 0)
    floor.wait_for_status(selected_run, "done")
    assert floor.detail(pinned_run)["status"] == "waiting"


@pytest.mark.req("WT-88")
def test_nothing_is_approved_before_it_is_on_the_screen(tabs: Tabs, floor: Server) -> None:
    _waiting(floor, "pusher")
    is_available = False

    def answer_detail(route: Route) -> None:
        if is_available:
            route.continue_()
        else:
            route.fulfill(status=503, json={"error": {"code": "busy", "message": "the server is busy"}})

    tabs.allow_errors("503")
    context = tabs.context()
    context.route("**/api/agents/workers/detail?*", answer_detail)
    page = tabs.open(floor, "/", context=context)
    expect(_marked(page).get_by_role("alert")).to_contain_text("the server is busy")
    expect(button(page, "Approve once")).to_have_count(0)
    page.keyboard.press("1")
    is_available = True
    button(page, "Retry").click()
    expect(_marked(page).get_by_text("printf pushed")).to_be_visible()
    expect(button(page, "Approve once")).to_be_visible()


@pytest.mark.req("WT-88")
def test_keys_answer_the_question_of_the_selected_run(tabs: Tabs, floor: Server) -> None:
    question = _waiting(floor, "chooser")
    page = tabs.open(floor, "/agents/all/workers")
    card(page, question).click()
    expect(button(page, "Yes, go on")).to_be_visible()
    selected(page).get_by_role("heading", level=1).click()
    _press_until(page, "1", lambda: button(page, "Yes, go on").count() == 0)
    expect(result(page)).to_contain_text("Yes, go on")


@pytest.mark.req("WT-89")
def test_the_tab_counts_what_waits_and_new_questions_arrive_live(tabs: Tabs, floor: Server) -> None:
    page = tabs.open(floor, "/fleet")
    expect(page).to_have_title("Shopfloor")
    icon = page.locator('link[rel="icon"]')
    expect(icon).to_have_attribute("href", re.compile(r"/assets/favicon\.svg$"))
    question = _waiting(floor, "chooser")
    expect(page).to_have_title("(1) Shopfloor")
    expect(icon).to_have_attribute("href", re.compile(r"^data:image/svg"))
    page.keyboard.press("w")
    expect(_marked(page)).to_contain_text("Shall we go on?")
    call_id = floor.detail(question)["awaits"][0]["call_id"]
    floor.http.post(f"/api/runs/{question}/answer", json={"call_id": call_id, "answer": "No, stop"})
    expect(page).to_have_title("Shopfloor")
    expect(_needs_you(page)).to_contain_text("Nothing waits for you.")


@pytest.mark.req("WT-89")
def test_the_browser_notifies_only_after_the_user_asked_for_it(tabs: Tabs, floor: Server) -> None:
    context = tabs.context()
    context.grant_permissions(["notifications"])
    _record_notifications(context)
    page = tabs.open(floor, "/", context=context)
    bell = button(page, "Notifications")
    expect(bell).to_have_attribute("aria-pressed", "false")
    _waiting(floor, "chooser")
    expect(_items(page)).to_have_count(1)
    assert page.evaluate("window.notified") == []
    bell.click()
    expect(bell).to_have_attribute("aria-pressed", "true")
    run_id = _waiting(floor, "pusher")
    expect(_items(page)).to_have_count(2)
    ((title, body),) = page.evaluate("window.notified")
    assert title.startswith("Approval: Pusher")
    assert "printf pushed" in body
    page.evaluate("window.lastNotification.onclick()")
    expect(page).to_have_url(re.compile(f"worker={run_id}"))


@pytest.mark.req("WT-90")
def test_a_viewer_sees_what_waits_without_buttons(tabs: Tabs, floor: Server) -> None:
    approval = _waiting(floor, "pusher")
    page = tabs.context().new_page()
    page.goto(floor.viewer_login())
    expect(_item(page, approval).get_by_text("printf pushed")).to_be_visible()
    expect(_item(page, approval).get_by_role("button")).to_have_count(0)
    page.keyboard.press("1")
    page.goto(f"{floor.url}/agents/all/workers?worker={approval}")
    expect(selected(page).get_by_text("printf pushed").first).to_be_visible()
    # A viewer cannot give the answer.
    expect(region(page, "Waiting for an answer")).to_be_visible()
    for name in ("New run", "Rerun", "Cancel", "Pin", "Approve once", "Fork here"):
        expect(button(page, name)).to_have_count(0)
    assert floor.detail(approval)["status"] == "waiting"


@pytest.mark.parametrize("colors", COLORS)
def test_what_waits_is_accessible_and_fits_the_screen(tabs: Tabs, floor: Server, colors: str) -> None:
    done = floor.command("echo done")
    _waiting(floor, "chooser")
    _waiting(floor, "pusher")
    _failed(floor)
    for size in ({"width": 1440, "height": 900}, {"width": 1024, "height": 768}, PHONE):
        page = tabs.open(floor, "/", viewport=size, color_scheme=colors)
        expect(_items(page)).to_have_count(3)
        expect(_needs_you(page).get_by_text("printf pushed")).to_be_visible()
        assert problems(page) == []
        assert overflow(page) == []
        page.goto(f"{floor.url}/agents/all/workers")
        expect(region(page, "Needs you").get_by_role("listitem")).to_have_count(3)
        if size["width"] != PHONE["width"]:
            page.keyboard.press("w")
        expect(button(page, "Yes, go on")).to_be_visible()
        assert problems(page) == []
        assert overflow(page) == []
        page.goto(f"{floor.url}/agents/all/workers?worker={done}")
        expect(run_action(page, "Delete…")).to_be_in_viewport()
        assert problems(page) == []
        assert overflow(page) == []


@pytest.mark.req("WT-92")
def test_a_failure_that_a_person_has_to_repair_is_rerun_and_dismissed_with_keys(tabs: Tabs, floor: Server) -> None:
    failed = _failed(floor)
    page = tabs.open(floor, "/")
    expect(_marked(page)).to_contain_text("there is no key for openai")
    expect(_marked(page)).to_contain_text("set OPENAI_API_KEY in the environment")
    tile = page.get_by_role("link", name=re.compile("Waiting for you"))
    expect(tile).to_contain_text("1")
    expect(page).to_have_title("(1) Shopfloor")
    _press_until(page, "1", lambda: _item(page, failed).count() == 0)
    wait_until(lambda: floor.get("/api/waiting")["total"] == 1, "the new run to fail too")
    (again,) = floor.get("/api/waiting")["items"]
    assert floor.detail(again["run_id"])["based_on"]["run_id"] == failed
    expect(_item(page, again["run_id"])).to_be_visible()
    _press_until(page, "2", lambda: _items(page).count() == 0)
    assert floor.get("/api/waiting")["total"] == 0
    assert floor.detail(again["run_id"])["status"] == "failed"
    expect(page).to_have_title("Shopfloor")
    expect(tile).to_contain_text("nothing waits")


@pytest.mark.req("WT-92")
def test_a_failure_is_pinned_above_the_list_and_dismissed_by_mouse(tabs: Tabs, floor: Server) -> None:
    ordinary = floor.dispatch("picky", GO="now")
    floor.wait_for_status(ordinary, "failed")
    failed = _failed(floor)
    page = tabs.open(floor, f"/agents/all/workers?worker={ordinary}")
    pinned = region(page, "Needs you")
    expect(pinned.get_by_role("listitem")).to_have_count(1)
    expect(pinned).to_contain_text("there is no key for openai")
    button(page, "Act here").click()
    expect(pinned.get_by_role("button", name="Rerun")).to_be_visible()
    pinned.get_by_role("button", name="Dismiss").click()
    expect(pinned).to_have_count(0)
    assert floor.get("/api/waiting")["total"] == 0
    expect(card(page, failed)).to_be_visible()


@pytest.mark.req("WT-92")
def test_a_failure_that_waits_notifies_once(tabs: Tabs, floor: Server) -> None:
    context = tabs.context()
    context.grant_permissions(["notifications"])
    _record_notifications(context)
    page = tabs.open(floor, "/", context=context)
    button(page, "Notifications").click()
    failed = _failed(floor)
    expect(_items(page)).to_have_count(1)
    floor.http.post(f"/api/runs/{failed}/pin", json={"pinned": True})
    _failed(floor)
    expect(_items(page)).to_have_count(2)
    assert page.evaluate("window.notified") == [["Failed: Keyless", "there is no key for openai"]] * 2


@pytest.mark.req("WT-93")
def test_the_card_of_a_running_run_says_what_it_does_now(tabs: Tabs, floor: Server) -> None:
    go = floor.folder / "go"
    run_id = floor.dispatch("stepper", GO=str(go))
    page = tabs.open(floor, "/agents/all/workers")
    expect(card(page, run_id)).to_contain_text("Wait")
    assert floor.runs()[0]["activity"] == {"name": "Wait", "preview": ""}
    go.touch()
    floor.wait_for_status(run_id, "done")
    expect(card(page, run_id)).to_contain_text("stepper")
    expect(card(page, run_id)).not_to_contain_text("Wait")


def _failed(server: Server) -> str:
    run_id = server.dispatch("keyless")
    server.wait_for_status(run_id, "failed")
    return run_id


def _waiting(server: Server, worker: str) -> str:
    run_id = server.dispatch(worker)
    server.wait_for_status(run_id, "waiting")
    return run_id


def _needs_you(page: Page) -> Locator:
    return page.locator(".needs-you")


def _items(page: Page) -> Locator:
    return _needs_you(page).get_by_role("article")


def _item(page: Page, run_id: str) -> Locator:
    return page.locator(f'[data-waiting^="{run_id}"]')


def _marked(page: Page) -> Locator:
    return _needs_you(page).locator("[aria-current]")


def _press_until(page: Page, key: str, condition: Callable[[], bool]) -> None:
    """Press a key until it was taken: the keys of a question work a moment after the question was marked."""

    def is_taken() -> bool:
        page.keyboard.press(key)
        page.wait_for_timeout(100)
        return condition()

    wait_until(is_taken, f"the key {key} to answer")


def _record_notifications(context: BrowserContext) -> None:
    """Record the notifications of the browser, which has no screen to show them on, and say that the user is elsewhere."""
    context.add_init_script(
        """
        window.notified = [];
        window.Notification = class extends EventTarget {
          static permission = "granted";
          static requestPermission = async () => "granted";
          constructor(title, { body }) {
            super();
            window.notified.push([title, body]);
            window.lastNotification = this;
          }
          close() {}
        };
        document.hasFocus = () => false;
        """
    )
