/**
 * The only live connection of the page: changed rows, and the events of the runs that are viewed. After a disconnect it
 * reconnects and continues from the last known event; meanwhile the page polls (see `pollMs`).
 */
import type { QueryClient } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { removeRuns, patchRuns, refetchTimelineSoon } from "./cacheUpdates";
import { Problem } from "./http";
import { RunLog } from "./runLog";
import type { Delta, LogEvent, Run } from "./types";
import { withVisibleControls } from "@/views/deceptiveText";
import { parseJson } from "@/views/json";

export type Connection = "connecting" | "live" | "lost";

/** Delays before reconnecting, in milliseconds. */
const RETRY_MS = [250, 500, 1_000, 2_000, 5_000];
/** The longest silence of a healthy stream: the server sends a heartbeat every 15 s. */
const SILENCE_MS = 45_000;
/** How soon after a reconnect all missed events have arrived. */
const CATCH_UP_MS = 1_000;
/** How long the page tells that it is connected again. */
const RETURN_MS = 5_000;
/** How many runs a page can follow (the server's limit). */
const MAX_FOLLOWED = 16;
/** How many logs are kept that no component shows. */
const MAX_IDLE_LOGS = 8;

/** Data of each stream event, by event name. */
interface StreamEvents {
  ready: unknown;
  heartbeat: unknown;
  run: Run;
  gone: { run_ids: string[] };
  log: { run_id: string; event: LogEvent };
  delta: Delta & { run_id: string };
  reset: { run_id: string; last: number };
  end: { run_id: string };
}

export class LiveStream {
  connection: Connection = "connecting";
  /** When the connection was lost last. */
  lostAt = 0;
  /** Just after a reconnect: how many events of the viewed runs were missed and have been loaded. */
  missed = 0;
  readonly #logs = new Map<string, RunLog>();
  readonly #followed = new Map<string, number>();
  readonly #listeners = new Set<() => void>();
  #source: EventSource | null = null;
  #failures = 0;
  #retryTimer: ReturnType<typeof setTimeout> | undefined;
  #silenceTimer: ReturnType<typeof setTimeout> | undefined;
  #missedTimer: ReturnType<typeof setTimeout> | undefined;
  #caughtUp = 0;
  #pendingRows: Run[] = [];

  constructor(readonly queries: QueryClient) {}

  start(): void {
    this.#connect();
    const reconnect = () => {
      if (document.visibilityState === "visible" && this.connection !== "live") this.#connect();
    };
    // After sleep, or when the network is back, reconnect without waiting for the timer.
    document.addEventListener("visibilitychange", reconnect);
    addEventListener("online", reconnect);
  }

