"""Failures that wait for a person, for every store: which they are, until when, and how they are dismissed."""

from __future__ import annotations

import msgspec
import pytest
from tests.contract.storages import StorageUnderTest
from tests.contract.test_store import FIRST_DAY, apply_runs, item_of
from tests.contract.view_changes import at, run, steps, tool_call

from shopfloor.errors import all_error_types
from shopfloor.log import Awaits, BasedOn, Event, RunError, StepStarted
from shopfloor.ports import RunFilter, Store
from shopfloor.views import Activity

pytestmark = pytest.mark.anyio

LONG_AGO = at(-10)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def failed_ids(store: Store, after: str) -> list[str]:
    waits = await store.waiting(failed_after=after, limit=10)
    assert waits.failures == len(waits.failed)
    return [item.row.id for item in waits.failed]


def failure(code: str = "authentication_error", *, second: int = 0, parent: str | None = None) -> list[Event]:
    return run(code, status="failed", second=second, error=RunError(code=code, message="why"), parent=parent)


@pytest.mark.req("SF-67")
async def test_only_roots_that_failed_for_a_reason_that_a_person_can_remove_wait(store: Store) -> None:
    login, missing, _, _, _, _ = await apply_runs(
        store,
        failure("authentication_error", second=1),
        failure("agent_not_installed", second=2),
        failure("execution_error", second=3),
        failure("made_up_by_a_worker", second=4),
        failure("authentication_error", second=5, parent="7a0c7cd0-2a4c-4c3a-9b3a-3f0c7f1f1a11"),
        run("open", status=None, second=6),
    )
    assert await failed_ids(store, LONG_AGO) == [login, missing]
    assert (await item_of(store, login)).row.needs_person_since == (await item_of(store, login)).row.completed_at


async def test_the_errors_that_need_a_person_are_a_property_of_their_classes() -> None:
    assert {error.code for error in all_error_types() if error.needs_person} == {
        *("agent_not_installed", "authentication_error", "budget_exceeded", "definition_changed"),
        *("extra_not_installed", "max_turns_exceeded", "outcome_unknown", "poisoned", "provider_disabled"),
    }


@pytest.mark.req("SF-67")
async def test_a_failure_waits_until_it_is_old_or_a_run_is_based_on_it(store: Store) -> None:
    first, second = await apply_runs(store, failure(second=1), failure(second=9))
    assert await failed_ids(store, LONG_AGO) == [first, second]
    assert await failed_ids(store, at(5)) == [second]
    ended = (await item_of(store, second)).row.completed_at
    assert await failed_ids(store, ended or "") == []
    await apply_runs(store, run("again", status=None, based_on=BasedOn(run_id=second, kind="rerun")))
    assert await failed_ids(store, LONG_AGO) == [first]


@pytest.mark.req("SF-68")
async def test_a_dismissed_failure_no_longer_waits_and_a_deleted_one_is_forgotten(store: Store) -> None:
    events, other = failure(), failure(second=1)
    dismissed, waiting = await apply_runs(store, events, other)
    for _ in range(2):
        assert await store.dismiss(dismissed) is True
        assert await failed_ids(store, LONG_AGO) == [waiting]
    assert await store.dismiss("7a0c7cd0-2a4c-4c3a-9b3a-3f0c7f1f1a11") is False
    await store.clear_views()
    await apply_runs(store, events, other)
    assert await failed_ids(store, LONG_AGO) == [waiting]
    await store.delete(dismissed)
    await apply_runs(store, events)
    assert await failed_ids(store, LONG_AGO) == [dismissed, waiting]


@pytest.mark.req("SF-67")
async def test_statistics_count_failures_that_wait(store: Store) -> None:
    first, second = await apply_runs(store, failure(second=1), failure(second=9))
    assert (await store.stats(RunFilter(), FIRST_DAY)).waiting == 0
    days = type(FIRST_DAY)(FIRST_DAY.starts, FIRST_DAY.today, needs_person_after=LONG_AGO)
    for wanted in (RunFilter(), RunFilter(name="build"), RunFilter(search="authentication")):
        stored = await store.stats(wanted, days)
        assert (stored.waiting, stored.longest_waiting_since) == (2, (await item_of(store, first)).row.completed_at)
    await store.dismiss(first)
    stored = await store.stats(RunFilter(), days)
    assert (stored.waiting, stored.longest_waiting_since) == (1, (await item_of(store, second)).row.completed_at)
    assert (await store.stats(RunFilter(name="another"), days)).waiting == 0


@pytest.mark.req("SF-58")
async def test_a_run_with_a_call_pending_in_one_branch_is_found_whatever_its_status(store: Store) -> None:
    asks = tool_call("q", {"question": "Which?"}, awaits=Awaits(kind="question"))
    limit = tool_call("r", {}, awaits=Awaits(kind="rate_limit"))
    waiting, *_ = await apply_runs(
        store,
        run("waiting", asks, status=None, second=1),
        run("ended", asks, second=2),
        run("limited", limit, status=None, second=3),
        run("busy", status=None, second=4),
    )
    events = run("parallel", asks, StepStarted(name="other", kind="command", try_=1), status=None, second=5)
    events[-1] = msgspec.structs.replace(events[-1], path="t")
    (parallel,) = await apply_runs(store, events)
    assert (await item_of(store, parallel)).row.status == "running"
    waits = await store.waiting(failed_after=LONG_AGO, limit=10)
    assert ([item.row.id for item in waits.pending], waits.calls) == ([waiting, parallel], 2)
    assert [item.row.id for item in (await store.waiting(failed_after=LONG_AGO, limit=1)).pending] == [waiting]


async def test_the_activity_of_a_run_is_stored_until_it_ends(store: Store) -> None:
    call = tool_call("c1", {"command": "go test ./..."})
    events = run("busy", *steps(1), call, status=None)
    (run_id,) = await apply_runs(store, events)
    assert (await item_of(store, run_id)).row.activity == Activity("Bash", "go test ./...", events[-1].path)
    ended = run("busy", *steps(1), call, run_id=run_id)
    await apply_runs(store, ended)
    assert (await item_of(store, run_id)).row.activity == Activity()


@pytest.mark.req("SF-68")
async def test_a_dismissal_survives_a_restart(storage_under_test: StorageUnderTest) -> None:
    async with storage_under_test.rows() as (store, _):
        (run_id,) = await apply_runs(store, failure())
        await store.dismiss(run_id)
    async with storage_under_test.rows() as (store, _):
        assert run_id not in await failed_ids(store, LONG_AGO)
