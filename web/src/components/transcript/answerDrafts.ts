/**
 * Answers that the user has started to type, by call. They are kept outside of the components, because the form of a call
 * moves: it is in the row of the call until the run's details list the question, and then in the strip above the
 * transcript. The moved form is a new component; it has the text, the opened field and the focus of the old one. The text
 * also survives a look at another run.
 */
import { type RefObject, useLayoutEffect, useSyncExternalStore } from "react";

export interface AnswerDraft {
  readonly text: string;
  /** Whether the field for another answer than the offered ones is open. */
  readonly isOpen: boolean;
}

const EMPTY: AnswerDraft = { text: "", isOpen: false };
const drafts = new Map<string, AnswerDraft>();
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export function changeDraft(key: string, change: Partial<AnswerDraft>): void {
  drafts.set(key, { ...EMPTY, ...drafts.get(key), ...change });
  for (const listener of listeners) listener();
}

export function deleteDraft(key: string): void {
  drafts.delete(key);
  for (const listener of listeners) listener();
}

export const useDraft = (key: string): AnswerDraft => useSyncExternalStore(subscribe, () => drafts.get(key) ?? EMPTY);

/** How long a removed form may be missing before its focus is given up. */
const HANDOVER_MS = 1_000;

interface RemovedFocus {
  readonly key: string;
  readonly selection: readonly [start: number, end: number];
}

/** The focus of a form that was removed while the user typed in it. */
let removedFocus: RemovedFocus | null = null;

/** Give the field the focus and the selection that the removed field of the same call had, unless something else has the focus now. */
export function useFocusHandover(key: string, fieldRef: RefObject<HTMLTextAreaElement | null>): void {
  useLayoutEffect(() => {
    const field = fieldRef.current;
    if (!field) return;
    if (removedFocus?.key === key) {
      const { selection } = removedFocus;
      removedFocus = null;
      if (document.activeElement === null || document.activeElement === document.body) {
        field.focus();
        field.setSelectionRange(...selection);
      }
    }
    // React runs this before it removes the field: the field still has the focus.
    return () => {
      if (document.activeElement !== field) return;
      const removed: RemovedFocus = { key, selection: [field.selectionStart, field.selectionEnd] };
      removedFocus = removed;
      setTimeout(() => {
        if (removedFocus === removed) removedFocus = null;
      }, HANDOVER_MS);
    };
  }, [key, fieldRef]);
}
