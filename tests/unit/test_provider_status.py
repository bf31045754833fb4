"""The status of a provider as a function of what is known, its announcements, and what runs observe."""

from __future__ import annotations

import math
from typing import Any

import anyio
import msgspec
import pytest
from tests.contract.view_changes import run

from shopfloor.adapters.bus import InProcessBus
from shopfloor.adapters.memory import (
    MemoryFleetEvents,
    MemoryHosts,
    MemoryProviderHealth,
    MemoryStorage,
    MemoryStore,
)
from shopfloor.adapters.providers import API_KEYS, PROVIDER_NAMES
from shopfloor.fleet import ProviderMonitor, decide_status, settle
from shopfloor.fleet.limits import (
    PROVIDER_FAILURE_SECONDS,
    PROVIDER_LIMIT_SECONDS,
)
from shopfloor.log import (
    AssistantMessage,
    Limit,
    Note,
    Payload,
    Session,
    StepCompleted,
    StepStarted,
    format_timestamp,
)
from shopfloor.ports import (
    PROVIDER_TITLES,
    AnnouncedStatus,
    Capabilities,
    DisabledBy,
    FleetFilter,
    ProviderCheck,
    ProviderFailure,
    ProviderInfo,
    ProviderRecord,
)
from shopfloor.views import (
    FleetEventState,
    ObservedLimit,
    ProviderObservation,
    fleet_event_step,
    provider_observations,
)

NOW = 1_800_000_000.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def at(seconds: float) -> str:
    return format_timestamp(int((NOW + seconds) * 1000))


def check(**fields: Any) -> ProviderCheck:
    facts: dict[str, Any] = {"kind": "agent", "program": "codex", "path": "/bin/codex", "login": "KEY", **fields}
    info = ProviderInfo(name="codex", install="get it", capabilities=Capabilities(), access_mode="api", **facts)
    return ProviderCheck(info=info, at=at(-1))


def record(**fields: Any) -> ProviderRecord:
    return ProviderRecord(name="codex", **{"checks": {"host": check()}, **fields})


def limit(met: float, reset: float | None, status: str = "rejected", name: str | None = None) -> ObservedLimit:
    return ObservedLimit(
        kind="requests",
        name=name,
        current=None,
        max=None,
        reset_at=None if reset is None else at(reset),
        status=status,  # type: ignore[arg-type]
        met_at=at(met),
    )


def failure(seconds: float, code: str) -> ProviderFailure:
    return ProviderFailure(code=code, message="it said no", at=at(seconds))


CASES = {
    "works": (record(), "available", None),
    "nobody checked": (record(checks={}), "available", None),
    "not installed": (record(checks={"host": check(path=None)}), "unavailable", "error"),
    "not logged in": (record(checks={"host": check(login=None)}), "unavailable", "error"),
    "broken": (record(checks={"host": check(problem="no library")}), "unavailable", "error"),
    "one host of two has it": (record(checks={"one": check(path=None), "two": check()}), "available", None),
    "limited": (record(limits=(limit(-5, 60),)), "rate_limited", "rate_limited"),
    "limited without a reset": (record(limits=(limit(-5, None),)), "rate_limited", "rate_limited"),
    "limited long ago without a reset": (record(limits=(limit(-PROVIDER_LIMIT_SECONDS, None),)), "available", None),
    "limit has reset": (record(limits=(limit(-60, 0),)), "available", None),
    "worked after the limit": (record(limits=(limit(-5, 60),), answered_at=at(-1)), "available", None),
    "near a limit": (record(limits=(limit(-5, 60, "warning"),)), "available", None),
    "login rejected": (record(failure=failure(-9_999, "authentication_error")), "unavailable", "error"),
    "worked after the rejection": (
        record(failure=failure(-5, "authentication_error"), answered_at=at(-1)),
        "available",
        None,
    ),
    "program only knows its login": (
        record(failure=failure(-5, "authentication_error"), checks={"host": check(answers=True)}),
        "unavailable",
        "error",
    ),
    "api answered after the rejection": (
        record(failure=failure(-5, "authentication_error"), checks={"host": check(kind="api", answers=True)}),
        "available",
        None,
    ),
    "unreachable": (record(failure=failure(-5, "provider_unreachable")), "unavailable", "error"),
    "unreachable long ago": (
        record(failure=failure(-PROVIDER_FAILURE_SECONDS, "provider_unreachable")),
        "available",
        None,
    ),
    "disabled": (record(disabled=DisabledBy(by="ada", at=at(-9))), "disabled", "disabled"),
    "disabled and not installed": (
        record(disabled=DisabledBy(by="ada", at=at(-9), maintenance=True), checks={"host": check(path=None)}),
        "disabled",
        "maintenance",
    ),
}


