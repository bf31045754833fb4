"""The HTTP face: runs are made, listed, told and ended, for whoever has a token.

It holds no state but who watches, and what it can make anew.
"""

from typing import TYPE_CHECKING

from shopfloor.lazy import lazy_getattr as _lazy_getattr
from shopfloor.server.access import AccessControl
from shopfloor.server.app import create_app
from shopfloor.server.connection_limits import ConnectionLimits, connection_limits
from shopfloor.server.page_files import PAGE_FOLDER
from shopfloor.server.services import Services

if TYPE_CHECKING:
    from shopfloor.server.uvicorn_server import serve

__all__ = ["PAGE_FOLDER", "AccessControl", "ConnectionLimits", "Services", "connection_limits", "create_app", "serve"]

__getattr__ = _lazy_getattr(__name__, {"uvicorn_server": ("serve",)})
