/**
 * Fleet events for the strip on the fleet page: the newest stored ones, then new ones from a stream. After a disconnect
 * the stream continues from the last known cursor, so that no event is missing.
 */
import { useEffect, useState } from "react";
import { withVisibleControls } from "@/views/deceptiveText";
import { parseJson } from "@/views/json";
import { client, dataOf, Problem, problemOf } from "./http";

export type EventStream = "agent" | "worker" | "provider";

export interface FleetEvent {
  /** Counts the received events: a heartbeat repeats the cursor of the event before. */
  readonly key: number;
  readonly type: string;
  readonly payload: Record<string, unknown>;
  readonly timestamp: string;
}

export interface FleetEvents {
  /** Newest first. */
  readonly events: readonly FleetEvent[];
  /** Whether there are stored events before the oldest one here. */
  readonly isTruncated: boolean;
  readonly state: "loading" | "live" | "lost";
  /** How many events were loaded after the last disconnect. */
  readonly missed: number;
  /** Whether events after the last disconnect are no longer stored. */
  readonly hasGap: boolean;
  readonly error: Problem | null;
}

/** How many events are loaded at first, and kept. */
const FIRST_PAGE = 500;
const KEPT = 1_000;
/** Delays before reconnecting, in milliseconds. */
const RETRY_MS = [500, 1_000, 2_000, 5_000];
/** Events arrive in bursts: the page is updated once for each. */
const BURST_MS = 100;

const NONE: FleetEvents = { events: [], isTruncated: false, state: "loading", missed: 0, hasGap: false, error: null };

type Raw = Omit<FleetEvent, "key">;

class EventFeed {
  #current = NONE;
  #received: Raw[] = [];
  #cursor = "0";
  #key = 0;
  #failures = 0;
  #lostAt: number | null = null;
  #source: EventSource | null = null;
  #burstTimer: ReturnType<typeof setTimeout> | undefined;
  #retryTimer: ReturnType<typeof setTimeout> | undefined;
  readonly #abort = new AbortController();

  constructor(
    readonly stream: EventStream | undefined,
    readonly onChange: (events: FleetEvents) => void,
    readonly onReceived: (types: readonly string[]) => void,
  ) {
    void this.#load();
  }

  close(): void {
    this.#abort.abort();
    this.#source?.close();
    clearTimeout(this.#burstTimer);
    clearTimeout(this.#retryTimer);
  }

  async #load(): Promise<void> {
    try {
      const page = await dataOf(
        client.GET("/api/events", {
          params: { query: { ...(this.stream && { stream: this.stream }), limit: FIRST_PAGE } },
          signal: this.#abort.signal,
        }),
      );
      this.#cursor = page.cursor;
      const events = page.events.map((event) => ({ ...event, key: ++this.#key })).reverse();
      this.#set({ events, isTruncated: events.length === FIRST_PAGE, error: null });
      this.#connect();
    } catch (error) {
      if (this.#abort.signal.aborted) return;
      this.#set({ state: "lost", error: problemOf(error, 0) });
      this.#retryTimer = setTimeout(() => void this.#load(), this.#nextDelay());
    }
  }

  #connect(): void {
    const query = new URLSearchParams({ after: this.#cursor, ...(this.stream && { stream: this.stream }) });
    const source = new EventSource(`/api/events/stream?${query}`);
    this.#source = source;
    source.addEventListener("ready", () => {
      this.#failures = 0;
      this.#set({ state: "live", error: null });
    });
    source.addEventListener("message", (message: MessageEvent<string>) => {
      this.#cursor = message.lastEventId;
      const event = parseJson(withVisibleControls(message.data));
      if (event !== undefined) this.#receive(event as Raw);
    });
    source.addEventListener("gap", () => {
      // What follows does not continue the events here: begin again with the newest ones that are stored.
      source.close();
      this.#received = [];
      this.#lostAt = null;
      this.#set({ hasGap: true, missed: 0 });
      void this.#load();
    });
    source.addEventListener("error", () => {
      source.close();
      this.#lostAt ??= Date.now();
      this.#set({ state: "lost" });
      this.#retryTimer = setTimeout(() => this.#connect(), this.#nextDelay());
    });
  }

  #nextDelay(): number {
    return RETRY_MS[Math.min(this.#failures++, RETRY_MS.length - 1)] ?? 0;
  }

  #receive(event: Raw): void {
    this.#received.push(event);
    this.#burstTimer ??= setTimeout(() => {
      this.#burstTimer = undefined;
      const received = this.#received;
      this.#received = [];
      const hosts = new Set(received.filter(isHeartbeat).map(hostOf));
      // Only the last heartbeat of each host matters; older ones would push everything else out of sight.
      const kept = this.#current.events.filter((known) => !isHeartbeat(known) || !hosts.has(hostOf(known)));
      const added = lastHeartbeats(received).map((event) => ({ ...event, key: ++this.#key }));
      const events = [...added.reverse(), ...kept];
      const wasLost = this.#lostAt !== null;
      const missed = !wasLost ? this.#current.missed : received.filter((raw) => !isHeartbeat(raw)).length;
      this.#lostAt = null;
      this.#set({
        events: events.slice(0, KEPT),
        isTruncated: this.#current.isTruncated || events.length > KEPT,
        missed,
        ...(wasLost && { hasGap: false }),
      });
      this.onReceived(received.map(({ type }) => type));
    }, BURST_MS);
  }

  #set(change: Partial<FleetEvents>): void {
    this.#current = { ...this.#current, ...change };
    this.onChange(this.#current);
  }
}

const isHeartbeat = ({ type }: Raw) => type === "worker.heartbeat";
const hostOf = ({ payload }: Raw) => payload.workerId;

function lastHeartbeats(events: readonly Raw[]): Raw[] {
  return events.filter(
    (event, index) =>
      !isHeartbeat(event) ||
      !events.slice(index + 1).some((later) => isHeartbeat(later) && hostOf(later) === hostOf(event)),
  );
}

/** Return the events of a stream, or of all, while the component is mounted. `onReceived` gets the types of new ones. */
export function useFleetEvents(
  stream: EventStream | undefined,
  onReceived: (types: readonly string[]) => void,
): FleetEvents {
  const [events, setEvents] = useState(NONE);
  useEffect(() => {
    const feed = new EventFeed(stream, setEvents, onReceived);
    return () => feed.close();
  }, [stream, onReceived]);
  return events;
}
