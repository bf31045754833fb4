/** The only folder that talks to the server. */
export { forgetRuns, patchRuns } from "./caches";
export * from "./hooks";
export { isPassing, logOut, Problem, problemOf } from "./http";
export { pollMs, startLive, theLive, useConnection, type Connection } from "./live";
export * from "./log";
export * from "./runs";
export * from "./types";
export type { Typing } from "@/views/typing";
