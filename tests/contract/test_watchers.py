"""The contract of the port `Watchers`, for every adapter."""

from __future__ import annotations

import anyio
import pytest
from tests.contract.storages import StorageUnderTest

from shopfloor.ports import Watchers

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def watchers(storage_under_test: StorageUnderTest) -> Watchers:
    return storage_under_test.watchers()


async def disconnect(watchers: Watchers, run_id: str) -> str:
    disconnect_id = await watchers.disconnect(run_id)
    assert disconnect_id is not None
    return disconnect_id


async def test_the_last_client_that_leaves_abandons_its_run_once(watchers: Watchers) -> None:
    await watchers.connect("r1")
    disconnect_id = await disconnect(watchers, "r1")
    assert await watchers.is_abandoned("r1", disconnect_id)
    assert not await watchers.is_abandoned("r1", disconnect_id)


async def test_a_run_with_a_client_left_is_not_abandoned(watchers: Watchers) -> None:
    for _ in range(3):
        await watchers.connect("r1")
    assert [await watchers.disconnect("r1") for _ in range(2)] == [None, None]
    assert await watchers.is_abandoned("r1", await disconnect(watchers, "r1"))


async def test_a_client_that_returns_undoes_the_disconnect(watchers: Watchers) -> None:
    await watchers.connect("r1")
    first = await disconnect(watchers, "r1")
    await watchers.connect("r1")
    assert not await watchers.is_abandoned("r1", first)
    second = await disconnect(watchers, "r1")
    assert second != first
    assert not await watchers.is_abandoned("r1", first), "the grace of the second disconnect has only started"
    assert await watchers.is_abandoned("r1", second)


async def test_a_run_that_is_not_bound_has_no_disconnect_id(watchers: Watchers) -> None:
    await watchers.connect("r1", bound=False)
    assert await watchers.disconnect("r1") is None


@pytest.mark.parametrize("bound", [True, False])
async def test_the_newest_client_decides_if_a_run_is_bound(watchers: Watchers, bound: bool) -> None:
    await watchers.connect("r1", bound=not bound)
    await watchers.connect("r1", bound=bound)
    assert await watchers.disconnect("r1") is None
    assert (await watchers.disconnect("r1") is not None) == bound


async def test_clients_may_leave_a_released_run(watchers: Watchers) -> None:
    await watchers.connect("r1")
    await watchers.unbind("r1")
    assert await watchers.disconnect("r1") is None
    await watchers.connect("r1")
    assert await watchers.disconnect("r1") is not None, "the next client binds the run again"


async def test_a_run_that_is_released_in_its_grace_is_not_abandoned(watchers: Watchers) -> None:
    await watchers.connect("r1")
    disconnect_id = await disconnect(watchers, "r1")
    await watchers.unbind("r1")
    assert not await watchers.is_abandoned("r1", disconnect_id)


async def test_an_abandoned_run_is_no_longer_bound(watchers: Watchers) -> None:
    await watchers.connect("r1")
    assert await watchers.is_abandoned("r1", await disconnect(watchers, "r1"))
    await watchers.connect("r1", bound=False)
    assert await watchers.disconnect("r1") is None


async def test_runs_are_counted_separately(watchers: Watchers) -> None:
    await watchers.connect("r1")
    await watchers.connect("r2")
    first = await disconnect(watchers, "r1")
    assert not await watchers.is_abandoned("r2", first)
    await watchers.unbind("r2")
    assert await watchers.disconnect("r2") is None
    assert await watchers.is_abandoned("r1", first)


async def test_of_many_clients_at_once_one_is_the_last(watchers: Watchers) -> None:
    hang_ups: list[str] = []
    inside = anyio.Event()

    async def client() -> None:
        await watchers.connect("r1")
        await inside.wait()
        disconnect_id = await watchers.disconnect("r1")
        if disconnect_id is not None:
            hang_ups.append(disconnect_id)

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(client)
        await anyio.wait_all_tasks_blocked()
        inside.set()
    assert len(hang_ups) == 1
    assert await watchers.is_abandoned("r1", hang_ups[0])
