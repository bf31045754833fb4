"""Every limit of Shopfloor by name: sizes in bytes, times in seconds, unless the name says otherwise."""

from typing import Final

# The log.
LOG_LINE_BYTES: Final = 64 * 1024 * 1024
"""The longest line of a log."""
LINE_BUFFER_BYTES: Final = 64 * 1024
"""The largest line whose buffer a recorder reuses for the next line."""
LOG_MODE: Final = 0o600
"""The file mode of a log."""
FOLDER_MODE: Final = 0o700
"""The mode of the folders that Shopfloor creates."""
GROUP_COMMIT_SECONDS: Final = 0.05
"""With durability `group`: the longest delay until an event is forced to disk."""
SUBSCRIBER_EVENTS: Final = 256
"""The number of events buffered for a subscriber of one run; further ones are dropped for it until it reads."""
DROP_WARNING_SECONDS: Final = 1.0
"""The shortest interval between warnings about one slow subscriber."""
DISK_LOW_WATER_BYTES: Final = 200 * 1000 * 1000
"""With less free space than this, new runs are refused and running ones end (`SHOPFLOOR_DISK_LOW_WATER`)."""
DISK_CHECK_SECONDS: Final = 1.0
"""How often a run checks the free disk space."""
MTIME_SETTLE_SECONDS: Final = 1.0
"""The age from which the modification time of a folder is trusted to reveal the next change: file system clocks are
coarse."""
CHUNK_FLUSH_SECONDS: Final = 1.0
"""The longest delay until generated text is logged. Each message is logged at most once in this time."""
STORAGE_FULL_TIMEOUT_SECONDS: Final = 5.0
"""How long a run waits while its log cannot be written, for example on a full disk."""
STORAGE_RETRY_SECONDS: Final = 0.25
"""The pause between two tries while the log cannot be written."""
LOCK_ATTEMPTS: Final = 5
"""How often a writer tries to lock a log: a reader may hold the lock for an instant."""
LOCK_RETRY_SECONDS: Final = 0.02
"""The pause between two of these tries."""

# The audit log.
AUDIT_TEXT_CHARS: Final = 200
"""The longest text, such as a client's name, in an audit entry."""

# Reading.
READ_CHUNK_BYTES: Final = 256 * 1024
"""The size of one read of a log."""
RUN_ID_LINES: Final = 8
"""The number of lines of an agent's output that `normalize` reads to derive the run id."""
RUN_ID_BYTES: Final = 64 * 1024
"""The number of bytes of these lines, at most."""
SHARED_CHUNKS: Final = 64
"""The number of log chunks cached for readers of the same log."""
SHARED_CHUNK_BYTES: Final = 512 * 1024
"""The largest chunk that is cached. A chunk with one long line can have many megabytes."""
PROBE_CHUNK_BYTES: Final = 4 * 1024
"""The size of one read when searching for the end of a line."""
FOLLOW_POLL_MIN_SECONDS: Final = 0.02
"""The polling interval of a follower after new events."""
FOLLOW_POLL_MAX_SECONDS: Final = 0.25
"""The polling interval of a follower without new events."""

# Masking.
SECRET_MIN_CHARS: Final = 6
"""The shortest value that can be masked."""
MASK_LOOKBACK_BYTES: Final = 16 * 1024
"""The largest amount of output that is delayed because it may contain the start of a secret."""

# Output and end of a command.
OUTPUT_JOIN_SECONDS: Final = 0.05
"""How long output is collected into one event."""
OUTPUT_JOIN_BYTES: Final = 8 * 1024
"""How much output is collected into one event."""
WORKER_OUTPUT_CHARS: Final = 1024 * 1024
"""How much of what a Python worker prints and logs is recorded in each attempt."""
TRACEBACK_CHARS: Final = 8 * 1024
"""The largest traceback that is recorded with an error: its end."""
RESULT_TAIL_BYTES: Final = 8 * 1024
"""How much of the end of a command's output becomes its result."""
STOP_GRACE_SECONDS: Final = 5.0
"""How long a cancelled command has to end by itself (`--grace`)."""
OUTPUT_DRAIN_SECONDS: Final = 1.0
"""How long reading the remaining output of a cancelled command may take."""

