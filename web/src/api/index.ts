/** The only folder that talks to the server. */
export { removeRuns as forgetRuns, patchRuns } from "./cacheUpdates";
export * from "./useLog";
export { isTransient as isPassing, logOut, Problem, problemOf } from "./http";
export {
  pollMs,
  startLiveStream as startLive,
  liveStream as theLive,
  useConnection,
  type Connection,
} from "./liveStream";
export * from "./runLog";
export * from "./requests";
export * from "./types";
export type { StreamingBlock as Typing } from "@/views/streamingText";
