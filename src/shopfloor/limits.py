"""Every named limit, in one place: sizes in bytes, times in seconds, unless the name says otherwise."""

from typing import Final

# The log.
LOG_LINE_BYTES: Final = 64 * 1024 * 1024
"""The longest line of a log."""
LINE_BUFFER_BYTES: Final = 64 * 1024
"""The longest line whose memory a recorder keeps for the next one."""
LOG_MODE: Final = 0o600
"""The mode of a log's file."""
FOLDER_MODE: Final = 0o700
"""The mode of the folders that we make."""
GROUP_COMMIT_SECONDS: Final = 0.05
"""With durability `group`: how long an event may wait until it is forced to disk."""
SUBSCRIBER_EVENTS: Final = 256
"""How many events wait for a subscriber before new ones are dropped for it."""
BUS_EVENTS: Final = 4_096
"""How many events of all runs wait for a subscriber of all of them; then it reads the logs."""
BUS_BYTES: Final = 2 * 1024 * 1024
"""And how many bytes of them."""
BUS_RUNS: Final = 10_000
"""Of how many runs such a subscriber is told at once; more wait for its next look at all logs."""
NOTIFY_INTERVAL_SECONDS: Final = 0.002
"""How soon after one another a process tells the server of news in the same log."""
NOTIFY_FULL_RETRY_SECONDS: Final = 0.02
"""How soon it tries again where the server has too much to receive."""
NOTIFY_ABSENT_RETRY_SECONDS: Final = 1.0
"""How soon it tries again where there was no server."""
NOTIFY_THREAD_IDLE_SECONDS: Final = 5.0
"""How long the thread that tells of news later waits for some."""
NOTIFY_TRACKED_RUNS: Final = 10_000
"""Of how many runs it is known when they were told of."""
NOTIFY_BURST: Final = 256
"""How many notices a server takes before it does something else."""
SOCKET_PATH_BYTES: Final = 100
"""The longest path that every system takes for a socket."""
DROP_WARNING_SECONDS: Final = 1.0
"""How often at most a slow subscriber is warned of."""
DISK_LOW_WATER_BYTES: Final = 200 * 1000 * 1000
"""With less than this free, new runs are refused and running ones end (`SHOPFLOOR_DISK_LOW_WATER`)."""
DISK_THREADS: Final = 32
"""How many logs are forced to disk at once."""
DISK_CHECK_SECONDS: Final = 1.0
"""How often a run looks at what is free."""
MTIME_SETTLE_SECONDS: Final = 1.0
"""How long after its last change a folder's time tells of every change to come: file systems' clocks tick slowly."""
FREE_SPACE_CACHE_SECONDS: Final = 0.02
"""How long a look at what is free is good for all who ask."""
CHUNK_FLUSH_SECONDS: Final = 1.0
"""The longest that typed text waits before it is logged. Each message is logged at most once in this time."""
STORAGE_FULL_TIMEOUT_SECONDS: Final = 5.0
"""How long a run waits for room on a full disk."""
STORAGE_RETRY_SECONDS: Final = 0.25
"""How often it tries meanwhile."""
LOCK_ATTEMPTS: Final = 5
"""How often a writer asks for a log's lock: a reader may hold it for an instant."""
LOCK_RETRY_SECONDS: Final = 0.02
"""How long it waits in between."""

# The audit log.
AUDIT_BYTES: Final = 16 * 1024 * 1024
"""How large the audit log grows before a new file is begun; the one before it is kept."""
AUDIT_TEXT_CHARS: Final = 200
"""How much of a text, such as what a client calls itself, an entry has."""
AUDIT_ENTRIES_IN_MEMORY: Final = 10_000
"""How many entries an audit log without a file keeps."""

