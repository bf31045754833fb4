import { describe, expect, test } from "vitest";
import type { Run } from "../src/api/types";
import { channelOptions, findWorkers, totalText, workerOptions } from "../src/views/filterOptions";
import {
  type Branch,
  cardNote,
  taskHits,
  heightOf,
  indexOf,
  lastVisible,
  nextRun,
  snippetPieces,
  rowsOf,
  runsOf,
  showsElapsed,
} from "../src/views/runRows";
import { aRun } from "./runs";

const run = (id: string, change: Partial<Run> = {}) => aRun({ id, ...change });
const NONE = new Map<string, Branch>();
const outline = (rows: ReturnType<typeof rowsOf>) =>
  rows.map((row) => `${"  ".repeat(row.depth)}${row.kind === "run" ? row.key : row.kind}`);

describe("the rows of a list", () => {
  test("are its runs", () => {
    const rows = rowsOf([run("a"), run("b")], new Set(), NONE);
    expect(outline(rows)).toEqual(["a", "b"]);
    expect([indexOf(rows, "b"), indexOf(rows, "c"), indexOf(rows, undefined)]).toEqual([1, -1, -1]);
  });

  test("have each run once, however many pages have it", () => {
    const page = (...ids: string[]) => ({ workers: ids.map((id) => run(id)), total: 3, next: null });
    expect(runsOf([page("a", "b"), page("b", "c")]).map((one) => one.id)).toEqual(["a", "b", "c"]);
  });

  test("are higher where something was found", () => {
    const [plain, found] = rowsOf([run("a"), run("b", { snippet: "[b]" })], new Set(), NONE);
    expect([heightOf(plain), heightOf(found)]).toEqual([48, 82]);
  });
});

describe("the second line of a card", () => {
  const card = (change: Parameters<typeof aRun>[0]) =>
    cardNote(run("a", { name: "triage", model: "m-1", channel_id: "c", channel_name: "#dev", ...change }), null);

  test("tells what executes the run, and where it came from", () => {
    expect(card({ status: "done" })).toEqual({ text: "triage · m-1 · #dev", tone: null });
    expect(card({ status: "running", model: null })).toEqual({ text: "triage · #dev", tone: null });
  });

  test("tells why to look at it, if there is a reason", () => {
    expect(card({ status: "waiting", asks: ["Which\none?"] })).toEqual({ text: "Which one? · #dev", tone: "waiting" });
    expect(card({ status: "waiting", asks: null, waits_for: ["run"] }).text).toBe("waits for a sub-run · #dev");
    const error = { code: "command_failed", message: "exit 1:\nno key" };
    expect(card({ status: "failed", error })).toEqual({ text: "exit 1: no key · #dev", tone: "failed" });
    expect(cardNote(run("a", { status: "queued", queue_reason: "no free slot" }), null).text).toBe(
      "no free slot · page",
    );
  });

  test("tells what a running run does now, unless that is only its name", () => {
    const bash = { name: "Bash", preview: "go test\n./..." };
    expect(card({ status: "running", activity: bash })).toEqual({ text: "Bash go test ./... · #dev", tone: null });
    expect(card({ status: "running", activity: { name: "Build", preview: "" } }).text).toBe("Build · #dev");
    expect(card({ status: "running", activity: { name: "triage", preview: "" } }).text).toBe("triage · m-1 · #dev");
    expect(card({ status: "running", interrupted: true, activity: bash }).text).toBe("triage · m-1 · #dev");
  });

  test("names the owner where the list has the runs of all, unless the worker has the same name", () => {
    expect(cardNote(run("a", { status: "done", name: "x" }), "ada").text).toBe("x · page · ada");
    expect(cardNote(run("a", { status: "done", name: "x" }), "x").text).toBe("x · page");
  });
});

