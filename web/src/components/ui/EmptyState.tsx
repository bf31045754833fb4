import type { ReactNode } from "react";

/** A centered message for a column without content. */
export function EmptyState({ children }: { children: ReactNode }) {
  return (
    <div className="flex h-full flex-col items-center justify-center gap-2 p-6 text-center text-text-3">{children}</div>
  );
}

/** A loading message. It does not move, so that nothing flickers when the answer is fast. */
export function Loading({ subject }: { subject: string }) {
  return (
    <div role="status" className="appear-late p-4 text-12 text-text-3">
      Loading {subject}…
    </div>
  );
}
