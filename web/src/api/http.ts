/** Asking the server, and what it says where it cannot do what was asked. */
import createClient from "openapi-fetch";
import { withVisibleControls } from "@/views/directions";
import type { paths } from "./schema";

export const client = createClient<paths>({
  baseUrl: typeof location === "undefined" ? "http://localhost" : location.origin,
  // Looked up when it is needed, so that tests can answer.
  fetch: async (request) => readable(await globalThis.fetch(request)),
});

/** The answer, where it is JSON with its deceptive characters made visible: whatever the page shows is untrusted. */
async function readable(answer: Response): Promise<Response> {
  if (!answer.headers.get("Content-Type")?.startsWith("application/json")) return answer;
  const { status, statusText, headers } = answer;
  return new Response(withVisibleControls(await answer.text()), { status, statusText, headers });
}

/** What went wrong, in words for people; `code` is what a program goes by. */
export class Problem extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly hint: string | null,
    readonly status: number,
  ) {
    super(message);
    this.name = "Problem";
  }
}

/** Whether it is nothing that the server means: asked again, it may be over. */
export const isPassing = (error: unknown) =>
  error instanceof Problem && (error.code === "unreachable" || error.code === "unreadable");

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** What was answered, or the `Problem` that was. */
export async function answered<T>(asked: Promise<Answer<T>>): Promise<NonNullable<T>> {
  let answer: Answer<T>;
  try {
    answer = await asked;
  } catch (error) {
    // It answered, but not with what it promises; of a failed answer it would have said so itself.
    if (error instanceof SyntaxError)
      throw new Problem(
        "unreadable",
        "The server's answer cannot be read: it is no JSON.",
        "Is something else between here and the server?",
        200,
      );
    throw new Problem("unreachable", "The server cannot be reached.", "Is `shopfloor up` still running?", 0);
  }
  if (answer.data !== undefined && answer.data !== null) return answer.data;
  throw problemOf(answer.error, answer.response.status);
}

export function problemOf(said: unknown, status: number): Problem {
  if (said instanceof Problem) return said;
  const told = (said as { error?: { code?: string; message?: string; hint?: string | null } } | undefined)?.error;
  if (status === 401) {
    return new Problem(
      "unauthorized",
      "You are not logged in here.",
      "Open a login link: `shopfloor login` prints one.",
      status,
    );
  }
  return new Problem(
    told?.code ?? "unknown",
    told?.message ?? `The server answered with ${status}.`,
    told?.hint ?? null,
    status,
  );
}

/** Ends the session of this browser, then shows the login page. Where the server cannot be reached, nothing changes. */
export async function logOut(): Promise<void> {
  const answer = await fetch("/logout", { method: "POST" }).catch(() => undefined);
  if (answer?.ok || answer?.status === 401) location.assign("/login");
}
