import { snippetPieces } from "@/views/runRows";

/** A snippet with its search hits highlighted. */
export function Highlighted({ text }: { text: string }) {
  return snippetPieces(text).map((piece, index) =>
    piece.isHit ? (
      <mark key={index} className="rounded-xs bg-running-bg text-running-text">
        {piece.text}
      </mark>
    ) : (
      piece.text
    ),
  );
}
