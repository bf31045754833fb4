import { type RefObject, useEffect } from "react";

const FOCUSABLE = "a[href], button:not(:disabled), input:not(:disabled), textarea:not(:disabled), [tabindex]";

/**
 * Keep the focus inside of an element when what had it disappears: a button that loads the rest of a text, or an answered
 * question. It goes to the nearest control before, so that the Tab key goes on from there.
 */
export function useFocusFallback(boxRef: RefObject<HTMLElement | null>): void {
  useEffect(() => {
    const box = boxRef.current;
    if (!box) return;
    /** The focused element and those around it, the innermost first. */
    let path: HTMLElement[] = [];
    const onFocusIn = ({ target }: FocusEvent) => {
      path = [];
      for (let at = target; at instanceof HTMLElement; at = at === box ? null : at.parentElement) path.push(at);
    };
    const onFocusOut = ({ target }: FocusEvent) => {
      // Some browsers tell of a removed element too. The user leaves one that is still there.
      setTimeout(() => {
        if (target instanceof HTMLElement && target === path[0] && target.isConnected) path = [];
      });
    };
    const observer = new MutationObserver(() => {
      if (!path[0] || path[0].isConnected || document.activeElement !== document.body) return;
      const around = path.filter((element) => element.isConnected);
      path = [];
      for (const element of around) {
        const target = element.matches(FOCUSABLE) ? element : element.querySelector<HTMLElement>(FOCUSABLE);
        if (!target) continue;
        target.focus({ preventScroll: true });
        return;
      }
    });
    box.addEventListener("focusin", onFocusIn);
    box.addEventListener("focusout", onFocusOut);
    observer.observe(box, { childList: true, subtree: true });
    return () => {
      box.removeEventListener("focusin", onFocusIn);
      box.removeEventListener("focusout", onFocusOut);
      observer.disconnect();
    };
  }, [boxRef]);
}
