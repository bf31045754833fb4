"""The composition root: the only package that names adapters."""

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
