"""MCP as a part of the server's app."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shopfloor.server import MountedApp


def mount_mcp() -> MountedApp:
    """Return the app that serves MCP over HTTP."""
    from shopfloor.mcp import McpHttpApp
    from shopfloor.server import MCP_PATH, MountedApp

    app = McpHttpApp()
    return MountedApp(MCP_PATH, app, app.run)
