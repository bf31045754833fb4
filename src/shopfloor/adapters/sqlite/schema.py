"""The tables, as queries see them. The migrations make them; a test holds the two against each other."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Integer, LargeBinary, MetaData, Table, Text

metadata = MetaData()

worker_runs = Table(
    "worker_runs",
    metadata,
    # A number of our own: SQLite may renumber rows that have none when it compacts the file.
    Column("num", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("channel_id", Text),
    Column("task", Text, nullable=False),
    Column("result", Text),
    Column("status", Text, nullable=False),
    Column("started_at", Text, nullable=False),
    Column("completed_at", Text),
    Column("worker_type", Text, nullable=False),
    Column("agent_id", Text),
    Column("parent_run_id", Text),
    Column("root_run_id", Text),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("error_code", Text),
    Column("error_message", Text),
    Column("error_hint", Text),
    Column("provider", Text),
    Column("model", Text),
    Column("host", Text),
    Column("attempt", Integer, nullable=False),
    Column("interruptions", Integer, nullable=False),
    Column("queued_at", Text),
    Column("duration_ms", Integer),
    Column("tool_calls", Integer, nullable=False),
    Column("messages", Integer, nullable=False),
    Column("spending", Text),
    Column("children", Integer, nullable=False),
    Column("last_seq", Integer, nullable=False),
    Column("event_count", Integer, nullable=False),
    Column("has_transcript", Boolean, nullable=False),
    Column("wake_at", Text),
    Column("waits", Text),
    Column("outside", Boolean, nullable=False),
    Column("search_stopped_at", Integer),
)

worker_events = Table(
    "worker_events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("worker_id", Text, ForeignKey("worker_runs.id", ondelete="CASCADE"), nullable=False),
    Column("event_type", Text, nullable=False),
    Column("data", Text),
    Column("created_at", Text, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("n", Integer, nullable=False),
)

channels = Table("channels", metadata, Column("id", Text, primary_key=True), Column("name", Text))

worker_transcripts = Table(
    "worker_transcripts",
    metadata,
    Column("worker_id", Text, ForeignKey("worker_runs.id", ondelete="CASCADE"), primary_key=True),
    Column("transcript", LargeBinary, nullable=False),
)

worker_folds = Table(
    "worker_folds",
    metadata,
    Column("worker_id", Text, ForeignKey("worker_runs.id", ondelete="CASCADE"), primary_key=True),
    Column("state", LargeBinary, nullable=False),
)

run_counts = Table(
    "run_counts",
    metadata,
    Column("agent_id", Text, primary_key=True),
    Column("status", Text, primary_key=True),
    Column("worker_type", Text, primary_key=True),
    Column("channel_id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("roots", Boolean, primary_key=True),
    Column("n", Integer, nullable=False),
)

pins = Table("pins", metadata, Column("worker_id", Text, primary_key=True))
tombstones = Table("tombstones", metadata, Column("worker_id", Text, primary_key=True))
settings = Table("settings", metadata, Column("name", Text, primary_key=True), Column("value", Text, nullable=False))

dispatches = Table(
    "dispatches",
    metadata,
    Column("num", Integer, primary_key=True),
    Column("run_id", Text, nullable=False, unique=True),
    Column("host", Text),
    Column("body", LargeBinary, nullable=False),
)

orders = Table(
    "orders",
    metadata,
    Column("num", Integer, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

dispatch_keys = Table(
    "dispatch_keys",
    metadata,
    Column("key", Text, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("asked", LargeBinary, nullable=False),
)

found = Table("found", MetaData(), Column("num", Integer, primary_key=True))
"""The numbers of the runs that a search found: a temporary table, see `search.py`."""
