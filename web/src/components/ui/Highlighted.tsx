import { pieces } from "@/views/runRows";

/** A snippet with its search hits highlighted. */
export function Marked({ text }: { text: string }) {
  return pieces(text).map((piece, place) =>
    piece.isHit ? (
      <mark key={place} className="rounded-xs bg-running-back text-running">
        {piece.text}
      </mark>
    ) : (
      piece.text
    ),
  );
}
