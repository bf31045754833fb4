/** The server's types, under the names that the page uses. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Run = Schemas["WorkerItem"];
export type RunDetail = Schemas["WorkerDetail"];
export type RunList = Schemas["WorkerList"];
export type Status = Run["status"];
export type TimelineRow = Schemas["WorkerEvent"];
export type PendingCall = Schemas["Awaited"];
export type WaitingItem = Schemas["WaitingItem"];
export type WaitingList = Schemas["WaitingList"];
export type Worker = Schemas["WorkerInfo"];
export type Provider = Schemas["ProviderItem"];
export type ProviderLimit = Schemas["ObservedLimit"];
export type ProviderList = Schemas["ProviderList"];
export type Host = Schemas["HostItem"];
export type HostStatus = Host["status"];
export type HostRun = Schemas["HostRunItem"];
export type Queue = Schemas["QueueOverview"];
export type QueueGroup = Schemas["QueueGroupItem"];
export type QueueReason = QueueGroup["reason"];
export type Stats = Schemas["Stats"];
export type StatsDay = Schemas["StatsDay"];
export type FailureGroup = Schemas["FailureStats"];
export type RankedRun = Schemas["RankedRun"];
export type Plugin = Schemas["PluginInfo"];
export type Channel = Schemas["ChannelItem"];
export type Client = Schemas["RunClient"];
export type Usage = Schemas["TokenUsage"];
export type Span = Schemas["Span"];
export type Spans = Schemas["SpanList"];
export type SearchHits = Schemas["FoundEvents"];

/** An event of a log. If the server truncated the event, `cut` is its full size. */
export type LogEvent = Schemas["LogEvent"];
export type EventOf<T extends LogEvent["type"]> = Extract<LogEvent, { type: T }>;
export type Block = EventOf<"message.assistant">["payload"]["blocks"][number];
export type FileChange = Schemas["FileChange"];
export type Note = Schemas["Note"];

/** New text of a message that is being generated; never in a log. */
export type Delta = Schemas["Delta"];
