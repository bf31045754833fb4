"""Limits of the adapters."""

from typing import Final

# The adapters.
BUS_EVENTS: Final = 4_096
"""The number of events buffered for a subscriber of all runs; beyond that it reads the logs."""
BUS_BYTES: Final = 2 * 1024 * 1024
"""The number of bytes buffered for a subscriber of all runs; beyond that it reads the logs."""
BUS_RUNS: Final = 10_000
"""The number of runs with changes that such a subscriber is notified of at once; more are found by its next poll."""
BUS_HEARTBEATS: Final = 1_000
"""The number of heartbeats of hosts that are buffered for a reader of fleet events; the oldest are dropped."""
NOTIFY_INTERVAL_SECONDS: Final = 0.002
"""The shortest interval at which a process notifies the server of new events in the same log."""
NOTIFY_FULL_RETRY_SECONDS: Final = 0.02
"""The retry interval while the server's notification socket is full."""
NOTIFY_ABSENT_RETRY_SECONDS: Final = 1.0
"""The retry interval while no server is running."""
NOTIFY_THREAD_IDLE_SECONDS: Final = 5.0
"""How long the thread that sends delayed notifications stays idle before it ends."""
NOTIFY_TRACKED_RUNS: Final = 10_000
"""The number of runs whose last notification time is remembered."""
NOTIFY_BURST: Final = 256
"""The number of notifications a server receives before it does other work."""
SOCKET_PATH_BYTES: Final = 100
"""The longest socket path that every operating system accepts."""
DISK_THREADS: Final = 32
"""The number of logs that are forced to disk at the same time."""
FREE_SPACE_CACHE_SECONDS: Final = 0.02
"""How long the measured free disk space is reused."""
AUDIT_BYTES: Final = 16 * 1024 * 1024
"""The size at which the audit log is rotated; the previous file is kept."""
AUDIT_ENTRIES_IN_MEMORY: Final = 10_000
"""The number of entries kept by an audit log without a file."""
FOLLOW_FALLBACK_POLL_SECONDS: Final = 0.25
"""The polling interval of a follower that is notified of events, in case a notification is lost."""
LEFTOVER_GRACE_SECONDS: Final = 1.0
"""How long processes that a command left running may still print output, and then how long they have to end."""
ENDED_PROCESSES: Final = 100
"""The number of terminated leftover processes that a step lists."""
KILL_GRACE_SECONDS: Final = 5.0
"""How long to wait until killed processes are gone."""
REAPER_GRACE_SECONDS: Final = 1.0
"""How long the child processes of a host that died have to end by themselves."""
PROCESS_POLL_SECONDS: Final = 0.02
"""How often the end of processes is polled."""
DATABASE_BUSY_TIMEOUT_SECONDS: Final = 5.0
"""How long a query waits while another process locks the database."""
DATABASE_READERS: Final = 8
"""The number of queries that read at the same time."""
INTAKE_BYTES: Final = 4 * 1024 * 1024
"""The size at which the intake is compacted; it must also have doubled since the last time."""
SEARCH_CANDIDATES: Final = 1_000
"""Up to this many runs that match the first words are checked one by one for the other words."""
SEARCH_SCAN_RUNS: Final = 20_000
"""From this many candidates on, tasks are scanned in order instead of being looked up one by one."""
FEED_KNOWN_LOGS: Final = 100_000
"""The number of logs whose size after the last event is remembered."""
FLEET_EVENTS_KEPT: Final = 100_000
"""The number of fleet events that are kept; a subscriber with an older cursor gets a `gap` first."""
FLEET_TRIM_PARTS: Final = 100
"""The oldest fleet events are deleted in parts of this fraction of the number that is kept."""
FLEET_CHUNK_BYTES: Final = 64 * 1024
"""The approximate size of the chunks in which the fleet events of a run are stored."""
DATABASE_GROUP_COMMIT_SECONDS: Final = 0.01
"""How long a transaction accepts more of the queued writes."""
MODEL_CONNECT_SECONDS: Final = 10.0
"""How long connecting to a model's provider may take."""
MODEL_READ_TIMEOUT_SECONDS: Final = 600.0
"""How long a model may send nothing during a request (`SHOPFLOOR_MODEL_TIMEOUT`)."""
MODEL_CLOSE_SECONDS: Final = 2.0
"""How long closing an abandoned connection to a model may take."""
MODEL_CONNECTIONS: Final = 100
"""The number of concurrent requests to one provider."""
SCRIPT_WORD_SECONDS: Final = 0.02
"""How long a scripted model takes per word (`SHOPFLOOR_SCRIPT_DELAY_MS`)."""
THREAD_TAIL_BYTES: Final = 8 * 1024 * 1024
"""How much of the end of a Codex thread file is searched for the thread's usage."""
DOCUMENT_TRIES: Final = 20
"""How often a multi-line JSON document is parsed as if complete, before its lines are read one by one."""
AGENT_LINE_BYTES: Final = 32 * 1024 * 1024
"""The longest line of an agent that is parsed; a longer line is recorded in chunks, as unparsed."""
AGENT_VERSION_SECONDS: Final = 15.0
"""How long an agent may take to print its version."""
PROVIDER_STATUS_SECONDS: Final = 10.0
"""How long a provider may take to say whether it is logged in or answers: its own command, or its list of models."""
PLUGIN_MANIFEST_BYTES: Final = 64 * 1024
"""The largest manifest."""
PLUGIN_PORTS: Final = range(50_000, 51_000)
"""The ports on which plugins listen."""
PLUGIN_PORT_TRIES: Final = 10
"""How many ports are tried before a start fails."""
PLUGIN_READY_SECONDS: Final = 5.0
"""How long a plugin may take from its start to the end of the handshake."""
PLUGIN_POLL_SECONDS: Final = 0.05
"""How often the handshake is tried while a plugin starts."""
PLUGIN_CALL_SECONDS: Final = 30.0
"""How long a call to a plugin may take, from the request to the last byte of the answer."""
PLUGIN_ANSWER_BYTES: Final = 16 * 1024 * 1024
"""The largest answer of a plugin."""
PLUGIN_OUTPUT_LINES: Final = 20
"""How many lines of a plugin's output are kept, to describe why it ended."""
PLUGIN_RESTART_SECONDS: Final = 1.0
"""The pause before a plugin that ended is started again; it doubles with each failed start."""
PLUGIN_CONNECTIONS: Final = 200
"""How many requests to plugins are open at once; others wait."""
PLUGIN_LEASE_SECONDS: Final = 0.5
"""How often a process looks whether it can take over a plugin that another process runs."""
PLUGIN_RESTART_MAX_SECONDS: Final = 60.0
"""The longest pause before a plugin is started again."""
PLUGIN_CHECK_SECONDS: Final = 5.0
"""How long `shopfloor plugins check` waits for its job before it cancels it."""
HOOK_PENDING_MAX: Final = 10_000
"""Deliveries of one hook that wait; the oldest are dropped."""
HOOK_TIMEOUT_SECONDS: Final = 15.0
"""How long a receiver may take to answer."""
STATS_TOP_RUNS: Final = 5
"""How many of the costliest and of the slowest runs statistics name."""
SORTED_RUNS: Final = 7_000
"""If at most this many runs match, a list by cost or duration sorts them; else it reads the index of that order."""
