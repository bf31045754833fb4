"""The composition root: the only package that names adapters."""

from shopfloor.adapters.local import local_process
from shopfloor.wiring.access import access_control, open_audit
from shopfloor.wiring.engine import local_engine
from shopfloor.wiring.in_process import open_api, open_client
from shopfloor.wiring.providers import find_providers, provider_names, surroundings, transcript_of
from shopfloor.wiring.server import serve_storage, the_one_server
from shopfloor.wiring.server_thread import ServerThread
from shopfloor.wiring.settings import Workers
from shopfloor.wiring.storage import Office, Shop, local_office, local_shop, memory_office, open_projects, streamed

__all__ = [
    "Office",
    "ServerThread",
    "Shop",
    "Workers",
    "access_control",
    "find_providers",
    "local_engine",
    "local_office",
    "local_process",
    "local_shop",
    "memory_office",
    "open_api",
    "open_audit",
    "open_client",
    "open_projects",
    "provider_names",
    "serve_storage",
    "streamed",
    "surroundings",
    "the_one_server",
    "transcript_of",
]
