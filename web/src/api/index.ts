/** The only folder that talks to the server. */
export { forgetRuns, patchRuns } from "./cacheUpdates";
export * from "./useLog";
export { isPassing, logOut, Problem, problemOf } from "./http";
export { pollMs, startLive, theLive, useConnection, type Connection } from "./liveStream";
export * from "./runLog";
export * from "./requests";
export * from "./types";
export type { Typing } from "@/views/streamingText";
