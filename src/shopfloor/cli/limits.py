"""Limits of the command line."""

from typing import Final

# The command line.
FOLD_HEAD_LINES: Final = 20
"""The number of lines of long output that are shown from its start."""
FOLD_TAIL_LINES: Final = 5
"""The number of lines of long output that are shown from its end."""
TRACEBACK_TAIL_LINES: Final = 6
"""The number of lines of a traceback that are shown from its end."""
FOLD_LINE_CHARS: Final = 2_000
"""How much of a long line is shown."""
FULL_LINE_CHARS: Final = 1_000_000
"""The length at which lines are broken when output is not folded."""
UNPARSED_LINE_WARNINGS: Final = 20
"""The number of lines that were not understood and are reported one by one."""
SERVER_START_SECONDS: Final = 60.0
"""How long a background server has to start listening before it is stopped."""
SERVER_DOWN_SECONDS: Final = 60.0
"""How long `shopfloor down` waits for the server to end."""
SERVER_POLL_SECONDS: Final = 0.05
"""How often the start or the end of a server is polled."""
FORCED_EXIT_SECONDS: Final = 2.0
"""How long a command that was interrupted twice may take to clean up."""
SIGTERM_REPEAT_SECONDS: Final = 0.01
"""How soon SIGTERM may be repeated without counting twice: `timeout` signals a process and its group at once."""
CANCEL_WAIT_SECONDS: Final = 60.0
"""How long `shopfloor cancel` waits for the run to end."""
PROGRESS_REDRAW_SECONDS: Final = 0.1
"""How often the progress line is redrawn."""
FOLLOW_SILENCE_SECONDS: Final = 1.0
"""How long a followed run may be silent before its sub-runs are checked for pending calls."""
TOOL_STDERR_CHARS: Final = 500
"""How much of the end of a tool command's stderr is passed on."""
MALLOC_MMAP_BYTES: Final = 4 * 1024 * 1024
"""The size from which a value gets memory of its own, which a server returns to the system when it is freed."""
MALLOC_ARENAS: Final = 2
"""The number of arenas in which the threads of a server allocate smaller values."""
CONFIG_DEPTH: Final = 100
"""The deepest nesting of a configuration file that `shopfloor mcp install` edits."""
CONFIG_BYTES: Final = 64 * 1024 * 1024
"""The largest configuration file that `shopfloor mcp install` edits."""
CONFIG_ATTEMPTS: Final = 10
"""How often `shopfloor mcp install` tries to edit a file that its agent changes at the same time."""
