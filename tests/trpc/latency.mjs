// Subscribes with the stock client of tRPC, and prints how long each tool call took to arrive, in milliseconds.
// The name of a tool is the time of its call, in nanoseconds.
import { createTRPCClient, createWSClient, wsLink } from "@trpc/client";

const [url, token, expected] = process.argv.slice(2);
const client = createWSClient({ url, connectionParams: () => ({ token }) });
const late = [];
createTRPCClient({ links: [wsLink({ client })] }).stream.agentEvents.subscribe(undefined, {
  onStarted: () => console.log("ready"),
  onData: (event) => {
    const now = performance.timeOrigin + performance.now();
    if (event.type === "agent.tool_call") late.push(now - Number(BigInt(event.payload.tool.name) / 1000n) / 1000);
    if (late.length === Number(expected)) {
      console.log(JSON.stringify(late));
      process.exit(0);
    }
  },
});
