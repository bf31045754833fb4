-- Filters and orders of lists: the cost with sub-runs, and since when a run waits for a person.

ALTER TABLE worker_runs ADD COLUMN cost_usd REAL;
ALTER TABLE worker_runs ADD COLUMN waiting_since TEXT;
CREATE INDEX idx_worker_runs_cost ON worker_runs(coalesce(cost_usd, -1), num, started_at, parent_run_id);
CREATE INDEX idx_worker_runs_duration ON worker_runs(coalesce(duration_ms, -1), num, started_at, parent_run_id);
CREATE INDEX idx_worker_runs_model ON worker_runs(model, started_at, num, parent_run_id, status)
WHERE model IS NOT NULL;
CREATE INDEX idx_worker_runs_provider ON worker_runs(provider, started_at, num, parent_run_id, status)
WHERE provider IS NOT NULL;
CREATE INDEX idx_worker_runs_error ON worker_runs(error_code, started_at, num, parent_run_id, status)
WHERE error_code IS NOT NULL;
CREATE INDEX idx_worker_runs_waiting ON worker_runs(waiting_since) WHERE waiting_since IS NOT NULL;

-- Statistics: what happened in each run, per quarter of an hour, and its sums over all runs, per hour.

CREATE TABLE run_stats (
    num INTEGER NOT NULL,
    quarter INTEGER NOT NULL,
    metric TEXT NOT NULL,
    label TEXT NOT NULL,
    detail TEXT NOT NULL,
    worker TEXT NOT NULL,
    root BOOLEAN NOT NULL,
    amount INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    PRIMARY KEY (num, quarter, metric, label, detail, worker, root)
) WITHOUT ROWID;
CREATE INDEX idx_run_stats_metric ON run_stats(metric, quarter);

CREATE TABLE stats (
    metric TEXT NOT NULL,
    hour INTEGER NOT NULL,
    worker TEXT NOT NULL,
    root BOOLEAN NOT NULL,
    label TEXT NOT NULL,
    detail TEXT NOT NULL,
    amount INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    PRIMARY KEY (metric, hour, worker, root, label, detail)
) WITHOUT ROWID;

-- The store adds to both tables; what a deleted run had added is subtracted here.

CREATE TRIGGER run_stats_gone AFTER DELETE ON worker_runs BEGIN
    DELETE FROM run_stats WHERE num = old.num;
END;

CREATE TRIGGER stats_gone AFTER DELETE ON run_stats BEGIN
    UPDATE stats
    SET amount = amount - old.amount, tokens = tokens - old.tokens, unpriced = unpriced - old.unpriced
    WHERE (metric, hour, worker, root, label, detail)
        = (old.metric, old.quarter / 4, old.worker, old.root, old.label, old.detail);
    DELETE FROM stats
    WHERE (metric, hour, worker, root, label, detail)
        = (old.metric, old.quarter / 4, old.worker, old.root, old.label, old.detail)
        AND amount = 0 AND tokens = 0 AND unpriced = 0;
END;