describe("the rows of a tree", () => {
  const parent = run("p", { children: 2 });
  const child = run("c", { children: 1 });

  test("are closed at first", () => expect(outline(rowsOf([parent, run("q")], new Set(), NONE))).toEqual(["p", "q"]));

  test("have what a run called below it, however deep, in the order in which it started", () => {
    const branches = new Map<string, Branch>([
      ["p", { runs: [run("d"), child], state: "complete" }],
      ["c", { runs: [run("e")], state: "complete" }],
    ]);
    expect(outline(rowsOf([parent, run("q")], new Set(["p", "c"]), branches))).toEqual([
      "p",
      "  c",
      "    e",
      "  d",
      "q",
    ]);
    expect(outline(rowsOf([parent, run("q")], new Set(["p"]), branches))).toEqual(["p", "  c", "  d", "q"]);
  });

  test("say what is not there yet", () => {
    const opened = new Set(["p"]);
    expect(outline(rowsOf([parent], opened, NONE))).toEqual(["p", "  loading"]);
    expect(outline(rowsOf([parent], opened, new Map([["p", { runs: [child], state: "more" }]])))).toEqual([
      "p",
      "  more",
      "  c",
    ]);
    expect(outline(rowsOf([parent], opened, new Map([["p", { runs: [], state: "error" }]])))).toEqual(["p", "  error"]);
  });

  test("of a run that called nothing there is nothing to open", () => {
    expect(outline(rowsOf([run("a")], new Set(["a"]), NONE))).toEqual(["a"]);
  });

  test("can be ten thousand deep", () => {
    const deep = Array.from({ length: 10_000 }, (_, n) => run(`r${n}`, { children: 1 }));
    const branches = new Map(
      deep.map((one, n) => [one.id, { runs: deep.slice(n + 1, n + 2), state: "complete" as const }]),
    );
    expect(rowsOf(deep.slice(0, 1), new Set(branches.keys()), branches)).toHaveLength(10_000);
  });
});

test("on the way down to a run, the last one in sight is where to look for the rest", () => {
  const rows = rowsOf(
    [run("p", { children: 2 })],
    new Set(["p"]),
    new Map([["p", { runs: [run("c")], state: "more" }]]),
  );
  expect(lastVisible(rows, ["p", "d"])).toBe("p");
  expect(lastVisible(rows, ["p", "c", "e"])).toBe("c");
  expect(lastVisible(rows, ["p", "c"])).toBeUndefined();
  expect(lastVisible(rows, ["q", "c"])).toBeUndefined();
  expect(lastVisible(rows, [])).toBeUndefined();
});

test("the next and the previous run, past what is none", () => {
  const rows = rowsOf([run("p", { children: 1 }), run("q")], new Set(["p"]), NONE);
  expect(nextRun(rows, 0, 1)?.key).toBe("q");
  expect(nextRun(rows, 2, -1)?.key).toBe("p");
  expect(nextRun(rows, 2, 1)).toBeNull();
  expect(nextRun(rows, -1, 1)?.key).toBe("p");
  expect(nextRun(rows, rows.length, -1)?.key).toBe("q");
});

test("where the searched words stand", () => {
  expect(snippetPieces("…a \uE000hit\uE001, and \uE000one more\uE001")).toEqual([
    { text: "…a ", isHit: false },
    { text: "hit", isHit: true },
    { text: ", and ", isHit: false },
    { text: "one more", isHit: true },
  ]);
  expect(snippetPieces("nothing")).toEqual([{ text: "nothing", isHit: false }]);
  expect(snippetPieces("[[\uE000[hit]\uE001] open [x]")).toEqual([
    { text: "[[", isHit: false },
    { text: "[hit]", isHit: true },
    { text: "] open [x]", isHit: false },
  ]);
  expect(snippetPieces("<b>\uE000hit\uE001</b>").map((piece) => piece.text)).toEqual(["<b>", "hit", "</b>"]);
  expect(snippetPieces("")).toEqual([]);
});

