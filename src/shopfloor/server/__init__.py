"""The HTTP API: start, list, stream, answer, cancel and delete runs, for callers with a token or a session.

The server keeps no state except which clients are connected, and caches that it can rebuild.
"""

from typing import TYPE_CHECKING

from shopfloor.lazy import lazy_getattr as _lazy_getattr
from shopfloor.server.access import AccessControl
from shopfloor.server.app import MountedApp, create_app
from shopfloor.server.auth import MCP_PATH
from shopfloor.server.connections import ConnectionLimits, load_connection_limits
from shopfloor.server.fleet_feed import FleetFeed
from shopfloor.server.page_files import PAGE_FOLDER
from shopfloor.server.services import Services

if TYPE_CHECKING:
    from shopfloor.server.uvicorn_server import serve

__all__ = [
    "MCP_PATH",
    "PAGE_FOLDER",
    "AccessControl",
    "ConnectionLimits",
    "FleetFeed",
    "MountedApp",
    "Services",
    "create_app",
    "load_connection_limits",
    "serve",
]

__getattr__ = _lazy_getattr(__name__, {"uvicorn_server": ("serve",)})
