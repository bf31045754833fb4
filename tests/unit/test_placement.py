"""Why a queued run has not started."""

from __future__ import annotations

import pytest

from shopfloor.log import Requirements
from shopfloor.ports import (
    HostOffer,
    disable_providers,
    interruption_reason,
    may_take_over,
    merge_requirements,
    queue_reason,
    unoffered_providers,
)

LAPTOP = HostOffer(labels={"zone": "a"}, providers=frozenset({"codex"}))
SERVER = HostOffer(labels={"zone": "b", "gpu": "yes"}, providers=frozenset({"gemini"}))
STARTING = HostOffer(labels={"zone": "a"})
DRAINING = HostOffer(labels={"gpu": "yes"}, providers=frozenset(), is_draining=True)
DISABLED = HostOffer(providers=frozenset({"codex"}), disabled=frozenset({"codex"}))


@pytest.mark.parametrize(
    ("required", "offers", "code", "message"),
    [
        (None, [], "other", "no host is running; `shopfloor up` starts one"),
        (None, [LAPTOP], "slots", "waits for a free slot"),
        (Requirements(labels={"zone": "a"}, providers=["codex"]), [SERVER, LAPTOP], "slots", "waits for a free slot"),
        (Requirements(labels={"gpu": "yes"}), [LAPTOP], "labels", "no host has the label gpu=yes"),
        (Requirements(labels={"gpu": "no"}), [SERVER], "labels", "no host has the label gpu=no"),
        (
            Requirements(labels={"gpu": "yes", "zone": "a"}),
            [LAPTOP, SERVER],
            "labels",
            "no host has all of the labels gpu=yes, zone=a",
        ),
        (Requirements(providers=["copilot"]), [LAPTOP, SERVER], "provider", "no host has the provider copilot"),
        (
            Requirements(providers=["codex", "gemini"]),
            [LAPTOP, SERVER],
            "provider",
            "no host has all of the providers codex, gemini",
        ),
        (
            Requirements(labels={"gpu": "yes"}, providers=["codex"]),
            [LAPTOP, SERVER],
            "provider",
            "no host has the provider codex and the labels",
        ),
        (
            Requirements(providers=["codex"]),
            [SERVER, STARTING],
            "provider",
            "waits until the providers of the host are known",
        ),
        (Requirements(providers=["codex"]), [DISABLED], "disabled", "the provider codex is disabled"),
        (
            Requirements(providers=["codex"]),
            disable_providers([LAPTOP, SERVER], ["codex"]),
            "disabled",
            "the provider codex is disabled",
        ),
        (None, [LAPTOP, DRAINING], "slots", "waits for a free slot"),
        (
            Requirements(labels={"gpu": "yes"}),
            [LAPTOP, DRAINING],
            "other",
            "every host that can execute it is draining",
        ),
    ],
)
def test_a_queued_run_says_why_it_has_not_started(
    required: Requirements | None, offers: list[HostOffer], code: str, message: str
) -> None:
    reason = queue_reason(required, offers)
    assert (reason.code, reason.message) == (code, message)


def test_a_claimed_run_names_its_process() -> None:
    assert queue_reason(None, [LAPTOP], claimed_by="h1").message == "claimed by process h1, starts next"
    caller = queue_reason(None, [LAPTOP], claimed_by="h1", is_caller=True)
    assert (caller.code, caller.message) == ("caller", "waits for the process that requested it (process h1)")


def test_a_provider_counts_as_missing_only_if_certainly_no_host_has_it() -> None:
    assert unoffered_providers(["codex", "gemini"], [LAPTOP]) == {"gemini"}
    assert unoffered_providers(["codex", "gemini"], [LAPTOP, SERVER]) == set()
    assert unoffered_providers(["gemini"], [LAPTOP, STARTING]) == set()
    assert unoffered_providers(["gemini"], []) == set()
    assert unoffered_providers(["codex"], [DISABLED]) == set()


def test_a_run_is_taken_over_by_a_host_with_its_labels_and_if_there_is_one_its_providers() -> None:
    gpu, gemini = Requirements(labels={"gpu": "yes"}), Requirements(providers=["gemini"])
    assert not may_take_over(gpu, LAPTOP, [LAPTOP])
    assert may_take_over(gpu, SERVER, [LAPTOP, SERVER])
    assert not may_take_over(gemini, LAPTOP, [LAPTOP, SERVER])
    assert may_take_over(gemini, LAPTOP, [LAPTOP, DRAINING])
    assert may_take_over(Requirements(providers=["codex"]), DISABLED, [DISABLED, LAPTOP])


def test_an_interrupted_run_says_that_no_host_has_its_labels() -> None:
    gpu = Requirements(labels={"gpu": "yes"})
    reason = interruption_reason(gpu, [LAPTOP])
    assert reason is not None
    assert reason.message == "no host has the label gpu=yes"
    assert interruption_reason(gpu, [LAPTOP, SERVER]) is None
    assert interruption_reason(gpu, []) is None
    assert interruption_reason(None, [LAPTOP]) is None


def test_an_interrupted_run_says_that_every_host_is_draining() -> None:
    gpu = Requirements(labels={"gpu": "yes"})
    for required, offers in ((None, [DRAINING]), (gpu, [DRAINING]), (gpu, [LAPTOP, DRAINING])):
        reason = interruption_reason(required, offers)
        assert reason is not None
        assert reason.message == "every host that can execute it is draining"
    assert interruption_reason(None, [LAPTOP, DRAINING]) is None


def test_requirements_are_merged_into_one_order() -> None:
    first = Requirements(labels={"b": "1", "a": "1"}, providers=["gemini"])
    assert merge_requirements(first, None, Requirements(labels={"a": "2"}, providers=["codex"])) == Requirements(
        labels={"a": "2", "b": "1"}, providers=["codex", "gemini"]
    )
    assert merge_requirements(None, Requirements()) is None
