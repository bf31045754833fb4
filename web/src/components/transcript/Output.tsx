import clsx from "clsx";
import type { OutputRow } from "@/views/rowTypes";
import { TruncationNotice } from "./TruncationNotice";
import { useFullEvent } from "./transcriptContext";
import { RowStatePart } from "./rowState";
import { ColoredText, Text } from "./Text";

/** Output of a command; stderr has a red edge. */
export function Output({ row }: { row: OutputRow }) {
  const truncated = row.events.filter((event) => event.cut !== undefined);
  return (
    <div>
      <pre className="bg-bg-sunken font-mono text-[11.5px] leading-[17px] [overflow-wrap:anywhere] whitespace-pre-wrap">
        {row.pieces.map((piece, n) => (
          <span
            key={n}
            title={piece.stream}
            className={clsx(
              "block border-l-2 px-3 py-px",
              piece.stream === "stderr" ? "border-failed text-failed-text" : "border-border",
            )}
          >
            <ColoredText text={withoutLineBreak(piece.text)} />
          </span>
        ))}
      </pre>
      {truncated.map((event) => (
        <RowStatePart key={event.seq} name={event.seq}>
          <FullOutput event={event} />
        </RowStatePart>
      ))}
    </div>
  );
}

/** Remove the last line break: the block element ends the line. */
const withoutLineBreak = (text: string) => text.replace(/\r?\n$/, "") || " ";

function FullOutput({ event }: { event: OutputRow["events"][number] }) {
  const full = useFullEvent(event, false);
  if (full.truncatedBytes !== null) return <TruncationNotice full={full} />;
  const blocks = "blocks" in full.event.payload ? full.event.payload.blocks : [];
  return <Text text={blocks.map((block) => (block.type === "text" ? block.text : "")).join("")} />;
}
