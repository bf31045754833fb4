/** The only folder that talks to the server. */
export { removeRuns, patchRuns } from "./cacheUpdates";
export * from "./useLog";
export { isTransient, logOut, Problem, problemOf } from "./http";
export {
  pollMs,
  startLiveStream,
  getLiveStream,
  useConnection,
  useIsDisconnect,
  useKnownAt,
  useMissedEvents,
  type Connection,
} from "./liveStream";
export * from "./runLog";
export * from "./fleet";
export * from "./fleetEvents";
export * from "./requests";
export * from "./stats";
export * from "./types";
export type { StreamingBlock } from "@/views/streamingText";
