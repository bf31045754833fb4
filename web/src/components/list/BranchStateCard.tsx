import { MAX_INDENT, type BranchStateRow } from "@/views/runRows";

/** The state of a branch of the tree whose sub-runs are not all shown. */
export function BranchStateCard({
  row,
  onMore,
  onRetry,
}: {
  row: BranchStateRow;
  onMore: (parent: string) => void;
  onRetry: (parent: string) => void;
}) {
  const button = (label: string, onPress: (parent: string) => void) => (
    <button type="button" onClick={() => onPress(row.parent)} className="text-accent hover:underline">
      {label}
    </button>
  );
  return (
    <div
      className="flex h-full items-center gap-2 border-b border-line text-xs text-ink-faint"
      style={{ paddingInlineStart: `${Math.min(row.depth, MAX_INDENT) * 14 + 28}px` }}
    >
      {row.kind === "loading" && <span role="status">Loading sub-runs…</span>}
      {row.kind === "more" && button("Show more sub-runs", onMore)}
      {row.kind === "error" && (
        <span role="alert" className="text-failed">
          The sub-runs cannot be loaded. {button("Try again", onRetry)}
        </span>
      )}
    </div>
  );
}
