"""The transcript of a run."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, Route, expect
from tests.browser.colors import background, color_name, contrast, rgb
from tests.browser.conftest import RecordedRuns
from tests.browser.page_elements import button, card, cards, open_result, row, search, timeline, transcript
from tests.browser.server import Server
from tests.browser.tabs import Tabs
from tests.timeouts import wait_until

TALL = {"width": 1280, "height": 3_000}


@pytest.fixture
def page(tabs: Tabs, recorded_runs: RecordedRuns) -> Page:
    """The run with every kind of event, on a tall screen, fully loaded.

    Content that loads late moves the rows below it, and a click in between would miss.
    """
    page = tabs.open(
        recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.everything}", viewport=TALL
    )
    expect(timeline(page).locator("li[data-seq]").first).to_be_attached()
    expect(transcript(page).locator("strong").first).to_be_visible()
    return page


def head(page: Page, seq: int):
    return row(page, seq).get_by_role("button", expanded=None).first


@pytest.mark.req("WT-48")
def test_prompts_and_answers_are_in_order(page: Page) -> None:
    expect(row(page, 3)).to_contain_text("Find out what is wrong with the app")
    expect(row(page, 21)).to_contain_text("And that was all, said the quetzalcoatl.")
    seqs = transcript(page).locator("[data-seq]").evaluate_all("rows => rows.map((row) => Number(row.dataset.seq))")
    assert seqs == sorted(seqs)
    assert len(seqs) == len(set(seqs))


@pytest.mark.req("WT-50")
def test_messages_of_the_assistant_are_rendered_as_markdown(page: Page) -> None:
    message = row(page, 5)
    expect(message.get_by_role("heading", name="The findings")).to_be_visible()
    expect(message.locator("strong")).to_have_text("two")
    expect(message.locator("li").first).to_have_text("The first one")
    expect(message.get_by_role("table")).to_contain_text("good")
    expect(message.locator("pre code")).to_contain_text("return 42")
    link = message.get_by_role("link", name="the manual")
    expect(link).to_have_attribute("href", "https://example.org/manual")
    expect(link).to_have_attribute("rel", re.compile("noopener|noreferrer"))
    expect(message.locator("img")).to_have_count(0)
    expect(message).to_contain_text("a chart")


def test_thinking_is_collapsed_at_first(page: Page) -> None:
    expect(head(page, 4)).to_have_attribute("aria-expanded", "false")
    expect(head(page, 4)).to_contain_text("Thinking")
    expect(row(page, 4).get_by_text("Then I know more than I say.")).not_to_be_in_viewport()
    head(page, 4).click()
    expect(row(page, 4).get_by_text("Then I know more than I say.", exact=True)).to_be_in_viewport()


@pytest.mark.req("WT-49")
def test_a_tool_call_is_collapsed_and_opens(page: Page) -> None:
    first = head(page, 7)
    expect(first).to_have_attribute("aria-expanded", "false")
    for text in ("Bash", "ls --color", "0.4 s"):
        expect(first).to_contain_text(text)
    expect(first.get_by_role("img", name="done")).to_be_visible()
    expect(row(page, 7).get_by_text("red alert")).not_to_be_visible()
    first.click()
    expect(first).to_have_attribute("aria-expanded", "true")
    expect(row(page, 7).get_by_text("red alert")).to_be_visible()
    expect(row(page, 7)).to_contain_text("List files")
    first.click()
    expect(row(page, 7).get_by_text("red alert")).not_to_be_visible()


def test_a_use_of_a_tool_is_shown_once(page: Page) -> None:
    expect(row(page, 7)).to_be_visible()
    expect(transcript(page).get_by_text("ls --color")).to_have_count(1)


def test_a_failed_tool_call_is_open_and_marked(page: Page) -> None:
    failed = head(page, 9)
    expect(failed).to_have_attribute("aria-expanded", "true")
    expect(failed.get_by_role("img", name="failed")).to_be_visible()
    expect(failed).to_contain_text("exit 1")
    expect(failed).to_contain_text("1m 2s")
    expect(row(page, 9)).to_contain_text("expected 42, got 41")


def test_the_output_of_a_shell_has_its_colors(page: Page) -> None:
    head(page, 7).click()
    red, green = (row(page, 7).get_by_text(text, exact=True) for text in ("red alert", "bold green"))
    assert color_name(rgb(red)) == "red"
    assert color_name(rgb(green)) == "green"
    assert int(green.evaluate("element => getComputedStyle(element).fontWeight")) >= 600
    expect(row(page, 7)).not_to_contain_text("[31m")


def test_an_edit_is_shown_as_a_diff(page: Page) -> None:
    first = head(page, 11)
    expect(first).to_contain_text("src/app.py")
    first.click() if first.get_attribute("aria-expanded") == "false" else None
    removed = row(page, 11).get_by_text("return 41").first
    added = row(page, 11).get_by_text("return 42").first
    expect(removed).to_be_visible()
    expect(added).to_be_visible()
    assert (color_name(background(removed)), color_name(background(added))) == ("red", "green")


@pytest.mark.req("WT-86")
def test_code_and_diffs_have_the_colors_of_their_language(page: Page) -> None:
    keyword = row(page, 5).locator("pre").get_by_text("def", exact=True)
    expect(keyword).to_be_visible()
    plain = rgb(row(page, 5).locator("pre code"))
    assert rgb(keyword) != plain
    assert rgb(row(page, 5).locator("pre").get_by_text("42", exact=True)) not in (plain, rgb(keyword))
    head(page, 11).click()
    assert rgb(row(page, 11).locator("figure").get_by_text("return", exact=True).first) == rgb(keyword)
    # The lines of a diff are numbered.
    expect(row(page, 11).locator("figure code > span").nth(1)).to_have_text(re.compile("^1 def answer"))


def test_an_image_is_shown(page: Page) -> None:
    first = head(page, 13)
    first.click() if first.get_attribute("aria-expanded") == "false" else None
    picture = row(page, 13).get_by_role("img").and_(page.locator("img"))
    expect(picture).to_be_visible()
    assert picture.evaluate("one => one.naturalWidth") == 40
    expect(picture).to_have_attribute("src", re.compile("^(data:image/png|blob:)"))


def test_unparsed_output_has_a_badge(page: Page) -> None:
    expect(row(page, 15)).to_contain_text(re.compile("unparsed|not understood", re.IGNORECASE))
    expect(row(page, 15)).to_contain_text("mystery")


def test_notes_of_the_agents_program_are_shown(page: Page) -> None:
    expect(row(page, 16)).to_contain_text("the model is overloaded")


def test_a_sub_run_is_shown_where_it_was_called(page: Page, recorded_runs: RecordedRuns) -> None:
    called = row(page, 17)
    expect(called).to_contain_text("helper")
    expect(called.get_by_text("This is said in the sub-run.")).to_have_count(0)
    head(page, 17).click()
    expect(called.get_by_text("This is said in the sub-run.")).to_be_visible()
    expect(called.locator(f'a[href*="{recorded_runs.stories.child}"]').first).to_be_visible()


def test_the_time_is_shown_of_the_row_under_the_pointer_and_not_of_those_inside_it(page: Page) -> None:
    head(page, 17).click()
    inner = row(page, 17).locator("li", has_text="This is said in the sub-run.").last
    expect(inner).to_be_visible()
    times = page.locator("li[data-seq] > span").filter(has=page.locator("time"))
    visible = "times => times.filter((time) => getComputedStyle(time).opacity === '1').length"

    def count_shown_at(target: Locator) -> int:
        # The rows below may still move: point at it again.
        target.hover()
        return times.evaluate_all(visible)

    wait_until(lambda: count_shown_at(head(page, 17)) == 1, "the time of the row under the pointer alone")
    wait_until(lambda: count_shown_at(inner) == 2, "the time of the row inside, too")


def test_a_sub_run_without_a_log_shows_an_error(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    tabs.allow_errors("404")
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.lost_child}")
    expect(row(page, 5)).to_contain_text("helper")
    head(page, 5).click()
    expect(row(page, 5).get_by_role("alert")).to_contain_text(re.compile("no (log|run)|not there|gone", re.IGNORECASE))


def test_a_sub_run_that_is_opened_before_the_server_has_its_row_appears_by_itself(
    tabs: Tabs, recorded_runs: RecordedRuns
) -> None:
    tabs.allow_errors("404")
    stories, is_known = recorded_runs.stories, False
    missing = {"error": {"code": "run_not_found", "message": "no run has this id", "hint": None}}
    context = tabs.context()

    def answer_detail(route: Route) -> None:
        if is_known:
            route.continue_()
        else:
            route.fulfill(status=404, json=missing)

    context.route(f"**/api/agents/workers/detail?worker_id={stories.child}*", answer_detail)
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={stories.everything}", context=context)
    head(page, 17).click()
    expect(row(page, 17).get_by_role("alert")).to_contain_text("no run has this id")
    is_known = True
    expect(row(page, 17).get_by_text("This is said in the sub-run.")).to_be_visible()
    expect(row(page, 17).get_by_role("alert")).to_have_count(0)


def test_long_arguments_and_results_are_loaded_when_they_are_opened(page: Page, tabs: Tabs) -> None:
    expect(row(page, 19)).to_be_visible()
    assert tabs.paths(r"/log\?(?!.*brief=true)") == []
    head(page, 19).click()
    expect(row(page, 19)).to_contain_text("the-end-of-it")
    assert tabs.paths(r"/log\?(?!.*brief=true)") != []


def test_truncated_text_is_marked_and_can_be_loaded(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.long_text}")
    message = row(page, 4)
    expect(message).to_contain_text(re.compile(r"Truncated: 3\d KB in total"))
    expect(message).not_to_contain_text("and an end.")
    message.get_by_role("button", name="Load all").click()
    expect(message).to_contain_text("and an end.")
    expect(message).not_to_contain_text("Truncated:")


def test_a_tooltip_tells_who_observed_the_content(page: Page) -> None:
    expect(row(page, 5).locator('[title*="agent" i]').first).to_be_attached()
    expect(
        row(page, 3).locator('[title*="router" i], [title*="recorded" i], [title*="Shopfloor" i]').first
    ).to_be_attached()


def test_everything_is_expanded_and_collapsed_at_once(page: Page) -> None:
    expect(head(page, 7)).to_have_attribute("aria-expanded", "false")
    page.get_by_role("button", name="Expand all").click()
    expect(head(page, 7)).to_have_attribute("aria-expanded", "true")
    expect(row(page, 7).get_by_text("red alert")).to_be_visible()
    page.get_by_role("button", name="Collapse all").click()
    expect(head(page, 7)).to_have_attribute("aria-expanded", "false")


def test_search_finds_words_in_the_run(page: Page) -> None:
    field = page.get_by_role("searchbox", name="Search in this run")
    field.fill("quetzalcoatl")
    expect(page.get_by_text("1 of 1", exact=True)).to_be_visible()
    expect(row(page, 21)).to_have_attribute("aria-current", "true")
    field.fill("part one")
    field.fill("return 42")
    expect(page.get_by_text(re.compile(r"^1 of [2-9]$"))).to_be_visible()
    page.get_by_role("button", name="Next hit").click()
    expect(page.get_by_text(re.compile(r"^2 of [2-9]$"))).to_be_visible()
    page.get_by_role("button", name="Previous hit").click()
    expect(page.get_by_text(re.compile(r"^1 of [2-9]$"))).to_be_visible()


def test_a_deep_link_to_an_event_expands_its_row(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    run_id = recorded_runs.stories.everything
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={run_id}&event=8")
    expect(row(page, 7)).to_have_attribute("aria-current", "true")
    expect(row(page, 7).get_by_text("red alert")).to_be_in_viewport()


@pytest.mark.req("WT-86")
def test_reads_in_a_row_are_one_line_a_plan_is_a_checklist_and_inverse_text_can_be_read(
    tabs: Tabs, recorded_runs: RecordedRuns
) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.reader}", viewport=TALL)
    reads = row(page, 4)
    for text in ("Read, Grep", "3 calls", "one.py, two.py, needle in src"):
        expect(reads).to_contain_text(text)
    expect(row(page, 6)).to_have_count(0)
    head(page, 4).click()
    folds = reads.locator("button[aria-expanded]")
    expect(folds).to_have_count(4)
    second = folds.nth(2)
    expect(second).to_contain_text("src/two.py")
    second.click()
    expect(reads).to_contain_text("content of two")
    # A link to one of the calls opens the line and the call.
    page.goto(f"{page.url.split('&event')[0]}&event=7")
    expect(reads).to_have_attribute("aria-current", "true")
    expect(reads).to_contain_text("content of two")
    expect(reads).not_to_contain_text("content of one")
    plan = row(page, 10)
    expect(plan).to_contain_text("Plan1 of 3")
    tasks = plan.get_by_role("list", name="Tasks").get_by_role("listitem")
    expect(tasks).to_have_text(["Look", "Repair", "Test"])
    for item, state in zip(tasks.all(), ("done", "in progress", "open"), strict=True):
        expect(item.get_by_role("img", name=state)).to_be_visible()
    failed = row(page, 12)
    inverse = failed.get_by_text("inverse", exact=True)
    assert contrast(rgb(inverse), background(inverse)) >= 4.5


@pytest.mark.req("WT-86")
def test_the_call_of_an_agent_and_its_sub_run_are_one_block(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.agents}", viewport=TALL)
    block = row(page, 7)
    for text in ("general-purpose", "Explore dir", "Sub-agent report: one command ran."):
        expect(block).to_contain_text(text)
    expect(row(page, 6)).to_have_count(0)
    expect(transcript(page).get_by_text("Explore dir")).to_have_count(1)
    head(page, 7).click()
    expect(block.get_by_text("echo in-subagent")).to_be_visible()


@pytest.mark.req("WT-84")
def test_a_failed_run_opens_at_its_failure_and_keys_go_from_one_to_the_next(
    tabs: Tabs, recorded_runs: RecordedRuns
) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.failures}")
    # The calls failed too, but the provider ended the run.
    expect(row(page, 70)).to_be_in_viewport()
    expect(row(page, 70)).to_contain_text("the provider refuses for now")
    expect(row(page, 3)).not_to_be_in_viewport()
    expect(page.get_by_text("3 failures")).to_be_visible()
    page.keyboard.press("]")
    expect(row(page, 4)).to_be_in_viewport()
    expect(page.get_by_text("1 of 3")).to_be_visible()
    page.keyboard.press("]")
    expect(row(page, 67)).to_be_in_viewport()
    expect(row(page, 67)).to_contain_text("the second failure")
    page.keyboard.press("[")
    expect(row(page, 4)).to_be_in_viewport()
    button(page, "Next failure").click()
    expect(page.get_by_text("2 of 3")).to_be_visible()


@pytest.mark.req("WT-48")
def test_a_recorded_session_of_claude_code_is_shown(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.claude}", viewport=TALL)
    write = transcript(page).get_by_role("button").filter(has_text="Write").first
    expect(write).to_contain_text("note.txt")
    if write.get_attribute("aria-expanded") == "false":
        write.click()
    expect(transcript(page).get_by_text("line two").first).to_be_visible()


def test_output_of_a_command_is_shown_with_its_streams(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.command("printf '\\033[32mgreen leaf\\033[0m\\n'; echo oops >&2", "--owner", owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    leaf = transcript(page).get_by_text("green leaf", exact=True)
    expect(leaf).to_be_visible()
    assert color_name(rgb(leaf)) == "green"
    expect(transcript(page)).to_contain_text("oops")


@pytest.mark.req("WT-15", "WT-48")
def test_without_messages_there_is_no_transcript(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.no_messages}")
    expect(page.get_by_role("region", name="Event timeline").locator("li[data-seq]").first).to_be_visible()
    expect(transcript(page)).to_have_count(0)


def test_expand_all_is_disabled_where_nothing_can_be_expanded(
    tabs: Tabs, server: Server, recorded_runs: RecordedRuns, owner: str
) -> None:
    run_id = server.command("echo plain", "--owner", owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    expect(transcript(page)).to_contain_text("plain")
    expect(button(page, "Expand all")).to_be_disabled()
    expect(button(page, "Expand all")).to_have_attribute("title", re.compile("no tool calls"))
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.everything}")
    expect(button(page, "Expand all")).to_be_enabled()


@pytest.mark.req("WT-70")
def test_output_of_a_command_is_shown_from_its_end(page: Page) -> None:
    head(page, 19).click()
    shown = row(page, 19)
    expect(shown).to_contain_text("line 1000 of output")
    expect(shown).to_contain_text("line 989 of output")
    expect(shown).not_to_contain_text("line 988 of output")
    button(page, "988 earlier lines").click()
    expect(shown).to_contain_text("line 1 of output")
    expect(shown).to_contain_text("line 1000 of output")
    expect(button(page, "988 earlier lines")).to_have_count(0)


def test_what_was_expanded_stays_so_and_keeps_the_focus(page: Page) -> None:
    """A button that disappears leaves the focus in its row, and a row that was out of sight is as the reader left it."""
    page.set_viewport_size({"width": 1280, "height": 500})
    page.goto(f"{page.url}&event=19")
    button(page, "Expand all").click()
    button(page, "988 earlier lines").press("Enter")
    expect(row(page, 19)).to_contain_text("line 1 of output")
    assert page.evaluate("document.activeElement.closest('[data-seq]')?.dataset.seq") == "19"
    box = transcript(page).get_by_role("group", name="Transcript rows")
    box.evaluate("one => one.scrollTo(0, 0)")
    expect(row(page, 19)).to_have_count(0)
    box.evaluate("one => one.scrollTo(0, 5_000)")
    expect(row(page, 19)).to_contain_text("line 1 of output")
    expect(button(page, "988 earlier lines")).to_have_count(0)


def test_search_hits_in_hidden_lines_are_shown(page: Page) -> None:
    page.get_by_role("searchbox", name="Search in this run").fill("line 77 of")
    expect(page.get_by_text("1 of 1", exact=True)).to_be_visible()
    expect(row(page, 19)).to_contain_text("line 77 of output")


@pytest.mark.req("WT-70")
def test_the_result_of_a_command_is_shown_from_its_end(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.command("for n in $(seq 200); do echo row $n.; done", "--owner", owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    result = open_result(page)
    expect(result).to_contain_text("row 200.")
    expect(result).not_to_contain_text("row 194.")
    result.get_by_role("button", name="194 earlier lines").click()
    expect(result).to_contain_text("row 1.")
    expect(result).to_contain_text("row 194.")


@pytest.mark.req("WT-71")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("quetzalcoatl", "quetzalcoatl"),
        ("findings quetzalcoatl", "quetzalcoatl"),
        ("said the quetzal", "said the quetzal"),
    ],
)
def test_a_run_that_a_search_found_opens_at_the_hit(
    tabs: Tabs, recorded_runs: RecordedRuns, words: str, found: str
) -> None:
    run_id = recorded_runs.stories.everything
    page = tabs.open(recorded_runs.server, "/agents/stories/workers")
    # Also where the run was open already.
    card(page, run_id).click()
    expect(row(page, 3)).to_be_visible()
    expect(row(page, 21)).not_to_be_in_viewport()
    search(page).fill(words)
    expect(cards(page)).to_have_count(1)
    card(page, run_id).click()
    field = page.get_by_role("searchbox", name="Search in this run")
    expect(field).to_have_value(found)
    for _ in range(2):
        expect(row(page, 21)).to_be_in_viewport()
        expect(row(page, 21)).to_have_attribute("aria-current", "true")
        marked = "() => [...(CSS.highlights.get('found') ?? [])].map(String)"
        page.wait_for_function(f"({marked})().some(text => text.toLowerCase() === {found!r})")
        page.reload()
    # Text typed into this search stays in this run.
    field.fill("nothing of the kind")
    expect(page.get_by_text("No hits")).to_be_visible()
    expect(field).to_have_value("nothing of the kind")


def test_a_run_that_is_selected_by_key_in_a_search_opens_at_the_hit(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, "/agents/stories/workers?q=quetzalcoatl")
    expect(cards(page)).to_have_count(1)
    page.keyboard.press("j")
    expect(row(page, 21)).to_have_attribute("aria-current", "true")
    expect(row(page, 21)).to_be_in_viewport()


def test_a_run_found_by_its_id_opens_at_its_beginning(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    run_id = recorded_runs.stories.everything
    page = tabs.open(recorded_runs.server, f"/agents/stories/workers?q={run_id[:8]}")
    card(page, run_id).click()
    expect(row(page, 3)).to_be_visible()
    expect(page.get_by_role("searchbox", name="Search in this run")).to_have_value("")
