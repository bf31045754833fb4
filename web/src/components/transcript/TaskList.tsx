import clsx from "clsx";
import { Icon } from "@/components/ui/Icon";
import type { Task } from "@/views/taskList";

const LOOKS: Record<Task["state"], { icon: "boxOn" | "running" | "box"; word: string; color: string; text: string }> = {
  done: { icon: "boxOn", word: "done", color: "text-done", text: "text-text-3 line-through decoration-n-7" },
  current: { icon: "running", word: "in progress", color: "text-running", text: "font-medium" },
  open: { icon: "box", word: "open", color: "text-queued", text: "text-text-2" },
};

/** The tasks of an agent, as a checklist. */
export function TaskList({ tasks }: { tasks: readonly Task[] }) {
  return (
    <ul aria-label="Tasks" className="border-t border-border py-1.5 pr-3 pl-[30px]">
      {tasks.map(({ text, state }, n) => {
        const look = LOOKS[state];
        return (
          <li key={n} className="flex items-start gap-2 leading-[21px]">
            <Icon name={look.icon} label={look.word} className={clsx("mt-[3.5px] size-3.5", look.color)} />
            <span className={clsx("min-w-0 [overflow-wrap:anywhere]", look.text)}>{text}</span>
          </li>
        );
      })}
    </ul>
  );
}

/** How many of the tasks are done, as a bar. */
export function ProgressBar({ tasks }: { tasks: readonly Task[] }) {
  const done = tasks.filter((task) => task.state === "done").length;
  return (
    <span aria-hidden className="flex h-1 w-16 overflow-hidden rounded-[2px] bg-n-5 max-md:hidden">
      <i className="h-full bg-done" style={{ width: `${(done / tasks.length) * 100}%` }} />
    </span>
  );
}
