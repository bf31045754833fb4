/**
 * Keyboard shortcuts. A shortcut belongs to a zone: `list` and `detail` shortcuts work while that column is active,
 * `page` shortcuts everywhere. While a field has the focus or a dialog is open, no shortcut fires.
 */
import { useLayoutEffect, useRef } from "react";

export type Zone = "list" | "detail" | "page";
type Handlers = Record<string, (event: KeyboardEvent) => void>;

const registered: { zone: Zone; handlers: { current: Handlers } }[] = [];
const listeners = new Set<() => void>();
/** How long after a `g` another key makes a sequence: `gg`, `gr`. */
const SEQUENCE_MS = 700;
let zone: Exclude<Zone, "page"> = "list";
let lastKey = { key: "", timestamp: 0 };

export function enterZone(next: Exclude<Zone, "page">): void {
  if (zone === next) return;
  zone = next;
  for (const listener of listeners) listener();
}

/** Call a function with the active zone, now and whenever it changes, until the returned function is called. */
export function watchZone(onZone: (zone: Exclude<Zone, "page">) => void): () => void {
  const listener = () => onZone(zone);
  listeners.add(listener);
  listener();
  return () => void listeners.delete(listener);
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

/** Return the handlers of a key in the active zone. The component that was mounted last wins. */
const findHandlers = (key: string) =>
  registered.findLast(
    (candidate) => (candidate.zone === zone || candidate.zone === "page") && key in candidate.handlers.current,
  );

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
  const isSecond = lastKey.key === "g" && event.timeStamp - lastKey.timestamp < SEQUENCE_MS;
  const sequence = `g${event.key}`;
  const key = isSecond && findHandlers(sequence) ? sequence : event.key;
  lastKey = key === sequence ? { key: "", timestamp: 0 } : { key, timestamp: event.timeStamp };
  const match = findHandlers(key);
  if (!match) return;
  event.preventDefault();
  match.handlers.current[key]?.(event);
}

addEventListener("keydown", onKeyDown);
