/** The kinds of tools that agents have, by the names they give them, and their icons. */
import type { IconName } from "@/components/ui/Icon";

const KINDS: readonly (readonly [IconName, RegExp])[] = [
  ["todo", /^(todowrite|todo_list|todoread|update_plan|write_todos|taskcreate|taskupdate|plan)$/],
  ["agent", /^(agent|task|spawn_agent|subagent|delegate|run_worker)$/],
  [
    "term",
    /^(bash|shell|exec|exec_command|local_shell|run_shell_command|run_command|command|powershell|killshell|bashoutput|terminal)$/,
  ],
  [
    "edit",
    /^(edit|write|multiedit|notebookedit|apply_patch|patch|replace|write_file|create|create_file|str_replace.*|file_change|edit_file)$/,
  ],
  ["file", /^(read|read_file|view|cat|open_file|read_many_files|notebookread|list|ls|list_directory|view_image)$/],
  ["search", /^(grep|glob|search|find|rg|grep_search|file_search|search_file_content|toolsearch|codebase_search)$/],
  ["web", /^(webfetch|websearch|web_fetch|web_search|fetch|browser.*|google_web_search)$/],
  ["waiting", /^(ask|askuserquestion|ask_user|question)$/],
  ["note", /^(update_summary|log_question|record_decision|submit_result)$/],
];

/** Return the icon of a tool. The tools of MCP servers are named `mcp__server__tool`: the last part is the tool. */
export function toolIcon(name: string): IconName {
  const plain = name.toLowerCase().replace(/^mcp__.+?__/, "");
  return KINDS.find(([, pattern]) => pattern.test(plain))?.[0] ?? "tool";
}

/** Whether the tool starts a sub-agent. */
export const isAgentTool = (name: string) => toolIcon(name) === "agent";

/** Whether the tool only reads files or searches them. */
export const isReadTool = (name: string) => {
  const icon = toolIcon(name);
  return icon === "file" || icon === "search";
};
