import { afterEach, describe, expect, it, vi } from "vitest";
import { isTransient, Problem } from "@/api";
import { dataOf, client } from "@/api/http";

const asked = () => dataOf(client.GET("/api/channels")).catch((error: unknown) => error as Problem);
const answers = (answer: () => Response) => vi.stubGlobal("fetch", () => Promise.resolve(answer()));

afterEach(() => vi.unstubAllGlobals());

describe("what the server says", () => {
  it("is given as it is", async () => {
    answers(() => Response.json({ channels: [] }));
    expect(await asked()).toEqual({ channels: [] });
  });

  it("is a problem where it is no JSON, and another one than that it says nothing", async () => {
    answers(() => new Response('{"channels": [', { headers: { "Content-Type": "application/json" } }));
    expect(await asked()).toMatchObject({ code: "unreadable", status: 200 });
    answers(() => {
      throw new TypeError("no network");
    });
    expect(await asked()).toMatchObject({ code: "unreachable", status: 0 });
  });

  it("is a problem with its own words where it refuses", async () => {
    const error = { code: "store_error", message: "the database is locked", hint: "wait" };
    answers(() => Response.json({ error }, { status: 503 }));
    expect(await asked()).toMatchObject({ ...error, status: 503 });
  });

  it("may be another thing when it is asked again, unless it means it", () => {
    const passing = ["unreachable", "unreadable", "run_not_found"].map((code) =>
      isTransient(new Problem(code, "", null, 0)),
    );
    expect([...passing, isTransient(null)]).toEqual([true, true, false, false]);
  });
});
