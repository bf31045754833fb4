"""MCP as a part of the server's app."""

from __future__ import annotations

from shopfloor.mcp import McpHttpApp
from shopfloor.server import MCP_PATH, MountedApp


def mount_mcp() -> MountedApp:
    """Return the app that serves MCP over HTTP."""
    app = McpHttpApp()
    return MountedApp(MCP_PATH, app, app.run)
