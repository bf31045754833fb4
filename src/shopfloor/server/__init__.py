"""The HTTP face: runs are made, listed, told and ended, for whoever has a token.

It holds no state but who watches, and what it can make anew.
"""

from typing import TYPE_CHECKING

from shopfloor.lazy import lazily as _lazily
from shopfloor.server.access import AccessControl
from shopfloor.server.app import create_app
from shopfloor.server.page_files import PAGE_FOLDER
from shopfloor.server.services import Services
from shopfloor.server.serving_limits import ServingLimits, serving_limits

if TYPE_CHECKING:
    from shopfloor.server.serving import serve

__all__ = ["PAGE_FOLDER", "AccessControl", "Services", "ServingLimits", "create_app", "serve", "serving_limits"]

__getattr__ = _lazily(__name__, {"serving": ("serve",)})
