-- The program that dispatched a run, as its log has it.

ALTER TABLE worker_runs ADD COLUMN client TEXT;
