-- The earlier run that a run repeats, continues or forks, as its log has it. JSON.

ALTER TABLE worker_runs ADD COLUMN based_on TEXT;
CREATE INDEX idx_worker_runs_based_on ON worker_runs(json_extract(based_on, '$.run_id')) WHERE based_on IS NOT NULL;