test("what a list can be narrowed to: what there is, what came by, and what is chosen", () => {
  const seen = [
    run("a", { name: "command", channel_id: "cli", channel_name: "Shell" }),
    run("b", { channel_id: null }),
  ];
  const worker = {
    slug: "zebra",
    project: null,
    name: "Zebra",
    description: null,
    worker_type: "builtin",
    input_schema: {},
    tools: [],
    client_tools: [],
  };
  expect(workerOptions({ workers: [worker] }, seen, "gone").map((one) => one.value)).toEqual([
    "command",
    "gone",
    "hello",
    "zebra",
  ]);
  expect(workerOptions(undefined, [], undefined)).toEqual([]);
  expect(
    channelOptions(
      [
        { id: "C1", name: "general" },
        { id: "C2", name: null },
      ],
      seen,
      "old",
    ),
  ).toEqual([
    { value: "C2", label: "C2" },
    { value: "C1", label: "general" },
    { value: "old", label: "old" },
    { value: "cli", label: "Shell" },
  ]);
});

test("how many there are, in words", () => {
  expect([0, 1, 42, 100_000].map(totalText)).toEqual(["0 runs", "1 run", "42 runs", "100,000 runs"]);
});

test("workers are found by their name first, then by what is said of them", () => {
  const worker = (slug: string, description: string | null = null) => ({
    slug,
    project: null,
    name: slug,
    description,
    worker_type: "builtin",
    input_schema: {},
    tools: [],
    client_tools: [],
  });
  const all = [worker("parent", "Calls a child"), worker("child"), worker("Form", "One of everything")];
  const found = (searchText: string) => findWorkers(all, searchText).map((one) => one.slug);
  expect(found("")).toEqual(["parent", "child", "Form"]);
  expect(found("child")).toEqual(["child", "parent"]);
  expect(found("CALLS par")).toEqual(["parent"]);
  expect(found("form")).toEqual(["Form"]);
  expect(found("nobody")).toEqual([]);
});

describe("where the searched words stand", () => {
  const hit = (text: string) => text.replaceAll("[", "\uE000").replaceAll("]", "\uE001");
  const found = (task: string, snippet: string | null) => {
    const { task: marked, snippetRest: beyond } = taskHits({ task, snippet: snippet === null ? null : hit(snippet) });
    const shown = (text: string) => text.replaceAll("\uE000", "[").replaceAll("\uE001", "]");
    return [shown(marked), beyond === null ? null : shown(beyond)];
  };

  test("is marked in the task where it is there, and not said twice", () => {
    expect(found("Say hello", null)).toEqual(["Say hello", null]);
    expect(found("Say hello", "Say [hello]")).toEqual(["Say [hello]", null]);
    expect(found("Say hello to all of them", "…[hello] to all…")).toEqual(["Say [hello] to all of them", null]);
    expect(found("Say hello", "Say [hello]\nIt was said to all…")).toEqual(["Say [hello]", null]);
    expect(
      heightOf({
        kind: "run",
        key: "r",
        run: run("r", { task: "Say hello", snippet: hit("Say [hello]") }),
        depth: 0,
        isExpanded: false,
      }),
    ).toBe(48);
  });

  test("is told as far as it is beyond the task", () => {
    expect(found("Say hello", "Say [hello]\n[Hello], Ada! Good to…")).toEqual([
      "Say [hello]",
      "[Hello], Ada! Good to…",
    ]);
    expect(found("Greet: NAME=Ada", "…NAME=Ada\n[Hello], Ada!")).toEqual(["Greet: NAME=Ada", "[Hello], Ada!"]);
    expect(found("Greet", "…and then [hello] was said…")).toEqual(["Greet", "…and then [hello] was said…"]);
  });

  test("is told where the task is too long to be seen so far", () => {
    const task = `${"a word ".repeat(30)}hello`;
    expect(found(task, "…word a word [hello]")).toEqual([task, "…word a word [hello]"]);
  });
});

test("counts the time of a run only while a process executes it", () => {
  expect(showsElapsed(aRun({ status: "running" }))).toBe(true);
  expect(showsElapsed(aRun({ status: "running", interrupted: true }))).toBe(false);
});
