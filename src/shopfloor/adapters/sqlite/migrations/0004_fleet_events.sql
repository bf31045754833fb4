-- Fleet events, in chunks of one run or of one stream: a view of the logs (`agent.*`), or durable in their own right.

CREATE TABLE fleet_events (
    last INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    stream TEXT NOT NULL,
    provider TEXT,
    run_id TEXT,
    events BLOB NOT NULL
);
CREATE INDEX idx_fleet_events_run ON fleet_events(run_id, last) WHERE run_id IS NOT NULL;

-- The newest cursor, and the newest cursor that was deleted because there were too many. Cursors begin at the time of
-- creation, so that they grow even if the database is lost and a new one replaces it.

CREATE TABLE fleet_cursor (last INTEGER NOT NULL, trimmed INTEGER NOT NULL);
INSERT INTO fleet_cursor SELECT now, now FROM (SELECT CAST(strftime('%s', 'now') AS INTEGER) * 1000 AS now);

-- Up to which event of its log the fleet events of a run are stored, while its other views are rebuilt.

CREATE TABLE fleet_positions (run_id TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
