"""The named limits of the server: sizes in bytes, times in seconds, unless the name says otherwise."""

from typing import Final

# Pages.
LIST_DEFAULT: Final = 50
"""How many runs a page of the list has, unless said otherwise."""
LIST_MAX: Final = 500
"""How many at most."""
OFFSET_MAX: Final = 1_000_000
"""How far into the list an offset goes; a cursor goes on from there."""
TIMELINE_DEFAULT: Final = 200
"""How many rows of a timeline are given, unless said otherwise."""
LOG_DEFAULT: Final = 200
"""How many events of a log are given, unless said otherwise."""
EVENTS_MAX: Final = 1_000
"""How many rows of a timeline, or events of a log, at most."""
MAX_SAFE_INTEGER: Final = 2**53 - 1
"""The largest number that every reader of JSON can tell from the next."""

RESULT_LOOKAHEAD_EVENTS: Final = 2_000
"""How far beyond a page of a log the results of its calls are looked for."""
FIND_DEFAULT: Final = 100
"""How many hits in a log are given, unless said otherwise."""
FIND_EVENTS: Final = 100_000
"""How many events of a log are searched at once."""
SPAN_CACHE_RUNS: Final = 16
"""Of how many runs the spans are kept, to be carried on from there."""

SUB_RUN_POLL_SECONDS: Final = 0.25
"""How often a stream that is silent checks whether runs below its run wait for a client tool."""
MTIME_SETTLE_SECONDS: Final = 0.5
"""How long the log of a run is silent until its stream is over for a question: another branch may go on meanwhile."""
PENDING_CALLS_RUNS_MAX: Final = 100
"""Of how many open runs below a run it is told what they wait for."""

# What comes in and goes out.
BODY_DEPTH: Final = 100
"""How deep a body may be nested."""
TRANSCRIPT_BYTES: Final = 64 * 1024 * 1024
"""The largest transcript that is unpacked."""

# Streams.
HEARTBEAT_SECONDS: Final = 15.0
"""How long a stream is silent before it shows that it lives."""
SHARED_EVENTS: Final = 100
"""From how many events on a batch is framed once for all who get it."""
THREAD_OFFLOAD_BYTES: Final = 512 * 1024
"""From how many bytes on events are cut in a thread, and not in the loop that everybody waits on."""
QUEUED_CHECK_SECONDS: Final = 1.0
"""How often it is looked whether a run that has not begun is still there."""
STREAM_RUNS: Final = 16
"""How many runs a page can follow over its one connection."""

# The server itself.
COMPRESSION_MIN_BYTES: Final = 1024
"""Responses of this many bytes are compressed, where the client accepts it."""
COMPRESSION_LEVEL: Final = 1
"""Of gzip: JSON shrinks to a fifth at the least level already, and the client is often on the same machine."""
PAGE_FILE_BYTES: Final = 16 * 1024 * 1024
"""The largest file of the page that is given."""
SHUTDOWN_SECONDS: Final = 5.0
"""How long requests have to end when the server stops."""

# The network boundary. The settings in brackets are read from the environment of `shopfloor up`.
REQUEST_LINE_BYTES: Final = 16 * 1024
"""The longest address of a request, with its query."""
HEADERS_BYTES: Final = 64 * 1024
"""All headers of a request together."""
HEADERS_MAX: Final = 100
"""How many headers a request has."""
CHUNK_FRAME_BYTES: Final = 8
"""How many bytes a chunked body may send for each byte of it; what is more counts as headers do."""
PIPELINED_REQUESTS: Final = 100
"""How many requests of a connection wait for the answers to those before them."""
HEADER_SECONDS: Final = 15.0
"""How long a client has to send the head of a request (`SHOPFLOOR_HEADER_SECONDS`)."""
BODY_SECONDS: Final = 60.0
"""How long a client has to send the body of a request (`SHOPFLOOR_BODY_SECONDS`)."""
IDLE_CONNECTION_SECONDS: Final = 5.0
"""How long a connection stays open between two requests (`SHOPFLOOR_IDLE_CONNECTION_SECONDS`)."""
STALLED_SECONDS: Final = 60.0
"""How long a client may leave a full send buffer unread (`SHOPFLOOR_STALLED_SECONDS`)."""
CONNECTIONS_MAX: Final = 4_096
"""How many connections are open, where the limit of descriptors allows it (`SHOPFLOOR_CONNECTIONS`)."""
CONNECTIONS_PER_ADDRESS: Final = 256
"""How many come from one other machine (`SHOPFLOOR_CONNECTIONS_PER_ADDRESS`). For this machine the total counts."""
CONNECTIONS_MIN: Final = 32
"""A server that cannot have this many connections does not start."""
SWEEP_TICKS: Final = 5
"""Connections are checked for expired deadlines every so many tenths of a second."""

# Descriptors and memory of the server's process.
DESCRIPTORS_MAX: Final = 65_536
"""The soft limit of open files is raised up to the hard limit, and to no more than this."""
ENGINE_DESCRIPTORS: Final = 192
"""How many descriptors connections leave to the engine: database, logs, waiting runs, providers."""
RUN_DESCRIPTORS: Final = 8
"""And how many to each slot: the log, the pipes of a command, and what starting one takes."""
CONNECTION_DESCRIPTORS: Final = 2
"""How many a connection takes: its socket, and a log that it reads."""
ADDRESS_SPACE_BYTES: Final = 1_000_000_000
"""With a smaller limit of address space (`ulimit -v`) the server does not start: threads and children would fail."""

# Logging in.
SESSION_SECONDS: Final = 30 * 24 * 60 * 60
"""How long a browser's session lasts after it was last renewed."""
SESSION_RENEW_SECONDS: Final = 24 * 60 * 60
"""A session that is used is renewed when it was last renewed longer ago than this."""
SESSIONS_MAX: Final = 200
"""How many sessions a storage has; with more, the one that expires first ends."""
LOGIN_CODE_SECONDS: Final = 15 * 60
"""How long a login link works. It works once."""
LOGIN_CODES_MAX: Final = 100
"""How many unused login links there are at once; with more, the oldest stops working."""
FAILED_LOGINS: Final = 10
"""How many logins of one address may fail within the time below before further ones are refused."""
FAILED_LOGIN_SECONDS: Final = 60.0
"""How long a failed login counts."""
LOGIN_ADDRESSES: Final = 10_000
"""Of how many addresses failed logins are remembered."""
TOKEN_CHARS: Final = 16
"""The shortest token that is accepted."""