# Reading.
READ_CHUNK_BYTES: Final = 256 * 1024
"""How much of a log is read at once."""
RUN_ID_LINES: Final = 8
"""How many lines of an agent's output `normalize` reads before the first event: the run's id is made from them."""
RUN_ID_BYTES: Final = 64 * 1024
"""How much of them at most."""
SHARED_CHUNKS: Final = 64
"""How many chunks of logs are kept for those who read the same."""
SHARED_CHUNK_BYTES: Final = 512 * 1024
"""The largest chunk that is kept so. A chunk with one long line can be many megabytes."""
PROBE_CHUNK_BYTES: Final = 4 * 1024
"""How much of it is read to find a line's end."""
FOLLOW_POLL_MIN_SECONDS: Final = 0.02
"""How soon a follower looks again after something came."""
FOLLOW_POLL_MAX_SECONDS: Final = 0.25
"""How soon it looks again when nothing comes."""
FOLLOW_FALLBACK_POLL_SECONDS: Final = 0.25
"""How soon a follower that is told of events reads the log all the same, in case that one was not told."""

# Masking.
SECRET_MIN_CHARS: Final = 6
"""The shortest value that can be masked."""
MASK_LOOKBACK_BYTES: Final = 16 * 1024
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
ENDED_PROCESSES: Final = 100
"""How many of the processes that outlived a command or agent, and were ended, its step names."""
STOP_GRACE_SECONDS: Final = 5.0
"""How long a cancelled command has to end by itself (`--grace`)."""
OUTPUT_DRAIN_SECONDS: Final = 1.0
"""How long after a cancel its last words may take to be read."""
KILL_GRACE_SECONDS: Final = 5.0
"""How long we wait for what was killed to be gone."""
REAPER_GRACE_SECONDS: Final = 1.0
"""How long the children of a host that died have to end by themselves."""
PROCESS_POLL_SECONDS: Final = 0.02
"""How often it is looked whether processes are gone."""

# The store.
DATABASE_BUSY_TIMEOUT_SECONDS: Final = 5.0
"""How long a query waits for a database that somebody else holds."""
DATABASE_READERS: Final = 8
"""How many queries read at once."""
INTAKE_BYTES: Final = 4 * 1024 * 1024
"""The size at which the intake is compacted; it must also have doubled since the last time."""
INTAKE_IDLE_SECONDS: Final = 60.0
"""How often a server compacts the intake whatever its size."""
ANNOUNCEMENT_BYTES: Final = 1024 * 1024
"""The size at which a server empties the announcements that it has taken up."""
SEARCH_RUN_CHARS: Final = 64_000_000
"""How much text of a run is indexed for search; `search_stopped_at` says where a longer one was cut."""
SEARCH_CHUNK_CHARS: Final = 8_192
"""The pieces in which a run's text is indexed. The last one of a run that goes on is indexed again with what is new."""
SEARCH_OVERLAP_CHARS: Final = 256
"""How much of a piece the next one repeats, so that phrases across their border are found."""
SEARCH_TERMS: Final = 64
"""How many words and phrases of a query count."""
SEARCH_CANDIDATES: Final = 1_000
"""Up to so many runs that have the first words are looked at one by one for the others."""
SEARCH_SCAN_RUNS: Final = 20_000
"""From so many candidates on, tasks are read in order instead of being looked up one by one."""
SNIPPET_BEFORE_CHARS: Final = 40
"""How much text before a hit is shown."""
SNIPPET_AFTER_CHARS: Final = 120
"""How much from the hit on."""
INGEST_EVENTS: Final = 4_000
"""How many events go into the views in one transaction, at about that many."""
INGEST_RUNS: Final = 500
"""How many runs are looked up at once when their logs are taken up."""
INGEST_BATCH_SECONDS: Final = 0.005
"""How long events wait for others that go into the same transaction."""
INGEST_INTERVAL_SECONDS: Final = 0.045
"""How long after one transaction the next begins, unless it is full."""
INGEST_TURN_SECONDS: Final = 0.25
"""How long logs that are written all the time are read on, before the rows of other runs have their turn."""
INGEST_POLL_SECONDS: Final = 1.0
"""How often all logs that have not ended are looked at, in case that an event was not told."""
INGEST_CACHED_LOG_BYTES: Final = 16 * 1024
"""A log that has not ended is kept up to this length, for the transcript that is made at its end."""
FEED_KNOWN_LOGS: Final = 100_000
"""Of how many logs it is known how large they were when they had no more events."""
INGEST_RETRY_SECONDS: Final = 1.0
"""How long to wait after the store could not be written."""
HOST_CHECK_SECONDS: Final = 1.0
"""How often it is looked whether the hosts of open runs are alive."""
STORAGE_CHECK_SECONDS: Final = 1.0
"""How often a server looks whether its storage folder and database are still there."""
RETENTION_CHECK_SECONDS: Final = 3600.0
"""How often a server that was told to looks for runs to delete."""

