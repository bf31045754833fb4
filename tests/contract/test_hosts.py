"""The contract of the port `Hosts`, for every adapter."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.architecture.test_docs import files_of
from tests.contract.storages import STORAGES, HostsUnderTest, until
from tests.sample_events import ROOT

from shopfloor.errors import StorageError

pytestmark = [pytest.mark.anyio, pytest.mark.req("SF-38")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the adapter that docs/adapters.md describes."""
    for name, text in files_of(ROOT / "docs" / "adapters.md").items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("leased_hosts", "hosts_under_test"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("hosts_under_test").LeasedHostsUnderTest()


@pytest.fixture(params=[*STORAGES, "documented"])
def hosts_under_test(request: pytest.FixtureRequest, tmp_path: Path) -> HostsUnderTest:
    if request.param == "documented":
        return request.getfixturevalue("documented")
    return STORAGES[request.param](tmp_path)


async def test_hosts_are_alive_from_their_start_to_their_end(hosts_under_test: HostsUnderTest) -> None:
    hosts = hosts_under_test.hosts
    async with hosts_under_test.host(is_dedicated=False) as one:
        async with hosts_under_test.host(is_dedicated=True) as other:
            assert one.name != other.name
            assert await hosts.is_alive(one.name)
            assert await hosts.is_alive(other.name)
            assert not await hosts.is_dedicated(one.name)
            assert await hosts.is_dedicated(other.name)
        assert not await hosts.is_alive(other.name)
        assert await hosts.is_alive(one.name)
    assert not await hosts.is_alive(one.name)


@pytest.mark.parametrize("name", ["local-00000000", "", "../hosts/x", "x" * 5_000, "ünï", "\0"])
async def test_an_unknown_host_is_not_alive_and_cannot_be_killed(hosts_under_test: HostsUnderTest, name: str) -> None:
    hosts = hosts_under_test.hosts
    assert not await hosts.is_alive(name)
    assert not await hosts.is_dedicated(name)
    await hosts.interrupt(name)
    await hosts.kill(name)


async def test_a_dedicated_host_survives_an_interrupt_until_it_is_killed(hosts_under_test: HostsUnderTest) -> None:
    hosts = hosts_under_test.hosts
    async with hosts_under_test.host(is_dedicated=True) as host, hosts_under_test.host(is_dedicated=True) as other:
        await hosts.interrupt(host.name)
        await until(lambda: host.is_interrupted, "the interruption")
        assert await hosts.is_alive(host.name)
        await hosts.kill(host.name)
        await until(lambda: host.is_killed, "the end")
        assert not await hosts.is_alive(host.name)
        assert not other.is_interrupted
        assert not other.is_killed
        assert await hosts.is_alive(other.name)
        # Calling twice is fine.
        await hosts.interrupt(host.name)
        await hosts.kill(host.name)


async def test_a_shared_host_cannot_be_killed(hosts_under_test: HostsUnderTest) -> None:
    hosts = hosts_under_test.hosts
    async with hosts_under_test.host(is_dedicated=False) as host:
        await hosts.interrupt(host.name)
        await hosts.kill(host.name)
        # The next host ends for certain, so the signals to these hosts have had time to arrive.
        async with hosts_under_test.host(is_dedicated=True) as other:
            await hosts.kill(other.name)
            await until(lambda: other.is_killed, "the end of another")
        assert not host.is_interrupted
        assert not host.is_killed
        assert await hosts.is_alive(host.name)


async def test_other_hosts_may_resume_the_runs_of_a_host_that_drains(hosts_under_test: HostsUnderTest) -> None:
    hosts = hosts_under_test.hosts
    async with hosts_under_test.host(is_dedicated=False) as host:
        assert await hosts.is_accepting(host.name)
        await hosts.set_draining(host.name, draining=True)
        assert not await hosts.is_accepting(host.name)
        assert await hosts.is_alive(host.name)
        await hosts.set_draining(host.name, draining=False)
        assert await hosts.is_accepting(host.name)
    assert not await hosts.is_accepting(host.name)


async def test_a_host_is_reaped_only_after_its_end(hosts_under_test: HostsUnderTest) -> None:
    hosts = hosts_under_test.hosts
    async with hosts_under_test.host(is_dedicated=True) as host:
        assert not await hosts.reap(host.name)
        await hosts.kill(host.name)
        await until(lambda: host.is_killed, "the end")
        assert await hosts.reap(host.name)
        assert await hosts.reap(host.name)


# The documented hosts


async def test_a_note_exists_until_the_host_ends_and_an_end_is_final(documented: Any) -> None:
    hosts = documented.hosts
    await hosts.register("one", is_dedicated=True)
    assert await hosts.renew("one") is None
    await hosts.interrupt("one")
    assert [await hosts.renew("one"), await hosts.renew("one")] == ["interrupt", "interrupt"]
    await hosts.kill("one")
    await hosts.interrupt("one")
    assert await hosts.renew("one") == "kill"


async def test_a_host_whose_lease_has_expired_cannot_have_it_back(
    documented: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, hosts = sys.modules["leased_hosts"], documented.hosts
    with monkeypatch.context() as expired:
        expired.setattr(module, "LEASE", "-1 seconds")
        await hosts.register("one", is_dedicated=True)
    assert not await hosts.is_alive("one")
    with pytest.raises(module.LeaseLost):
        await hosts.renew("one")
    with pytest.raises(StorageError):
        await hosts.register("one", is_dedicated=True)
    assert not await hosts.is_alive("one")
