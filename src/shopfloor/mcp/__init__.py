"""The MCP server: the tools with which another agent hands work to Shopfloor's workers.

Its tools are functions on the HTTP API. The SDK, which the extra `mcp` installs, is imported only to serve a client.
"""

from typing import TYPE_CHECKING

from shopfloor.lazy import lazy_getattr as _lazy_getattr
from shopfloor.mcp.instructions import server_instructions, skill_text

if TYPE_CHECKING:
    from shopfloor.mcp.http_app import McpHttpApp, require_sdk
    from shopfloor.mcp.stdio import serve_stdio

__all__ = ["McpHttpApp", "require_sdk", "serve_stdio", "server_instructions", "skill_text"]

__getattr__ = _lazy_getattr(__name__, {"http_app": ("McpHttpApp", "require_sdk"), "stdio": ("serve_stdio",)})
