-- Runs: one row each, a view of the run's log.

CREATE TABLE worker_runs (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    parent_run_id TEXT,
    root_run_id TEXT,
    name TEXT NOT NULL DEFAULT '',
    kind TEXT NOT NULL DEFAULT '',
    worker_type TEXT NOT NULL DEFAULT 'builtin',
    provider TEXT,
    model TEXT,
    agent_id TEXT,
    channel_id TEXT,
    task TEXT NOT NULL,
    result TEXT,
    status TEXT NOT NULL DEFAULT 'running',
    error_code TEXT,
    error_message TEXT,
    error_hint TEXT,
    host TEXT,
    attempt INTEGER NOT NULL DEFAULT 0,
    interruptions INTEGER NOT NULL DEFAULT 0,
    queued_at TIMESTAMP,
    started_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    completed_at TIMESTAMP,
    duration_ms INTEGER,
    tool_calls INTEGER NOT NULL DEFAULT 0,
    messages INTEGER NOT NULL DEFAULT 0,
    children INTEGER NOT NULL DEFAULT 0,
    spending TEXT,
    last_seq INTEGER NOT NULL DEFAULT 0,
    event_count INTEGER NOT NULL DEFAULT 0,
    has_transcript BOOLEAN NOT NULL DEFAULT 0,
    wake_at TEXT,
    waits TEXT,
    outside BOOLEAN NOT NULL DEFAULT 0,
    search_stopped_at INTEGER
);
CREATE INDEX idx_worker_runs_newest ON worker_runs(started_at, num);
CREATE INDEX idx_worker_runs_open ON worker_runs(id) WHERE completed_at IS NULL;
CREATE INDEX idx_worker_runs_ended ON worker_runs(completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX idx_worker_runs_wake ON worker_runs(wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX idx_worker_runs_roots ON worker_runs(started_at, num) WHERE parent_run_id IS NULL;
CREATE INDEX idx_worker_runs_name ON worker_runs(name, started_at, num, parent_run_id);
CREATE INDEX idx_worker_runs_agent ON worker_runs(agent_id, started_at, num, parent_run_id);
CREATE INDEX idx_worker_runs_agent_status ON worker_runs(agent_id, status, started_at, num, parent_run_id);
CREATE INDEX idx_worker_runs_status ON worker_runs(status, started_at, num, parent_run_id);
CREATE INDEX idx_worker_runs_channel ON worker_runs(channel_id, started_at, num, parent_run_id);
CREATE INDEX idx_worker_runs_type ON worker_runs(worker_type, started_at, num, parent_run_id);
CREATE INDEX idx_worker_runs_parent ON worker_runs(parent_run_id, started_at, num) WHERE parent_run_id IS NOT NULL;

CREATE TABLE worker_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    worker_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    data TEXT,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    seq INTEGER NOT NULL DEFAULT 0,
    n INTEGER NOT NULL DEFAULT 0,
    FOREIGN KEY (worker_id) REFERENCES worker_runs(id) ON DELETE CASCADE
);
CREATE INDEX idx_worker_events_worker ON worker_events(worker_id, created_at);
CREATE UNIQUE INDEX idx_worker_events_seq ON worker_events(worker_id, seq, n);

CREATE TABLE worker_transcripts (
    worker_id TEXT PRIMARY KEY REFERENCES worker_runs(id) ON DELETE CASCADE,
    transcript BLOB NOT NULL
);

CREATE TABLE worker_folds (
    worker_id TEXT PRIMARY KEY REFERENCES worker_runs(id) ON DELETE CASCADE,
    state BLOB NOT NULL
);

-- How many runs a filter finds, without counting them.

CREATE TABLE run_counts (
    agent_id TEXT NOT NULL,
    status TEXT NOT NULL,
    worker_type TEXT NOT NULL,
    channel_id TEXT NOT NULL,
    name TEXT NOT NULL,
    roots BOOLEAN NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (agent_id, status, worker_type, channel_id, name, roots)
) WITHOUT ROWID;

CREATE TRIGGER count_new AFTER INSERT ON worker_runs BEGIN
    INSERT INTO run_counts VALUES (
        coalesce(new.agent_id, ''), new.status, new.worker_type, coalesce(new.channel_id, ''), new.name,
        new.parent_run_id IS NULL, 1
    ) ON CONFLICT (agent_id, status, worker_type, channel_id, name, roots) DO UPDATE SET n = n + 1;
END;

CREATE TRIGGER count_gone AFTER DELETE ON worker_runs BEGIN
    UPDATE run_counts SET n = n - 1 WHERE (agent_id, status, worker_type, channel_id, name, roots) = (
        coalesce(old.agent_id, ''), old.status, old.worker_type, coalesce(old.channel_id, ''), old.name,
        old.parent_run_id IS NULL
    );
END;

CREATE TRIGGER count_changed
AFTER UPDATE OF agent_id, status, worker_type, channel_id, name, parent_run_id ON worker_runs
WHEN (
    coalesce(old.agent_id, ''), old.status, old.worker_type, coalesce(old.channel_id, ''), old.name,
    old.parent_run_id IS NULL
) IS NOT (
    coalesce(new.agent_id, ''), new.status, new.worker_type, coalesce(new.channel_id, ''), new.name,
    new.parent_run_id IS NULL
)
BEGIN
    UPDATE run_counts SET n = n - 1 WHERE (agent_id, status, worker_type, channel_id, name, roots) = (
        coalesce(old.agent_id, ''), old.status, old.worker_type, coalesce(old.channel_id, ''), old.name,
        old.parent_run_id IS NULL
    );
    INSERT INTO run_counts VALUES (
        coalesce(new.agent_id, ''), new.status, new.worker_type, coalesce(new.channel_id, ''), new.name,
        new.parent_run_id IS NULL, 1
    ) ON CONFLICT (agent_id, status, worker_type, channel_id, name, roots) DO UPDATE SET n = n + 1;
END;

-- Search: words of all texts in pieces, and any part of a task.

CREATE VIRTUAL TABLE search_pieces USING fts5(body, tokenize = 'unicode61 remove_diacritics 2');
CREATE TABLE search_tasks (num INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE VIRTUAL TABLE search_trigrams USING fts5(
    text, tokenize = 'trigram case_sensitive 1', detail = none, columnsize = 0,
    content = 'search_tasks', content_rowid = 'num'
);

CREATE TRIGGER search_task_new AFTER INSERT ON search_tasks BEGIN
    INSERT INTO search_trigrams(rowid, text) VALUES (new.num, new.text);
END;

CREATE TRIGGER search_task_gone AFTER DELETE ON search_tasks BEGIN
    INSERT INTO search_trigrams(search_trigrams, rowid, text) VALUES ('delete', old.num, old.text);
END;

CREATE TRIGGER search_task_changed AFTER UPDATE ON search_tasks WHEN old.text IS NOT new.text BEGIN
    INSERT INTO search_trigrams(search_trigrams, rowid, text) VALUES ('delete', old.num, old.text);
    INSERT INTO search_trigrams(rowid, text) VALUES (new.num, new.text);
END;

CREATE TRIGGER search_gone AFTER DELETE ON worker_runs BEGIN
    DELETE FROM search_tasks WHERE num = old.num;
    DELETE FROM search_pieces WHERE rowid BETWEEN old.num << 20 AND (old.num << 20) + 1048575;
END;

-- Durable in its own right: no log has it.

CREATE TABLE channels (id TEXT PRIMARY KEY, name TEXT);
CREATE TABLE pins (worker_id TEXT PRIMARY KEY);
CREATE TABLE tombstones (worker_id TEXT PRIMARY KEY);
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);

CREATE TABLE dispatches (
    num INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE,
    host TEXT,
    body BLOB NOT NULL
);
CREATE INDEX idx_dispatches_free ON dispatches(num) WHERE host IS NULL;
CREATE INDEX idx_dispatches_claimed ON dispatches(host) WHERE host IS NOT NULL;

CREATE TABLE dispatch_keys (key TEXT PRIMARY KEY, run_id TEXT NOT NULL, asked BLOB NOT NULL);
CREATE INDEX idx_dispatch_keys_run ON dispatch_keys(run_id);

CREATE TABLE orders (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL,
    id TEXT NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (run_id, id)
);
