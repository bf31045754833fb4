"""YAML workers on a real host: the behavior of each kind of step."""

import pytest
from tests.engine.harness import EngineHarness
from tests.engine.test_waiting_runs import wait_for_pending_call

from shopfloor.log import AssistantMessage, StepCompleted, StepStarted, UserMessage

pytestmark = pytest.mark.anyio


async def test_a_failure_keeps_its_hint_even_if_a_sub_run_failed(harness: EngineHarness):
    forever = "block: while, while: {value: 1, not: 2}, maxRounds: 1, steps: {Do: {block: command, command: 'true'}}"
    harness.add_worker("lost", f"steps:\n  Round: {{{forever}}}")
    harness.add_worker("caller", "steps:\n  Call: {block: run-worker, worker: lost}")
    harness.add_worker("plain", "steps:\n  Fail: {block: command, command: exit 3}")
    async with harness.open() as engine:
        outcomes = {
            slug: await engine.wait_for_outcome(await engine.dispatch(slug)) for slug in ("lost", "caller", "plain")
        }
    errors = {slug: outcome.error for slug, outcome in outcomes.items() if outcome.error}
    assert {slug: error.hint or None for slug, error in errors.items()} == {
        "lost": "raise `maxRounds`",
        "caller": "raise `maxRounds`",
        "plain": None,
    }


