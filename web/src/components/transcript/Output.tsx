import clsx from "clsx";
import type { OutputRow } from "@/views/transcriptRows";
import { Cut } from "./TruncationNotice";
import { useWhole } from "./transcriptContext";
import { Coloured, Text } from "./Text";

/** Output of a command; stderr has a red edge. */
export function Output({ row }: { row: OutputRow }) {
  const cut = row.events.filter((event) => event.cut !== undefined);
  return (
    <div>
      <pre className="font-mono text-xs leading-[18px] [overflow-wrap:anywhere] whitespace-pre-wrap">
        {row.pieces.map((piece, n) => (
          <span
            key={n}
            title={piece.stream}
            className={clsx(
              "block border-l-2 pl-2",
              piece.stream === "stderr" ? "border-failed text-failed" : "border-line",
            )}
          >
            <Coloured text={withoutEnd(piece.text)} />
          </span>
        ))}
      </pre>
      {cut.map((event) => (
        <Rest key={event.seq} event={event} />
      ))}
    </div>
  );
}

/** Remove the last line break: the block element ends the line. */
const withoutEnd = (text: string) => text.replace(/\r?\n$/, "") || " ";

function Rest({ event }: { event: OutputRow["events"][number] }) {
  const whole = useWhole(event, false);
  if (whole.cut !== null) return <Cut whole={whole} />;
  const blocks = "blocks" in whole.event.payload ? whole.event.payload.blocks : [];
  return <Text text={blocks.map((block) => (block.type === "text" ? block.text : "")).join("")} />;
}
