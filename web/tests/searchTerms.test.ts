import { describe, expect, it } from "vitest";
import { searchTermsOf } from "@/views/searchTerms";

describe("what a search was for", () => {
  it.each([
    ["quetzalcoatl", ["quetzalcoatl"]],
    ["tea pot", ["tea pot", "tea", "pot"]],
    ["a teapot", ["a teapot", "teapot"]],
    ['"green tea" pot', ["green tea pot", "green tea", "pot"]],
    ['"unfinished', ["unfinished"]],
    ["src/app.py", ["src/app.py", "src", "app", "py"]],
    ["Straße 東京", ["Straße 東京", "Straße", "東京"]],
    ['  ""  ', []],
  ])("is looked for whole, then in parts: %j", (query, parts) => expect(searchTermsOf(query)).toEqual(parts));
});
