import { useEffect } from "react";
import { type RunDetail, useLog } from "@/api";
import { Tag } from "@/components/ui/Badge";
import { artifactRange, artifactsIn } from "@/views/jobNotes";

/** The names of the files that the job of a plugin left. The plugin has the files. */
export function Artifacts({ run }: { run: RunDetail }) {
  const log = useLog(run.id, run.last_seq, false);
  const [from, to] = artifactRange(run.last_seq);
  useEffect(() => {
    if (log.lacks(from, to)) void log.load(from, to);
  }, [log, from, to]);
  const names = artifactsIn(Array.from({ length: to - from + 1 }, (_, index) => log.event(from + index)));
  if (names.length === 0) return null;
  return (
    <div className="mt-2 flex flex-wrap items-center gap-1.5 text-xs text-ink-dull">
      <span title="The plugin keeps these files in its own folder">Artifacts</span>
      <ul aria-label="Artifacts" className="contents">
        {names.map((name) => (
          <li key={name}>
            <Tag>{name}</Tag>
          </li>
        ))}
      </ul>
    </div>
  );
}
