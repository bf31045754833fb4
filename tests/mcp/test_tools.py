"""Every tool, called by the official client over both transports and both generations of the protocol."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from mcp.types import ElicitRequestParams, ElicitResult
from tests.mcp.installation import Installation, Kind, call
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.limits import CHARS_PER_TOKEN
from shopfloor.mcp.limits import MCP_OUTPUT_TOKENS, MCP_PAGE_ITEMS, MCP_RESULT_CHARS

pytestmark = pytest.mark.anyio

CONNECTIONS: list[tuple[Kind, str]] = [("stdio", "auto"), ("stdio", "legacy"), ("http", "auto"), ("http", "legacy")]
connections = pytest.mark.parametrize(("kind", "mode"), CONNECTIONS)
kinds = pytest.mark.parametrize("kind", ["stdio", "http"])


@connections
@pytest.mark.req("REQ-WD-39")
async def test_instructions_name_the_workers(running: Installation, kind: Kind, mode: str) -> None:
    async with running.client(kind, mode) as client:
        assert client.instructions is not None
        assert "worker_dispatch" in client.instructions
        assert "\n- greet: Greets somebody by name." in client.instructions


@connections
async def test_work_is_dispatched_followed_and_its_result_fetched(running: Installation, kind: Kind, mode: str) -> None:
    async with running.client(kind, mode) as client:
        sent = await call(client, "worker_dispatch", {"worker": "greet", "task": "Ada", "description": "Say hi"})
        run_id = sent.facts["run_id"]
        assert running.address is not None
        assert sent.facts["url"] == f"{running.address.url}/agents/all/workers?worker={run_id}"
        (waited,) = (await call(client, "worker_wait", {"run_ids": [run_id]})).facts["runs"]
        while waited["status"] != "completed":
            (waited,) = (await call(client, "worker_wait", {"run_ids": [run_id]})).facts["runs"]
        assert waited["next_step"] == "worker_result returns the output"
        status = (await call(client, "worker_status", {"run_id": run_id[:8]})).facts
        assert (status["worker"], status["task"], status["status"]) == ("greet", "Say hi", "completed")
        result = await call(client, "worker_result", {"run_id": run_id})
        assert (result.text, result.is_error) == ("Hello, Ada!", False)


@connections
async def test_short_work_is_run_in_one_call(running: Installation, kind: Kind, mode: str) -> None:
    async with running.client(kind, mode) as client:
        ran = await call(client, "worker_run", {"worker": "form", "input": {"FROM": "a", "TO": "b", "COUNT": 2}})
        assert (ran.facts["status"], ran.is_error) == ("completed", False)
        assert json.loads(ran.text or "") == {"from": "a", "to": "b", "count": 2}


@connections
async def test_work_that_takes_longer_goes_on(running: Installation, kind: Kind, mode: str) -> None:
    async with running.client(kind, mode) as client:
        ran = await call(client, "worker_run", {"worker": "sleeps", "input": {}, "timeout_seconds": 0.3})
        assert (ran.facts["status"], ran.text, ran.is_error) == ("running", None, False)
        early = await call(client, "worker_result", {"run_id": ran.facts["run_id"]})
        assert (early.is_error, early.facts["code"]) == (True, "conflict")
        assert "worker_wait" in early.facts["hint"]
        cancelled = await call(client, "worker_cancel", {"run_id": ran.facts["run_id"], "reason": "changed my mind"})
        assert cancelled.facts == {"run_id": ran.facts["run_id"], "status": "cancelled"}
        again = await call(client, "worker_cancel", {"run_id": ran.facts["run_id"]})
        assert (again.facts["status"], again.is_error) == ("cancelled", False)
        result = await call(client, "worker_result", {"run_id": ran.facts["run_id"]})
        assert (result.is_error, "changed my mind" in result.facts["error"]) == (True, True)


@connections
async def test_a_question_is_relayed_and_answered(running: Installation, kind: Kind, mode: str) -> None:
    async with running.client(kind, mode) as client:
        sent = await call(client, "worker_run", {"worker": "asks", "task": "The sky"})
        assert (sent.facts["status"], sent.facts["progress"]) == ("waiting", "thinking about The sky")
        (question,) = sent.facts["questions"]
        assert (question["question"], question["options"]) == ("Which color?", ["red", "green"])
        assert "worker_answer" in sent.facts["next_step"]
        run_id = sent.facts["run_id"]
        wrong = await call(client, "worker_answer", {"run_id": run_id, "answer": "blue"})
        assert (wrong.is_error, wrong.facts["hint"]) == (True, "the options are: 1. red / 2. green")
        answered = await call(client, "worker_answer", {"run_id": run_id, "answer": "2"})
        assert answered.facts["answered"] == "Which color?"
        (ended,) = (await call(client, "worker_wait", {"run_ids": [run_id]})).facts["runs"]
        while ended["status"] != "completed":
            (ended,) = (await call(client, "worker_wait", {"run_ids": [run_id]})).facts["runs"]
        assert (await call(client, "worker_result", {"run_id": run_id})).text == "The sky is green"
        late = await call(client, "worker_answer", {"run_id": run_id, "answer": "red"})
        assert (late.is_error, late.facts["code"]) == (True, "run_ended")


@kinds
async def test_one_of_several_questions_is_named_by_its_call(running: Installation, kind: Kind) -> None:
    async with running.client(kind) as client:
        sent = await call(client, "worker_run", {"worker": "pairs", "task": "x"})
        run_id = sent.facts["run_id"]
        while len(sent.facts["questions"]) < 2:
            sent = await call(client, "worker_status", {"run_id": run_id})
        ambiguous = await call(client, "worker_answer", {"run_id": run_id, "answer": "one"})
        assert (ambiguous.is_error, ambiguous.facts["error"]) == (True, "2 questions are open: name one by `call_id`")
        for question, answer in zip(sent.facts["questions"], ("one", "two"), strict=True):
            arguments = {"run_id": run_id, "answer": answer, "call_id": question["call_id"]}
            assert not (await call(client, "worker_answer", arguments)).is_error
        (ended,) = (await call(client, "worker_wait", {"run_ids": [run_id]})).facts["runs"]
        while ended["status"] != "completed":
            (ended,) = (await call(client, "worker_wait", {"run_ids": [run_id]})).facts["runs"]
        assert (await call(client, "worker_result", {"run_id": run_id})).text == "one two"


@connections
@pytest.mark.parametrize("tool", ["worker_run", "worker_wait"])
async def test_a_client_that_can_ask_its_user_is_asked(running: Installation, kind: Kind, mode: str, tool: str) -> None:
    asked: list[ElicitRequestParams] = []

    async def elicit(_: Any, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params)
        return ElicitResult(action="accept", content={"answer": "red"})

    async with running.client(kind, mode, elicitation_callback=elicit) as client:
        if tool == "worker_run":
            ended = await call(client, "worker_run", {"worker": "asks", "task": "Mars"})
            run_id = ended.facts["run_id"]
        else:
            run_id = (await call(client, "worker_dispatch", {"worker": "asks", "task": "Mars"})).facts["run_id"]
            (run,) = (await call(client, "worker_wait", {"run_ids": [run_id]})).facts["runs"]
            while run["status"] != "completed":
                (run,) = (await call(client, "worker_wait", {"run_ids": [run_id]})).facts["runs"]
        assert (await call(client, "worker_result", {"run_id": run_id})).text == "Mars is red"
        found = await call(client, "run_search", {"query": "Mars", "worker": "asks"})
        assert [run["run_id"] for run in found.facts["runs"]].count(run_id) == 1
    (question,) = asked
    assert question.message == f"Run {run_id[:8]} asks: Which color?"


@connections
async def test_a_declined_question_is_in_the_output(running: Installation, kind: Kind, mode: str) -> None:
    asked: list[str] = []

    async def decline(_: Any, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="decline")

    async with running.client(kind, mode, elicitation_callback=decline) as client:
        sent = await call(client, "worker_run", {"worker": "asks", "task": "Venus"})
        assert (sent.facts["status"], sent.facts["questions"][0]["question"]) == ("waiting", "Which color?")
        cancelled = await call(client, "worker_cancel", {"run_id": sent.facts["run_id"]})
        assert cancelled.facts["status"] == "cancelled"
    assert len(asked) == 1


@kinds
async def test_asking_ends_when_the_question_is_answered_elsewhere(running: Installation, kind: Kind) -> None:
    asked = anyio.Event()

    async def never_answer(_: Any, params: ElicitRequestParams) -> ElicitResult:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def answer_elsewhere() -> None:
        await asked.wait()
        async with running.client(kind) as other:
            found = await call(other, "run_search", {"query": "Pluto", "status": "waiting"})
            (run,) = found.facts["runs"]
            await call(other, "worker_answer", {"run_id": run["run_id"], "answer": "green"})

    async with (
        running.client(kind, "legacy", elicitation_callback=never_answer) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(answer_elsewhere)
        ran = await call(client, "worker_run", {"worker": "asks", "task": "Pluto"})
        assert ran.text == "Pluto is green"


@connections
async def test_progress_is_reported_while_a_call_waits(running: Installation, kind: Kind, mode: str) -> None:
    reports: list[tuple[float, str | None]] = []

    async def progress(seconds: float, total: float | None, message: str | None) -> None:
        reports.append((seconds, message))

    async with running.client(kind, mode) as client:
        ran = await call(
            client,
            "worker_run",
            {"worker": "sleeps", "input": {"SECONDS": "0.5"}},
            progress_callback=progress,
        )
        assert ran.text == "slept"
    assert any(message and "running" in message for _, message in reports)
    assert [seconds for seconds, _ in reports] == sorted(seconds for seconds, _ in reports)


@connections
async def test_a_long_result_comes_in_pages(running: Installation, kind: Kind, mode: str) -> None:
    async with running.client(kind, mode) as client:
        page = await call(client, "worker_run", {"worker": "writes", "task": "3000"})
        run_id, pages = page.facts["run_id"], [page.text or ""]
        while "next" in page.facts:
            assert len(page.text or "") <= MCP_RESULT_CHARS
            assert (page.text or "").endswith("\n")
            page = await call(client, "worker_result", {"run_id": run_id, "cursor": page.facts["next"]})
            pages.append(page.text or "")
        assert "".join(pages) == "".join(f"line {number}\n" for number in range(3000))
        assert len(pages) > 2
        bad = await call(client, "worker_result", {"run_id": run_id, "cursor": "-1"})
        assert (bad.is_error, bad.facts["hint"]) == (True, "send `next` of the previous page unchanged")


@kinds
async def test_lists_come_in_pages_and_no_output_is_too_large(running: Installation, kind: Kind) -> None:
    async with running.client(kind) as client:
        name = f"page{kind}"
        for number in range(MCP_PAGE_ITEMS + 2):
            task = f"{name} {number} " + '"\\\t' * 300
            await call(client, "worker_dispatch", {"worker": "greet", "task": task, "description": task})
        first = await client.call_tool("run_search", {"query": name})
        assert (
            sum(len(block.text) for block in first.content if block.type == "text")
            <= MCP_OUTPUT_TOKENS * CHARS_PER_TOKEN
        )
        found = await call(client, "run_search", {"query": name})
        assert (len(found.facts["runs"]), found.facts["total"]) == (MCP_PAGE_ITEMS, MCP_PAGE_ITEMS + 2)
        rest = await call(client, "run_search", {"query": name, "cursor": found.facts["next"]})
        assert (len(rest.facts["runs"]), "next" in rest.facts) == (2, False)
        ids = {run["run_id"] for run in found.facts["runs"] + rest.facts["runs"]}
        assert len(ids) == MCP_PAGE_ITEMS + 2


@kinds
async def test_workers_are_listed_in_pages_and_found_by_text(running: Installation, kind: Kind) -> None:
    async with running.client(kind) as client:
        page = await call(client, "worker_list")
        workers = page.facts["workers"]
        while "next" in page.facts:
            page = await call(client, "worker_list", {"cursor": page.facts["next"]})
            workers += page.facts["workers"]
        assert len(workers) == page.facts["total"] > MCP_PAGE_ITEMS
        by_name = {worker["worker"]: worker for worker in workers}
        assert by_name["form"] == {
            "worker": "form",
            "about": "Needs two texts.",
            "inputs": "FROM (string, required), TO (string, required), COUNT (integer)",
        }
        found = await call(client, "worker_list", {"query": "GREETS somebody by"})
        assert {worker["worker"] for worker in found.facts["workers"]} == {"greet", "hello"}
        assert (await call(client, "worker_list", {"query": "no such thing"})).facts == {"workers": [], "total": 0}


@kinds
async def test_runs_are_found_by_text_worker_status_and_time(running: Installation, kind: Kind) -> None:
    async with running.client(kind) as client:
        name = f"zebra{kind}"
        ran = await call(client, "worker_run", {"worker": "greet", "task": name})
        failed = await call(client, "worker_run", {"worker": "fails", "task": f"{name} broke"})
        assert (failed.is_error, f"{name} broke" in failed.facts["error"]) == (True, True)
        completed = await call(client, "run_search", {"query": name, "status": "completed"})
        assert [run["run_id"] for run in completed.facts["runs"]] == [ran.facts["run_id"]]
        by_worker = await call(
            client, "run_search", {"query": name, "worker": "fails", "since": "2020-01-01T00:00:00Z"}
        )
        (found,) = by_worker.facts["runs"]
        assert (found["run_id"], found["status"]) == (failed.facts["run_id"], "failed")


@kinds
async def test_completed_and_cancelled_runs_can_be_deleted_others_not(running: Installation, kind: Kind) -> None:
    async with running.client(kind) as client:
        done = (await call(client, "worker_run", {"worker": "greet", "task": "Eve"})).facts["run_id"]
        assert (await call(client, "worker_delete", {"run_id": done})).facts == {"deleted": [done]}
        gone = await call(client, "worker_status", {"run_id": done})
        assert (gone.is_error, gone.facts["code"], gone.facts["hint"]) == (
            True,
            "run_not_found",
            "run_search lists the runs and their ids",
        )
        failed = (await call(client, "worker_run", {"worker": "fails", "task": "why"})).facts["run_id"]
        kept = await call(client, "worker_delete", {"run_id": failed})
        assert (kept.is_error, kept.facts["code"]) == (True, "needs_force")
        running_id = (await call(client, "worker_dispatch", {"worker": "sleeps", "input": {}})).facts["run_id"]
        kept = await call(client, "worker_delete", {"run_id": running_id})
        assert (kept.is_error, kept.facts["code"]) == (True, "run_running")
        await call(client, "worker_cancel", {"run_id": running_id})
        assert (await call(client, "worker_delete", {"run_id": running_id})).facts == {"deleted": [running_id]}


@kinds
async def test_a_wait_returns_when_one_of_several_runs_changes(running: Installation, kind: Kind) -> None:
    async with running.client(kind) as client:
        slow = (await call(client, "worker_dispatch", {"worker": "sleeps", "input": {}})).facts["run_id"]
        quick = (await call(client, "worker_dispatch", {"worker": "greet", "task": "Bo"})).facts["run_id"]
        runs: dict[str, str] = {}
        with anyio.fail_after(TIMEOUT_SECONDS):
            while runs.get(quick) != "completed":
                output = await call(client, "worker_wait", {"run_ids": [slow, quick], "timeout_seconds": 5})
                runs = {run["run_id"]: run["status"] for run in output.facts["runs"]}
        assert runs[slow] in ("queued", "running")
        await call(client, "worker_cancel", {"run_id": slow})


@kinds
async def test_questions_that_a_worker_left_open_are_shown(running: Installation, kind: Kind) -> None:
    async with running.client(kind) as client:
        ran = await call(client, "worker_run", {"worker": "reviews", "task": "x"})
        assert (ran.text, ran.facts["open_questions"]) == ("reviewed", ["Who owns the folder?"])


BAD_CALLS: list[tuple[str, dict[str, Any], str, str]] = [
    ("worker_dispatch", {}, "missing required field `worker`", "the arguments of worker_dispatch are: worker, task"),
    ("worker_dispatch", {"worker": "greet"}, "send either `task` or `input`", "`task` is the work in words"),
    ("worker_dispatch", {"worker": "greet", "task": 3}, "$.task", "the arguments of worker_dispatch are"),
    ("worker_dispatch", {"worker": "greet", "task": "x", "job": 1}, "unknown field `job`", "the arguments of"),
    ("worker_dispatch", {"worker": "form", "task": "x"}, "no single text input", "FROM (string, required), TO (string"),
    ("worker_dispatch", {"worker": "form", "input": {"FROM": "a"}}, "`TO` is missing", ""),
    ("worker_dispatch", {"worker": "nobody", "task": "x"}, "there is no worker `nobody`", "worker_list"),
    ("worker_status", {"run_id": "00000000-0000-4000-8000-000000000000"}, "there is no run", "run_search"),
    ("worker_status", {"run_id": "nonsense"}, "'nonsense' matches none", "run_search"),
    ("worker_wait", {"run_ids": []}, "$.run_ids", "the arguments of worker_wait are: run_ids, timeout_seconds"),
    ("worker_wait", {"run_ids": ["last"], "timeout_seconds": 9999}, "<= 600", "the arguments of worker_wait"),
    ("run_search", {"status": "done"}, "$.status", "the arguments of run_search"),
    ("run_search", {"since": "yesterday"}, "must be an RFC 3339 time", ""),
    ("run_search", {"cursor": "nonsense"}, "cursor", ""),
    ("no_such_tool", {}, "there is no tool 'no_such_tool'", "the tools are: worker_list, worker_dispatch"),
]


@kinds
async def test_bad_input_says_what_is_wrong_and_what_to_do(running: Installation, kind: Kind) -> None:
    async with running.client(kind) as client:
        for tool, arguments, message, hint in BAD_CALLS:
            output = await call(client, tool, arguments)
            assert output.is_error, (tool, arguments)
            assert message in output.facts["error"], output.facts
            assert hint in output.facts.get("hint", ""), output.facts


@pytest.mark.req("SF-56")
async def test_an_approval_is_relayed_with_what_would_be_done_and_decided(running: Installation) -> None:
    async with running.client("stdio") as client:
        sent = await call(client, "worker_run", {"worker": "confirms", "task": "the dishes"})
        (question,) = sent.facts["questions"]
        assert question["kind"] == "approval"
        asked = "approval of command: echo done: 'the dishes'\nalways approve holds for command of confirms"
        assert question["question"] == asked
        assert question["options"] == ["approve", "approve for this run", "always approve", "deny"]
        run_id = sent.facts["run_id"]
        wrong = await call(client, "worker_answer", {"run_id": run_id, "answer": "perhaps"})
        assert (wrong.is_error, "approve for this run" in wrong.facts["hint"]) == (True, True)
        await call(client, "worker_answer", {"run_id": run_id, "answer": "deny: wash them yourself"})
        (ended,) = (await call(client, "worker_wait", {"run_ids": [run_id]})).facts["runs"]
        while ended["status"] == "running":
            (ended,) = (await call(client, "worker_wait", {"run_ids": [run_id]})).facts["runs"]
        assert (ended["status"], "wash them yourself" in ended["error"]) == ("failed", True)


@connections
async def test_fifty_calls_at_once_each_get_their_own_answer(running: Installation, kind: Kind, mode: str) -> None:
    texts: dict[int, str | None] = {}
    async with running.client(kind, mode) as client:

        async def run(number: int) -> None:
            arguments = {"worker": "greet", "task": f"guest {number}", "timeout_seconds": TIMEOUT_SECONDS}
            texts[number] = (await call(client, "worker_run", arguments)).text

        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(run, number)
    assert texts == {number: f"Hello, guest {number}!" for number in range(50)}


@connections
async def test_results_and_transcripts_are_resources(running: Installation, kind: Kind, mode: str) -> None:
    async with running.client(kind, mode) as client:
        templates = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == [
            "shopfloor://runs/{run_id}/result{?cursor}",
            "shopfloor://runs/{run_id}/transcript{?cursor}",
        ]
        ran = await call(client, "worker_run", {"worker": "hello", "task": "Ada"})
        run_id = ran.facts["run_id"]
        listed = (await client.list_resources()).resources
        assert f"shopfloor://runs/{run_id}/result" in [resource.uri for resource in listed]
        (result,) = (await client.read_resource(f"shopfloor://runs/{run_id}/result")).contents
        assert getattr(result, "text", None) == ran.text
        (transcript,) = (await client.read_resource(f"shopfloor://runs/{run_id}/transcript")).contents
        assert "assistant: Hello, Ada!" in getattr(transcript, "text", "")
        with pytest.raises(Exception, match="the resources are shopfloor://runs/"):
            await client.read_resource("shopfloor://nothing/here")


@kinds
async def test_a_large_resource_names_its_next_page(running: Installation, kind: Kind) -> None:
    async with running.client(kind) as client:
        run_id = (await call(client, "worker_run", {"worker": "writes", "task": "20000"})).facts["run_id"]
        uri, text = f"shopfloor://runs/{run_id}/result", ""
        while uri:
            (page,) = (await client.read_resource(uri)).contents
            part, _, rest = getattr(page, "text", "").partition("\n\n[continues in ")
            text, uri = text + part, rest.removesuffix("]")
        assert text == "".join(f"line {number}\n" for number in range(20000))


@kinds
async def test_tools_say_what_they_change(running: Installation, kind: Kind) -> None:
    async with running.client(kind) as client:
        tools = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    hints = {
        name: (note.read_only_hint, note.destructive_hint, note.idempotent_hint, note.open_world_hint)
        for name, note in tools.items()
        if note is not None
    }
    assert hints == {
        "worker_list": (True, False, True, False),
        "worker_dispatch": (False, False, False, True),
        "worker_run": (False, False, False, True),
        "worker_status": (True, False, True, False),
        "worker_wait": (False, False, True, False),
        "worker_result": (True, False, True, False),
        "worker_answer": (False, False, True, True),
        "worker_cancel": (False, True, True, False),
        "worker_delete": (False, True, True, False),
        "run_search": (True, False, True, False),
    }
