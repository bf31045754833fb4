"""Shopfloor runs AI workers and keeps the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shopfloor.lazy import lazy_getattr as _lazy_getattr
from shopfloor.version import __version__

if TYPE_CHECKING:
    from shopfloor.client import StreamEvent, to_sse
    from shopfloor.engine import Retry, Run, tool, worker
    from shopfloor.errors import ShopfloorError
    from shopfloor.facade import Shopfloor

__all__ = [
    "Retry",
    "Run",
    "Shopfloor",
    "ShopfloorError",
    "StreamEvent",
    "__version__",
    "to_sse",
    "tool",
    "worker",
]

__getattr__ = _lazy_getattr(
    __name__,
    {
        "client": ("StreamEvent", "to_sse"),
        "engine": ("Retry", "Run", "tool", "worker"),
        "errors": ("ShopfloorError",),
        "facade": ("Shopfloor",),
    },
)
