"""The HTTP face: runs are made, listed, told and ended, for whoever has a token.

It holds no state but who watches, and what it can make anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shopfloor.lazy import lazily as _lazily

if TYPE_CHECKING:
    from shopfloor.server.app import create_app
    from shopfloor.server.page_files import PAGE_FOLDER
    from shopfloor.server.services import Services
    from shopfloor.server.serving import serve
    from shopfloor.server.serving_limits import ServingLimits, read_limits
    from shopfloor.server.tokens import Role, Tokens

__all__ = ["PAGE_FOLDER", "Role", "Services", "ServingLimits", "Tokens", "create_app", "read_limits", "serve"]

__getattr__ = _lazily(
    __name__,
    {
        "app": ("create_app",),
        "page_files": ("PAGE_FOLDER",),
        "services": ("Services",),
        "serving": ("serve",),
        "serving_limits": ("ServingLimits", "read_limits"),
        "tokens": ("Role", "Tokens"),
    },
)
