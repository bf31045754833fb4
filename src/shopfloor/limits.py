"""Every named limit, in one place: sizes in bytes, times in seconds, unless the name says otherwise."""

from typing import Final

# The log.
LOG_LINE_BYTES: Final = 64 * 1024 * 1024
LOG_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
GROUP_COMMIT_SECONDS: Final = 0.05
SUBSCRIBER_EVENTS: Final = 256
DROP_WARNING_SECONDS: Final = 1.0
DISK_LOW_WATER_BYTES: Final = 200 * 1000 * 1000
DISK_CHECK_SECONDS: Final = 1.0
STORAGE_PATIENCE_SECONDS: Final = 5.0
STORAGE_RETRY_SECONDS: Final = 0.25
LOCK_ATTEMPTS: Final = 5
LOCK_PAUSE_SECONDS: Final = 0.02

# Reading.
READ_CHUNK_BYTES: Final = 256 * 1024
PROBE_CHUNK_BYTES: Final = 4 * 1024
FOLLOW_FASTEST_SECONDS: Final = 0.02
FOLLOW_SLOWEST_SECONDS: Final = 0.25

# Masking.
SECRET_MIN_CHARS: Final = 6
MASK_HOLD_BYTES: Final = 16 * 1024

# A command's output, and how it ends.
OUTPUT_JOIN_SECONDS: Final = 0.05
OUTPUT_JOIN_BYTES: Final = 8 * 1024
RESULT_TAIL_BYTES: Final = 8 * 1024
LEFTOVER_GRACE_SECONDS: Final = 1.0
STOP_GRACE_SECONDS: Final = 5.0
ECHO_GRACE_SECONDS: Final = 1.0
KILL_GRACE_SECONDS: Final = 5.0
MINDER_GRACE_SECONDS: Final = 1.0
SWEEP_PAUSE_SECONDS: Final = 0.02

# What people are shown.
FOLD_HEAD_LINES: Final = 20
FOLD_TAIL_LINES: Final = 5
FOLD_LINE_CHARS: Final = 2_000
TREE_SIBLINGS: Final = 40
PREVIEW_CHARS: Final = 200
