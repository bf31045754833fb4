import clsx from "clsx";
import { useRef, useState } from "react";
import type { RunDetail } from "@/api";
import type { Again } from "@/components/again/useAgain";
import { StatusSign } from "@/components/ui/Badge";
import { Icon } from "@/components/ui/Icon";
import { Actions } from "./Actions";
import { Facts } from "./Facts";
import { Figures } from "./Figures";
import { BackToRuns } from "./links";
import { useIsOverflowing } from "./useIsOverflowing";

/** The task of the run, its status, its figures, and the buttons for it. */
export function Header({ run, again }: { run: RunDetail; again: Again | null }) {
  return (
    <header className="shrink-0 px-5 pt-3 max-md:px-4 max-md:pt-2">
      <div className="flex min-h-7 flex-wrap items-start gap-x-2.5">
        <span className="flex h-7 items-center md:hidden">
          <BackToRuns />
        </span>
        <span aria-hidden className="flex h-7 items-center">
          <StatusSign status={run.status} interrupted={run.interrupted} />
        </span>
        <Task task={run.task || run.name} />
        <Actions run={run} again={again} />
      </div>
      <Facts run={run} />
      <Figures run={run} />
    </header>
  );
}

/** The task, on one line until the user expands it; a phone has two. */
function Task({ task }: { task: string }) {
  const headingRef = useRef<HTMLHeadingElement>(null);
  const [isExpanded, setIsExpanded] = useState(false);
  const isOverflowing = useIsOverflowing(headingRef);
  return (
    <div className="flex min-w-0 flex-1 items-start gap-1 py-0.5">
      <h1
        ref={headingRef}
        title={isExpanded ? undefined : task}
        tabIndex={isExpanded ? 0 : undefined}
        className={clsx(
          "min-w-0 text-16/6 font-semibold tracking-[-.01em] break-words whitespace-pre-wrap",
          isExpanded ? "max-h-[50dvh] overflow-y-auto" : "line-clamp-1 max-md:line-clamp-2",
        )}
      >
        {task}
      </h1>
      {(isOverflowing || isExpanded) && (
        <button
          type="button"
          aria-expanded={isExpanded}
          aria-label={isExpanded ? "Show less" : "Show all"}
          title={isExpanded ? "Show less of the task" : "Show all of the task"}
          onClick={() => setIsExpanded(!isExpanded)}
          className="flex size-6 shrink-0 items-center justify-center rounded-1 text-icon hover:bg-bg-hover"
        >
          <Icon name="down" className={clsx("size-3.5", isExpanded && "rotate-180")} />
        </button>
      )}
    </div>
  );
}