# The store.
INTAKE_IDLE_SECONDS: Final = 60.0
"""How often a server compacts the intake regardless of its size."""
ANNOUNCEMENT_BYTES: Final = 1024 * 1024
"""The size at which a server truncates the announcements that it has processed."""
SEARCH_RUN_CHARS: Final = 64_000_000
"""How much text of a run is indexed for search; `search_stopped_at` is where indexing of a longer text stopped."""
SEARCH_CHUNK_CHARS: Final = 8_192
"""The size of the chunks in which a run's text is indexed. The last chunk of an open run is indexed again when it
grows."""
SEARCH_OVERLAP_CHARS: Final = 256
"""How much of a chunk the next one repeats, so that phrases across their border are found."""
SEARCH_TERMS: Final = 64
"""The number of words and phrases of a query that are used."""
SNIPPET_BEFORE_CHARS: Final = 40
"""How much text before a hit is shown."""
SNIPPET_AFTER_CHARS: Final = 120
"""How much text from the start of the hit on is shown."""
INGEST_EVENTS: Final = 4_000
"""The approximate number of events that update the views in one transaction."""
INGEST_RUNS: Final = 500
"""The number of runs that are looked up at once when their logs are ingested."""
INGEST_BATCH_SECONDS: Final = 0.002
"""How long events wait for others to share a transaction."""
INGEST_INTERVAL_SECONDS: Final = 0.048
"""The pause between two transactions, unless the next one is full."""
INGEST_TURN_SECONDS: Final = 0.25
"""How long logs that are written continuously are ingested before other runs have their turn."""
INGEST_POLL_SECONDS: Final = 1.0
"""How often all open logs are polled, in case a notification is lost."""
INGEST_CACHED_LOG_BYTES: Final = 16 * 1024
"""An open log is cached up to this size, for the transcript that is archived at its end."""
INGEST_RETRY_SECONDS: Final = 1.0
"""The retry interval after a failed write to the store."""
QUEUE_GROUPS: Final = 1_000
"""How many different requirements queued runs may have; a claim looks at each of them."""
HOST_CHECK_SECONDS: Final = 1.0
"""How often the hosts of open runs are checked for being alive."""
STORAGE_CHECK_SECONDS: Final = 1.0
"""How often a server checks that its storage folder and database still exist."""
RETENTION_CHECK_SECONDS: Final = 3600.0
"""How often a server with a retention setting looks for runs to delete."""

# Views.
ARCHIVE_RESULT_BYTES: Final = 50_000
"""The size of a tool's result, or a command's output, in the archived transcript."""
ARCHIVE_ARGS_BYTES: Final = 2_000
"""The size of a tool's arguments in the archived transcript."""
FLEET_EVENT_FACTS: Final = 1_000
"""The number of open sessions, of their open calls, and of changed files that the fleet events of a run track."""
FLEET_EVENT_TEXT_BYTES: Final = 8_000
"""The longest text in a fleet event. The log has the whole."""
APPROVAL_TIMEOUT_SECONDS: Final = 86_400.0
"""How long a call waits for its approval, unless the worker or the run sets `approve_timeout`. Then it is denied."""
APPROVAL_TIMEOUT_MAX_SECONDS: Final = 366 * 86_400.0
"""The longest time that a request can set for approvals."""
APPROVAL_RULES: Final = 1_000
"""The number of rules of calls that are always approved."""
APPROVAL_PATTERNS: Final = 100
"""The number of patterns of calls to approve in one request for a run."""
APPROVAL_WORDS: Final = 50
"""The number of words after `sudo` and the like, and of folders of a path, at which a pattern may begin."""
APPROVAL_DIFF_CHARS: Final = 20_000
"""The length of the difference that an approval of an edit shows."""
CONTINUED_RUNS: Final = 100
"""The runs based on a run that its detail lists, newest first."""
OPEN_BRANCHES: Final = 1_000
"""The number of open steps, and of open calls, that the row of a run tracks."""
REQUEST_TEXT_CHARS: Final = 2_000
"""The longest text of a question or tool call in the row of a run; the log has all of it."""
REQUEST_OPTIONS_MAX: Final = 50
"""The number of options of a question in the row of a run; the log has all."""
NOTES_KEPT: Final = 100
"""The number of questions, and of decisions, that the row of a run has; the log has all."""
TIMELINE_OPEN_CALLS: Final = 1_000
"""The number of open tool calls whose start a timeline remembers."""
TRUNCATED_TEXT_CHARS: Final = 2_000
"""The length of a text in a truncated event; a line of fewer bytes is not truncated."""
TRUNCATED_MESSAGE_CHARS: Final = 20_000
"""The length of message text and thinking in a truncated event."""
TRUNCATED_ENTRIES: Final = 200
"""The number of entries of a list, or fields of an object, in a truncated event."""
TRUNCATED_EVENT_CHARS: Final = 100_000
"""The total length of a truncated event."""
SPANS_OPEN: Final = 1_000
"""The number of open steps, calls and sub-runs of a run that are tracked; beyond that the oldest are merged too."""
SPANS_ENDED: Final = 500
"""When twice this many spans have ended, neighbors are merged until this many are left."""
FIGURE_FILES: Final = 1_000
"""The number of changed files of a run that are told apart."""
LOG_HIT_CHARS: Final = 160
"""How much text around a hit is shown when a log is searched."""

