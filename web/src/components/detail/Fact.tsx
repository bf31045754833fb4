import type { ReactNode } from "react";

/** A short fact in the line of facts about a run. */
export function Fact({ title, children }: { title?: string | undefined; children: ReactNode }) {
  return (
    <li
      title={title}
      className="max-w-64 truncate before:inline-block before:w-3.5 before:text-center before:text-n-7 before:content-['·']"
    >
      {children}
    </li>
  );
}
