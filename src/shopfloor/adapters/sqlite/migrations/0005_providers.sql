-- What is known of each provider: checks, observations of runs, who disabled it, and the status announced last. JSON.

CREATE TABLE providers (name TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
