import type { ReactNode } from "react";

/** A short fact in the line of facts about a run. */
export function Fact({ title, children }: { title?: string | undefined; children: ReactNode }) {
  return (
    <li
      title={title}
      className="max-w-64 truncate not-last:after:mx-1.5 not-last:after:text-n-7 not-last:after:content-['·']"
    >
      {children}
    </li>
  );
}
