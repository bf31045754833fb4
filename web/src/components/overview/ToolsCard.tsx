import type { Stats } from "@/api";
import { PartsBar } from "@/components/charts/Meter";
import { Icon } from "@/components/ui/Icon";
import { failedShare, isFailingOften } from "@/views/overview";
import { toolIcon } from "@/views/toolIcons";

/** The tools that agents called most, with the share of calls that failed. */
export function ToolsCard({ stats: { tools } }: { stats: Stats }) {
  const calls = tools.reduce((sum, tool) => sum + tool.calls, 0);
  const most = Math.max(0, ...tools.map((tool) => tool.calls));
  return (
    <section aria-labelledby="tools" className="card">
      <header>
        <h2 id="tools">Tools</h2>
        {calls > 0 && <span className="m3 num">{calls === 1 ? "1 call" : `${calls.toLocaleString("en")} calls`}</span>}
      </header>
      {tools.length === 0 ? (
        <p className="empty">No tool was called.</p>
      ) : (
        <table className="tools" aria-labelledby="tools">
          <colgroup>
            <col className="tool-name" />
            <col />
            <col className="tool-calls" />
            <col className="tool-failed" />
          </colgroup>
          <thead className="sr-only">
            <tr>
              <th scope="col">Tool</th>
              <th scope="col">Share</th>
              <th scope="col">Calls</th>
              <th scope="col">Failed</th>
            </tr>
          </thead>
          <tbody>
            {tools.map((tool) => (
              <tr key={tool.name}>
                <th scope="row" title={tool.name}>
                  <Icon name={toolIcon(tool.name)} className="size-3.5 text-icon" />
                  <span className="cut">{tool.name}</span>
                </th>
                <td>
                  <PartsBar
                    total={most}
                    parts={[
                      { value: tool.calls - tool.failed, color: "var(--n-8)" },
                      { value: tool.failed, color: "var(--failed)" },
                    ]}
                  />
                </td>
                <td className="num">{tool.calls.toLocaleString("en")}</td>
                <td className={isFailingOften(tool) ? "num t-failed" : "num m3"} title={`${tool.failed} failed`}>
                  {failedShare(tool)}
                  <span className="sr-only"> failed</span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
