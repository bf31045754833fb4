/**
 * State of rows that outlives them: only rows in sight are rendered, and what the reader has expanded must still be
 * expanded when its row comes back.
 */
import { createContext, type ReactNode, useCallback, useContext, useState } from "react";

class KeptStates {
  readonly #byKey = new Map<string, unknown>();

  get<T>(key: string, initial: T): T {
    return this.#byKey.has(key) ? (this.#byKey.get(key) as T) : initial;
  }

  set(key: string, value: unknown): void {
    this.#byKey.set(key, value);
  }
}

const StatesContext = createContext<KeptStates | null>(null);
const PathContext = createContext("");

/** Keeps the states of the rows inside of it. */
export function RowStates({ children }: { children: ReactNode }) {
  const [states] = useState(() => new KeptStates());
  return <StatesContext value={states}>{children}</StatesContext>;
}

/** Names a row, or a part of it, among its siblings. */
export function RowStatePart({ name, children }: { name: string | number; children: ReactNode }) {
  return <PathContext value={`${useContext(PathContext)}/${name}`}>{children}</PathContext>;
}

/** `useState` whose value is kept while the row is out of sight. Outside of a transcript it is plain state. */
export function useRowState<T>(name: string, initial: T): [T, (change: (before: T) => T) => void] {
  const states = useContext(StatesContext);
  const key = `${useContext(PathContext)} ${name}`;
  const [value, setValue] = useState(() => states?.get(key, initial) ?? initial);
  const change = useCallback(
    (update: (before: T) => T) =>
      setValue((before) => {
        const next = update(before);
        states?.set(key, next);
        return next;
      }),
    [states, key],
  );
  return [value, change];
}
