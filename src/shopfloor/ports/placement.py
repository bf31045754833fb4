"""Placement: what a run requires of its host, what live hosts offer, and why a queued run has not started."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from shopfloor.log import Requirements

NO_REQUIREMENTS = Requirements()
LABEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$"
"""Names and values of labels."""
_LABEL = re.compile(LABEL_PATTERN)


def label_problem(name: str, value: str) -> str | None:
    """Return what is wrong with a label; None if it is valid."""
    for text in (name, value):
        if not _LABEL.match(text) or text.endswith("\n"):
            return f"the label {name}={value} is not valid: letters, digits, `.`, `_`, `/` and `-`, at most 63"
    return None


class HostOffer(msgspec.Struct, frozen=True, kw_only=True):
    """What a host offers to runs."""

    labels: dict[str, str] = {}
    providers: frozenset[str] | None = None
    """The providers that the host has; None until they are known: runs that need one wait until then."""
    disabled: frozenset[str] = frozenset()
    """Providers that must not be used for now, by the order of an operator."""
    is_draining: bool = False
    """Whether the host claims no more runs."""

    def satisfies(self, required: Requirements) -> bool:
        """Return whether the host can execute a run with these requirements."""
        return self.has_labels(required) and not missing_providers(required, self)

    def has_labels(self, required: Requirements) -> bool:
        """Return whether the host has all labels that a run requires."""
        return all(self.labels.get(name) == value for name, value in required.labels.items())

    def disable(self, providers: Iterable[str]) -> HostOffer:
        """Return the offer with these providers disabled too."""
        return msgspec.structs.replace(self, disabled=self.disabled.union(providers))


Offers = Callable[[], Sequence[HostOffer]]
"""Returns what each live host offers, including this process if it is one. Does not block."""


def disable_providers(offers: Iterable[HostOffer], names: Iterable[str]) -> list[HostOffer]:
    """Return the offers without these providers, which are disabled for all hosts of a storage."""
    disabled = frozenset(names)
    return [offer.disable(disabled) for offer in offers]


WAITS_FOR_SLOT = "waits for a free slot"
CLAIMED = "claimed by process"
"""Beginnings of the reasons that pass by themselves."""
NO_HOST = "no host is running"
ReasonCode = Literal["slots", "labels", "provider", "disabled", "caller", "definition", "other"]


class QueueReason(msgspec.Struct, frozen=True):
    """Why a queued run has not started."""

    code: ReasonCode
    message: str


_ALL_DRAINING = QueueReason("other", "every host that can execute it is draining")


def missing_providers(required: Requirements, offer: HostOffer) -> list[str]:
    """Return the required providers that this host does not have or must not use."""
    available = (offer.providers or frozenset()) - offer.disabled
    return [name for name in required.providers if name not in available]


def unoffered_providers(providers: Iterable[str], offers: Sequence[HostOffer]) -> set[str]:
    """Return the providers that certainly no live host has. Empty while a host's providers are not known."""
    known = [offer.providers for offer in offers if offer.providers is not None]
    if not known or len(known) < len(offers):
        return set()
    disabled = frozenset[str]().union(*(offer.disabled for offer in offers))
    return set(providers) - disabled.union(*known)


def may_take_over(required: Requirements, own: HostOffer, offers: Sequence[HostOffer]) -> bool:
    """Return whether a host takes over a started run with these requirements.

    It needs the labels. A run whose providers it does not have is left to a live host that has them; without such a
    host it is taken over, and fails with the error that says what is missing.
    """
    if not own.has_labels(required):
        return False
    has_providers = set(required.providers) <= (own.providers or frozenset())
    return has_providers or not any(offer.satisfies(required) and not offer.is_draining for offer in offers)


def merge_requirements(*parts: Requirements | None) -> Requirements | None:
    """Return all requirements together, a later label before an earlier one; None if there are none."""
    labels = {name: value for part in parts if part is not None for name, value in part.labels.items()}
    providers = {name for part in parts if part is not None for name in part.providers}
    if not labels and not providers:
        return None
    return Requirements(labels=dict(sorted(labels.items())), providers=sorted(providers))


def queue_reason(
    required: Requirements | None,
    offers: Sequence[HostOffer],
    *,
    claimed_by: str | None = None,
    is_caller: bool = False,
) -> QueueReason:
    """Return why a queued run has not started. `is_caller`: the process that requested the run executes it."""
    if is_caller:
        return QueueReason("caller", f"waits for the process that requested it{_named(claimed_by)}")
    if claimed_by is not None:
        return QueueReason("other", f"{CLAIMED} {claimed_by}, starts next")
    if not offers:
        return QueueReason("other", f"{NO_HOST}; `shopfloor up` starts one")
    required = required or NO_REQUIREMENTS
    suitable = [offer for offer in offers if offer.satisfies(required)]
    if any(not offer.is_draining for offer in suitable):
        return QueueReason("slots", WAITS_FOR_SLOT)
    if suitable:
        return _ALL_DRAINING
    return _label_reason(required, offers) or _provider_reason(required, offers)


def interruption_reason(required: Requirements | None, offers: Sequence[HostOffer]) -> QueueReason | None:
    """Return why no live host resumes an interrupted run; None if a host may, or if there is no host."""
    if not offers:
        return None
    required = required or NO_REQUIREMENTS
    if reason := _label_reason(required, offers):
        return reason
    return _ALL_DRAINING if all(offer.is_draining for offer in offers if offer.has_labels(required)) else None


def _named(process: str | None) -> str:
    return "" if process is None else f" (process {process})"


def _label_reason(required: Requirements, offers: Sequence[HostOffer]) -> QueueReason | None:
    """Return the reason if no host has the labels; None if one has."""
    if any(offer.has_labels(required) for offer in offers):
        return None
    for name, value in required.labels.items():
        if not any(offer.labels.get(name) == value for offer in offers):
            return QueueReason("labels", f"no host has the label {name}={value}")
    together = ", ".join(f"{name}={value}" for name, value in required.labels.items())
    return QueueReason("labels", f"no host has all of the labels {together}")


def _provider_reason(required: Requirements, offers: Sequence[HostOffer]) -> QueueReason:
    """Return the reason for a run whose labels some host has, but whose providers none of these has."""
    labelled = [offer for offer in offers if offer.has_labels(required)]
    if any(offer.providers is None for offer in labelled):
        return QueueReason("provider", "waits until the providers of the host are known")
    missing = [missing_providers(required, offer) for offer in labelled]
    everywhere = [name for name in missing[0] if all(name in names for names in missing)]
    names = everywhere or sorted({name for names in missing for name in names})
    disabled = [name for name in names if any(name in offer.disabled for offer in labelled)]
    if disabled:
        return QueueReason("disabled", f"the provider {disabled[0]} is disabled")
    with_labels = " and the labels" if required.labels else ""
    what = f"the provider {names[0]}" if everywhere else f"all of the providers {', '.join(names)}"
    return QueueReason("provider", f"no host has {what}{with_labels}")
