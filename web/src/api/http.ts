/** The HTTP client of the page, and errors as the server reports them. */
import createClient from "openapi-fetch";
import { withVisibleControls } from "@/views/deceptiveText";
import type { paths } from "./schema";

export const client = createClient<paths>({
  baseUrl: typeof location === "undefined" ? "http://localhost" : location.origin,
  // Looked up for each request, so that tests can replace it.
  fetch: async (request) => withReadableText(await globalThis.fetch(request)),
});

/** Make deceptive characters in a JSON response visible: everything the page shows is untrusted. */
async function withReadableText(response: Response): Promise<Response> {
  if (!response.headers.get("Content-Type")?.startsWith("application/json")) return response;
  const { status, statusText, headers } = response;
  return new Response(withVisibleControls(await response.text()), { status, statusText, headers });
}

/** An error with a message for users; programs go by `code`. */
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

/** Whether the error may be gone at the next request: it does not come from the server's own logic. */
export const isTransient = (error: unknown) =>
  error instanceof Problem && (error.code === "unreachable" || error.code === "unreadable");

interface FetchResult<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Return the data of a response; throw a `Problem` if the request failed. */
export async function dataOf<T>(request: Promise<FetchResult<T>>): Promise<NonNullable<T>> {
  let response: FetchResult<T>;
  try {
    response = await request;
  } catch (error) {
    // A successful response that is not JSON; for failed responses openapi-fetch does not throw.
    if (error instanceof SyntaxError)
      throw new Problem(
        "unreadable",
        "The server's response is not valid JSON.",
        "Check whether a proxy changes the server's responses.",
        200,
      );
    throw new Problem("unreachable", "The server cannot be reached.", "Is `shopfloor up` still running?", 0);
  }
  if (response.data !== undefined && response.data !== null) return response.data;
  throw problemOf(response.error, response.response.status);
}

export function problemOf(error: unknown, status: number): Problem {
  if (error instanceof Problem) return error;
  const body = (error as { error?: { code?: string; message?: string; hint?: string | null } } | undefined)?.error;
  if (status === 401) {
    return new Problem(
      "unauthorized",
      "You are not logged in.",
      "Open a login link. `shopfloor login` prints one.",
      status,
    );
  }
  return new Problem(
    body?.code ?? "unknown",
    body?.message ?? `The server answered with status ${status}.`,
    body?.hint ?? null,
    status,
  );
}

/** End the session of this browser, then open the login page. Does nothing if the server cannot be reached. */
export async function logOut(): Promise<void> {
  const response = await fetch("/logout", { method: "POST" }).catch(() => undefined);
  if (response?.ok || response?.status === 401) location.assign("/login");
}
