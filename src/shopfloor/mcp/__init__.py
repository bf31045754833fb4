"""The MCP server: the tools with which another agent hands work to Shopfloor's workers.

Its tools are functions on the HTTP API. Only the modules that serve MCP import the SDK, which the extra `mcp` installs.
"""

from shopfloor.mcp.instructions import server_instructions, skill_text

__all__ = ["server_instructions", "skill_text"]
