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
"""Memory that goes into the system prompt, newest first, estimated by its characters."""
CHARS_PER_TOKEN = 4
COMPACT_TOKENS = 16_000
"""Above this size the memories are condensed by a model. 0 switches that off."""

REQUEST_BYTES = 10 * 1024 * 1024
CANCEL_SECONDS = 10.0
"""How long a cancel waits for the agent's process to end."""
