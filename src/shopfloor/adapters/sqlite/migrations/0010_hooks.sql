-- Who is told about runs, and what they have not been told yet. Durable in its own right.

CREATE TABLE hooks (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    body BLOB NOT NULL,
    delivered INTEGER NOT NULL DEFAULT 0,
    dropped INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    last_at TEXT
);

CREATE TABLE deliveries (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    hook_id TEXT NOT NULL REFERENCES hooks(id) ON DELETE CASCADE,
    event_id TEXT NOT NULL,
    body BLOB NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    next_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    UNIQUE (hook_id, event_id)
);
CREATE INDEX idx_deliveries_due ON deliveries(next_at);
