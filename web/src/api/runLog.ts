/**
 * The log of one run, as far as it is viewed: pages of events that are loaded on demand, and live events. `seq` has no
 * gaps, so an event's page follows from its number, however long the log is.
 */
import { type Typing, typingIn, withDelta } from "@/views/streamingText";
import { answered, client, problemOf, type Problem } from "./http";
import type { Delta, EventOf, LogEvent } from "./types";

export const PAGE = 200;
/** How many pages stay loaded. */
const PAGES_KEPT = 60;

export type Completion = EventOf<"tool.result"> | EventOf<"step.call_workflow.completed">;

export interface Page {
  /** In order and without gaps, from the first event of the page. */
  readonly events: readonly LogEvent[];
  /** Ends of calls on this page that are logged on later pages. */
  readonly later: readonly Completion[];
}

export const pageOf = (seq: number) => Math.floor((seq - 1) / PAGE);

export class RunLog {
  /** The newest known event; 0 where there is none. */
  lastSeq = 0;
  /** Whether the log is complete. */
  ended = false;
  problem: Problem | null = null;
  /** Incremented with each change, so that views are computed again. */
  version = 0;
  typing: readonly Typing[] = [];

  readonly #pages = new Map<number, Page>();
  readonly #loading = new Map<number, Promise<void>>();
  readonly #whole = new Map<number, Promise<LogEvent>>();
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
    return this.#pages.get(pageOf(seq))?.events[(seq - 1) % PAGE];
  }

  /** Record that the log has events up to `seq`. */
  reaches(seq: number): void {
    if (seq > this.lastSeq) {
      this.lastSeq = seq;
      this.#changed();
    }
  }

  /** Whether some of these events are neither loaded nor loading. False after a failed load, until a load succeeds. */
  lacks(from: number, to: number): boolean {
    if (this.problem) return false;
    for (let number = pageOf(Math.max(1, from)); number <= pageOf(Math.min(to, this.lastSeq)); number++) {
      if (!this.#isWhole(number) && !this.#loading.has(number)) return true;
    }
    return false;
  }

  /** Load the pages with these events, unless they are loaded. */
  async want(from: number, to: number): Promise<void> {
    const wanted: Promise<void>[] = [];
    for (let number = pageOf(Math.max(1, from)); number <= pageOf(Math.min(to, this.lastSeq)); number++) {
      if (!this.#isWhole(number)) wanted.push(this.#loading.get(number) ?? this.#load(number));
      else this.#touch(number);
    }
    await Promise.all(wanted);
  }

  /** Return the full event, with nothing cut. */
  whole(seq: number): Promise<LogEvent> {
    const known = this.event(seq);
    if (known && known.cut === undefined) return Promise.resolve(known);
    const asked = this.#whole.get(seq) ?? this.#ask(seq - 1, seq + 1, false).then((page) => page.events[0] as LogEvent);
    asked.catch(() => this.#whole.delete(seq));
    this.#whole.set(seq, asked);
    // One full event may have megabytes: keep only the last few.
    if (this.#whole.size > 4) this.#whole.delete(this.#whole.keys().next().value as number);
    return asked;
  }

  /** Append a live event. */
  append(event: LogEvent): void {
    if (event.seq <= this.lastSeq && this.event(event.seq)) return;
    this.lastSeq = Math.max(this.lastSeq, event.seq);
    const number = pageOf(event.seq);
    const page = this.#pages.get(number);
    const place = (event.seq - 1) % PAGE;
    if (place === 0 || page?.events.length === place) {
      this.#keep(number, { events: [...(page?.events ?? []), event], later: page?.later ?? [] });
      this.#ahead = [];
    } else this.#ahead.push(event);
    if (event.type === "tool.result" || event.type === "step.call_workflow.completed") this.#completes(event, number);
    this.typing = typingIn([event], this.typing);
    this.#changed();
  }

  /** Discard everything after `last`: the log has lost its end. */
  reset(last: number): void {
    this.lastSeq = last;
    for (const number of [...this.#pages.keys()]) if (number >= pageOf(Math.max(1, last))) this.#pages.delete(number);
    this.#ahead = [];
    // Running requests may return the lost events.
    this.#loading.clear();
    this.typing = [];
    this.#changed();
  }

  /** Add a piece of a message that is being generated. */
  tell(delta: Delta): void {
    this.typing = withDelta(this.typing, delta);
    this.#changed();
  }

  end(): void {
    this.ended = true;
    this.#changed();
  }

  #isWhole(number: number): boolean {
    const page = this.#pages.get(number);
    return page !== undefined && page.events.length >= Math.min(PAGE, this.lastSeq - number * PAGE);
  }

  #load(number: number): Promise<void> {
    const first = number * PAGE;
    const loading = this.#ask(first, first + PAGE + 1, true)
      .then((page) => {
        if (this.#loading.get(number) !== loading) return;
        const now = this.#pages.get(number);
        const events = [...page.events];
        // Live events that arrived meanwhile may continue the page.
        for (const event of [...(now?.events ?? []), ...this.#ahead])
          if (event.seq === first + events.length + 1) events.push(event);
        this.#keep(number, { events, later: [...page.later, ...(now?.later ?? [])] });
        this.lastSeq = Math.max(this.lastSeq, page.events.at(-1)?.seq ?? 0);
        this.problem = null;
        this.#typedBefore(number);
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

  async #ask(after: number, before: number, brief: boolean): Promise<{ events: LogEvent[]; later: Completion[] }> {
    const page = await answered(
      client.GET("/api/runs/{run_id}/log", {
        params: { path: { run_id: this.runId }, query: { after, before, limit: PAGE, brief } },
      }),
    );
    return { events: page.events, later: (page.later ?? []) as Completion[] };
  }

  /** Add the end of a call to the earlier page that has the call. */
  #completes(event: Completion, number: number): void {
    for (const [earlier, page] of this.#pages) {
      if (earlier < number && page.events.some((one) => isEndedBy(one, event))) {
        this.#pages.set(earlier, { events: page.events, later: [...page.later, event] });
      }
    }
  }

  /** After the last page was loaded, restore the unfinished messages from it. */
  #typedBefore(number: number): void {
    if (number !== pageOf(Math.max(1, this.lastSeq))) return;
    this.typing = typingIn(this.#pages.get(number)?.events ?? [], this.typing);
  }

  #keep(number: number, page: Page): void {
    this.#pages.delete(number);
    this.#pages.set(number, page);
    while (this.#pages.size > PAGES_KEPT) this.#pages.delete(this.#pages.keys().next().value as number);
  }

  #touch(number: number): void {
    const page = this.#pages.get(number);
    if (page) this.#keep(number, page);
  }

  #changed(): void {
    this.version += 1;
    for (const listener of this.#listeners) listener();
  }
}

export function isEndedBy(begun: LogEvent, ended: Completion): boolean {
  if (ended.type === "tool.result")
    return begun.type === "tool.call" && begun.payload.call_id === ended.payload.call_id;
  return begun.type === "step.call_workflow.started" && begun.child_run_id === ended.child_run_id;
}
