"""Workers in Python, and kinds of step in Python, on a real host."""

from pathlib import Path

import pytest
from tests.engine.floor import Floor

from shopfloor.engine import attempt
from shopfloor.errors import InvalidWorker
from shopfloor.log import StepStarted, ToolCall

pytestmark = pytest.mark.anyio


async def test_a_function_is_a_worker_and_its_steps_are_on_record(floor: Floor):
    floor.python(
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
    async with floor.open() as shift:
        run_id = await shift.dispatch("adds", NUMBERS=[1, 2, 3])
        result = (await shift.ended(run_id)).result
    assert (result["total"], result["printed"], result["exit"], result["doubled"]) == (6, "here\n", 0, 12)
    assert result["said"].startswith("hello")
    assert result["other"].startswith("Hello, Ada!")
    events = floor.events(run_id)
    begun = [(event.path, event.iteration) for event in events if isinstance(event.payload, StepStarted)]
    assert begun[:4] == [("add", 0), ("add", 1), ("add", 2), ("print", 0)]
    called = [event.payload.name for event in events if isinstance(event.payload, ToolCall)]
    assert called == ["update_summary", "log_question", "double"]


async def test_what_a_worker_raises_is_why_its_run_failed(floor: Floor):
    floor.python(
        "raises",
        """
        from shopfloor import Run, worker

        @worker
        async def raises(run: Run):
            raise KeyError("nothing there")
        """,
    )
    async with floor.open() as shift:
        outcome = await shift.ended(await shift.dispatch("raises"))
    assert outcome.error is not None
    assert outcome.error.code == "execution_error"
    assert outcome.error.message == "KeyError: 'nothing there' (worker.py:6)"


@pytest.mark.parametrize("what", ["sys.exit(3)", "raise KeyboardInterrupt", "await run.step('leave', sys.exit, 3)"])
async def test_what_would_end_a_program_ends_only_its_run(floor: Floor, what: str):
    floor.python(
        "leaves",
        f"""
        import sys
        from shopfloor import Run, worker

        @worker
        async def leaves(run: Run):
            {what}
        """,
    )
    async with floor.open() as shift:
        outcome = await shift.ended(await shift.dispatch("leaves"))
        assert outcome.status == "failed"
        assert (await shift.ended(await shift.dispatch("hello", NAME="Ada"))).status == "completed"


async def test_a_step_has_no_steps_inside_it(floor: Floor):
    floor.python(
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
    async with floor.open(slots=1) as shift:
        outcome = await shift.ended(await shift.dispatch("nests"))
    assert outcome.error is not None
    assert "'outside' cannot have the step 'hello' inside it" in outcome.error.message


@pytest.mark.floors("memory", "files")
async def test_what_is_too_large_to_be_recorded_fails_the_run(floor: Floor):
    floor.python(
        "large",
        """
        from shopfloor import Run, worker

        @worker
        async def large(run: Run):
            return "x" * (65 * 1024 * 1024)
        """,
    )
    async with floor.open() as shift:
        outcome = await shift.ended(await shift.dispatch("large"))
    assert outcome.error is not None
    assert "cannot be recorded" in outcome.error.message


async def test_a_step_that_gives_what_is_no_json_fails_and_says_so(floor: Floor):
    floor.python(
        "odd",
        """
        from shopfloor import Run, worker

        @worker
        async def odd(run: Run):
            await run.step("look", lambda: object())
        """,
    )
    async with floor.open() as shift:
        outcome = await shift.ended(await shift.dispatch("odd"))
    assert outcome.error is not None
    assert "'look' gave what is no JSON" in outcome.error.message


async def test_a_kind_of_its_own_is_a_step_like_any_other(floor: Floor):
    home = floor.folder / "scores"
    home.mkdir(parents=True)
    (home / "kinds.py").write_text(
        "async def score(run, text, bonus=0):\n"
        "    size = await run.step('measure', lambda: len(text))\n"
        "    return {'score': size + bonus}\n"
    )
    floor.worker(
        "scores",
        """
        input: {TEXT: {type: string}}
        kinds: {score: 'kinds.py:score'}
        steps: {Rate: {block: score, text: '{{TEXT}}', bonus: 10, output: RATED}}
        output: RATED
        """,
    )
    async with floor.open() as shift:
        run_id = await shift.dispatch("scores", TEXT="abc")
        assert (await shift.ended(run_id)).result == {"score": 13}
    steps = [
        (event.path, event.payload.kind) for event in floor.events(run_id) if isinstance(event.payload, StepStarted)
    ]
    assert steps == [("rate", "score"), ("rate.measure", "step")]


async def test_a_further_try_of_such_a_step_does_not_repeat_what_is_done_in_it(floor: Floor, tmp_path):
    home = floor.folder / "charges"
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
    floor.worker(
        "charges",
        """
        kinds: {pay: 'kinds.py:pay'}
        steps: {Pay: {block: pay, retry: {limit: 2, delay: 0}}}
        """,
    )
    async with floor.open() as shift:
        outcome = await shift.ended(await shift.dispatch("charges"))
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
        elif HOW == "leaves":
            raise GeneratorExit
        elif HOW == "mute":
            raise Mute
        boom()
"""


@pytest.mark.parametrize("how", ["here", "step", "tool", "leaves", "mute"])
async def test_whatever_a_worker_raises_ends_its_run_and_nothing_else(floor: Floor, how: str):
    floor.python("panics", PANICS)
    async with floor.open() as shift:
        outcome = await shift.ended(await shift.dispatch("panics", HOW=how))
        code = "tool_error" if how == "tool" else "execution_error"
        assert (outcome.status, outcome.error and outcome.error.code) == ("failed", code)
        hello = await shift.ended(await shift.dispatch("hello", NAME="Ada"))
    assert hello.status == "completed"


async def test_a_worker_that_panics_when_it_is_loaded_hides_no_other(floor: Floor):
    floor.python("panics", "class Panic(BaseException): ...\nraise Panic('at once')\n")
    async with floor.open() as shift:
        assert "hello" in [worker.slug for worker in shift.service.workers()]
        with pytest.raises(InvalidWorker, match="Panic: at once"):
            await shift.dispatch("panics")


@pytest.mark.floors("memory", "files")
async def test_a_run_whose_log_is_lost_is_not_begun_a_second_time(
    floor: Floor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # No room is made on this disk: nobody has to wait for it.
    monkeypatch.setattr(attempt, "STORAGE_PATIENCE_SECONDS", 0.5)
    ran = tmp_path / "ran"
    floor.worker("effect", f"steps: {{One: {{block: command, command: 'echo ran >> {ran}; sleep 1', output: A}}}}")
    async with floor.open() as shift:
        run_id = await shift.dispatch("effect")
        await shift.until(ran.exists, "the command")
        floor.lose_log(run_id)
        outcome = await shift.ended(run_id)
    assert (outcome.status, outcome.error and outcome.error.code) == ("failed", "outcome_unknown")
    assert ran.read_text() == "ran\n"
