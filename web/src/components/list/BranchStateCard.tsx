import { DEEPEST, type NoteRow } from "@/views/runRows";

/** The state of a branch of the tree whose sub-runs are not all shown. */
export function NoteCard({
  row,
  onMore,
  onAgain,
}: {
  row: NoteRow;
  onMore: (parent: string) => void;
  onAgain: (parent: string) => void;
}) {
  const button = (words: string, act: (parent: string) => void) => (
    <button type="button" onClick={() => act(row.parent)} className="text-accent hover:underline">
      {words}
    </button>
  );
  return (
    <div
      className="flex h-full items-center gap-2 border-b border-line text-xs text-ink-faint"
      style={{ paddingInlineStart: `${Math.min(row.depth, DEEPEST) * 14 + 28}px` }}
    >
      {row.kind === "loading" && <span role="status">Loading sub-runs…</span>}
      {row.kind === "more" && button("Show more sub-runs", onMore)}
      {row.kind === "trouble" && (
        <span role="alert" className="text-failed">
          The sub-runs cannot be loaded. {button("Try again", onAgain)}
        </span>
      )}
    </div>
  );
}