  /** Return the log of a run; every caller gets the same object. */
  log(runId: string): RunLog {
    const known = this.#logs.get(runId);
    if (known) {
      this.#logs.delete(runId);
      this.#logs.set(runId, known);
      return known;
    }
    const log = new RunLog(runId);
    this.#logs.set(runId, log);
    for (const [old, { isWatched }] of this.#logs) {
      if (this.#logs.size <= MAX_IDLE_LOGS) break;
      if (!isWatched && !this.#followed.has(old) && old !== runId) this.#logs.delete(old);
    }
    return log;
  }

  /** Follow the log of a run until the returned function is called. */
  follow(runId: string): () => void {
    const followers = this.#followed.get(runId) ?? 0;
    this.#followed.set(runId, followers + 1);
    if (!followers) this.#reconnectSoon();
    return () => {
      const remaining = (this.#followed.get(runId) ?? 1) - 1;
      if (remaining) this.#followed.set(runId, remaining);
      else this.#followed.delete(runId);
      // No reconnect: following a run too long does no harm, and the next connection leaves it out.
    };
  }

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  #reconnectSoon(): void {
    clearTimeout(this.#retryTimer);
    this.#retryTimer = setTimeout(() => this.#connect(), 0);
  }

  #connect(): void {
    clearTimeout(this.#retryTimer);
    this.#source?.close();
    const source = new EventSource(`/api/stream?runs=${this.#cursors()}`);
    this.#source = source;
    this.#restartSilenceTimer();
    const on = <Name extends keyof StreamEvents>(name: Name, handle: (data: StreamEvents[Name]) => void) =>
      source.addEventListener(name, (message) => {
        this.#restartSilenceTimer();
        const data = parseJson(withVisibleControls((message as MessageEvent<string>).data));
        // The event is lost: fetch everything again, but slowly, since the server may send the same text again.
        if (data === undefined) this.#onFailure(source, RETRY_MS.at(-1));
        else handle(data as StreamEvents[Name]);
      });
    source.addEventListener("error", () => this.#onFailure(source));
    on("ready", () => this.#onReady());
    on("heartbeat", () => undefined);
    on("run", (run) => this.#onRow(run));
    on("gone", ({ run_ids }) => this.#onDeleted(run_ids));
    on("log", ({ run_id, event }) => this.#onEvent(run_id, event));
    on("delta", ({ run_id, ...delta }) => this.#logs.get(run_id)?.appendDelta(delta));
    on("reset", ({ run_id, last }) => this.#onReset(run_id, last));
    on("end", ({ run_id }) => this.#logs.get(run_id)?.markComplete());
  }

  /** Return the followed runs, the newest ones, each with its last known event. */
  #cursors(): string {
    const runs = [...this.#followed.keys()].filter((id) => !this.#logs.get(id)?.isComplete).slice(-MAX_FOLLOWED);
    return runs.map((id) => `${id}:${this.log(id).lastSeq}`).join(",");
  }

  #onReady(): void {
    const wasLost = this.#failures > 0;
    this.#failures = 0;
    if (wasLost) this.#countMissed();
    this.#setConnection("live");
    // Refetch what may have changed while the page was not connected, even for the moment of a reconnect.
    if (wasLost) void this.queries.invalidateQueries();
    else
      for (const kind of ["runs", "run", "counts", "waiting"])
        void this.queries.invalidateQueries({ queryKey: [kind] });
  }

  /** Count the events that arrive at once after a reconnect: those are the missed ones. */
  #countMissed(): void {
    this.#caughtUp = 0;
    clearTimeout(this.#missedTimer);
    this.#missedTimer = setTimeout(() => {
      this.#setMissed(this.#caughtUp);
      this.#missedTimer = setTimeout(() => this.#setMissed(0), RETURN_MS);
    }, CATCH_UP_MS);
  }

  #setMissed(count: number): void {
    this.missed = count;
    this.#notify();
  }

  /** Connect now, and not only when the delay is over. */
  retryNow = () => this.#connect();

  #onFailure(source: EventSource, delayMs = RETRY_MS[Math.min(this.#failures, RETRY_MS.length - 1)]): void {
    if (source !== this.#source) return;
    source.close();
    this.#source = null;
    clearTimeout(this.#silenceTimer);
    this.#failures += 1;
    if (this.connection !== "lost") this.lostAt = Date.now();
    this.missed = 0;
    clearTimeout(this.#missedTimer);
    this.#setConnection("lost");
    clearTimeout(this.#retryTimer);
    this.#retryTimer = setTimeout(() => this.#connect(), delayMs);
  }

  #restartSilenceTimer(): void {
    clearTimeout(this.#silenceTimer);
    const source = this.#source;
    if (source) this.#silenceTimer = setTimeout(() => this.#onFailure(source), SILENCE_MS);
  }

  #onEvent(runId: string, event: LogEvent): void {
    this.#caughtUp += 1;
    this.#logs.get(runId)?.append(event);
    refetchTimelineSoon(this.queries, runId, event);
  }

  #onReset(runId: string, last: number): void {
    this.#logs.get(runId)?.reset(last);
    for (const kind of ["timeline", "spans", "run"]) void this.queries.resetQueries({ queryKey: [kind, runId] });
  }

  /** Rows arrive in bursts: update the caches once for each burst. */
  #onRow(run: Run): void {
    if (!this.#pendingRows.length) {
      setTimeout(() => {
        const changed = this.#pendingRows;
        changed.forEach((changedRun) => this.#followResumed(changedRun));
        this.#pendingRows = [];
        patchRuns(this.queries, changed);
      }, 50);
    }
    this.#pendingRows.push(run);
  }

  /** Follow a run again whose log had ended because its process was gone. */
  #followResumed({ id, completed_at, interrupted }: Run): void {
    const log = this.#logs.get(id);
    if (!log?.isComplete || completed_at !== null || interrupted) return;
    log.isComplete = false;
    if (this.#followed.has(id)) this.#reconnectSoon();
  }

  #onDeleted(runIds: string[]): void {
    // Drop pending rows of deleted runs: they would bring the runs back.
    this.#pendingRows = this.#pendingRows.filter((run) => !runIds.includes(run.id));
    removeRuns(this.queries, runIds);
  }

  #setConnection(connection: Connection): void {
    if (connection === this.connection) return;
    this.connection = connection;
    this.#notify();
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }
}

let stream: LiveStream;

export function startLiveStream(queries: QueryClient): void {
  stream = new LiveStream(queries);
  stream.start();
}

export const getLiveStream = () => stream;

export function useConnection(): Connection {
  return useSyncExternalStore(stream.subscribe, () => stream.connection);
}

/** Whether an error only says that the server cannot be reached, which the banner of the page says too. */
export function useIsDisconnect(error: unknown): boolean {
  return useConnection() !== "live" && error instanceof Problem && error.code === "unreachable";
}

/** How many events were missed while the connection was lost; 0 again after a while. */
export const useMissedEvents = () => useSyncExternalStore(stream.subscribe, () => stream.missed);

/** Return the time that the page shows: now, or while the connection is lost, when the server answered last. */
export function useKnownAt(now: number): number {
  if (useConnection() !== "lost") return now;
  const updates = stream.queries.getQueryCache().getAll();
  return Math.max(stream.lostAt, ...updates.map(({ state }) => state.dataUpdatedAt));
}

/** Return the poll interval; false while the stream is live. */
export const pollMs = (connection: Connection, ms: number) => (connection === "live" ? false : ms);
