import { useQuery } from "@tanstack/react-query";
import clsx from "clsx";
import { channelsQuery, type Run, type Status, workersQuery } from "@/api";
import { useChangeAddress, useAddress } from "@/useAddress";
import { STATUSES } from "@/router";
import { isFiltered, NO_FILTER } from "@/views/addressParameters";
import { channelOptions, type FilterOption, totalText, workerOptions } from "@/views/filterOptions";

const ACTIVE_CLASS = "border-accent bg-accent text-accent-ink";
const INACTIVE_CLASS = "border-line bg-app-raised text-ink-dull hover:bg-app-hover";
const PILLS: readonly (Status | undefined)[] = [undefined, ...STATUSES];

export function Filters({ total, seenRuns }: { total: number | undefined; seenRuns: readonly Run[] }) {
  const address = useAddress();
  const changeAddress = useChangeAddress();
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
              isActive={address.status === status}
              onSelect={() => changeAddress({ status })}
            />
          ))}
        </div>
        <span className="ml-auto flex gap-2 pl-2 text-xs whitespace-nowrap text-ink-faint tabular-nums">
          {isFiltered(address) && (
            <button
              type="button"
              title="Clear all filters"
              onClick={() => changeAddress(NO_FILTER)}
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
          allLabel="All workers"
          value={address.of}
          options={workerOptions(workers, seenRuns, address.of)}
          onSelect={(of) => changeAddress({ of })}
        />
        <Select
          label="Channel"
          allLabel="All channels"
          value={address.channel}
          options={channelOptions(channels, seenRuns, address.channel)}
          onSelect={(channel) => changeAddress({ channel })}
        />
        <button
          type="button"
          aria-pressed={address.tree === true}
          title={address.q ? "A search covers all runs, not a tree" : "Show sub-runs below the run that called them"}
          onClick={() => changeAddress({ tree: !address.tree })}
          className={clsx("rounded border px-2 py-1 text-xs font-medium", address.tree ? ACTIVE_CLASS : INACTIVE_CLASS)}
        >
          Tree
        </button>
      </div>
    </>
  );
}

function Pill({ status, isActive, onSelect }: { status: Status | undefined; isActive: boolean; onSelect: () => void }) {
  const name = status ?? "all";
  return (
    <button
      type="button"
      aria-pressed={isActive}
      onClick={onSelect}
      className={clsx("rounded-full border px-2 py-0.5 text-xs font-medium", isActive ? ACTIVE_CLASS : INACTIVE_CLASS)}
    >
      {name[0]?.toUpperCase()}
      {name.slice(1)}
    </button>
  );
}

interface SelectProps {
  label: string;
  allLabel: string;
  value: string | undefined;
  options: readonly FilterOption[];
  onSelect: (value: string | undefined) => void;
}

function Select({ label, allLabel, value, options, onSelect }: SelectProps) {
  return (
    <select
      aria-label={label}
      value={value ?? ""}
      onChange={(event) => onSelect(event.target.value || undefined)}
      className={clsx(
        "min-w-0 flex-1 rounded border bg-app-raised px-1.5 py-1 text-xs",
        value === undefined ? "border-line text-ink-dull" : "border-accent text-ink",
      )}
    >
      <option value="">{allLabel}</option>
      {options.map((option) => (
        <option key={option.value} value={option.value}>
          {option.label}
        </option>
      ))}
    </select>
  );
}
