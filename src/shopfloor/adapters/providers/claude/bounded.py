"""What is remembered of a stream has a limit: what is oldest is forgotten first."""

from __future__ import annotations

from typing import TypeVar

from shopfloor.limits import OPEN_BRANCHES

_T = TypeVar("_T")


def keep(kept: dict[str, _T], key: str, value: _T) -> None:
    kept[key] = value
    if len(kept) > OPEN_BRANCHES:
        del kept[next(iter(kept))]
