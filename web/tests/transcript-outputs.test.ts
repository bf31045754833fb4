import { describe, expect, it } from "vitest";
import { outputsOf, partsOf } from "@/views/outputs";
import { endsOf } from "@/views/textLimits";

const PNG = "iVBORw0KGgo=";
const text = (text: string) => ({ type: "text", text: text });
const result = (output: unknown, error: string | null = null) => ({
  name: "x",
  call_id: "1",
  input: null,
  output,
  error,
  fidelity: "router" as const,
});

describe("what a tool gave", () => {
  it("is text, contents, or JSON", () => {
    expect(partsOf("plain")).toEqual([text("plain")]);
    expect(partsOf('{"a":1}')).toEqual([text('{\n  "a": 1\n}')]);
    expect(partsOf("{not json}")).toEqual([text("{not json}")]);
    expect(
      partsOf([
        { type: "text", text: "one" },
        { type: "text", text: "two" },
      ]),
    ).toEqual([text("one"), text("two")]);
    expect(partsOf({ content: [{ type: "text", text: "3" }], structured_content: { sum: 3 } })).toEqual([text("3")]);
    expect(partsOf({ status: "completed" })).toEqual([text('{\n  "status": "completed"\n}')]);
    expect(partsOf([])).toEqual([text("[]")]);
    expect(partsOf(null)).toEqual([]);
    expect(partsOf({ stdout: "out", stderr: "err", exit_code: 1 })).toEqual([
      text("out"),
      { type: "text", text: "err", label: "stderr", isError: true },
    ]);
  });

  it.each([
    [{ type: "image", source: { type: "base64", media_type: "image/png", data: PNG } }],
    [{ type: "image", data: PNG, mimeType: "image/png" }],
    [{ type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } }],
    [{ type: "input_image", image_url: `data:image/png;base64,${PNG}` }],
    [{ inlineData: { mimeType: "image/png", data: PNG } }],
    [{ type: "image", file: { type: "image/png", base64: PNG } }],
  ])("is a picture: %j", (item) => {
    expect(partsOf([text("before"), item])).toEqual([
      text("before"),
      { type: "image", src: `data:image/png;base64,${PNG}`, bytes: 9 },
    ]);
  });

  it.each([
    [{ type: "image", source: { type: "base64", media_type: "image/svg+xml", data: PNG } }],
    [{ type: "image", source: { type: "base64", media_type: "image/png", data: '"><script>' } }],
    [{ type: "image_url", image_url: { url: "https://example.org/x.png" } }],
    [{ type: "image_url", image_url: { url: "data:text/html;base64,AAAA" } }],
  ])("is no picture: %j", (item) => {
    expect(partsOf([item]).every((part) => part.type === "text")).toBe(true);
  });

  it("is said once where it went wrong", () => {
    expect(outputsOf(result("no such file", "no such file"))).toEqual([{ ...text("no such file"), isError: true }]);
    expect(outputsOf(result("oops\n", "exit code 1\noops"))).toEqual([
      { ...text("exit code 1"), isError: true },
      { ...text("oops\n"), isError: true },
    ]);
    expect(outputsOf(result(null, "gone"))).toEqual([{ ...text("gone"), isError: true }]);
    expect(outputsOf(result("printed", "timed out"))).toEqual([
      { ...text("timed out"), isError: true },
      text("printed"),
    ]);
  });
});

describe("a long text", () => {
  it("has a beginning and an end", () => {
    const long = "line\n".repeat(1_000_000);
    const ends = endsOf(long);
    expect(ends?.head.endsWith("\n")).toBe(true);
    expect((ends?.head.length ?? 0) + (ends?.tail.length ?? 0) + (ends?.hiddenChars ?? 0)).toBe(long.length);
    expect(long.endsWith(ends?.tail ?? "?")).toBe(true);
    expect(endsOf("short")).toBeNull();
  });
});
