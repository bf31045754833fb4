import { useState } from "react";
import { indexOf, type Row } from "@/views/runRows";

/** Offer to scroll up when runs were added on top while the reader was further down. */
export function NewRunsButton({
  rows,
  listKey,
  isAtTop,
  onScrollUp,
}: {
  rows: readonly Row[];
  listKey: string | null;
  isAtTop: boolean;
  onScrollUp: () => void;
}) {
  const first = rows[0]?.key;
  const [seen, setSeen] = useState({ listKey, first });
  const isUpToDate = isAtTop || seen.listKey !== listKey;
  if (isUpToDate && (seen.listKey !== listKey || seen.first !== first)) setSeen({ listKey, first });
  const count = isUpToDate ? 0 : indexOf(rows, seen.first);
  if (count <= 0) return null;
  return (
    <div className="relative z-10 flex h-0 justify-center">
      <button
        type="button"
        onClick={onScrollUp}
        className="mt-2 h-6 rounded-full bg-accent px-3 text-12 font-medium text-on-accent shadow-(--shadow-2)"
      >
        ↑ {count} new
      </button>
    </div>
  );
}