async def test_a_failed_step_keeps_its_hint_when_the_run_is_resumed(harness: EngineHarness):
    harness.add_python_worker(
        "stubborn",
        """
        from shopfloor import Run, worker
        from shopfloor.errors import StepFailed

        async def fail():
            raise StepFailed("it is shut", hint="open it first")

        @worker
        async def stubborn(run: Run):
            try:
                await run.step("try", fail)
            except StepFailed as failed:
                hint = failed.hint
            await run.ask("Shall we continue?")
            return hint
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("stubborn")
        call_id = await wait_for_pending_call(engine, run_id)
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "yes")
        assert (await engine.wait_for_outcome(run_id)).result == "open it first"
    (ended,) = [
        event.payload
        for event in harness.events(run_id)
        if isinstance(event.payload, StepCompleted) and event.payload.name == "try"
    ]
    assert (ended.error, ended.error_code, ended.error_hint) == ("it is shut", "execution_error", "open it first")


@pytest.mark.req("SDK-4")
async def test_steps_are_executed_in_order_and_the_output_is_returned(harness: EngineHarness):
    harness.add_worker(
        "two",
        """
        input: {NAME: {type: string}}
        steps:
          First: {block: command, command: 'echo one {{NAME}}', output: ONE}
          Second: {block: command, command: 'echo two; echo after {{ONE}}', output: TWO}
        output: {one: '{{ONE}}', two: '{{TWO}}'}
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("two", NAME="Ada; rm -rf /")
        outcome = await engine.wait_for_outcome(run_id)
    assert outcome.result == {"one": "one Ada; rm -rf /", "two": "two\nafter one Ada; rm -rf /"}
    steps = [(type(event.payload).__name__, event.path) for event in harness.events(run_id) if event.path]
    assert [path for kind, path in steps if kind in ("StepStarted", "StepCompleted")] == [
        "first",
        "first",
        "second",
        "second",
    ]


async def test_a_thread_gets_its_prompts_and_the_model_answers(harness: EngineHarness):
    harness.add_worker(
        "talk",
        """
        input: {NAME: {type: string}}
        steps:
          Start: {block: start-thread, model: script/echo, system: about}
          Say: {block: add-message, prompt: greeting, input: [NAME]}
          Answer: {block: next-message, output: ANSWER}
          Text: {block: serialize-thread, output: WHOLE}
        output: {answer: '{{ANSWER}}', whole: '{{WHOLE}}'}
        """,
        about="You repeat {{NAME}}.",
        greeting="Hello {{NAME}}",
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("talk", NAME="Ada")
        outcome = await engine.wait_for_outcome(run_id)
    assert "Hello Ada" in outcome.result["answer"]
    assert outcome.result["whole"].startswith("## system\n\nYou repeat Ada.\n\n## user\n\nHello Ada\n\n## assistant")
    messages = [
        event.payload for event in harness.events(run_id) if isinstance(event.payload, UserMessage | AssistantMessage)
    ]
    first = messages[0]
    assert isinstance(first, UserMessage)
    assert first.system_prompt == "You repeat Ada."
    assert outcome.usage is not None
    assert outcome.usage.output > 0


@pytest.mark.storages("memory", "files")
async def test_branches_run_concurrently_and_write_one_valid_log(harness: EngineHarness):
    branches = "\n".join(
        f"      b{n}: {{Do: {{block: command, command: 'sleep 0.1; echo {n}', output: R{n}}}}}" for n in range(8)
    )
    harness.add_worker("wide", f"steps:\n  Wide:\n    block: parallel\n    branches:\n{branches}\noutput: '{{{{R7}}}}'")
    async with harness.open() as engine:
        run_id = await engine.dispatch("wide")
        assert (await engine.wait_for_outcome(run_id)).result == "7"
    events = harness.events(run_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    started = [event.seq for event in events if isinstance(event.payload, StepStarted) and event.path.endswith(".do")]
    done = [event.seq for event in events if isinstance(event.payload, StepCompleted) and event.path.endswith(".do")]
    assert len(started) == len(done) == 8
    assert max(started[:2]) < min(done), "at least two ran at the same time"


async def test_loops_number_their_rounds_and_collect_the_results(harness: EngineHarness):
    harness.add_worker(
        "loops",
        """
        variables: {COUNT: {type: any, default: '0'}}
        steps:
          Each:
            block: for-each
            each: [a, b]
            steps:
              Inner:
                block: for_each
                each: [1, 2]
                as: NUMBER
                steps:
                  Join: {block: command, command: 'echo {{ITEM}}{{NUMBER}}', output: JOINED}
                collect: JOINED
                output: ROW
            collect: ROW
            output: ROWS
          Until:
            block: while
            while: {value: '{{COUNT}}', not: '3'}
            steps:
              Count: {block: command, command: 'expr {{COUNT}} + 1', output: COUNT}
        output: {rows: '{{ROWS}}', count: '{{COUNT}}'}
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("loops")
        outcome = await engine.wait_for_outcome(run_id)
    assert outcome.result == {"rows": [["a1", "a2"], ["b1", "b2"]], "count": "3"}
    keys = {(event.path, event.iteration) for event in harness.events(run_id) if event.path.endswith(("join", "count"))}
    assert keys == {
        ("each.0.inner.0.join", 0),
        ("each.0.inner.1.join", 1),
        ("each.1.inner.0.join", 0),
        ("each.1.inner.1.join", 1),
        ("until.0.count", 0),
        ("until.1.count", 1),
        ("until.2.count", 2),
    }


async def test_a_terminal_step_ends_the_run_if_its_condition_holds(harness: EngineHarness):
    harness.add_worker(
        "stops",
        """
        input: {HOW: {type: string}}
        steps:
          Not yet: {block: terminal, when: {value: '{{HOW}}', is: early}, output: stopped early}
          Each:
            block: for-each
            each: [1, 2, 3]
            steps:
              Fail: {block: terminal, when: {value: '{{HOW}}', is: badly}, status: failed, message: 'at {{ITEM}}'}
        output: all the way
        """,
    )
    async with harness.open() as engine:
        assert await engine.run_worker("stops", HOW="early") == "stopped early"
        assert await engine.run_worker("stops", HOW="no") == "all the way"
        failed = await engine.wait_for_outcome(await engine.dispatch("stops", HOW="badly"))
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.message == "at 1"


async def test_a_sub_run_is_linked_both_ways_and_returns_its_output_to_its_parent(harness: EngineHarness):
    harness.add_worker(
        "child",
        "input: {X: {type: string}}\nsteps: {Do: {block: command, command: 'echo got {{X}}', output: Y}}\noutput: Y",
    )
    harness.add_worker(
        "parent",
        "steps: {Call: {block: run-worker, worker: child, input: {X: seven}, output: Z}}\noutput: 'child {{Z}}'",
    )
    async with harness.open(slots=1) as engine:
        run_id = await engine.dispatch("parent")
        assert (await engine.wait_for_outcome(run_id)).result == "child got seven"
    call = next(event for event in harness.events(run_id) if event.child_run_id is not None)
    child = harness.events(call.child_run_id or "")
    assert {event.parent_run_id for event in child} == {run_id}


async def test_a_failed_step_is_retried_by_its_policy(harness: EngineHarness, tmp_path):
    harness.add_worker(
        "flaky",
        f"""
        steps:
          Try:
            block: command
            command: 'echo x >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) -ge 3'
            retry: {{limit: 3, delay: 0.01}}
        output: all done
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("flaky")
        assert (await engine.wait_for_outcome(run_id)).result == "all done"
    tries = [event.payload.try_ for event in harness.events(run_id) if isinstance(event.payload, StepStarted)]
    assert tries == [1, 2, 3]
