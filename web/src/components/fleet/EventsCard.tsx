import { useQuery } from "@tanstack/react-query";
import clsx from "clsx";
import { useCallback, useMemo, useState } from "react";
import { type EventStream, type FleetEvent, hostsQuery, useFleetEvents } from "@/api";
import { BarStrip } from "@/components/charts/BarStrip";
import { ErrorLine } from "@/components/charts/ErrorLine";
import { RunLink } from "@/components/charts/RunLink";
import { Segmented } from "@/components/charts/Segmented";
import { useRoving } from "@/components/charts/useRoving";
import { Button } from "@/components/ui/Button";
import { useNow } from "@/components/ui/Time";
import { countText, hostName } from "@/views/fleet";
import { eventText, isBad, rateOf, runOf, STREAMS, streamOf } from "@/views/fleetEvents";
import { formatClock, formatDateTime } from "@/views/time";

type Choice = EventStream | "all";

const CHOICES: readonly { value: Choice; label: string }[] = [
  { value: "all", label: "All" },
  { value: "agent", label: "Agent" },
  { value: "worker", label: "Worker" },
  { value: "provider", label: "Provider" },
];
const COLORS: Record<EventStream, string> = { agent: "var(--cat-1)", worker: "var(--cat-3)", provider: "var(--cat-4)" };
/** How many events the strip has; the stored ones before are on the command line. */
const SHOWN = 100;

/** A live strip of fleet events, newest first, with the number of events over time. */
export function EventsCard({ onReceived }: { onReceived: (types: readonly string[]) => void }) {
  const [choice, setChoice] = useState<Choice>("all");
  const { events, isTruncated, state, missed, hasGap, error } = useFleetEvents(
    choice === "all" ? undefined : choice,
    onReceived,
  );
  // While paused, the newest event at the time of the pause is the first one shown.
  const [pausedAt, setPausedAt] = useState<number | null>(null);
  const chosen = useMemo(
    () => (choice === "all" ? events : events.filter((event) => streamOf(event) === choice)),
    [events, choice],
  );
  const shown = (pausedAt === null ? chosen : chosen.filter(({ key }) => key <= pausedAt)).slice(0, SHOWN);
  const newer = pausedAt === null ? 0 : chosen.filter(({ key }) => key > pausedAt).length;
  return (
    <section aria-labelledby="events" className="card events">
      <header>
        <h2 id="events">Events</h2>
        <PerMinute events={chosen} isTruncated={isTruncated} />
        <span className="grow" />
        <Segmented
          label="Kind of event"
          options={CHOICES}
          value={choice}
          onSelect={(value) => {
            setChoice(value);
            setPausedAt(null);
          }}
        />
        <Button
          variant="ghost"
          aria-pressed={pausedAt !== null}
          aria-label={pausedAt === null ? "Pause" : `Continue, ${newer} new`}
          title={pausedAt === null ? "Stop the list here" : "Show new events"}
          onClick={() => setPausedAt(pausedAt === null ? (events[0]?.key ?? 0) : null)}
          className="w-16"
        >
          {pausedAt === null ? "Pause" : `${newer} new`}
        </Button>
      </header>
      <RateChart events={chosen} isTruncated={isTruncated} />
      {error && events.length === 0 ? (
        <ErrorLine what="The events cannot be shown" error={error} />
      ) : (
        <EventList events={shown} isLoading={state === "loading"} />
      )}
      <p role="status" className="events-foot">
        {state === "lost"
          ? "Reconnecting…"
          : hasGap
            ? "Older events are no longer stored."
            : missed > 0
              ? `${countText(missed, "event was", "events were")} missed and ${missed === 1 ? "has" : "have"} been loaded`
              : " "}
      </p>
    </section>
  );
}

function PerMinute({ events, isTruncated }: { events: readonly FleetEvent[]; isTruncated: boolean }) {
  const { perMinute } = rateOf(events, isTruncated, useNow());
  return (
    <span className="m3 num cut" title="Events in the last minute">
      {perMinute} a minute
    </span>
  );
}

function RateChart({ events, isTruncated }: { events: readonly FleetEvent[]; isTruncated: boolean }) {
  const rate = rateOf(events, isTruncated, useNow());
  return (
    <figure className="rate">
      <div className="rate-bars">
        <BarStrip
          bars={rate.bars.map(({ counts }) =>
            STREAMS.map((stream) => ({ value: counts[stream], color: COLORS[stream] })),
          )}
          highest={rate.highest}
          label={`Events in the last ${countText(rate.minutes, "minute")}, at most ${rate.highest} in a bar`}
          width={400}
          height={36}
        />
      </div>
      <figcaption>
        <span>{rate.minutes === 60 ? "1 hour ago" : `${rate.minutes} min ago`}</span>
        <span>now</span>
      </figcaption>
    </figure>
  );
}

function EventList({ events, isLoading }: { events: readonly FleetEvent[]; isLoading: boolean }) {
  const hosts = useQuery(hostsQuery).data?.hosts;
  const nameOf = useCallback(
    (id: string) => {
      const host = hosts?.find((candidate) => candidate.id === id);
      return host ? hostName(host, hosts ?? []) : id.slice(0, 8);
    },
    [hosts],
  );
  const roving = useRoving(events.map(({ key }) => String(key)));
  return (
    <ul aria-label="Events" className="event-list" onKeyDown={roving.onKeyDown}>
      {events.map((event) => (
        <li key={event.key}>
          <EventRow event={event} text={eventText(event, nameOf)} item={roving.item(String(event.key))} />
        </li>
      ))}
      {events.length === 0 && !isLoading && <li className="empty">No events yet.</li>}
    </ul>
  );
}

type Item = ReturnType<ReturnType<typeof useRoving>["item"]>;

function EventRow({ event, text, item }: { event: FleetEvent; text: string; item: Item }) {
  const runId = runOf(event);
  const bad = isBad(event);
  const content = (
    <>
      <time className="num m3" dateTime={event.timestamp} title={formatDateTime(event.timestamp)}>
        {formatClock(event.timestamp)}
      </time>
      <i aria-hidden style={{ background: bad ? "var(--failed)" : COLORS[streamOf(event)] }} />
      <span className={clsx("mono cut", bad && "t-failed")}>{event.type}</span>
      <span className="m2 cut" title={text}>
        {text}
      </span>
    </>
  );
  return runId === null ? (
    <div className="event-row" {...item}>
      {content}
    </div>
  ) : (
    <RunLink runId={runId} className="event-row" {...item}>
      {content}
    </RunLink>
  );
}
