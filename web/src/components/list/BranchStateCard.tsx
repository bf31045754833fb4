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
    <button type="button" onClick={() => onPress(row.parent)} className="text-accent-text hover:underline">
      {label}
    </button>
  );
  return (
    <div
      className="flex h-full items-center gap-2 text-12 text-text-3"
      style={{ paddingInlineStart: `${40 + (Math.min(row.depth, MAX_INDENT) - 1) * 16}px` }}
    >
      {row.kind === "loading" && <span role="status">Loading sub-runs…</span>}
      {row.kind === "more" && button("Show more sub-runs", onMore)}
      {row.kind === "error" && (
        <span role="alert" className="text-failed-text">
          The sub-runs cannot be loaded. {button("Try again", onRetry)}
        </span>
      )}
    </div>
  );
}
