import { afterEach, describe, expect, it, vi } from "vitest";
import { isTransient, Problem } from "@/api";
import { dataOf, client } from "@/api/http";

const request = () => dataOf(client.GET("/api/channels")).catch((error: unknown) => error as Problem);
const respondWith = (answer: () => Response) => vi.stubGlobal("fetch", () => Promise.resolve(answer()));

afterEach(() => vi.unstubAllGlobals());

describe("what the server says", () => {
  it("is given as it is", async () => {
    respondWith(() => Response.json({ channels: [] }));
    expect(await request()).toEqual({ channels: [] });
  });

  it("is a problem where it is no JSON, and another one than that it says nothing", async () => {
    respondWith(() => new Response('{"channels": [', { headers: { "Content-Type": "application/json" } }));
    expect(await request()).toMatchObject({ code: "unreadable", status: 200 });
    respondWith(() => {
      throw new TypeError("no network");
    });
    expect(await request()).toMatchObject({ code: "unreachable", status: 0 });
  });

  it("is a problem with its own words where it refuses", async () => {
    const error = { code: "store_error", message: "the database is locked", hint: "wait" };
    respondWith(() => Response.json({ error }, { status: 503 }));
    expect(await request()).toMatchObject({ ...error, status: 503 });
  });

  it("may be another thing when it is asked again, unless it means it", () => {
    const passing = ["unreachable", "unreadable", "run_not_found"].map((code) =>
      isTransient(new Problem(code, "", null, 0)),
    );
    expect([...passing, isTransient(null)]).toEqual([true, true, false, false]);
  });
});