# Display.
TREE_SIBLINGS: Final = 40
"""The number of sibling steps that a tree shows."""
LONGEST_SPAN_SECONDS: Final = 1000 * 366 * 86400
"""The longest time span that an option such as `--since` accepts."""
PREVIEW_CHARS: Final = 200
"""How much of a tool's input is shown on one line."""

# The queue, and live followers.
FOLLOWER_DELTAS: Final = 1_000
"""The number of deltas buffered for a follower; further ones are dropped for it. The log has the complete message."""

# Worker definitions.
WORKER_FILE_BYTES: Final = 256 * 1024
"""The largest `worker.yaml`."""
PROMPT_BYTES: Final = 1024 * 1024
"""The largest prompt."""
WORKER_VALUES: Final = 20_000
"""The number of values in a `worker.yaml`, including those that aliases repeat."""
WORKER_DEPTH: Final = 40
"""The nesting depth of these values."""
WORKER_PROBLEMS: Final = 100
"""The number of problems of a worker that are reported at once."""

# Models.
PROVIDER_MESSAGE_CHARS: Final = 500
"""How much of a provider's error message is passed on."""
TEST_RUN_SECONDS: Final = 60.0
"""How long `shopfloor.testing` waits for the end of a run by default."""

# The engine.
REPLAY_PAGE_EVENTS: Final = 2_000
"""The number of events that are read at once when a run is resumed."""
MODEL_TRIES: Final = 3
"""How often a model is called for transient errors, if the step does not configure it."""
RATE_LIMIT_WAITS: Final = 10
"""How often one model call waits for a rate limit with a known reset time."""
RATE_LIMIT_WAIT_SECONDS: Final = 3600.0
"""The longest of these waits."""
TOOL_OUTPUT_BYTES: Final = 8 * 1024 * 1024
"""The largest output of a tool."""
COMMAND_OUTPUT_CHARS: Final = 1024 * 1024
"""How much of the end of a command step's standard output later steps get. The log has all of it."""
ARGUMENT_BYTES: Final = 128 * 1024 - 1024
"""The longest value passed to a command: Linux accepts 128 KiB for one argument or variable, including its name."""
LOOP_ITERATIONS: Final = 100_000
"""The number of iterations of a loop."""
HOST_SLOTS: Final = 16
"""The number of runs that a host executes at once (`--slots`); waiting runs do not count."""
HOST_SLOTS_MAX: Final = 10_000
"""The highest value of `--slots`: a claim takes time for each free slot."""
IDLE_SECONDS: Final = 300.0
"""How long a waiting run stays in memory."""
IDLE_RUNS: Final = 100
"""The number of waiting runs that stay in memory; beyond that, those that waited longest are evicted first."""
IDLE_SETTLE_SECONDS: Final = 1.0
"""How long such a run must have waited: until then, another of its branches may be about to continue."""
INBOX_POLL_SECONDS: Final = 0.5
"""How often a host polls for control messages, in case a notification is lost."""
LOOP_CHECK_SECONDS: Final = 0.5
"""How often the watchdog checks that the event loop responds."""
LOOP_STALL_SECONDS: Final = 3.0
"""How long the code of a worker may block the event loop before the watchdog reports it."""
POISON_ATTEMPTS: Final = 3
"""After this many consecutive attempts that were lost while the run blocked the event loop, it fails as `poisoned`."""
CANCEL_KILL_SECONDS: Final = 30.0
"""How long a host that executes a single run has to end it when it is cancelled, before the host is killed. Longer
than a worker needs to return and the outcome to be written."""
SERVER_PORT: Final = 7420
"""The default port of a server."""
SERVER_STOP_SECONDS: Final = 20.0
"""How long a server in a thread has to end when its process ends."""
EXECUTE_GRACE_SECONDS: Final = 0.5
"""How long a run continues after the client of its `execute` request disconnected (`SHOPFLOOR_EXECUTE_GRACE`)."""
CLIENT_WAIT_SECONDS: Final = 24 * 60 * 60.0
"""How long a run of `execute` waits for the result of a client tool (`SHOPFLOOR_CLIENT_WAIT`)."""
ABANDON_SECONDS: Final = 15.0
"""How long a worker has to return after it was stopped; then it is abandoned. Commands are stopped well before."""

