import { useState } from "react";
import { indexOf, type Row } from "@/views/runRows";

/** Offer to scroll up when runs were added on top while the reader was further down. */
export function NewOnTop({
  rows,
  list,
  isAtTop,
  onUp,
}: {
  rows: readonly Row[];
  list: string | null;
  isAtTop: boolean;
  onUp: () => void;
}) {
  const first = rows[0]?.key;
  const [seen, setSeen] = useState({ list, first });
  const isSeen = isAtTop || seen.list !== list;
  if (isSeen && (seen.list !== list || seen.first !== first)) setSeen({ list, first });
  const count = isSeen ? 0 : indexOf(rows, seen.first);
  if (count <= 0) return null;
  return (
    <div className="relative z-10 flex h-0 justify-center">
      <button
        type="button"
        onClick={onUp}
        className="mt-2 h-6 rounded-full bg-accent px-3 text-xs font-medium text-accent-ink shadow"
      >
        ↑ {count} new
      </button>
    </div>
  );
}
