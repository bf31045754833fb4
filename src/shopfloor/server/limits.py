"""The named limits of the server: sizes in bytes, times in seconds, unless the name says otherwise."""

from typing import Final

# Pages.
LIST_DEFAULT: Final = 50
"""Runs on a page of the list, by default."""
LIST_MAX: Final = 500
"""Runs on a page of the list, at most."""
OFFSET_MAX: Final = 1_000_000
"""The largest offset into the list; use a cursor beyond it."""
INTERRUPTED_PAGES: Final = 10
"""Pages of `LIST_MAX` running runs that are checked for a list of interrupted runs."""
TIMELINE_DEFAULT: Final = 200
"""Rows on a page of a timeline, by default."""
LOG_DEFAULT: Final = 200
"""Events on a page of a log, by default."""
EVENTS_MAX: Final = 1_000
"""Rows on a page of a timeline, or events on a page of a log, at most."""
MAX_SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON reader represents exactly."""

RESULT_LOOKAHEAD_EVENTS: Final = 2_000
"""Events after a page of a log that are searched for the results of the page's calls."""
FIND_DEFAULT: Final = 100
"""Hits of a search in a log, by default."""
FIND_EVENTS: Final = 100_000
"""Events of a log that one search request reads."""
SPAN_CACHE_RUNS: Final = 16
"""Runs whose spans are cached, so that only new events have to be read."""

SUB_RUN_POLL_SECONDS: Final = 0.25
"""The interval at which a silent stream checks whether sub-runs wait for a client tool."""
LOG_SETTLE_SECONDS: Final = 0.5
"""How long a run's log must be silent before its stream ends for a question, since another branch may still write."""
WAITING_RUNS_MAX: Final = 500
"""Runs of each kind that `GET /api/waiting` lists: waiting, failed and interrupted; those that wait longest."""
PENDING_CALLS_RUNS_MAX: Final = 100
"""Open sub-runs of a run whose pending calls are listed."""

# Bodies of requests and responses.
BODY_DEPTH: Final = 100
"""The deepest nesting of a request body."""
EXPORT_BYTES: Final = 64 * 1024 * 1024
"""The largest exported document; the rest of the run is left out, and the document says so."""
TRANSCRIPT_BYTES: Final = 64 * 1024 * 1024
"""The largest transcript that a response contains, decompressed."""

# JSON-RPC.
RPC_BATCH: Final = 100
"""Requests of a JSON-RPC batch, at most."""
RPC_JOBS: Final = 1_000
"""Once `worker/list` has this many jobs, it reads no further page of runs."""
RPC_LIST_PAGES: Final = 20
"""Pages of `LIST_MAX` runs that one `worker/list` reads, at most, to find jobs that match its filter."""
RPC_NAMED_WORKERS: Final = 20
"""Workers that an error of `worker/dispatch` names."""
RPC_CANCEL_SECONDS: Final = 20.0
"""How long `worker/cancel` waits for the end of the run. Less than the 30 s after which clients give up."""

# Streams.
HEARTBEAT_SECONDS: Final = 15.0
"""How long a stream is silent before it sends a heartbeat."""
SHARED_EVENTS: Final = 100
"""Batches of at least this many events are encoded once for all clients that get them."""
THREAD_OFFLOAD_BYTES: Final = 512 * 1024
"""Batches of at least this many bytes are shortened in a thread, so that they do not block the event loop."""
QUEUED_CHECK_SECONDS: Final = 1.0
"""The interval at which a stream of a queued run checks that the run still exists."""
STREAM_RUNS: Final = 16
"""Runs that a page can follow over its one connection."""

# Fleet events.
FLEET_SUBSCRIBER_EVENTS: Final = 256
"""Fleet events buffered for a subscriber; one with more to receive reads them from the store."""
FLEET_SUBSCRIPTIONS_MAX: Final = 10_000
"""Subscriptions to fleet events of a server, over all connections."""
FLEET_PAGE_EVENTS: Final = 500
"""Fleet events that are read from the store at once."""
FLEET_POLL_SECONDS: Final = 0.5
"""The interval at which a server with subscribers looks for new fleet events, in case a notification is lost."""
FLEET_ANCESTORS: Final = 10_000
"""Runs whose ancestors are remembered, for subscriptions to a run with its sub-runs."""
FLEET_EVENTS_DEFAULT: Final = 100
"""Fleet events on a page, by default."""

