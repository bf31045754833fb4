// A worker plugin in JavaScript, without packages: `node server.mjs PORT`. Exit code 2 means that the port is taken.
import { randomUUID, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const secret = process.env.SHOPFLOOR_PLUGIN_SECRET;
const jobs = new Map();

class InvalidParams extends Error {}

function text(params, name) {
  if (typeof params[name] !== "string" || params[name] === "") {
    throw new InvalidParams(`${name} must be a text that is not empty`);
  }
  return params[name];
}

function jobOf(params) {
  const job = jobs.get(text(params, "jobId"));
  if (!job) throw new InvalidParams(`unknown job '${params.jobId}'`);
  return job;
}

/** Do the job. Replace this function with your own. */
async function work(task) {
  return task.replace(/\b\p{L}/gu, (letter) => letter.toUpperCase());
}

function end(job, fields) {
  if (job.status === "running") Object.assign(job, fields, { completedAt: new Date().toISOString() });
}

/** Match a glob with `*`, `?` and `[...]`. */
function glob(pattern) {
  const source = pattern.replace(/[.+^${}()|\\]/g, "\\$&").replace(/\*/g, ".*").replace(/\?/g, ".");
  return new RegExp(`^${source}$`, "s");
}

const methods = {
  initialize: () => ({
    protocolVersion: "2025-06-18",
    capabilities: { tools: {}, worker: {} },
    serverInfo: { name: "node-example", version: "0.1.0" },
  }),
  "tools/list": () => ({ tools: [] }),
  "tools/call": (params) => {
    throw new InvalidParams(`there is no tool '${params.name}'`);
  },
  "worker/dispatch": (params) => {
    const description = text(params, "description");
    const task = text(params, "task");
    // The host names its run: a dispatch that is repeated after a crash is the same job.
    const config = params.config ?? {};
    const jobId = "run_id" in Object(config) ? text(config, "run_id") : randomUUID();
    if (!jobs.has(jobId)) {
      const startedAt = new Date().toISOString();
      const empty = { summary: null, questions: null, decisions: null, error: null, completedAt: null };
      const job = { jobId, status: "running", description, startedAt, ...empty };
      jobs.set(jobId, job);
      // An exception of the work is the failure of the job.
      Promise.resolve(task).then(work).then(
        (output) => end(job, { status: "completed", output }),
        (error) => end(job, { status: "failed", error: String(error) }),
      );
    }
    return { jobId };
  },
  "worker/list": ({ detail = "simple", filter = "*" }) => ({
    jobs: [...jobs.values()]
      .filter((job) => glob(filter).test(job.description))
      .map(({ jobId, status, description, summary }) =>
        detail === "detailed" ? { jobId, status, description, summary } : { jobId, status },
      ),
  }),
  "worker/status": (params) => {
    const { output: _, ...state } = jobOf(params);
    return state;
  },
  "worker/result": (params) => {
    const job = jobOf(params);
    if (job.status !== "completed") throw new InvalidParams(`job ${job.jobId} is ${job.status}`);
    return { jobId: job.jobId, output: job.output, artifacts: null };
  },
  "worker/cancel": (params) => {
    const job = jobOf(params);
    end(job, { status: "cancelled" });
    return { jobId: job.jobId, status: job.status };
  },
  "worker/delete": (params) => {
    const job = jobOf(params);
    if (!["completed", "cancelled"].includes(job.status)) {
      throw new InvalidParams(`job ${job.jobId} is ${job.status}; only completed and cancelled jobs can be deleted`);
    }
    jobs.delete(job.jobId);
    return { jobId: job.jobId, deleted: true };
  },
};

function answer(body) {
  const error = (id, code, message) => ({ jsonrpc: "2.0", id, error: { code, message } });
  let request;
  try {
    request = JSON.parse(body);
  } catch {
    return error(null, -32700, "the request is not JSON");
  }
  if (typeof request?.method !== "string") return error(null, -32600, "not a JSON-RPC request");
  if (!("id" in request)) return null;
  const method = Object.hasOwn(methods, request.method) ? methods[request.method] : undefined;
  if (!method) return error(request.id, -32601, `there is no method '${request.method}'`);
  const params = request.params ?? {};
  if (typeof params !== "object" || Array.isArray(params)) return error(request.id, -32602, "params must be an object");
  try {
    return { jsonrpc: "2.0", id: request.id, result: method(params) };
  } catch (wrong) {
    return error(request.id, wrong instanceof InvalidParams ? -32602 : -32603, wrong?.message ?? String(wrong));
  }
}

function isAllowed(request) {
  if (!secret) return true;
  const [sent, expected] = [request.headers.authorization ?? "", `Bearer ${secret}`].map((each) => Buffer.from(each));
  return sent.length === expected.length && timingSafeEqual(sent, expected);
}

const server = createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    if (!isAllowed(request)) return response.writeHead(401).end();
    const message = answer(Buffer.concat(parts).toString());
    if (message === null) return response.writeHead(202).end();
    response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(message));
  });
});
server.on("error", (error) => {
  console.error(`cannot listen on port ${process.argv[2]}: ${error.message}`);
  process.exit(error.code === "EADDRINUSE" ? 2 : 1);
});
server.listen(Number(process.argv[2]), "127.0.0.1");
