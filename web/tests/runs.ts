import type { Run } from "../src/api/types";

const NOTHING = { input: 0, output: 0, cache_read: 0, cache_write: 0, reasoning: 0 };

/** A run that has ended well, but for what is said. */
export const aRun = (change: Partial<Run> = {}): Run => ({
  id: "r",
  task: "Say hello",
  status: "done",
  worker_type: "builtin",
  channel_id: "page",
  channel_name: "page",
  started_at: "2026-01-01T12:00:00.000Z",
  completed_at: "2026-01-01T12:00:01.000Z",
  event_count: 4,
  has_transcript: true,
  agent_id: "hello",
  parent_run_id: null,
  root_run_id: "r",
  name: "hello",
  kind: "worker",
  duration_ms: 1_000,
  tool_calls: 0,
  usage: NOTHING,
  cost_usd: null,
  tree_usage: NOTHING,
  tree_cost_usd: null,
  error: null,
  pinned: false,
  provider: null,
  model: null,
  children: 0,
  waits_for: null,
  snippet: null,
  ...change,
});
