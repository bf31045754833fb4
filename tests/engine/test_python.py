"""Python workers, and custom kinds of steps, on a real host."""

from pathlib import Path

import pytest
from tests.engine.harness import EngineHarness

from shopfloor.engine import attempt
from shopfloor.errors import InvalidWorker
from shopfloor.log import StepStarted, ToolCall

pytestmark = pytest.mark.anyio


async def test_a_function_is_a_worker_and_its_steps_are_recorded(harness: EngineHarness):
    harness.add_python_worker(
        "adds",
        """
        import asyncio
        from shopfloor import Run, tool, worker

        @tool(read_only=True)
        def double(n: int) -> int:
            "Doubles a number."
            return 2 * n

        @worker(slug="adds", tools=[double])
        async def adds(run: Run, NUMBERS: list, GREETING: str = "hello"):
            "Adds numbers up."
            total = 0
            for number in run.input["NUMBERS"]:
                total += await run.step("add", lambda: number)
            printed = await run.command("echo here", name="print")
            said, other = await asyncio.gather(
                run.model("script/echo", GREETING, name="say"),
                run.worker("hello", {"NAME": "Ada"}, name="greet"),
            )
            await run.summary("nearly there")
            await run.log_question("Was that right?")
            doubled = await run.tool("double", {"n": total})
            return {"total": total, "printed": printed.stdout, "exit": printed.exit_code, "said": said,
                    "other": other, "doubled": doubled}
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("adds", NUMBERS=[1, 2, 3])
        result = (await engine.wait_for_outcome(run_id)).result
    assert (result["total"], result["printed"], result["exit"], result["doubled"]) == (6, "here\n", 0, 12)
    assert result["said"].startswith("hello")
    assert result["other"].startswith("Hello, Ada!")
    events = harness.events(run_id)
    started = [(event.path, event.iteration) for event in events if isinstance(event.payload, StepStarted)]
    assert started[:4] == [("add", 0), ("add", 1), ("add", 2), ("print", 0)]
    called = [event.payload.name for event in events if isinstance(event.payload, ToolCall)]
    assert called == ["update_summary", "log_question", "double"]


async def test_the_exception_of_a_worker_is_the_error_of_its_run(harness: EngineHarness):
    harness.add_python_worker(
        "raises",
        """
        from shopfloor import Run, worker

        @worker
        async def raises(run: Run):
            raise KeyError("nothing there")
        """,
    )
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("raises"))
    assert outcome.error is not None
    assert outcome.error.code == "execution_error"
    assert outcome.error.message == "KeyError: 'nothing there' (worker.py:6)"


@pytest.mark.parametrize("statement", ["sys.exit(3)", "raise KeyboardInterrupt", "await run.step('exit', sys.exit, 3)"])
async def test_an_exit_of_a_worker_ends_only_its_run(harness: EngineHarness, statement: str):
    harness.add_python_worker(
        "exits",
        f"""
        import sys
        from shopfloor import Run, worker

        @worker
        async def exits(run: Run):
            {statement}
        """,
    )
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("exits"))
        assert outcome.status == "failed"
        assert (await engine.wait_for_outcome(await engine.dispatch("hello", NAME="Ada"))).status == "completed"


async def test_a_step_has_no_steps_inside_it(harness: EngineHarness):
    harness.add_python_worker(
        "nests",
        """
        from shopfloor import Run, worker

        @worker
        async def nests(run: Run):
            async def inside():
                return await run.worker("hello", {"NAME": "Ada"})
            await run.step("outside", inside)
        """,
    )
    async with harness.open(slots=1) as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("nests"))
    assert outcome.error is not None
    assert "'hello' cannot be inside the step 'outside'" in outcome.error.message


@pytest.mark.storages("memory", "files")
async def test_a_result_that_is_too_large_to_be_recorded_fails_the_run(harness: EngineHarness):
    harness.add_python_worker(
        "large",
        """
        from shopfloor import Run, worker

        @worker
        async def large(run: Run):
            return "x" * (65 * 1024 * 1024)
        """,
    )
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("large"))
    assert outcome.error is not None
    assert "cannot be recorded" in outcome.error.message


@pytest.mark.parametrize("result", ["object()", "endless"])
async def test_a_step_whose_result_is_not_json_fails_with_that_message(harness: EngineHarness, result: str):
    harness.add_python_worker(
        "odd",
        f"""
        from shopfloor import Run, worker

        endless = []
        endless.append(endless)

        @worker
        async def odd(run: Run):
            await run.step("look", lambda: {result})
        """,
    )
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("odd"))
    assert outcome.error is not None
    assert "the result of 'look' is not JSON" in outcome.error.message


async def test_a_custom_kind_of_step_is_a_step_like_any_other(harness: EngineHarness):
    home = harness.folder / "scores"
    home.mkdir(parents=True)
    (home / "kinds.py").write_text(
        "async def score(run, text, bonus=0):\n"
        "    size = await run.step('measure', lambda: len(text))\n"
        "    return {'score': size + bonus}\n"
    )
    harness.add_worker(
        "scores",
        """
        input: {TEXT: {type: string}}
        kinds: {score: 'kinds.py:score'}
        steps: {Rate: {block: score, text: '{{TEXT}}', bonus: 10, output: RATED}}
        output: RATED
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("scores", TEXT="abc")
        assert (await engine.wait_for_outcome(run_id)).result == {"score": 13}
    steps = [
        (event.path, event.payload.kind) for event in harness.events(run_id) if isinstance(event.payload, StepStarted)
    ]
    assert steps == [("rate", "score"), ("rate.measure", "step")]


async def test_a_retry_of_a_custom_step_does_not_repeat_its_completed_inner_steps(harness: EngineHarness, tmp_path):
    home = harness.folder / "charges"
    home.mkdir(parents=True)
    (home / "kinds.py").write_text(
        f"from pathlib import Path\n"
        f"async def pay(run):\n"
        f"    def charge():\n"
        f"        with Path({str(tmp_path / 'charged')!r}).open('a') as file:\n"
        f"            file.write('x')\n"
        f"    await run.step('charge', charge)\n"
        f"    await run.step('confirm', lambda: 1 / 0)\n"
    )
    harness.add_worker(
        "charges",
        """
        kinds: {pay: 'kinds.py:pay'}
        steps: {Pay: {block: pay, retry: {limit: 2, delay: 0}}}
        """,
    )
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("charges"))
    assert outcome.status == "failed"
    assert (tmp_path / "charged").read_text() == "x"


