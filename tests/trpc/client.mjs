// Drives the stock client of tRPC for a test: commands are lines of JSON on stdin, and what happens is printed likewise.
import { createInterface } from "node:readline";
import { createTRPCClient, createWSClient, wsLink } from "@trpc/client";
import WS from "ws";

const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const connections = new Map();
const subscriptions = new Map();

function withHeaders(headers) {
  return class extends WS {
    constructor(url) {
      super(url, { headers });
    }
  };
}

const commands = {
  connect({ name, url, token, params, headers, options }) {
    const connectionParams = params ?? (token === undefined ? undefined : { token });
    const client = createWSClient({
      url,
      ...(connectionParams ? { connectionParams: () => connectionParams } : {}),
      ...(headers ? { WebSocket: withHeaders(headers) } : {}),
      retryDelayMs: () => 50,
      onOpen: () => print({ connection: name, event: "open" }),
      onClose: (cause) => print({ connection: name, event: "close", code: cause?.code, reason: cause?.reason }),
      ...options,
    });
    connections.set(name, { client, trpc: createTRPCClient({ links: [wsLink({ client })] }) });
  },
  subscribe({ name, connection = "main", procedure, input, quiet }) {
    const { trpc } = connections.get(connection);
    let count = 0;
    const subscription = trpc.stream[procedure].subscribe(input, {
      onStarted: () => print({ name, event: "started" }),
      onData: (data) => (quiet ? ++count % quiet === 0 && print({ name, event: "count", count }) : print({ name, event: "data", data })),
      onError: (error) =>
        print({ name, event: "error", message: error.message, code: error.data?.code, shape: error.shape }),
      onStopped: () => print({ name, event: "stopped" }),
      onComplete: () => print({ name, event: "complete" }),
    });
    subscriptions.set(name, subscription);
  },
  unsubscribe({ name }) {
    subscriptions.get(name).unsubscribe();
    print({ name, event: "unsubscribed" });
  },
  async query({ name, connection = "main", path }) {
    const { trpc } = connections.get(connection);
    try {
      print({ name, event: "result", data: await path.split(".").reduce((part, key) => part[key], trpc).query() });
    } catch (error) {
      print({ name, event: "error", message: error.message, code: error.data?.code });
    }
  },
  async close({ name }) {
    await connections.get(name).client.close();
    print({ connection: name, event: "closed" });
  },
};

createInterface({ input: process.stdin }).on("line", (line) => {
  const { command, ...fields } = JSON.parse(line);
  commands[command](fields);
}).on("close", () => process.exit(0));
print({ event: "ready" });