# Views.
ARCHIVE_RESULT_BYTES: Final = 50_000
"""A tool's result, or a command's output, in the archived transcript."""
ARCHIVE_ARGS_BYTES: Final = 2_000
"""A tool's arguments in the archived transcript."""
FLEET_EVENT_FACTS: Final = 1_000
"""How many open sessions, open calls of theirs, and files that they changed the signals of a run remember."""
OPEN_BRANCHES: Final = 1_000
"""How many open steps, and how many open calls, of a run are known to its row."""
TIMELINE_OPEN_CALLS: Final = 1_000
"""How many open tool calls a timeline remembers the beginning of."""
TRUNCATED_TEXT_CHARS: Final = 2_000
"""How much of a text an event has where it is told briefly; a line of fewer bytes is told as it is."""
TRUNCATED_MESSAGE_CHARS: Final = 20_000
"""The same for what is said and thought in messages."""
TRUNCATED_ENTRIES: Final = 200
"""How many entries of a list, or fields of an object."""
TRUNCATED_EVENT_CHARS: Final = 100_000
"""How much such an event has in all."""
SPANS_OPEN: Final = 1_000
"""How many steps, calls and sub-runs of a run are known to be open; beyond that the oldest are merged, too."""
SPANS_ENDED: Final = 500
"""When twice this many spans have ended, neighbors are merged until this many are left."""
LOG_HIT_CHARS: Final = 160
"""How much text around a hit is shown where a log is searched."""

# What people are shown.
FOLD_HEAD_LINES: Final = 20
"""How many lines of long output are shown from its beginning."""
FOLD_TAIL_LINES: Final = 5
"""How many from its end."""
FOLD_LINE_CHARS: Final = 2_000
"""How much of a long line is shown."""
FULL_LINE_CHARS: Final = 1_000_000
"""Where longer lines are broken when output is not folded."""
TREE_SIBLINGS: Final = 40
"""How many steps side by side a tree shows."""
LONGEST_SPAN_SECONDS: Final = 1000 * 366 * 86400
"""The longest span of time that an option such as `--since` takes."""
UNPARSED_LINE_WARNINGS: Final = 20
"""How many lines that are not understood are told of one by one."""
PREVIEW_CHARS: Final = 200
"""How much of a tool's input is shown on one line."""

# The queue, and following live.
DATABASE_GROUP_COMMIT_SECONDS: Final = 0.01
"""How long a transaction takes in more of the writes that wait in line."""
FOLLOWER_DELTAS: Final = 1_000
"""How many pieces of messages wait for a follower before new ones are dropped for it; the log has the whole."""

# Workers' definitions.
WORKER_FILE_BYTES: Final = 256 * 1024
"""The largest `worker.yaml`."""
PROMPT_BYTES: Final = 1024 * 1024
"""The largest prompt."""
WORKER_VALUES: Final = 20_000
"""How many values a `worker.yaml` may hold, with those that aliases repeat."""
WORKER_DEPTH: Final = 40
"""How deep they may be nested."""
WORKER_PROBLEMS: Final = 100
"""How many problems of a worker are told at once."""

# Models.
MODEL_CONNECT_SECONDS: Final = 10.0
"""How long connecting to a model's provider may take."""
MODEL_READ_TIMEOUT_SECONDS: Final = 600.0
"""How long a model may say nothing in the middle of a request (`SHOPFLOOR_MODEL_TIMEOUT`)."""
MODEL_CLOSE_SECONDS: Final = 2.0
"""How long closing the connection to a model that nobody listens to any more may take."""
MODEL_CONNECTIONS: Final = 100
"""How many requests go to one provider at a time."""
PROVIDER_MESSAGE_CHARS: Final = 500
"""How much of what a provider says about an error is passed on."""
SCRIPT_WORD_SECONDS: Final = 0.02
"""How long a scripted model takes for a word (`SHOPFLOOR_SCRIPT_DELAY_MS`)."""
TEST_RUN_SECONDS: Final = 60.0
"""How long `shopfloor.testing` waits for the end of a run, unless the test says another time."""