# Hosts.
HOST_HEARTBEAT_SECONDS: Final = 30.0
"""How often a host sends a heartbeat (`shopfloor host --heartbeat`, `SHOPFLOOR_HEARTBEAT`)."""
HOST_HEARTBEAT_MIN_SECONDS: Final = 0.1
"""The shortest time between heartbeats: each is a transaction."""
DRAIN_SECONDS: Final = 30.0
"""How long the runs of a host that is asked to stop may take to end, before other hosts resume them
(`shopfloor host --drain`)."""

# Agents.
PROVIDER_CHECK_SECONDS: Final = 300.0
"""How often a server checks whether providers are installed, logged in and answer."""
AGENT_STDERR_CHARS: Final = 8_000
"""How much of the end of an agent's stderr is read."""
SESSION_LOOKUPS: Final = 5
"""How often the model of a session is looked up, if the program stores it in a file."""
AGENT_CALLS: Final = 10_000
"""The number of recent tool calls of an agent that are remembered to match results with calls."""
UNTIMED_EVENTS: Final = 100
"""The number of events of an imported stream that wait for the first one with a time."""
AGENT_DIFF_CHARS: Final = 20_000
"""How much of the diff of a file change is recorded."""

# Streams to clients, and the SDK.
STREAM_EARLY_DELTAS: Final = 1_000
"""The number of deltas that a stream holds back until the log has the events before them."""
REQUEST_SECONDS: Final = 30.0
"""How long the SDK waits for a response, or for the next data of a stream."""
RECONNECT_TRIES: Final = 6
"""How often in a row the SDK tries to resume a disconnected stream."""
RECONNECT_PAUSE_SECONDS: Final = 0.2
"""The pause before the first of these tries; each further pause is twice as long."""
RECONNECT_RESET_SECONDS: Final = 10.0
"""After how long a connection on which nothing was sent does not count as one of these tries."""
QUEUED_POLL_SECONDS: Final = 0.25
"""How often the SDK polls whether a queued run has started."""
CANCEL_SECONDS: Final = 5.0
"""How long the cancel request of an abandoned execution may take."""
FRAME_BYTES: Final = 128 * 1024 * 1024
"""The longest server-sent event that the SDK reads."""

# The command line.
OUTCOME_POLL_SECONDS: Final = 0.1
"""How often the end of a cancelled run is polled."""

# Recovery, control messages and trees of runs.
RUN_RETRY_SECONDS: Final = 2.0
"""How long after a failed write to its log a run is resumed."""
SLUG_CHARS: Final = 100
"""The longest slug of a worker."""
WORKER_FUNCTIONS: Final = 1_000
"""The number of workers for which values computed from their definition are cached."""
CONTROL_MESSAGE_CONCURRENCY: Final = 64
"""The number of runs that control messages are delivered to at once."""
CONTROL_MESSAGE_TTL_SECONDS: Final = 60.0
"""How long a control message for an unknown run is kept: the run may still be dispatched."""
SUB_RUN_DEPTH: Final = 32
"""The number of ancestors of a run."""
SUB_RUN_CHECK_SECONDS: Final = 2.0
"""How often a run that waits for a sub-run polls its log, in case a notification is lost."""
TREE_OPEN_RUNS: Final = 2_000
"""The number of open runs (queued, running or waiting) in one tree."""
TREE_FULL_TIMEOUT_SECONDS: Final = 5.0
"""How long a sub-run waits for a free place in a full tree before its caller gets an error."""
TREE_CHECK_SECONDS: Final = 0.2
"""How often the open runs of a full tree are counted."""
TREE_COUNTS_CACHED: Final = 1_000
"""The number of trees whose count of open runs a host caches."""
STARTS_CACHED: Final = 2_000
"""The number of runs without a host of which a host caches what decides whether it may resume them."""
REQUEST_BYTES: Final = 10 * 1024 * 1024
"""The largest request body."""

# Requests for runs.
MAX_PRIORITY: Final = 100
"""The highest priority of a run; the lowest is its negative."""
RUN_LABELS: Final = 32
"""How many labels a run or a host may have."""
QUEUE_GROUP_RUNS: Final = 20
"""How many runs of each group of the queue are listed."""
QUEUE_WAITS: Final = 10_000
"""How many of the newest starts count for the times that runs waited in the queue."""
QUEUE_WAITS_SECONDS: Final = 3600
"""Only runs that started at most so long ago count for these times."""
PROVIDERS_REFRESH_SECONDS: Final = 5.0
"""How old the known list of installed providers may be when a host claims runs."""
FILTER_MAX_CHARS: Final = 1_000
"""The longest filter, search or cursor."""
WORKER_NAME_MAX_CHARS: Final = 200
"""The longest name of a worker, which is also a folder name."""
TASK_MAX_CHARS: Final = 100_000
"""The longest task, and the longest reason for a call without a result."""
PATH_MAX_CHARS: Final = 4_096
"""The longest path of a folder."""

