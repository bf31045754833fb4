import { type KeyboardEvent, useState } from "react";

const STEPS: Record<string, number> = { ArrowDown: 1, ArrowRight: 1, j: 1, ArrowUp: -1, ArrowLeft: -1, k: -1 };

/**
 * One Tab stop for a list: Tab enters and leaves it, the arrow keys, `j` and `k` move in it. `keys` are those of the
 * items in their order; the item that had the focus last keeps the stop while it exists.
 */
export function useRoving(keys: readonly string[]) {
  const [focused, setFocused] = useState<string>();
  const current = focused !== undefined && keys.includes(focused) ? focused : keys[0];
  return {
    onKeyDown: moveFocus,
    item: (key: string) => ({
      "data-item": key,
      tabIndex: key === current ? 0 : -1,
      onFocus: () => setFocused(key),
    }),
  };
}

function moveFocus(event: KeyboardEvent<HTMLElement>): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const items = [...event.currentTarget.querySelectorAll<HTMLElement>("[data-item]")];
  const index = items.findIndex((item) => item === document.activeElement);
  if (index < 0) return;
  const step = STEPS[event.key];
  const target =
    event.key === "Home"
      ? items[0]
      : event.key === "End"
        ? items.at(-1)
        : step === undefined
          ? undefined
          : items[index + step];
  if (step === undefined && target === undefined) return;
  event.preventDefault();
  target?.focus();
}
