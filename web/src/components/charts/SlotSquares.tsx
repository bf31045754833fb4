import clsx from "clsx";
import type { HostRun } from "@/api";
import { RunLink } from "@/components/charts/RunLink";
import type { Slots } from "@/views/fleet";

/**
 * One square per slot, colored by the run in it. The squares are a picture: a text beside them says the same, and the
 * list of runs below has the links for the keyboard.
 */
export function SlotSquares({ slots: { squares, hidden } }: { slots: Slots }) {
  return (
    <span aria-hidden className="slots">
      {squares.map((run, index) =>
        run === null ? (
          <i key={index} />
        ) : (
          <RunLink
            key={run.run_id}
            runId={run.run_id}
            title={titleOf(run)}
            tabIndex={-1}
            className={clsx("used", run.status)}
          />
        ),
      )}
      {hidden > 0 && <span className="m3">+{hidden}</span>}
    </span>
  );
}

const titleOf = ({ task, worker, status }: HostRun) => `${task || worker} · ${worker} · ${status}`;
