import { useRef, useState } from "react";
import { exportUrl, logUrl, type RunDetail } from "@/api";
import { DeleteDialog } from "@/components/detail/DeleteDialog";
import { Icon } from "@/components/ui/Icon";
import { Menu, MenuDownload, MenuItem, MenuSeparator } from "@/components/ui/Menu";
import { useShortcuts } from "@/shortcuts";
import { isActive } from "@/views/detail";
import { useChosenEvent } from "./chosenEvent";
import { EditDialog } from "./EditDialog";
import { type Again, isAgentRun } from "./useAgain";

/** What can be done with a run: run it again, fork it, export it, delete it. A viewer can export it. */
export function RunMenu({ run, again }: { run: RunDetail; again: Again | null }) {
  const [dialog, setDialog] = useState<"edit" | "delete" | null>(null);
  const close = () => setDialog(null);
  // The session of an agent cannot be cut: it is continued with a reply.
  const chosenEvent = useChosenEvent(run.id);
  const chosenSeq = isAgentRun(run) ? null : chosenEvent;
  const menuRef = useRef<HTMLDivElement>(null);
  const fork = () => {
    if (chosenSeq !== null) again?.fork(chosenSeq);
  };
  useShortcuts("page", {
    x: () => {
      menuRef.current?.showPopover();
      menuRef.current?.querySelector<HTMLElement>("a")?.focus();
    },
  });
  // Only while the column of the run is active: these start runs, which may cost money.
  useShortcuts(
    "detail",
    again
      ? {
          r: (event) => event.repeat || again.rerun(),
          R: () => setDialog("edit"),
          F: (event) => event.repeat || fork(),
        }
      : {},
  );
  const label = again ? "Rerun" : "Export";
  return (
    <>
      <Menu
        label={label}
        title={again ? "Run again, fork, export, delete" : "Export this run (x)"}
        menuRef={menuRef}
        content={
          <>
            <Icon name={again ? "rerun" : "download"} className="size-3.5 text-icon" />
            <span className="max-md:hidden">{label}</span>
            <Icon name="down" className="size-3 text-icon" />
          </>
        }
      >
        {again && (
          <>
            <MenuItem icon={<Icon name="rerun" className="size-3.5" />} shortcut="r" onSelect={again.rerun}>
              Rerun
            </MenuItem>
            <MenuItem icon={<Icon name="edit" className="size-3.5" />} shortcut="⇧R" onSelect={() => setDialog("edit")}>
              Edit and rerun…
            </MenuItem>
            <MenuItem
              icon={<Icon name="fork" className="size-3.5" />}
              shortcut="⇧F"
              disabled={chosenSeq === null}
              title={forkTitle(run, chosenSeq)}
              onSelect={fork}
            >
              {chosenSeq === null ? "Fork from an event" : `Fork from event ${chosenSeq}`}
            </MenuItem>
            <MenuSeparator />
          </>
        )}
        <MenuDownload href={exportUrl(run.id, "md")} icon={<Icon name="note" className="size-3.5" />} shortcut="x">
          Export Markdown
        </MenuDownload>
        <MenuDownload href={exportUrl(run.id, "html")} icon={<Icon name="web" className="size-3.5" />}>
          Export HTML
        </MenuDownload>
        <MenuDownload href={logUrl(run.id)} icon={<Icon name="download" className="size-3.5" />}>
          Download log
        </MenuDownload>
        {again && !isActive(run.status) && (
          <>
            <MenuSeparator />
            <MenuItem
              icon={<Icon name="trash" className="size-3.5" />}
              isDangerous
              onSelect={() => setDialog("delete")}
            >
              Delete…
            </MenuItem>
          </>
        )}
      </Menu>
      {dialog === "edit" && <EditDialog run={run} onClose={close} />}
      {dialog === "delete" && <DeleteDialog run={run} onClose={close} />}
    </>
  );
}

function forkTitle(run: RunDetail, seq: number | null): string {
  if (isAgentRun(run)) return "The session of an agent cannot be cut; reply to it";
  return seq === null
    ? "Select an event of the transcript first"
    : "Start a new run with what happened up to this event";
}
