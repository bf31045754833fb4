import clsx from "clsx";
import { useRef, useState } from "react";
import type { RunDetail } from "@/api";
import { StatusBadge, Tag } from "@/components/ui/Badge";
import { Trail } from "@/components/again/Trail";
import { Actions } from "./Actions";
import { Facts } from "./Facts";
import { BackToRuns } from "./links";
import { useIsOverflowing } from "./useIsOverflowing";

/** The task of the run, its status, and the buttons for it. */
export function Header({ run }: { run: RunDetail }) {
  return (
    <header className="flex shrink-0 flex-col gap-1.5 px-3 py-2.5 @3xl:px-4">
      <div className="text-xs md:hidden">
        <BackToRuns />
      </div>
      <Task task={run.task || run.name} />
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1.5">
        <span className="flex flex-wrap items-center gap-1.5">
          <StatusBadge status={run.status} interrupted={run.interrupted} />
          <Tag title="Worker type">{run.worker_type}</Tag>
          {run.provider !== null && run.provider !== run.worker_type && <Tag title="Provider">{run.provider}</Tag>}
          {run.model !== null && <Tag title="Model">{run.model}</Tag>}
        </span>
        <Actions run={run} />
      </div>
      <Facts run={run} />
      <Trail run={run} />
    </header>
  );
}

/** The task, cut to three lines until the user expands it. */
function Task({ task }: { task: string }) {
  const headingRef = useRef<HTMLHeadingElement>(null);
  const [isExpanded, setIsExpanded] = useState(false);
  const isOverflowing = useIsOverflowing(headingRef);
  return (
    <div>
      <h1
        ref={headingRef}
        title={isExpanded ? undefined : task}
        tabIndex={isExpanded ? 0 : undefined}
        className={clsx(
          "text-base/6 font-semibold break-words whitespace-pre-wrap",
          isExpanded ? "max-h-[50dvh] overflow-y-auto" : "line-clamp-3",
        )}
      >
        {task}
      </h1>
      {(isOverflowing || isExpanded) && (
        <button
          type="button"
          onClick={() => setIsExpanded(!isExpanded)}
          className="text-xs text-accent hover:underline"
        >
          {isExpanded ? "Show less" : "Show all"}
        </button>
      )}
    </div>
  );
}
