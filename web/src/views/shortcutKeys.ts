/** Which shortcut a key is for: by the zones that offer it, and by the keys before it. */

export type Zone = "list" | "detail" | "page";
export type ColumnZone = Exclude<Zone, "page">;
export type Handlers = Record<string, (event: KeyboardEvent) => void>;
export interface ShortcutEntry {
  readonly zone: Zone;
  readonly handlers: { readonly current: Handlers };
}

/** Return the handlers of a key: those of the active column come before those of the page, later ones before earlier ones. */
export function entryFor<T extends ShortcutEntry>(
  entries: readonly T[],
  active: ColumnZone,
  key: string,
): T | undefined {
  const lastOf = (zone: Zone) => entries.findLast((entry) => entry.zone === zone && key in entry.handlers.current);
  return lastOf(active) ?? lastOf("page");
}

/** How long after a `g` the next letter belongs to it. */
const SEQUENCE_MS = 3_000;

/** Joins `g` and the letter after it: `gg`, `gr`. A letter that makes no sequence with the `g` does nothing by itself. */
export class KeySequence {
  #startedAt = Number.NEGATIVE_INFINITY;

  /** Return the shortcut that a key completes; null if it is only a part of one. */
  next(key: string, timestamp: number, isKnown: (sequence: string) => boolean): string | null {
    if (key === "Shift") return null;
    const isSecond = key.length === 1 && timestamp - this.#startedAt < SEQUENCE_MS;
    const isFirst = key === "g" && !isSecond;
    this.#startedAt = isFirst ? timestamp : Number.NEGATIVE_INFINITY;
    if (isFirst) return null;
    if (!isSecond) return key;
    return isKnown(`g${key}`) ? `g${key}` : null;
  }
}
