import { useQuery } from "@tanstack/react-query";
import clsx from "clsx";
import { channelsQuery, type Run, type Status, workersQuery } from "@/api";
import { useGo, usePlace } from "@/address";
import { STATUSES } from "@/router";
import { isFiltered, NO_FILTER } from "@/views/address";
import { channelChoices, type Choice, totalText, workerChoices } from "@/views/filterOptions";

const ON = "border-accent bg-accent text-accent-ink";
const OFF = "border-line bg-app-raised text-ink-dull hover:bg-app-hover";
const PILLS: readonly (Status | undefined)[] = [undefined, ...STATUSES];

export function Filters({ total, seen }: { total: number | undefined; seen: readonly Run[] }) {
  const place = usePlace();
  const go = useGo();
  const workers = useQuery(workersQuery).data;
  const channels = useQuery(channelsQuery).data?.channels;
  return (
    <>
      <div className="flex flex-wrap items-center gap-1">
        <div role="group" aria-label="Status" className="contents">
          {PILLS.map((status) => (
            <Pill
              key={status ?? "all"}
              status={status}
              isChosen={place.status === status}
              onChoose={() => go({ status })}
            />
          ))}
        </div>
        <span className="ml-auto flex gap-2 pl-2 text-xs whitespace-nowrap text-ink-faint tabular-nums">
          {isFiltered(place) && (
            <button
              type="button"
              title="Clear all filters"
              onClick={() => go(NO_FILTER)}
              className="text-accent hover:underline"
            >
              Clear
            </button>
          )}
          {total !== undefined && <span>{totalText(total)}</span>}
        </span>
      </div>
      <div className="flex gap-2">
        <Select
          label="Worker"
          all="All workers"
          value={place.of}
          choices={workerChoices(workers, seen, place.of)}
          onChoose={(of) => go({ of })}
        />
        <Select
          label="Channel"
          all="All channels"
          value={place.channel}
          choices={channelChoices(channels, seen, place.channel)}
          onChoose={(channel) => go({ channel })}
        />
        <button
          type="button"
          aria-pressed={place.tree === true}
          title={place.q ? "A search looks at all runs" : "Only runs that no other run called; the others below them"}
          onClick={() => go({ tree: !place.tree })}
          className={clsx("rounded border px-2 py-1 text-xs font-medium", place.tree ? ON : OFF)}
        >
          Tree
        </button>
      </div>
    </>
  );
}

function Pill({ status, isChosen, onChoose }: { status: Status | undefined; isChosen: boolean; onChoose: () => void }) {
  const name = status ?? "all";
  return (
    <button
      type="button"
      aria-pressed={isChosen}
      onClick={onChoose}
      className={clsx("rounded-full border px-2 py-0.5 text-xs font-medium", isChosen ? ON : OFF)}
    >
      {name[0]?.toUpperCase()}
      {name.slice(1)}
    </button>
  );
}

interface SelectProps {
  label: string;
  all: string;
  value: string | undefined;
  choices: readonly Choice[];
  onChoose: (value: string | undefined) => void;
}

function Select({ label, all, value, choices, onChoose }: SelectProps) {
  return (
    <select
      aria-label={label}
      value={value ?? ""}
      onChange={(event) => onChoose(event.target.value || undefined)}
      className={clsx(
        "min-w-0 flex-1 rounded border bg-app-raised px-1.5 py-1 text-xs",
        value === undefined ? "border-line text-ink-dull" : "border-accent text-ink",
      )}
    >
      <option value="">{all}</option>
      {choices.map((choice) => (
        <option key={choice.value} value={choice.value}>
          {choice.label}
        </option>
      ))}
    </select>
  );
}
