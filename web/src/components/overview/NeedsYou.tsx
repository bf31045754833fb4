import clsx from "clsx";
import { useRef, useState } from "react";
import { ItemBody, ItemHead } from "@/components/needsyou/NeedsYouItem";
import { useQuery } from "@tanstack/react-query";
import { waitingQuery } from "@/api";
import { ErrorLine, SkeletonRows } from "@/components/charts/ErrorLine";
import { useWaiting } from "@/components/needsyou/useWaiting";
import { useShortcuts } from "@/shortcuts";
import { useCanAct } from "@/useCanAct";
import { keyOf, nextKey } from "@/views/waiting";

export const NEEDS_YOU_ID = "needs-you";

/** What waits for a person, each with its answers. One item is marked: keys answer it. */
export function NeedsYou() {
  const items = useWaiting();
  const canAct = useCanAct();
  const { isPending, isError, data, error, refetch } = useQuery(waitingQuery);
  const [chosenKey, setChosenKey] = useState<string>();
  const boxRef = useRef<HTMLElement>(null);
  const isChosen = items.some((item) => keyOf(item) === chosenKey);
  const markedKey = isChosen ? chosenKey : nextKey(items, undefined);
  useShortcuts("page", {
    w: () => {
      const card = boxRef.current;
      // The first press goes to the marked item, further ones to the next.
      const key = card?.contains(document.activeElement) ? nextKey(items, markedKey) : markedKey;
      setChosenKey(key);
      const item = card?.querySelector<HTMLElement>(`[data-waiting="${CSS.escape(key ?? "")}"]`);
      (item ?? card)?.focus();
      (item ?? card)?.scrollIntoView({ block: "nearest" });
    },
  });
  return (
    <section
      ref={boxRef}
      id={NEEDS_YOU_ID}
      tabIndex={-1}
      aria-label="Needs you"
      className="card needs-you outline-none"
    >
      <header>
        <h2>Needs you</h2>
        {items.length > 0 && <span className="needs-count num">{items.length}</span>}
        <span className="grow" />
        {canAct && items.length > 0 && (
          <span aria-hidden className="m3 flex items-center gap-1 pr-1.5 max-md:hidden coarse:hidden">
            <kbd>1</kbd>–<kbd>9</kbd> act on the marked one
          </span>
        )}
      </header>
      {isPending && <SkeletonRows subject="what needs you" rows={2} height={30} />}
      {isError && <ErrorLine what="What needs you cannot be loaded" error={error} onRetry={() => void refetch()} />}
      {data && items.length === 0 && !isError && <p className="empty">Nothing waits for you.</p>}
      {items.map((item) => {
        const key = keyOf(item);
        return (
          <article
            key={key}
            data-waiting={key}
            tabIndex={-1}
            aria-label={item.title || item.worker}
            aria-current={key === markedKey || undefined}
            onFocusCapture={() => setChosenKey(key)}
            onPointerDownCapture={() => setChosenKey(key)}
            className={clsx(
              "border-t border-border px-3.5 pt-2.5 pb-3 outline-none",
              key === markedKey && "shadow-[inset_2px_0_var(--accent-line)]",
            )}
          >
            <ItemHead item={item} />
            <ItemBody item={item} keyZone={key === markedKey ? "page" : undefined} />
          </article>
        );
      })}
    </section>
  );
}