# Plugins.
PLUGIN_RESTART_WAIT_SECONDS: Final = 10.0
"""How long a new job waits for a plugin that is not running."""
PLUGIN_STATUS_SECONDS: Final = 0.1
"""How soon the state of a plugin's job is polled after a change; each further poll waits longer."""
PLUGIN_STATUS_MAX_SECONDS: Final = 2.0
"""The longest time between two polls of a plugin's job."""
PLUGIN_SILENCE_SECONDS: Final = 120.0
"""How long a plugin may fail to answer about a job before the run fails."""
PLUGIN_CANCEL_SECONDS: Final = 15.0
"""How long the cancellation of a run waits for the end of the plugin's job."""
PLUGIN_NOTES: Final = 1_000
"""How many summaries, questions and decisions of one job are recorded."""
PLUGIN_NOTE_CHARS: Final = 10_000
"""The longest text of a recorded summary, question, decision or error of a plugin; the rest is cut off."""
PLUGIN_CLAIM_RUNS: Final = 1_000
"""How many runs of a plugin are searched for the owner of a job after a crash."""

# Hooks: webhooks and commands that are notified of runs.
HOOKS_MAX: Final = 100
"""The number of webhooks that can be added to a storage; hooks of settings and of runs do not count."""
HOOK_URL_CHARS: Final = 2_000
"""The longest URL of a webhook."""
HOOK_RETRY_SECONDS: Final = 24 * 3600.0
"""How long the delivery of an event is tried."""
HOOK_BACKOFF_SECONDS: Final = 5.0
"""The pause after the first failed try; it doubles with each further one."""
HOOK_BACKOFF_MAX_SECONDS: Final = 3600.0
"""The longest pause between two tries."""
HOOK_COMMAND_SECONDS: Final = 60.0
"""How long a command of a hook may take before it is killed."""
HOOK_POLL_SECONDS: Final = 1.0
"""How often due deliveries are looked for."""
HOOK_BATCH: Final = 100
"""Deliveries that are read at once."""
HOOK_CONCURRENCY: Final = 20
"""Hooks that are delivered to at once; one delivery of each at a time."""
SETTINGS_BYTES: Final = 64 * 1024
"""The largest settings file."""
DESKTOP_MIN_SECONDS: Final = 30.0
"""A desktop notification is shown for runs that took at least this long."""
DESKTOP_RETRY_SECONDS: Final = 60.0
"""After this time a desktop notification is not shown any more."""

# Artifacts of runs, and memories of workers.
BLOB_NAME_CHARS: Final = 100
"""The length of an artifact's name and of a memory's key."""
ARTIFACT_BYTES: Final = 10 * 1024 * 1024
"""The size of one artifact."""
RUN_ARTIFACTS: Final = 100
"""The number of artifacts of one run."""
CHARS_PER_TOKEN: Final = 4
"""For estimates of the number of tokens of a text."""
MEMORY_PROMPT_TOKENS: Final = 8_000
"""How much of a worker's memory is added to a system prompt, newest first; also the size of one memory."""
MEMORY_COMPACT_TOKENS: Final = 16_000
"""Above this size the memories of a worker are condensed by its model."""
MEMORY_KEYS: Final = 1_000
"""The number of memories of one worker."""

# What waits for a person.
NEEDS_PERSON_SECONDS: Final = 7 * 86_400.0
"""How long a failed run whose cause only a person can remove waits for one; later it is a failure like others."""

# Statistics.
STATS_CELLS: Final = 32
"""Quarters of an hour and models per open session whose spending is corrected when the session's total is known."""
STATS_DAYS: Final = 366
"""The longest range of days of statistics."""
STATS_DEFAULT_DAYS: Final = 14
"""The range of days of statistics by default, today included."""
STATS_RUNS: Final = 100_000
"""How many runs statistics with a filter that has no sums are computed from; if more match, they are refused."""
STATS_FAILURES: Final = 10
"""How many groups of failures statistics name."""
STATS_FAILURE_WORKERS: Final = 5
"""How many workers a group of failures names."""
STATS_TOOLS: Final = 20
"""How many tools statistics name."""
