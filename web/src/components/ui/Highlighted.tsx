import { snippetPieces } from "@/views/runRows";

/** A snippet with its search hits highlighted. */
export function Highlighted({ text }: { text: string }) {
  return snippetPieces(text).map((piece, index) =>
    piece.isHit ? (
      <mark key={index} className="rounded-xs bg-running-back text-running">
        {piece.text}
      </mark>
    ) : (
      piece.text
    ),
  );
}
