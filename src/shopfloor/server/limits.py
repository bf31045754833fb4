"""The named limits of the server: sizes in bytes, times in seconds, unless the name says otherwise."""

from typing import Final

# Pages.
LIST_DEFAULT: Final = 50
"""How many runs a page of the list has, unless said otherwise."""
LIST_MOST: Final = 500
"""How many at most."""
OFFSET_MOST: Final = 1_000_000
"""How far into the list an offset goes; a cursor goes on from there."""
TIMELINE_DEFAULT: Final = 200
"""How many rows of a timeline are given, unless said otherwise."""
LOG_DEFAULT: Final = 200
"""How many events of a log are given, unless said otherwise."""
EVENTS_MOST: Final = 1_000
"""How many rows of a timeline, or events of a log, at most."""
NUMBER_MOST: Final = 2**53 - 1
"""The largest number that every reader of JSON can tell from the next."""
WORDS_MOST_CHARS: Final = 1_000
"""The longest filter, search or cursor."""

LATER_EVENTS: Final = 2_000
"""How far beyond a page of a log the results of its calls are looked for."""
FIND_DEFAULT: Final = 100
"""How many hits in a log are given, unless said otherwise."""
FIND_EVENTS: Final = 100_000
"""How many events of a log are searched at once."""
SPAN_RUNS: Final = 16
"""Of how many runs the spans are kept, to be carried on from there."""

BELOW_CHECK_SECONDS: Final = 0.25
"""How often a stream that is silent checks whether runs below its run wait for a client tool."""
SETTLED_SECONDS: Final = 0.5
"""How long the log of a run is silent until its stream is over for a question: another branch may go on meanwhile."""
AWAITING_RUNS: Final = 100
"""Of how many open runs below a run it is told what they wait for."""

# What comes in and goes out.
BODY_DEPTH: Final = 100
"""How deep a body may be nested."""
SLUG_MOST_CHARS: Final = 200
"""The longest name of a worker: it is a folder's name."""
TASK_MOST_CHARS: Final = 100_000
"""The longest task, and the longest reason why a call gave nothing."""
FOLDER_MOST_CHARS: Final = 4_096
"""The longest path of a folder."""
TRANSCRIPT_BYTES: Final = 64 * 1024 * 1024
"""The largest transcript that is unpacked."""

# Streams.
HEARTBEAT_SECONDS: Final = 15.0
"""How long a stream is silent before it shows that it lives."""
SHARED_EVENTS: Final = 100
"""From how many events on a batch is framed once for all who get it."""
LOOP_BYTES: Final = 512 * 1024
"""From how many bytes on events are cut in a thread, and not in the loop that everybody waits on."""
QUEUED_CHECK_SECONDS: Final = 1.0
"""How often it is looked whether a run that has not begun is still there."""
STREAM_RUNS: Final = 16
"""How many runs a page can follow over its one connection."""

# The server itself.
PAGE_FILE_BYTES: Final = 16 * 1024 * 1024
"""The largest file of the page that is given."""
SESSION_SECONDS: Final = 400 * 24 * 60 * 60
"""How long a browser keeps its login: the longest that browsers allow."""
SHUTDOWN_SECONDS: Final = 5.0
"""How long requests have to end when the server stops."""
