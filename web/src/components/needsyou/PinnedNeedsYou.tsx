import clsx from "clsx";
import { useRef, useState } from "react";
import type { WaitingItem } from "@/api";
import { RunLink } from "@/components/charts/RunLink";
import { useRoving } from "@/components/charts/useRoving";
import { Message } from "@/components/ui/Message";
import { Icon } from "@/components/ui/Icon";
import { useFocusFallback } from "@/components/ui/useFocusFallback";
import { Age } from "@/components/ui/Time";
import { isNarrowScreen } from "@/screen";
import { enterZone, useShortcuts } from "@/shortcuts";
import { useAddress, useIsOverview } from "@/useAddress";
import { withoutBold } from "@/views/markdown";
import { isCallItem, keyOf, kindText, nextKey, summaryOf } from "@/views/waiting";
import { ItemBody, KindIcon } from "./NeedsYouItem";
import { useWaiting } from "./useWaiting";

/** What waits for a person, above the list of runs. One line while the overview shows the same; nothing if nothing waits. */
export function PinnedNeedsYou() {
  const items = useWaiting();
  const isOverview = useIsOverview();
  if (items.length === 0) return null;
  if (isOverview)
    return (
      <div className="flex h-[27px] shrink-0 items-center gap-1.5 border-b border-border px-3 text-11">
        <Title count={items.length} />
        <span className="flex-1" />
        <span className="text-text-3">shown at right</span>
      </div>
    );
  return (
    <section aria-label="Needs you" className="shrink-0 border-b border-border">
      <Items items={items} />
    </section>
  );
}

function Title({ count }: { count: number }) {
  return (
    <>
      <span className="font-medium text-waiting-text">Needs you</span>
      <span className="rounded-full bg-waiting-bg px-1.5 text-11 font-semibold text-waiting-text tabular-nums">
        {count.toLocaleString("en")}
      </span>
    </>
  );
}

function Items({ items }: { items: readonly WaitingItem[] }) {
  // Who searches wants to see what was found: until the user unfolds it, one line remains.
  const isSearching = useAddress().q !== undefined;
  const [foldedByUser, setIsFolded] = useState<boolean>();
  const isFolded = foldedByUser ?? isSearching;
  // Null: the user has closed all items.
  const [openedKey, setOpenedKey] = useState<string | null>();
  const listRef = useRef<HTMLUListElement>(null);
  const boxRef = useRef<HTMLDivElement>(null);
  useFocusFallback(boxRef);
  const roving = useRoving(items.map(keyOf));
  const isKnown = openedKey === null || items.some((item) => keyOf(item) === openedKey);
  // Where the list is alone, the first question is open.
  const openKey = isKnown ? openedKey : isNarrowScreen() ? nextKey(items, undefined) : null;
  useShortcuts("page", {
    w: () => {
      const key = nextKey(items, openKey ?? undefined);
      // The keys of the item work in the column that it is in.
      enterZone("list");
      setIsFolded(false);
      setOpenedKey(key);
      // After the item is rendered.
      setTimeout(() => {
        const item = listRef.current?.querySelector<HTMLElement>(`[data-waiting="${CSS.escape(key ?? "")}"]`);
        item?.focus();
        item?.scrollIntoView({ block: "nearest" });
      });
    },
  });
  return (
    <div ref={boxRef}>
      <button
        type="button"
        aria-expanded={!isFolded}
        onClick={() => setIsFolded(!isFolded)}
        className="flex h-[26px] w-full items-center gap-1.5 px-3 text-11 -outline-offset-2 hover:bg-bg-hover"
      >
        <Icon name={isFolded ? "right" : "down"} className="size-3 text-waiting" />
        <Title count={items.length} />
        <span className="flex-1" />
        <kbd aria-hidden>w</kbd>
      </button>
      {!isFolded && (
        <ul
          ref={listRef}
          aria-label="Waiting"
          onKeyDown={roving.onKeyDown}
          className="thin-scroll max-h-[45dvh] overflow-y-auto"
        >
          {items.map((item) => (
            <PinnedItem
              key={keyOf(item)}
              item={item}
              stop={roving.item(keyOf(item))}
              isOpen={keyOf(item) === openKey}
              onToggle={(isOpen) => setOpenedKey(isOpen ? keyOf(item) : null)}
            />
          ))}
        </ul>
      )}
    </div>
  );
}

interface ItemProps {
  item: WaitingItem;
  /** Whether the Tab key stops here: once in the list, as in that of the runs. */
  stop: ReturnType<ReturnType<typeof useRoving>["item"]>;
  isOpen: boolean;
  onToggle: (isOpen: boolean) => void;
}

function PinnedItem({ item, stop, isOpen, onToggle }: ItemProps) {
  const label = isCallItem(item) ? "Answer here" : "Act here";
  return (
    <li
      data-waiting={keyOf(item)}
      tabIndex={-1}
      className={clsx("relative outline-none", isOpen ? "bg-waiting-bg pb-2.5" : "hover:bg-bg-hover")}
    >
      <RunLink
        runId={item.run_id}
        title={item.title}
        {...stop}
        className="flex h-12 items-center gap-2.5 pr-3 pl-3.5 -outline-offset-2"
      >
        <KindIcon kind={item.kind} />
        <span className="min-w-0 flex-1">
          <span className="flex items-center gap-2 leading-[18px]">
            <span className="min-w-0 flex-1 truncate font-medium">{item.title || item.worker}</span>
            <span className="text-12 text-text-3 tabular-nums">
              <Age at={item.since} />
            </span>
          </span>
          <span
            className={clsx(
              "block truncate pr-6 text-12 leading-[17px]",
              item.kind === "failure" ? "text-failed-text" : "text-waiting-text",
            )}
          >
            {/* What is open below is not said twice. */}
            {isOpen ? (
              kindText(item.kind)
            ) : item.kind === "approval" ? (
              summaryOf(item)
            ) : (
              <Message text={withoutBold(summaryOf(item))} />
            )}
          </span>
        </span>
      </RunLink>
      <button
        type="button"
        aria-expanded={isOpen}
        aria-label={label}
        tabIndex={stop.tabIndex}
        title={`${label} (w)`}
        onClick={() => onToggle(!isOpen)}
        className="absolute top-[25px] right-2 flex size-[18px] coarse:before:absolute coarse:before:-inset-3 items-center justify-center rounded-1 text-waiting-text hover:bg-bg-press"
      >
        <Icon name={isOpen ? "down" : "right"} className="size-3" />
      </button>
      {isOpen && (
        <div className="pr-3 pl-3.5">
          <ItemBody item={item} keyZone="list" />
        </div>
      )}
    </li>
  );
}
