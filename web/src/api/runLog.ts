/**
 * The log of one run, as far as it is viewed: pages of events that are loaded on demand, and live events. `seq` has no
 * gaps, so an event's page follows from its number, however long the log is.
 */
import { type StreamingBlock, streamingIn, withDelta } from "@/views/streamingText";
import { dataOf, client, problemOf, type Problem } from "./http";
import type { Delta, EventOf, LogEvent } from "./types";

export const PAGE_EVENTS = 200;
/** How many pages stay loaded. */
const MAX_PAGES = 60;

export type Completion = EventOf<"tool.result"> | EventOf<"step.call_workflow.completed">;

export interface Page {
  /** In order and without gaps, from the first event of the page. */
  readonly events: readonly LogEvent[];
  /** Ends of calls on this page that are logged on later pages. */
  readonly laterEnds: readonly Completion[];
}

export const pageOf = (seq: number) => Math.floor((seq - 1) / PAGE_EVENTS);

export class RunLog {
  /** The newest known event; 0 if there is none. */
  lastSeq = 0;
  /** Whether the log is complete. */
  isComplete = false;
  problem: Problem | null = null;
  /** Incremented with each change, so that views are computed again. */
  version = 0;
  streaming: readonly StreamingBlock[] = [];

  readonly #pages = new Map<number, Page>();
  readonly #loading = new Map<number, Promise<void>>();
  readonly #fullEvents = new Map<number, Promise<LogEvent>>();
  readonly #listeners = new Set<() => void>();
  /** Live events of the newest page that arrived before its earlier events were loaded. */
  #ahead: LogEvent[] = [];

  constructor(readonly runId: string) {}

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  /** Whether a component subscribes to the log. */
  get isWatched(): boolean {
    return this.#listeners.size > 0;
  }

  page(number: number): Page | undefined {
    return this.#pages.get(number);
  }

  event(seq: number): LogEvent | undefined {
    return this.#pages.get(pageOf(seq))?.events[(seq - 1) % PAGE_EVENTS];
  }

  /** Record that the log has events up to `seq`. */
  extendTo(seq: number): void {
    if (seq > this.lastSeq) {
      this.lastSeq = seq;
      this.#changed();
    }
  }

