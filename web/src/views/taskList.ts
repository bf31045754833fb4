/** Lists of tasks that agents keep: as items with a state, whatever the agent calls them. */
import { isRecord, isText } from "./json";
import { toolIcon } from "./toolIcons";

export interface Task {
  readonly text: string;
  readonly state: "done" | "current" | "open";
}

const LISTS = ["todos", "items", "plan"];

/** Return the tasks that a call sets; null if the call sets none. */
export function tasksOf(name: string, input: unknown): readonly Task[] | null {
  if (toolIcon(name) !== "todo" || !isRecord(input)) return null;
  const list = LISTS.map((field) => input[field]).find((value) => Array.isArray(value) && value.length > 0);
  if (!Array.isArray(list)) return null;
  const tasks = list.map(taskOf);
  return tasks.every((task) => task !== null) ? tasks : null;
}

/** How many of the tasks are done: `1 of 3`. */
export const progressText = (tasks: readonly Task[]): string =>
  `${tasks.filter((task) => task.state === "done").length} of ${tasks.length}`;

function taskOf(item: unknown): Task | null {
  if (!isRecord(item)) return null;
  const text = item["content"] ?? item["text"] ?? item["step"] ?? item["description"] ?? item["title"];
  if (!isText(text)) return null;
  const { status, completed } = item;
  const isDone = completed === true || status === "completed" || status === "done";
  return { text, state: isDone ? "done" : status === "in_progress" ? "current" : "open" };
}