PANICS = """
    from shopfloor import Run, tool, worker

    class Panic(BaseException):
        pass

    class Mute(Exception):
        def __str__(self):
            return 1 / 0

    def boom():
        raise Panic("it panicked")

    @tool
    def breaks() -> str:
        "Breaks."
        boom()

    @worker(tools=[breaks])
    async def panics(run: Run, HOW: str):
        "Raises what ends programs."
        if HOW == "step":
            await run.step("boom", boom)
        elif HOW == "tool":
            await run.tool("breaks", {})
        elif HOW == "generator_exit":
            raise GeneratorExit
        elif HOW == "mute":
            raise Mute
        boom()
"""


@pytest.mark.parametrize("how", ["here", "step", "tool", "generator_exit", "mute"])
async def test_any_exception_of_a_worker_ends_its_run_and_nothing_else(harness: EngineHarness, how: str):
    harness.add_python_worker("panics", PANICS)
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("panics", HOW=how))
        code = "tool_error" if how == "tool" else "execution_error"
        assert (outcome.status, outcome.error and outcome.error.code) == ("failed", code)
        hello = await engine.wait_for_outcome(await engine.dispatch("hello", NAME="Ada"))
    assert hello.status == "completed"


async def test_a_worker_that_panics_when_it_is_loaded_hides_no_other(harness: EngineHarness):
    harness.add_python_worker("panics", "class Panic(BaseException): ...\nraise Panic('at once')\n")
    async with harness.open() as engine:
        assert "hello" in [worker.slug for worker in engine.service.workers()]
        with pytest.raises(InvalidWorker, match="Panic: at once"):
            await engine.dispatch("panics")


@pytest.mark.storages("memory", "files")
async def test_a_run_whose_log_is_lost_does_not_start_a_second_time(
    harness: EngineHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # The deleted log never comes back: do not wait long for the storage.
    monkeypatch.setattr(attempt, "STORAGE_FULL_TIMEOUT_SECONDS", 0.5)
    ran = tmp_path / "ran"
    harness.add_worker(
        "effect", f"steps: {{One: {{block: command, command: 'echo ran >> {ran}; sleep 1', output: A}}}}"
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("effect")
        await engine.wait_until(ran.exists, "the command")
        harness.delete_log(run_id)
        outcome = await engine.wait_for_outcome(run_id)
    assert (outcome.status, outcome.error and outcome.error.code) == ("failed", "outcome_unknown")
    assert ran.read_text() == "ran\n"
