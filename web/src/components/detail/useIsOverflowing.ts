import { type RefObject, useLayoutEffect, useState } from "react";

/** Whether an element has more content than it shows; measured again when its size changes. */
export function useOverflows(element: RefObject<HTMLElement | null>): boolean {
  const [overflows, setOverflows] = useState(false);
  useLayoutEffect(() => {
    const at = element.current;
    if (!at) return;
    // Line heights have fractions of pixels.
    const look = () => setOverflows(at.scrollHeight > at.clientHeight + 1);
    look();
    const watch = new ResizeObserver(look);
    watch.observe(at);
    for (const child of at.children) watch.observe(child);
    return () => watch.disconnect();
  }, [element]);
  return overflows;
}
