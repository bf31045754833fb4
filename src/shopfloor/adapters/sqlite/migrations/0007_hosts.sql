-- Hosts that serve this storage: durable in their own right.
-- `record` is written by the host itself, the other columns by any host or command.

CREATE TABLE hosts (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    record BLOB NOT NULL,
    drain BLOB,
    loss BLOB,
    offline_at TEXT
);

-- The open runs of a host, and the last runs of a worker.

CREATE INDEX idx_worker_runs_host ON worker_runs(host) WHERE completed_at IS NULL;
