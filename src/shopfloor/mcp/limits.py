"""Limits of the MCP server."""

from typing import Final

# The MCP server.
INSTRUCTIONS_CHARS: Final = 2_000
"""The longest instructions of the MCP server: Claude Code shows its model no more than 2 KB."""
INSTRUCTIONS_WORKER_CHARS: Final = 120
"""How much of a worker's description the instructions show."""
MCP_TOOLS_TOKENS: Final = 2_500
"""The size of all tool descriptions and schemas together."""
MCP_OUTPUT_TOKENS: Final = 4_000
"""The largest output of an MCP tool. What is longer comes in pages."""
MCP_RESULT_CHARS: Final = 8_000
"""The characters of a run's output on one page of `worker_result`."""
MCP_RESOURCE_CHARS: Final = 100_000
"""The characters of a transcript or output on one page of a resource."""
MCP_TEXT_CHARS: Final = 200
"""How much of a description, task or error an output shows."""
MCP_QUESTION_CHARS: Final = 2_000
"""How much of a question that a run asks an output shows."""
MCP_QUESTIONS: Final = 3
"""The number of questions of a run in one output."""
MCP_OPTIONS: Final = 10
"""The number of options of a question in one output."""
MCP_NOTES: Final = 3
"""The number of decisions, and of questions left open, that an output shows of a run."""
MCP_PAGE_ITEMS: Final = 10
"""The number of workers, runs or resources on one page."""
MCP_WAIT_RUNS: Final = 10
"""The number of runs that one call waits for."""
MCP_WAIT_SECONDS: Final = 45.0
"""How long a call waits by default: many agents abort a tool call after 60 seconds."""
MCP_WAIT_MAX_SECONDS: Final = 600.0
"""The longest wait that a call may request."""
MCP_INSTRUCTIONS_SECONDS: Final = 5.0
"""How long the first answer to a client waits for the list of workers, for example while a server starts."""
MCP_SESSIONS: Final = 1_000
"""The number of clients with an open session over HTTP."""
MCP_SESSION_SECONDS: Final = 1_800.0
"""How long a session over HTTP stays open without a request."""
MCP_RECONNECT_SECONDS: Final = 15.0
"""How long a call over stdio looks for a server that responds, after the server was lost."""
MCP_POLL_SECONDS: Final = 0.05
"""The first pause between two looks at a run that is waited for. Each further pause is longer by half."""
MCP_POLL_MAX_SECONDS: Final = 1.0
"""The longest of these pauses."""
MCP_PROGRESS_SECONDS: Final = 5.0
"""How often a wait reports progress although nothing has changed."""
MCP_PROVIDERS_SECONDS: Final = 60.0
"""How long the MCP server remembers which agents are installed: finding out takes a second or two."""
