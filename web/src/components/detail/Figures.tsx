import { useQuery } from "@tanstack/react-query";
import clsx from "clsx";
import type { ReactNode } from "react";
import { type RunDetail, spansQuery } from "@/api";
import { Duration } from "@/components/ui/Time";
import { formatCount, formatMoney, tokenShares, totalTokens } from "@/views/amounts";
import { usageText } from "@/views/detail";

const UNKNOWN = "–";

/** The numbers of a run, each in a column of fixed width: they change while the run is active, and nothing else moves. */
export function Figures({ run }: { run: RunDetail }) {
  // The timeline fetches the spans; here they are only read.
  const spans = useQuery({ ...spansQuery(run.id), enabled: false }).data;
  const failed = spans?.calls_failed ?? 0;
  return (
    <dl
      aria-label="Figures"
      className="mt-2.5 flex overflow-x-auto border-t border-border whitespace-nowrap tabular-nums [scrollbar-width:none]"
      tabIndex={0}
    >
      <Cost run={run} />
      <Tokens run={run} />
      <Figure name="Time" className="w-18">
        <b title="Duration">
          {run.status === "queued" || run.interrupted ? (
            UNKNOWN
          ) : (
            <Duration from={run.started_at} to={run.completed_at} ms={run.duration_ms} />
          )}
        </b>
      </Figure>
      <Figure name="Calls" className="w-20">
        <b>{run.tool_calls.toLocaleString("en")}</b>
        {failed > 0 && <span className="text-failed-text">{failed.toLocaleString("en")} failed</span>}
      </Figure>
      <Figure name="Files" className="w-26">
        <b>{spans?.files_changed ?? UNKNOWN}</b>
        {spans && spans.files_changed > 0 && (
          <span title="Lines added and removed, as far as the agent reports them">
            <span className="text-done-text">+{formatCount(spans.lines_added)}</span>{" "}
            <span className="text-failed-text">−{formatCount(spans.lines_removed)}</span>
          </span>
        )}
      </Figure>
      {spans?.context_tokens != null && (
        <Figure name="Context" className="max-wide:hidden">
          <b title="Tokens that the newest message of the agent was given">{formatCount(spans.context_tokens)}</b>
        </Figure>
      )}
    </dl>
  );
}

function Cost({ run }: { run: RunDetail }) {
  const hasOwn = run.cost_usd !== null && (run.cost_usd > 0 || run.children === 0);
  const tree = run.children > 0 && run.tree_cost_usd !== null ? formatMoney(run.tree_cost_usd) : null;
  const own = hasOwn ? formatMoney(run.cost_usd) : null;
  return (
    <Figure name="Cost" className={run.children > 0 ? "w-44" : "w-16"}>
      <b title="Cost of this run">{own ?? tree ?? UNKNOWN}</b>
      {tree !== null && (
        <span title="Cost including all runs that it called">
          {own === null ? "sub-runs" : `with sub-runs ${tree}`}
        </span>
      )}
    </Figure>
  );
}

function Tokens({ run }: { run: RunDetail }) {
  const own = totalTokens(run.usage);
  const usage = own > 0 ? run.usage : run.tree_usage;
  const total = totalTokens(usage);
  const shares = tokenShares(usage);
  return (
    <Figure name="Tokens" className="w-44 wide:w-[270px]" title={total > 0 ? usageText(run) : undefined}>
      <b>{total > 0 ? formatCount(total) : UNKNOWN}</b>
      {total > 0 && (
        <>
          <span aria-hidden className="flex h-1 w-23 self-center overflow-hidden rounded-[2px] bg-n-5 max-wide:hidden">
            <i className="h-full bg-cat-2" style={{ width: `${shares.cached * 100}%` }} />
            <i className="h-full bg-n-8" style={{ width: `${shares.fresh * 100}%` }} />
            <i className="h-full bg-cat-1" style={{ width: `${shares.output * 100}%` }} />
          </span>
          <span>
            {own === 0 && "sub-runs · "}
            {Math.round(shares.cached * 100)} % cached · {formatCount(usage.output)} out
          </span>
        </>
      )}
    </Figure>
  );
}

interface FigureProps {
  name: string;
  className?: string;
  title?: string | undefined;
  children: ReactNode;
}

function Figure({ name, className, title, children }: FigureProps) {
  return (
    <div
      title={title}
      className={clsx(
        "mr-4 box-content shrink-0 overflow-hidden border-r border-border py-2 pr-4 last:border-0 max-wide:mr-2.5 max-wide:pr-2.5",
        className,
      )}
    >
      <dt className="text-11/[14px] text-text-3">{name}</dt>
      <dd className="flex h-5 items-baseline gap-1.5 text-12/5 text-text-3 [&>b]:text-[15px] [&>b]:font-semibold [&>b]:tracking-[-.01em] [&>b]:text-text">
        {children}
      </dd>
    </div>
  );
}
