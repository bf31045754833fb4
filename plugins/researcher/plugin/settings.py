"""Settings of this plugin. Change them here when you copy it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The plugin's folder."""
PROMPT = ROOT / "prompt.md"
JOBS = ROOT / "jobs"
MEMORY = ROOT / "memory"

READ_ONLY_TOOLS = ("Read", "Grep", "Glob", "WebSearch", "WebFetch")
"""The agent's tools of Claude Code. Never add Write, Edit or Bash: all writes go through the internal tools."""

MAX_TURNS = 60
MAX_BUDGET_USD = 5.0
"""Limits of a job; `config.max_turns` and `config.max_budget_usd` of a dispatch override them."""
CONCURRENT_JOBS = 4
"""Jobs whose agents run at the same time; the others wait."""

MEMORY_TOKENS = 8_000
"""Memory that goes into the system prompt, newest first, estimated by its characters; also the limit of one memory."""
CHARS_PER_TOKEN = 4
MEMORY_KEYS = 1_000
"""The number of memories."""
COMPACT_TOKENS = 16_000
"""Above this size the memories are condensed by a model before the next job. 0 switches that off."""
COMPACT_SECONDS = 120.0
"""How long condensing may take. After that the memories stay as they are, and the job starts."""

REQUEST_BYTES = 10 * 1024 * 1024
CANCEL_SECONDS = 10.0
"""How long a cancel waits for the agent's process to end."""
