-- What the worker of a run noted: summary, questions, decisions. JSON, a view of the run's log.

ALTER TABLE worker_runs ADD COLUMN notes TEXT;