# The engine.
REPLAY_PAGE_EVENTS: Final = 2_000
"""How many events are read at once where a run is gone on with."""
MODEL_TRIES: Final = 3
"""How often a model is asked where a step says nothing of it, for errors that pass."""
RATE_LIMIT_WAITS: Final = 10
"""How often one answer waits for a provider that said when it would answer again."""
RATE_LIMIT_WAIT_SECONDS: Final = 3600.0
"""The longest of such waits."""
TOOL_OUTPUT_BYTES: Final = 8 * 1024 * 1024
"""The most that a tool may give."""
COMMAND_OUTPUT_CHARS: Final = 1024 * 1024
"""How much of a command step's standard output later steps get: the end of it. The log has all of it."""
ARGUMENT_BYTES: Final = 128 * 1024 - 1024
"""The longest value that a command is given: Linux takes 128 KiB for one argument or variable, with its name."""
LOOP_ITERATIONS: Final = 100_000
"""How many rounds a loop may have."""
HOST_SLOTS: Final = 16
"""How many runs a host works on at once (`--slots`); those that wait do not count."""
IDLE_SECONDS: Final = 300.0
"""How long a run that waits is kept in memory."""
IDLE_RUNS: Final = 100
"""How many such runs are kept in memory; with more, those that have waited longest are let go first."""
INBOX_POLL_SECONDS: Final = 0.5
"""How often a host looks for orders that nobody told it of."""
LOOP_CHECK_SECONDS: Final = 0.5
"""How often the watchdog looks whether the event loop answers."""
LOOP_STALL_SECONDS: Final = 3.0
"""How long code of a worker may block the event loop before the watchdog reports it."""
POISON_ATTEMPTS: Final = 3
"""After so many attempts in a row that were lost while the run blocked the event loop, it fails as `poisoned`."""
CANCEL_KILL_SECONDS: Final = 30.0
"""How long a host that does nothing but one run has to end a cancelled run, before the host is killed. Longer than a
worker has to leave, and the outcome to be written."""
SERVER_PORT: Final = 7420
"""The port that a server listens on, unless told otherwise."""
SERVER_START_SECONDS: Final = 60.0
"""How long a server in the background has to start to listen, before it is ended."""
SERVER_DOWN_SECONDS: Final = 60.0
"""How long `shopfloor down` waits for the server to end."""
SERVER_POLL_SECONDS: Final = 0.05
"""How often it is looked whether a server has started, or has ended."""
SERVER_STOP_SECONDS: Final = 20.0
"""How long a server in a thread has to end when its process does."""
EXECUTE_GRACE_SECONDS: Final = 0.5
"""How long a run goes on after the client of its `execute` hung up (`SHOPFLOOR_EXECUTE_GRACE`)."""
CLIENT_WAIT_SECONDS: Final = 24 * 60 * 60.0
"""How long a run of `execute` waits for the result of a client tool (`SHOPFLOOR_CLIENT_WAIT`)."""
ABANDON_SECONDS: Final = 15.0
"""How long a worker that is told to stop has to leave; then it is left behind. Commands are stopped well before."""

# Agents.
THREAD_TAIL_BYTES: Final = 8 * 1024 * 1024
"""How much of the end of a Codex thread's file is looked through for what the thread has spent."""
DOCUMENT_TRIES: Final = 20
"""How often a JSON document over several lines is parsed as if it were whole, before its lines are read one by one."""
AGENT_LINE_BYTES: Final = 32 * 1024 * 1024
"""The longest line of an agent that is read as a whole; what is longer is kept in pieces, as not understood."""
AGENT_VERSION_SECONDS: Final = 15.0
"""How long an agent may take to say its version."""
AGENT_STDERR_CHARS: Final = 8_000
"""How much of the end of what an agent prints on stderr is looked at."""
SESSION_LOOKUPS: Final = 5
"""How often it is looked up which model a session has, where the program keeps that in a file."""
AGENT_CALLS: Final = 10_000
"""How many of the newest calls of tools of an agent are known, so that each result has its call."""
UNTIMED_EVENTS: Final = 100
"""How many events of a stream from elsewhere wait for the first that has a time."""
AGENT_DIFF_CHARS: Final = 20_000
"""How much of a diff is kept with a change of a file."""

