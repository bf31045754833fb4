-- What queued runs require of their host, and their priority. A claim reads the heads of the groups that it may take, so
-- the index has the groups one after the other, each in the order in which its runs start. `rank` is minus the priority;
-- with `host`, which is always null in it, SQLite need not read the table.

ALTER TABLE dispatches ADD COLUMN needs TEXT NOT NULL DEFAULT '';
ALTER TABLE dispatches ADD COLUMN rank INTEGER NOT NULL DEFAULT 0;
DROP INDEX idx_dispatches_free;
CREATE INDEX idx_dispatches_free ON dispatches(needs, rank, num, host) WHERE host IS NULL;

-- The same of each run, and how far it is, as its log has it. JSON.

ALTER TABLE worker_runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE worker_runs ADD COLUMN requires TEXT;
ALTER TABLE worker_runs ADD COLUMN progress TEXT;