@pytest.mark.parametrize(("known", "status", "reason"), CASES.values(), ids=CASES.keys())
def test_the_status_follows_from_what_is_known(known: ProviderRecord, status: str, reason: str | None) -> None:
    decision = decide_status(known, NOW)
    assert (decision.status, decision.reason) == (status, reason)


def test_a_limited_provider_recovers_when_its_last_limit_resets() -> None:
    limits = (limit(-5, 60, name="five_hour"), limit(-5, 3_600, name="weekly"), limit(-5, 9_999, "warning", "opus"))
    assert decide_status(record(limits=limits), NOW).estimated_recovery == at(3_600)


def announced(known: ProviderRecord) -> tuple[ProviderRecord, list[dict[str, Any]]]:
    """Announce the status of a provider; return its record afterwards, and the events."""
    changed, events = settle({"codex": known}, NOW)
    return (changed[0] if changed else known), [{"type": event.type, **event.payload} for event in events]


def test_each_change_is_announced_once_with_what_it_was_before() -> None:
    known, events = announced(record())
    assert (known.announced, events) == (AnnouncedStatus("available", None), [])
    known, events = announced(msgspec.structs.replace(known, limits=(limit(-5, 60),)))
    (unavailable,) = events
    assert unavailable == {
        "type": "provider.unavailable",
        "providerId": "codex",
        "name": "Codex",
        "reason": "rate_limited",
        "estimatedRecovery": at(60),
    }
    assert announced(known)[1] == []
    # A later reset of the same limit is no change.
    assert announced(msgspec.structs.replace(known, limits=(limit(-4, 90),)))[1] == []
    known, events = announced(msgspec.structs.replace(known, limits=()))
    assert events == [
        {
            "type": "provider.available",
            "providerId": "codex",
            "name": "Codex",
            "previousStatus": "rate_limited",
            "accessMode": "api",
        }
    ]


def test_what_a_first_check_finds_missing_is_no_event_but_what_people_and_runs_cause_is() -> None:
    assert announced(record(checks={"host": check(path=None)}))[1] == []
    assert announced(ProviderRecord(name="codex")) == (ProviderRecord(name="codex"), [])
    (event,) = announced(ProviderRecord(name="codex", disabled=DisabledBy(by="ada", at=at(0), reason="moved")))[1]
    assert (event["reason"], event["error"]) == ("disabled", "moved")
    (event,) = announced(record(failure=failure(-1, "authentication_error")))[1]
    assert (event["reason"], event["error"]) == ("error", "it said no")


def test_maintenance_that_becomes_a_ban_is_a_change() -> None:
    known, _ = announced(record(disabled=DisabledBy(by="ada", at=at(0), maintenance=True)))
    (event,) = announced(msgspec.structs.replace(known, disabled=DisabledBy(by="ada", at=at(0))))[1]
    assert (event["type"], event["reason"]) == ("provider.unavailable", "disabled")


# What runs observe


def observations(*payloads: Payload, run_provider: str | None = None) -> list[ProviderObservation]:
    state, found = FleetEventState(), list[ProviderObservation]()
    for event in run("one", *payloads):
        found += provider_observations(state, event, run_provider)
        state, _ = fleet_event_step(state, event)
    return found


START = StepStarted(name="s", kind="agent", try_=1, session=Session(provider="codex"))
SPENT = Limit(current=0.5, max=2.0, window="weekly", status="allowed", reset_at=at(60))


def ended(**fields: Any) -> StepCompleted:
    return StepCompleted(name="s", kind="agent", try_=1, **fields)


def test_a_session_that_ends_well_shows_that_its_provider_answers_and_how_much_is_used() -> None:
    (seen,) = observations(START, ended(rate_limits=[SPENT]))
    assert (seen.provider, seen.answered, seen.failure) == ("codex", True, None)
    (found,) = seen.limits
    assert (found.kind, found.name, found.current, found.max, found.status) == (
        None,
        "weekly",
        0.5,
        2.0,
        "allowed",
    )
    assert (found.reset_at, found.met_at) == (at(60), seen.at)


def test_a_rejected_login_and_a_limit_without_details_are_the_providers_but_a_failed_task_is_not() -> None:
    (rejected,) = observations(START, ended(error="bad key", error_code="authentication_error"))
    assert (rejected.failure, rejected.message, rejected.answered) == ("authentication_error", "bad key", False)
    (limited,) = observations(START, ended(error="slow down", error_code="rate_limit_error"))
    assert [found.status for found in limited.limits] == ["rejected"]
    assert observations(START, ended(error="it broke", error_code="agent_error")) == []


