-- Filters that combine: counts by status, and statistics of runs with any filter, are read from an index alone.
-- With the value of an expression, an index also has its column: else SQLite would look up each row.
-- `idx_worker_runs_ended` has all columns that a filter may compare; a run is added to it once, when it ends.

DROP INDEX idx_worker_runs_ended;
CREATE INDEX idx_worker_runs_ended ON worker_runs(
    completed_at, num, started_at, status, name, agent_id, worker_type, provider, model, error_code, channel_id,
    parent_run_id, cost_usd, duration_ms
) WHERE completed_at IS NOT NULL;

DROP INDEX idx_worker_runs_cost;
CREATE INDEX idx_worker_runs_cost
ON worker_runs(coalesce(cost_usd, -1), num, started_at, parent_run_id, status, cost_usd);
DROP INDEX idx_worker_runs_duration;
CREATE INDEX idx_worker_runs_duration
ON worker_runs(coalesce(duration_ms, -1), num, started_at, parent_run_id, status, duration_ms);

DROP INDEX idx_worker_runs_name;
CREATE INDEX idx_worker_runs_name ON worker_runs(name, started_at, num, parent_run_id, status);
DROP INDEX idx_worker_runs_channel;
CREATE INDEX idx_worker_runs_channel ON worker_runs(channel_id, started_at, num, parent_run_id, status);
DROP INDEX idx_worker_runs_type;
CREATE INDEX idx_worker_runs_type ON worker_runs(worker_type, started_at, num, parent_run_id, status);
DROP INDEX idx_worker_runs_parent;
CREATE INDEX idx_worker_runs_parent ON worker_runs(parent_run_id, started_at, num, status)
WHERE parent_run_id IS NOT NULL;
