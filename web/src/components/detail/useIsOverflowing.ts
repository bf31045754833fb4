import { type RefObject, useLayoutEffect, useState } from "react";

/** Whether an element has more content than it shows; measured again when its size changes. */
export function useIsOverflowing(elementRef: RefObject<HTMLElement | null>): boolean {
  const [isOverflowing, setIsOverflowing] = useState(false);
  useLayoutEffect(() => {
    const element = elementRef.current;
    if (!element) return;
    // Line heights have fractions of pixels.
    const measure = () => setIsOverflowing(element.scrollHeight > element.clientHeight + 1);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    for (const child of element.children) observer.observe(child);
    return () => observer.disconnect();
  }, [elementRef]);
  return isOverflowing;
}