# WebSockets.
WEBSOCKET_MESSAGE_BYTES: Final = 64 * 1024
"""The longest message that a client may send."""
WEBSOCKET_AUTH_SECONDS: Final = 5.0
"""How long a client has to send its token, if the request for the connection has none."""
WEBSOCKET_IDLE_SECONDS: Final = 300.0
"""How long a connection without a subscription may be silent (`SHOPFLOOR_WEBSOCKET_IDLE_SECONDS`)."""
WEBSOCKET_PING_SECONDS: Final = 20.0
"""The interval at which a client is pinged, and the time it has to respond once it has read the ping."""
WEBSOCKET_WRITE_BYTES: Final = 256 * 1024
"""About how many bytes are written at once. A client that reads them within `STALLED_SECONDS` is not too slow."""
WEBSOCKET_SUBSCRIPTIONS: Final = 100
"""Subscriptions of one connection, and requests in one message."""
WEBSOCKET_MESSAGES_PER_SECOND: Final = 20
"""Messages that a client may send per second, on average."""
WEBSOCKET_BURST: Final = 200
"""Messages that a client may send at once."""

# The server itself.
COMPRESSION_MIN_BYTES: Final = 1024
"""Responses of at least this many bytes are compressed, if the client accepts it."""
COMPRESSION_LEVEL: Final = 1
"""The gzip level: the lowest one already shrinks JSON to a fifth, and the client is often on the same machine."""
PAGE_FILE_BYTES: Final = 16 * 1024 * 1024
"""The largest file of the built page that is served."""
SHUTDOWN_SECONDS: Final = 5.0
"""How long open requests may take to finish when the server stops."""

# The network boundary. `shopfloor up` reads the variables in parentheses from its environment.
REQUEST_LINE_BYTES: Final = 16 * 1024
"""The longest URL of a request, with its query."""
HEADERS_BYTES: Final = 64 * 1024
"""The size of all headers of a request together."""
HEADERS_MAX: Final = 100
"""Headers of a request, at most."""
CHUNK_FRAME_BYTES: Final = 8
"""Bytes of chunk framing allowed per byte of a chunked body; the excess counts towards the limit of headers."""
PIPELINED_REQUESTS: Final = 100
"""Requests of a connection that may wait for responses to earlier requests."""
HEADER_SECONDS: Final = 15.0
"""How long a client has to send the head of a request (`SHOPFLOOR_HEADER_SECONDS`)."""
BODY_SECONDS: Final = 60.0
"""How long a client has to send the body of a request (`SHOPFLOOR_BODY_SECONDS`)."""
IDLE_CONNECTION_SECONDS: Final = 5.0
"""How long a connection stays open between two requests (`SHOPFLOOR_IDLE_CONNECTION_SECONDS`)."""
STALLED_SECONDS: Final = 60.0
"""How long a client may leave a full send buffer unread (`SHOPFLOOR_STALLED_SECONDS`)."""
CONNECTIONS_MAX: Final = 4_096
"""Open connections, if the limit of descriptors allows so many (`SHOPFLOOR_CONNECTIONS`)."""
CONNECTIONS_PER_ADDRESS: Final = 256
"""Open connections from one other machine (`SHOPFLOOR_CONNECTIONS_PER_ADDRESS`). This machine may use all of them."""
CONNECTIONS_MIN: Final = 32
"""A server that cannot open this many connections does not start."""
SWEEP_TICKS: Final = 5
"""The interval, in tenths of a second, at which connections are checked for expired deadlines."""

# Descriptors and memory of the server's process.
DESCRIPTORS_MAX: Final = 65_536
"""The soft limit of open files is raised to the hard limit, but not beyond this value."""
ENGINE_DESCRIPTORS: Final = 192
"""Descriptors reserved for the engine: database, logs, waiting runs, providers."""
RUN_DESCRIPTORS: Final = 8
"""Descriptors reserved for each slot: the log, the pipes of a command, and those needed to start one."""
CONNECTION_DESCRIPTORS: Final = 2
"""Descriptors used by a connection: its socket, and a log that it reads."""
ADDRESS_SPACE_BYTES: Final = 1_000_000_000
"""With a smaller limit of address space (`ulimit -v`) the server does not start: threads and children would fail."""

# Logging in.
SESSION_SECONDS: Final = 30 * 24 * 60 * 60
"""How long a browser's session lasts after it was last renewed."""
SESSION_RENEW_SECONDS: Final = 24 * 60 * 60
"""A session in use is renewed once its last renewal is older than this."""
SESSIONS_MAX: Final = 200
"""Sessions of a storage; a new one beyond this ends the session that would expire first."""
LOGIN_CODE_SECONDS: Final = 15 * 60
"""How long a login link works. It works once."""
LOGIN_CODES_MAX: Final = 100
"""Unused login links at a time; a new one beyond this invalidates the oldest."""
FAILED_LOGINS: Final = 10
"""Failed logins from one address within `FAILED_LOGIN_SECONDS`, after which more are refused."""
FAILED_LOGIN_SECONDS: Final = 60.0
"""How long a failed login counts."""
LOGIN_ADDRESSES: Final = 10_000
"""Addresses whose failed logins are remembered."""
REVOCATION_CHECK_SECONDS: Final = 5.0
"""How often the token or session of an open stream is checked."""
TOKEN_CHARS: Final = 16
"""The shortest token that is accepted."""
