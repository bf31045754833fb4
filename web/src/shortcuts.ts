/**
 * Keyboard shortcuts. A shortcut belongs to a zone: `list` and `detail` shortcuts work while that column is active,
 * `page` shortcuts everywhere. While a field has the focus or a dialog is open, no shortcut fires.
 */
import { useLayoutEffect, useRef, useSyncExternalStore } from "react";
import {
  type ColumnZone,
  entryFor,
  type Handlers,
  KeySequence,
  type ShortcutEntry,
  type Zone,
} from "@/views/shortcutKeys";

const registered: ShortcutEntry[] = [];
const listeners = new Set<() => void>();
const keySequence = new KeySequence();
let zone: ColumnZone = "list";

export function enterZone(next: ColumnZone): void {
  if (zone === next) return;
  zone = next;
  for (const listener of listeners) listener();
}

/** Call a function with the active zone, now and whenever it changes, until the returned function is called. */
export function watchZone(onZone: (zone: ColumnZone) => void): () => void {
  const listener = () => onZone(zone);
  listener();
  return subscribe(listener);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Whether shortcuts of a zone fire now. */
export function useIsZoneActive(wanted: Zone | undefined): boolean {
  return useSyncExternalStore(subscribe, () => wanted === "page" || wanted === zone);
}

/** Register shortcuts while the component is mounted: `{ j: …, gg: …, "?": …, Escape: … }`. */
export function useShortcuts(zone: Zone, handlers: Handlers): void {
  const handlersRef = useRef(handlers);
  // Layout effects, because a plain effect may run after the paint: a key that the user presses then would be lost.
  useLayoutEffect(() => {
    handlersRef.current = handlers;
  });
  useLayoutEffect(() => {
    const entry = { zone, handlers: handlersRef };
    registered.push(entry);
    return () => void registered.splice(registered.indexOf(entry), 1);
  }, [zone]);
}

/**
 * Whether the user types or chooses something. A click on the text of a dialog leaves the focus outside of it, so check
 * for open dialogs and menus too.
 */
function isTyping(target: EventTarget | null): boolean {
  if (document.querySelector("dialog[open], [popover]:popover-open") !== null) return true;
  return (
    target instanceof HTMLElement && (target.isContentEditable || target.closest("input, textarea, select") !== null)
  );
}

function onKeyDown(event: KeyboardEvent): void {
  if (
    event.defaultPrevented ||
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.isComposing ||
    isTyping(event.target)
  )
    return;
  // Enter and space on a button or link press it.
  if (
    (event.key === "Enter" || event.key === " ") &&
    event.target instanceof HTMLElement &&
    event.target.closest("button, a, summary")
  )
    return;
  const key = keySequence.next(event.key, event.timeStamp, (found) => entryFor(registered, zone, found) !== undefined);
  const match = key === null ? undefined : entryFor(registered, zone, key);
  if (key === null || !match) return;
  event.preventDefault();
  match.handlers.current[key]?.(event);
}

addEventListener("keydown", onKeyDown);