def test_a_retry_after_a_rate_limit_says_when_the_limit_ends() -> None:
    note = Note(kind="retry", code="rate_limit_error", retry_after=30)
    (seen,) = observations(START, AssistantMessage(note=note, blocks=[], model=None))
    (found,) = seen.limits
    assert found.status == "rejected"
    assert found.reset_at is not None
    assert found.reset_at > found.met_at


def test_a_step_of_a_model_api_counts_for_the_provider_of_its_run() -> None:
    step = StepCompleted(name="s", kind="next-message", try_=1, error="no", error_code="authentication_error")
    (seen,) = observations(step, run_provider="anthropic")
    assert seen.provider == "anthropic"


def test_a_step_of_a_model_in_a_worker_counts_for_the_provider_of_its_conversation() -> None:
    started = StepStarted(name="s", kind="next-message", try_=1, session=Session(provider="anthropic", session_id="c"))
    step = StepCompleted(name="s", kind="next-message", try_=1, error="no", error_code="authentication_error")
    (seen,) = observations(started, step)
    assert (seen.provider, seen.failure) == ("anthropic", "authentication_error")
    (answered,) = observations(started, msgspec.structs.replace(step, error=None, error_code=None))
    assert (answered.provider, answered.answered) == ("anthropic", True)


def test_without_an_expected_recovery_nothing_is_looked_at_before_the_next_poll() -> None:
    health, hosts = MemoryProviderHealth(MemoryStore()), MemoryHosts(MemoryStorage())
    monitor = ProviderMonitor(health, InProcessBus(), hosts, lambda _: [], interval_seconds=0)
    assert anyio.run(monitor.settle) == math.inf


@pytest.mark.anyio
async def test_providers_are_looked_for_once_without_periodic_checks_however_often_they_are_listed() -> None:
    health, memory = MemoryProviderHealth(MemoryStore()), MemoryStorage()
    probes: list[bool] = []

    def probe(asks_providers: bool) -> list[ProviderInfo]:
        probes.append(asks_providers)
        return [check().info]

    monitor = ProviderMonitor(health, InProcessBus(), MemoryHosts(memory), probe, host="local-1", interval_seconds=0)
    assert monitor.usable is None
    found: list[str] = []

    async def show() -> None:
        found.extend(state.info.name for state in await monitor.list())

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(show)
    await show()
    assert (found, probes) == (["codex"] * 6, [False])
    assert "local-1" in (await health.read())["codex"].checks
    assert monitor.usable == ("codex",)


@pytest.mark.anyio
@pytest.mark.req("FE-38", "FE-39")
async def test_the_check_of_a_host_that_is_gone_counts_no_more_if_another_host_has_checked() -> None:
    store, memory, bus = MemoryStore(), MemoryStorage(), InProcessBus()
    health, hosts = MemoryProviderHealth(store), MemoryHosts(memory)

    def monitor(host: str, **fields: Any) -> ProviderMonitor:
        return ProviderMonitor(health, bus, hosts, lambda _: [check(**fields).info], host=host)

    one, other = monitor("local-1"), monitor("local-2", login=None)
    with hosts.register("local-2"):
        with hosts.register("local-1"):
            await one.check()
            await other.check()
            await other.settle()
            assert decide_status((await health.read())["codex"], NOW).status == "available"
        await other.settle()
        record = (await health.read())["codex"]
        assert (record.announced, list(record.checks)) == (AnnouncedStatus("unavailable", "error"), ["local-2"])
    # Without any other check, the last one says more than none.
    await one.settle()
    assert list((await health.read())["codex"].checks) == ["local-2"]
    events = await MemoryFleetEvents(store).read(FleetFilter(stream="provider"), after=0, limit=9)
    assert [b"provider.unavailable" in event.body for event in events.events] == [True]


def test_the_list_of_providers_has_those_of_the_adapters_in_the_same_order() -> None:
    assert tuple(PROVIDER_TITLES) == (*PROVIDER_NAMES, *API_KEYS)


def test_a_limit_of_which_only_the_used_fraction_is_known_has_the_maximum_one() -> None:
    note = Note(kind="limit", limit=Limit(current=0.82, status="warning"))
    (seen,) = observations(START, AssistantMessage(note=note, blocks=[], model=None))
    assert [(limit.current, limit.max) for limit in seen.limits] == [(0.82, 1.0)]