  /** Whether some of these events are neither loaded nor loading. False after a failed load, until a load succeeds. */
  lacks(from: number, to: number): boolean {
    if (this.problem) return false;
    for (let number = pageOf(Math.max(1, from)); number <= pageOf(Math.min(to, this.lastSeq)); number++) {
      if (!this.#isLoaded(number) && !this.#loading.has(number)) return true;
    }
    return false;
  }

  /** Load the pages with these events, unless they are loaded. */
  async load(from: number, to: number): Promise<void> {
    const loads: Promise<void>[] = [];
    for (let number = pageOf(Math.max(1, from)); number <= pageOf(Math.min(to, this.lastSeq)); number++) {
      if (!this.#isLoaded(number)) loads.push(this.#loading.get(number) ?? this.#loadPage(number));
      else this.#touch(number);
    }
    await Promise.all(loads);
  }

  /** Return the full event, not truncated. */
  fullEvent(seq: number): Promise<LogEvent> {
    const known = this.event(seq);
    if (known && known.cut === undefined) return Promise.resolve(known);
    const request =
      this.#fullEvents.get(seq) ?? this.#fetch(seq - 1, seq + 1, false).then((page) => page.events[0] as LogEvent);
    request.catch(() => this.#fullEvents.delete(seq));
    this.#fullEvents.set(seq, request);
    // One full event may have megabytes: keep only the last few.
    if (this.#fullEvents.size > 4) this.#fullEvents.delete(this.#fullEvents.keys().next().value as number);
    return request;
  }

  /** Append a live event. */
  append(event: LogEvent): void {
    if (event.seq <= this.lastSeq && this.event(event.seq)) return;
    this.lastSeq = Math.max(this.lastSeq, event.seq);
    const number = pageOf(event.seq);
    const page = this.#pages.get(number);
    const index = (event.seq - 1) % PAGE_EVENTS;
    if (index === 0 || page?.events.length === index) {
      this.#store(number, { events: [...(page?.events ?? []), event], laterEnds: page?.laterEnds ?? [] });
      this.#ahead = [];
    } else this.#ahead.push(event);
    if (event.type === "tool.result" || event.type === "step.call_workflow.completed")
      this.#addEndToCall(event, number);
    this.streaming = streamingIn([event], this.streaming);
    this.#changed();
  }

  /** Discard everything after `last`: the log has lost its end. */
  reset(last: number): void {
    this.lastSeq = last;
    for (const number of [...this.#pages.keys()]) if (number >= pageOf(Math.max(1, last))) this.#pages.delete(number);
    this.#ahead = [];
    // Running requests may return the lost events.
    this.#loading.clear();
    this.streaming = [];
    this.#changed();
  }

  /** Add new text of a message that is being generated. */
  appendDelta(delta: Delta): void {
    this.streaming = withDelta(this.streaming, delta);
    this.#changed();
  }

  markComplete(): void {
    this.isComplete = true;
    this.#changed();
  }

  #isLoaded(number: number): boolean {
    const page = this.#pages.get(number);
    return page !== undefined && page.events.length >= Math.min(PAGE_EVENTS, this.lastSeq - number * PAGE_EVENTS);
  }

  #loadPage(number: number): Promise<void> {
    const first = number * PAGE_EVENTS;
    const loading = this.#fetch(first, first + PAGE_EVENTS + 1, true)
      .then((page) => {
        if (this.#loading.get(number) !== loading) return;
        const current = this.#pages.get(number);
        const events = [...page.events];
        // Live events that arrived meanwhile may continue the page.
        for (const event of [...(current?.events ?? []), ...this.#ahead])
          if (event.seq === first + events.length + 1) events.push(event);
        this.#store(number, { events, laterEnds: [...page.laterEnds, ...(current?.laterEnds ?? [])] });
        this.lastSeq = Math.max(this.lastSeq, page.events.at(-1)?.seq ?? 0);
        this.problem = null;
        this.#restoreStreaming(number);
      })
      .catch((error: unknown) => {
        if (this.#loading.get(number) === loading) this.problem = problemOf(error, 0);
      })
      .finally(() => {
        if (this.#loading.get(number) === loading) this.#loading.delete(number);
        this.#changed();
      });
    this.#loading.set(number, loading);
    return loading;
  }

  async #fetch(
    after: number,
    before: number,
    brief: boolean,
  ): Promise<{ events: LogEvent[]; laterEnds: Completion[] }> {
    const page = await dataOf(
      client.GET("/api/runs/{run_id}/log", {
        params: { path: { run_id: this.runId }, query: { after, before, limit: PAGE_EVENTS, brief } },
      }),
    );
    return { events: page.events, laterEnds: (page.later ?? []) as Completion[] };
  }

  /** Add the end of a call to the earlier page that has the call. */
  #addEndToCall(event: Completion, number: number): void {
    for (const [earlier, page] of this.#pages) {
      if (earlier < number && page.events.some((candidate) => isEndedBy(candidate, event))) {
        this.#pages.set(earlier, { events: page.events, laterEnds: [...page.laterEnds, event] });
      }
    }
  }

  /** After the last page was loaded, restore the unfinished messages from it. */
  #restoreStreaming(number: number): void {
    if (number !== pageOf(Math.max(1, this.lastSeq))) return;
    this.streaming = streamingIn(this.#pages.get(number)?.events ?? [], this.streaming);
  }

  #store(number: number, page: Page): void {
    this.#pages.delete(number);
    this.#pages.set(number, page);
    while (this.#pages.size > MAX_PAGES) this.#pages.delete(this.#pages.keys().next().value as number);
  }

  #touch(number: number): void {
    const page = this.#pages.get(number);
    if (page) this.#store(number, page);
  }

  #changed(): void {
    this.version += 1;
    for (const listener of this.#listeners) listener();
  }
}

export function isEndedBy(start: LogEvent, end: Completion): boolean {
  if (end.type === "tool.result") return start.type === "tool.call" && start.payload.call_id === end.payload.call_id;
  return start.type === "step.call_workflow.started" && start.child_run_id === end.child_run_id;
}
