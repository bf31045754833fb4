import type { ReactNode } from "react";

/** A column that has nothing to show, and says so. */
export function Quiet({ children }: { children: ReactNode }) {
  return (
    <div className="flex h-full flex-col items-center justify-center gap-2 p-6 text-center text-ink-faint">
      {children}
    </div>
  );
}

/** What is on its way. Its shape is still, so that nothing flickers where the answer is fast. */
export function Loading({ what }: { what: string }) {
  return (
    <div role="status" className="p-4 text-sm text-ink-faint">
      Loading {what}…
    </div>
  );
}
