"""The composition root: the only package that names adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shopfloor.lazy import lazily as _lazily

if TYPE_CHECKING:
    from shopfloor.wiring.embedded import (
        Office,
        ServerThread,
        Shop,
        Works,
        find_providers,
        local_office,
        local_shop,
        local_works,
        log_reader,
        memory_office,
        open_projects,
        provider_names,
        serve_storage,
        streamed,
        surroundings,
        the_one_server,
        transcript_of,
    )
    from shopfloor.wiring.in_process import open_api, open_client
    from shopfloor.wiring.settings import Workers

__all__ = [
    "Office",
    "ServerThread",
    "Shop",
    "Workers",
    "Works",
    "find_providers",
    "local_office",
    "local_shop",
    "local_works",
    "log_reader",
    "memory_office",
    "open_api",
    "open_client",
    "open_projects",
    "provider_names",
    "serve_storage",
    "streamed",
    "surroundings",
    "the_one_server",
    "transcript_of",
]

_ELSEWHERE = {"in_process": ("open_api", "open_client"), "settings": ("Workers",)}
_names = {name for names in _ELSEWHERE.values() for name in names}
__getattr__ = _lazily(__name__, {**_ELSEWHERE, "embedded": [name for name in __all__ if name not in _names]})
