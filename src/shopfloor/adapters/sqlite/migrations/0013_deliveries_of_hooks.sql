-- The oldest delivery of each hook decides whether any is due: it is found without reading the others.

DROP INDEX idx_deliveries_due;
CREATE INDEX idx_deliveries_hook ON deliveries(hook_id, num, next_at);
