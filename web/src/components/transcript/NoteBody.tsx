import type { EventOf } from "@/api";
import { noteOf } from "@/views/jobNotes";
import { TruncationNotice } from "./TruncationNotice";
import { useFullEvent } from "./transcriptContext";

/** A note of a job as text. */
export function NoteBody({ call }: { call: EventOf<"tool.call"> }) {
  const full = useFullEvent(call, true);
  const note = noteOf(call.payload.name, full.event.payload.input);
  return (
    <div className="flex flex-col gap-2 border-t border-border px-3 py-2">
      {note?.paragraphs.map(({ label, text }, index) => (
        <div key={index}>
          {label !== null && <div className="text-11 text-text-3">{label}</div>}
          <p className="max-w-(--prose-w) text-14 [overflow-wrap:anywhere] whitespace-pre-wrap">{text}</p>
        </div>
      ))}
      <TruncationNotice full={full} />
    </div>
  );
}
