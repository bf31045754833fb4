import { useQuery } from "@tanstack/react-query";
import clsx from "clsx";
import { type KeyboardEvent, useId, useRef, useState } from "react";
import { channelsQuery, type Run, statsQuery, workersQuery } from "@/api";
import { buttonClass } from "@/components/ui/Button";
import { Count } from "@/components/ui/Count";
import { Icon } from "@/components/ui/Icon";
import { useAddress, useChangeAddress } from "@/useAddress";
import { type FilterField, filterFields, type MenuEntry, menuEntries } from "@/views/filterFields";

/** A button that opens the filters: first the fields, then the choices of one field. A typed text finds both. */
export function FilterMenu({ seenRuns }: { seenRuns: readonly Run[] }) {
  const id = useId();
  const [openedAt, setOpenedAt] = useState<number | null>(null);
  const address = useAddress();
  const fields = useFields(seenRuns, openedAt);
  const count = fields.filter(({ current }) => current !== null).length + (address.flat ? 1 : 0);
  return (
    <>
      <button
        type="button"
        popoverTarget={id}
        aria-label="Filters"
        aria-haspopup="dialog"
        title="Filter by time, worker, model, cost and more"
        className={buttonClass(
          "plain",
          clsx("filter-anchor min-w-(--control-h) px-1.5", count > 0 && "text-accent-text"),
        )}
      >
        <Icon name="filter" className={clsx("size-3.5", count === 0 && "text-icon")} />
        {count > 0 && <Count text={String(count)} />}
      </button>
      <div
        id={id}
        popover="auto"
        role="dialog"
        aria-label="Filters"
        onToggle={({ newState }) => setOpenedAt(newState === "open" ? Date.now() : null)}
        className="filter-menu w-72 flex-col rounded-3 border border-border bg-bg-pop text-text shadow-(--shadow-2) open:flex"
      >
        {openedAt !== null && <Choices fields={fields} close={() => document.getElementById(id)?.hidePopover()} />}
      </div>
    </>
  );
}

/** The fields with their choices. Models, providers and errors of the last 30 days are requested once it opens. */
function useFields(seenRuns: readonly Run[], openedAt: number | null): readonly FilterField[] {
  const address = useAddress();
  const workers = useQuery(workersQuery).data;
  const channels = useQuery(channelsQuery).data?.channels;
  const stats = useQuery({
    ...statsQuery({ owner: address.owner }, "30d"),
    enabled: openedAt !== null,
    refetchInterval: false,
  }).data;
  return filterFields(address, { workers, channels, seenRuns, stats }, openedAt ?? 0);
}

interface ChoicesProps {
  fields: readonly FilterField[];
  close: () => void;
}

function Choices({ fields, close }: ChoicesProps) {
  const id = useId();
  const listRef = useRef<HTMLUListElement>(null);
  const address = useAddress();
  const changeAddress = useChangeAddress();
  const [opened, setOpened] = useState<string | null>(null);
  const [text, setText] = useState("");
  const [active, setActive] = useState(0);
  const entries = menuEntries(fields, opened, text);
  const show = (field: string | null) => {
    setOpened(field);
    setText("");
    setActive(0);
  };
  const choose = ({ target }: MenuEntry) => {
    if ("field" in target) {
      show(target.field);
      return;
    }
    changeAddress(target.change);
    close();
  };
  const move = (index: number) => {
    setActive(index);
    listRef.current?.children[index]?.scrollIntoView({ block: "nearest" });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const next = { ArrowDown: active + 1, ArrowUp: active - 1 }[event.key];
    const entry = entries[active];
    if (next !== undefined) move((next + entries.length) % Math.max(1, entries.length));
    else if (event.key === "Enter" && entry && !event.nativeEvent.isComposing) choose(entry);
    else if (event.key === "Backspace" && text === "" && opened !== null) show(null);
    else return;
    event.preventDefault();
  };
  return (
    <>
      <div className="flex h-9 items-center gap-2 border-b border-border px-3 coarse:h-11">
        {opened === null ? (
          <Icon name="search" className="size-3.5 text-icon" />
        ) : (
          <button type="button" aria-label="Back to all filters" onClick={() => show(null)} className="-m-1 p-1">
            <Icon name="back" className="size-3.5 text-icon" />
          </button>
        )}
        <input
          key={opened}
          autoFocus
          role="combobox"
          aria-expanded
          aria-autocomplete="list"
          aria-label={opened === null ? "Filter by" : `Filter by ${opened.toLowerCase()}`}
          aria-controls={`${id}-list`}
          aria-activedescendant={entries[active] && `${id}-${active}`}
          placeholder={opened === null ? "Filter by…" : placeholderOf(opened)}
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setActive(0);
          }}
          onKeyDown={onKeyDown}
          className="min-w-0 flex-1 bg-transparent text-13 outline-none placeholder:text-text-3 coarse:text-16"
        />
      </div>
      <ul
        ref={listRef}
        id={`${id}-list`}
        role="listbox"
        aria-label={opened ?? "Filters"}
        className="thin-scroll max-h-72 overflow-y-auto p-1"
      >
        {entries.map((entry, index) => (
          <Entry
            key={entry.key}
            id={`${id}-${index}`}
            entry={entry}
            isActive={index === active}
            onPoint={() => setActive(index)}
            onChoose={() => choose(entry)}
          />
        ))}
      </ul>
      {entries.length === 0 && <p className="px-3 pb-3 text-12 text-text-3">Nothing matches.</p>}
      {opened === null && (
        <label className="flex items-center gap-2 border-t border-border px-3 py-2 text-12">
          <input
            type="checkbox"
            checked={address.flat === true}
            onChange={(event) => changeAddress({ flat: event.target.checked })}
            className="size-4 accent-accent"
          />
          List sub-runs like all other runs
        </label>
      )}
    </>
  );
}

const PLACEHOLDERS: Readonly<Record<string, string>> = {
  Time: "3h, 2d, or 2026-11-06",
  Ended: "3h, 2d, or 2026-11-06",
  Cost: "Dollars, such as 2.50",
  Duration: "90s, 15m, 2h",
};
const placeholderOf = (field: string) => PLACEHOLDERS[field] ?? `${field} is…`;

interface EntryProps {
  id: string;
  entry: MenuEntry;
  isActive: boolean;
  onPoint: () => void;
  onChoose: () => void;
}

function Entry({ id, entry, isActive, onPoint, onChoose }: EntryProps) {
  return (
    <li
      id={id}
      role="option"
      aria-selected={entry.isSet}
      onPointerMove={onPoint}
      onClick={onChoose}
      className={clsx(
        "flex h-7 cursor-default items-center gap-2 rounded-1 px-2 text-12 coarse:h-10",
        isActive && "bg-bg-press",
      )}
    >
      <span className="flex w-4 justify-center">
        {entry.isSet && <Icon name="done" className="size-3.5 text-done" />}
      </span>
      <span className="min-w-0 flex-1 truncate">{entry.label}</span>
      {entry.detail !== null && <span className="max-w-32 truncate text-text-3">{entry.detail}</span>}
      {"field" in entry.target && <Icon name="right" className="size-3 text-icon" />}
    </li>
  );
}
