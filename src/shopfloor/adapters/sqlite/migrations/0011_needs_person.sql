-- What a run does now. JSON.

ALTER TABLE worker_runs ADD COLUMN activity TEXT;

-- When a run failed for a reason that only a person can remove.

ALTER TABLE worker_runs ADD COLUMN needs_person_since TEXT;
CREATE INDEX idx_worker_runs_needs_person ON worker_runs(needs_person_since) WHERE needs_person_since IS NOT NULL;

-- The failed runs that no longer wait for a person. Durable in its own right, as pins are.

CREATE TABLE dismissals (worker_id TEXT PRIMARY KEY);
