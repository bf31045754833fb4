"""Every named limit, in one place: sizes in bytes, times in seconds, unless the name says otherwise."""

from typing import Final

# The log.
LOG_LINE_BYTES: Final = 64 * 1024 * 1024
"""The longest line of a log."""
LOG_MODE: Final = 0o600
"""The mode of a log's file."""
FOLDER_MODE: Final = 0o700
"""The mode of the folders that we make."""
GROUP_COMMIT_SECONDS: Final = 0.05
"""With durability `group`: how long an event may wait until it is forced to disk."""
SUBSCRIBER_EVENTS: Final = 256
"""How many events wait for a subscriber before new ones are dropped for it."""
DROP_WARNING_SECONDS: Final = 1.0
"""How often at most a slow subscriber is warned of."""
DISK_LOW_WATER_BYTES: Final = 200 * 1000 * 1000
"""With less than this free, new runs are refused and running ones end (`SHOPFLOOR_DISK_LOW_WATER`)."""
DISK_CHECK_SECONDS: Final = 1.0
"""How often a run looks at what is free."""
STORAGE_PATIENCE_SECONDS: Final = 5.0
"""How long a run waits for room on a full disk."""
STORAGE_RETRY_SECONDS: Final = 0.25
"""How often it tries meanwhile."""
LOCK_ATTEMPTS: Final = 5
"""How often a writer asks for a log's lock: a reader may hold it for an instant."""
LOCK_PAUSE_SECONDS: Final = 0.02
"""How long it waits in between."""

# Reading.
READ_CHUNK_BYTES: Final = 256 * 1024
"""How much of a log is read at once."""
SHARED_CHUNKS: Final = 64
"""How many chunks of logs are kept for those who read the same."""
PROBE_CHUNK_BYTES: Final = 4 * 1024
"""How much of it is read to find a line's end."""
FOLLOW_FASTEST_SECONDS: Final = 0.02
"""How soon a follower looks again after something came."""
FOLLOW_SLOWEST_SECONDS: Final = 0.25
"""How soon it looks again when nothing comes."""

# Masking.
SECRET_MIN_CHARS: Final = 6
"""The shortest value that can be masked."""
MASK_HOLD_BYTES: Final = 16 * 1024
"""How much output is held back at most because a secret may have begun in it."""

# A command's output, and how it ends.
OUTPUT_JOIN_SECONDS: Final = 0.05
"""How long pieces of output are joined into one event."""
OUTPUT_JOIN_BYTES: Final = 8 * 1024
"""How much output is joined into one event."""
RESULT_TAIL_BYTES: Final = 8 * 1024
"""How much of the output's end is the result of a command."""
LEFTOVER_GRACE_SECONDS: Final = 1.0
"""How long what a command left running may still talk, and then how long it has to end."""
STOP_GRACE_SECONDS: Final = 5.0
"""How long a cancelled command has to end by itself (`--grace`)."""
ECHO_GRACE_SECONDS: Final = 1.0
"""How long after a cancel its last words may take to be read."""
KILL_GRACE_SECONDS: Final = 5.0
"""How long we wait for what was killed to be gone."""
MINDER_GRACE_SECONDS: Final = 1.0
"""How long the children of a host that died have to end by themselves."""
SWEEP_PAUSE_SECONDS: Final = 0.02
"""How often it is looked whether processes are gone."""

# The store.
DATABASE_PATIENCE_SECONDS: Final = 5.0
"""How long a query waits for a database that somebody else holds."""
DATABASE_READERS: Final = 8
"""How many queries read at once."""
SEARCH_TEXT_BYTES: Final = 1_000_000
"""How much of a run can be searched."""
SNIPPET_WORDS: Final = 16
"""How many words around a hit are shown."""
INGEST_EVENTS: Final = 2_000
"""How many events go into the views in one transaction, at about that many."""
INGEST_PAUSE_SECONDS: Final = 0.05
"""How often logs of other processes are looked at."""
INGEST_RETRY_SECONDS: Final = 1.0
"""How long to wait after the store could not be written."""
HOST_CHECK_SECONDS: Final = 1.0
"""How often it is looked whether the hosts of open runs are alive."""
RETENTION_CHECK_SECONDS: Final = 3600.0
"""How often a server that was told to looks for runs to delete."""

# Views.
ARCHIVE_RESULT_BYTES: Final = 50_000
"""A tool's result, or a command's output, in the archived transcript."""
ARCHIVE_ARGS_BYTES: Final = 2_000
"""A tool's arguments in the archived transcript."""
OPEN_BRANCHES: Final = 1_000
"""How many open steps, and how many open calls, of a run are known to its row."""
TIMELINE_OPEN_CALLS: Final = 1_000
"""How many open tool calls a timeline remembers the beginning of."""

# What people are shown.
FOLD_HEAD_LINES: Final = 20
"""How many lines of long output are shown from its beginning."""
FOLD_TAIL_LINES: Final = 5
"""How many from its end."""
FOLD_LINE_CHARS: Final = 2_000
"""How much of a long line is shown."""
TREE_SIBLINGS: Final = 40
"""How many steps side by side a tree shows."""
NOTES: Final = 20
"""How many lines that are not understood are told of one by one."""
PREVIEW_CHARS: Final = 200
"""How much of a tool's input is shown on one line."""
