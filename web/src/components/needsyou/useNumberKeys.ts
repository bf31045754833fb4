import { type RefObject, useEffect, useRef } from "react";
import { useIsZoneActive, useShortcuts } from "@/shortcuts";
import type { Zone } from "@/views/shortcutKeys";

/** How many choices have a key. */
export const MAX_KEYS = 9;
/** How long new keys are ignored: the user may still press a key that was meant for the item before. */
const KEYS_DELAY_MS = 400;

/**
 * Choose by the keys 1 to 9, while the item is in sight. Without a zone, or with no choice, the keys do nothing. Return
 * whether the keys work now: two columns may show items, and the keys are for that of the active one.
 */
export function useNumberKeys(
  zone: Zone | undefined,
  count: number,
  boxRef: RefObject<HTMLElement | null>,
  choose: (index: number) => void,
): boolean {
  const isActive = useIsZoneActive(zone);
  const startRef = useRef(0);
  useEffect(() => {
    startRef.current = performance.now();
  }, [zone, isActive]);
  const onKey = (event: KeyboardEvent) => {
    const box = boxRef.current;
    const index = Number(event.key) - 1;
    if (event.repeat || !box || index >= count || event.timeStamp - startRef.current < KEYS_DELAY_MS) return;
    if (isInSight(box)) choose(index);
    else box.scrollIntoView({ block: "nearest" });
  };
  const keys = { 1: onKey, 2: onKey, 3: onKey, 4: onKey, 5: onKey, 6: onKey, 7: onKey, 8: onKey, 9: onKey };
  useShortcuts(zone ?? "page", zone === undefined || count === 0 ? {} : keys);
  return isActive;
}

/** Whether the user can see the middle of an element. */
function isInSight(element: HTMLElement): boolean {
  const { left, top, width, height } = element.getBoundingClientRect();
  const found = document.elementFromPoint(left + width / 2, top + height / 2);
  return found !== null && (element.contains(found) || found.contains(element));
}
