/**
 * The only live connection of the page: changed rows, and the events of the runs that are viewed. After a disconnect it
 * reconnects and continues from the last known event; meanwhile the page polls (see `pollMs`).
 */
import type { QueryClient } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { forgetRuns, patchRuns, retimed } from "./cacheUpdates";
import { RunLog } from "./runLog";
import type { Delta, LogEvent, Run } from "./types";
import { withVisibleControls } from "@/views/deceptiveText";
import { parsed } from "@/views/json";

export type Connection = "connecting" | "live" | "lost";

/** Delays before reconnecting, in milliseconds. */
const RETRY_MS = [250, 500, 1_000, 2_000, 5_000];
/** The longest silence of a healthy stream: the server sends a heartbeat every 15 s. */
const SILENCE_MS = 45_000;
/** How many runs a page can follow (the server's limit). */
const FOLLOWED_MOST = 16;
/** How many logs are kept that no component shows. */
const LOGS_KEPT = 8;

/** Data of each stream event, by event name. */
interface StreamEvents {
  ready: unknown;
  run: Run;
  gone: { run_ids: string[] };
  log: { run_id: string; event: LogEvent };
  delta: Delta & { run_id: string };
  reset: { run_id: string; last: number };
  end: { run_id: string };
}

export class Live {
  connection: Connection = "connecting";
  readonly #logs = new Map<string, RunLog>();
  readonly #followed = new Map<string, number>();
  readonly #listeners = new Set<() => void>();
  #source: EventSource | null = null;
  #failures = 0;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #silence: ReturnType<typeof setTimeout> | undefined;
  #changed: Run[] = [];

  constructor(readonly queries: QueryClient) {}

  start(): void {
    this.#connect();
    const again = () => {
      if (document.visibilityState === "visible" && this.connection !== "live") this.#connect();
    };
    // After sleep, or when the network is back, reconnect without waiting for the timer.
    document.addEventListener("visibilitychange", again);
    addEventListener("online", again);
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
      if (this.#logs.size <= LOGS_KEPT) break;
      if (!isWatched && !this.#followed.has(old) && old !== runId) this.#logs.delete(old);
    }
    return log;
  }

  /** Follow the log of a run until the returned function is called. */
  follow(runId: string): () => void {
    const watching = this.#followed.get(runId) ?? 0;
    this.#followed.set(runId, watching + 1);
    if (!watching) this.#reconnectSoon();
    return () => {
      const left = (this.#followed.get(runId) ?? 1) - 1;
      if (left) this.#followed.set(runId, left);
      else this.#followed.delete(runId);
      // No reconnect: following a run too long does no harm, and the next connection leaves it out.
    };
  }

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  #reconnectSoon(): void {
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => this.#connect(), 0);
  }

  #connect(): void {
    clearTimeout(this.#retry);
    this.#source?.close();
    const source = new EventSource(`/api/stream?runs=${this.#places()}`);
    this.#source = source;
    const on = <Name extends keyof StreamEvents>(name: Name, take: (told: StreamEvents[Name]) => void) =>
      source.addEventListener(name, (message) => {
        this.#heard();
        const told = parsed(withVisibleControls((message as MessageEvent<string>).data));
        // The event is lost: fetch everything again, but slowly, since the server may send the same text again.
        if (told === undefined) this.#failed(source, RETRY_MS.at(-1));
        else take(told as StreamEvents[Name]);
      });
    source.addEventListener("error", () => this.#failed(source));
    on("ready", () => this.#ready());
    on("run", (run) => this.#rowChanged(run));
    on("gone", ({ run_ids }) => this.#gone(run_ids));
    on("log", ({ run_id, event }) => this.#logged(run_id, event));
    on("delta", ({ run_id, ...delta }) => this.#logs.get(run_id)?.tell(delta));
    on("reset", ({ run_id, last }) => this.#reset(run_id, last));
    on("end", ({ run_id }) => this.#logs.get(run_id)?.end());
  }

  /** Return the followed runs, the newest ones, each with its last known event. */
  #places(): string {
    const runs = [...this.#followed.keys()].filter((id) => !this.#logs.get(id)?.ended).slice(-FOLLOWED_MOST);
    return runs.map((id) => `${id}:${this.log(id).lastSeq}`).join(",");
  }

  #ready(): void {
    const wasLost = this.#failures > 0;
    this.#failures = 0;
    this.#become("live");
    // Refetch what may have changed while the page was not connected, even for the moment of a reconnect.
    if (wasLost) void this.queries.invalidateQueries();
    else for (const what of ["runs", "run"]) void this.queries.invalidateQueries({ queryKey: [what] });
  }

  #failed(source: EventSource, wait = RETRY_MS[Math.min(this.#failures, RETRY_MS.length - 1)]): void {
    if (source !== this.#source) return;
    source.close();
    this.#source = null;
    clearTimeout(this.#silence);
    this.#failures += 1;
    this.#become("lost");
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => this.#connect(), wait);
  }

  #heard(): void {
    clearTimeout(this.#silence);
    const source = this.#source;
    if (source) this.#silence = setTimeout(() => this.#failed(source), SILENCE_MS);
  }

  #logged(runId: string, event: LogEvent): void {
    this.#logs.get(runId)?.append(event);
    retimed(this.queries, runId, event);
  }

  #reset(runId: string, last: number): void {
    this.#logs.get(runId)?.reset(last);
    for (const what of ["timeline", "spans", "run"]) void this.queries.resetQueries({ queryKey: [what, runId] });
  }

  /** Rows arrive in bursts: update the caches once for each burst. */
  #rowChanged(run: Run): void {
    if (!this.#changed.length) {
      setTimeout(() => {
        const changed = this.#changed;
        this.#changed = [];
        patchRuns(this.queries, changed);
      }, 50);
    }
    this.#changed.push(run);
  }

  #gone(runIds: string[]): void {
    // Drop pending rows of deleted runs: they would bring the runs back.
    this.#changed = this.#changed.filter((run) => !runIds.includes(run.id));
    forgetRuns(this.queries, runIds);
  }

  #become(connection: Connection): void {
    if (connection === this.connection) return;
    this.connection = connection;
    for (const listener of this.#listeners) listener();
  }
}

let live: Live;

export function startLive(queries: QueryClient): void {
  live = new Live(queries);
  live.start();
}

export const theLive = () => live;

export function useConnection(): Connection {
  return useSyncExternalStore(live.subscribe, () => live.connection);
}

/** Return the poll interval; false while the stream is live. */
export const pollMs = (connection: Connection, ms: number) => (connection === "live" ? false : ms);
