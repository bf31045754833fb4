/** What a run does now. */
import type { Run } from "@/api";
import { oneLine } from "./json";

/** Return what a run does now. A step with the name of the run, such as that of an agent, says nothing. */
export function activityText({ activity, name }: Pick<Run, "activity" | "name">): string | null {
  if (activity === null || (activity.name === name && !activity.preview)) return null;
  return oneLine(`${activity.name} ${activity.preview}`);
}