# Streams to clients, and the SDK.
STREAM_EARLY_DELTAS: Final = 1_000
"""How many pieces of messages a stream holds until the log has the events before them."""
REQUEST_SECONDS: Final = 30.0
"""How long the SDK waits for an answer, or for the next sign of life of a stream."""
RECONNECT_TRIES: Final = 6
"""How often in a row the SDK tries to go on with a stream that was cut."""
RECONNECT_PAUSE_SECONDS: Final = 0.2
"""How long it waits before it tries again; each further wait is twice as long."""
QUEUED_POLL_SECONDS: Final = 0.25
"""How often it is looked whether a run that is queued has begun."""
CANCEL_SECONDS: Final = 5.0
"""How long an execution that is left may take to say that its run is to be cancelled."""
FRAME_BYTES: Final = 128 * 1024 * 1024
"""The longest server-sent event that the SDK reads."""

# The command line.
FORCED_EXIT_SECONDS: Final = 2.0
"""How long a command that was told twice to stop may take to tidy up."""
CANCEL_WAIT_SECONDS: Final = 60.0
"""How long `shopfloor cancel` waits for the run to end."""
OUTCOME_POLL_SECONDS: Final = 0.1
"""How often it is looked whether a run that was cancelled has ended."""
PROGRESS_REDRAW_SECONDS: Final = 0.1
"""How often the line that says what is being done is drawn anew."""
FOLLOW_SILENCE_SECONDS: Final = 1.0
"""How long a run that is followed may be silent before it is looked whether a sub-run waits for somebody."""
TOOL_STDERR_CHARS: Final = 500
"""How much of what a tool's command complained of is passed on: the end of it."""

# Going on after failures.
RUN_RETRY_SECONDS: Final = 2.0
"""How long a run that could not be recorded is left alone before it is gone on with."""
SLUG_CHARS: Final = 100
"""How long a worker's slug may be."""
WORKER_FUNCTIONS: Final = 1_000
"""Of how many workers what is computed from their definition is kept."""
CONTROL_MESSAGE_CONCURRENCY: Final = 64
"""To how many runs orders are handed at once."""
CONTROL_MESSAGE_TTL_SECONDS: Final = 60.0
"""How long an order of a run that nobody knows is kept: it may yet be dispatched."""
SUB_RUN_DEPTH: Final = 32
"""How many runs may be above a run."""
SUB_RUN_CHECK_SECONDS: Final = 5.0
"""How often a run that waits for a sub-run looks at the log of that, in case nobody tells it of the end."""
TREE_OPEN_RUNS: Final = 2_000
"""How many runs of a tree may be open at once: queued, running or waiting."""
TREE_FULL_TIMEOUT_SECONDS: Final = 5.0
"""How long a sub-run waits for room in a full tree, before its caller is refused."""
TREE_CHECK_SECONDS: Final = 0.2
"""How often the open runs of a full tree are counted."""
TREE_COUNTS_CACHED: Final = 1_000
"""Of how many trees a host remembers the number of open runs."""
MALLOC_MMAP_BYTES: Final = 4 * 1024 * 1024
"""Values from this size on have memory of their own, which a server gives back as soon as they are freed."""
MALLOC_ARENAS: Final = 2
"""In how many places the threads of a server allocate smaller values."""
REQUEST_BYTES: Final = 10 * 1024 * 1024
"""The largest body of a request."""

# Requests for runs.
FILTER_MAX_CHARS: Final = 1_000
"""The longest filter, search or cursor."""
WORKER_NAME_MAX_CHARS: Final = 200
"""The longest name of a worker: it is a folder's name."""
TASK_MAX_CHARS: Final = 100_000
"""The longest task, and the longest reason why a call gave nothing."""
PATH_MAX_CHARS: Final = 4_096
"""The longest path of a folder."""
