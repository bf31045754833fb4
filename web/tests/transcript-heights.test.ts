import { describe, expect, it } from "vitest";
import { Heights } from "@/views/heights";

describe("the heights of rows", () => {
  it("are guessed until they are known, and then summed", () => {
    const heights = new Heights();
    heights.resize(1_000);
    const guess = heights.get(1);
    expect(heights.total).toBeCloseTo(1_000 * guess);
    heights.set(3, 100);
    heights.set(500, 0);
    expect(heights.top(4)).toBeCloseTo(2 * guess + 100);
    expect(heights.top(3)).toBeCloseTo(2 * guess);
    expect(heights.top(501)).toBeCloseTo(heights.top(500));
    expect(heights.total).toBeCloseTo(998 * guess + 100);
    expect(heights.set(3, 100)).toBe(false);
  });

  it("tell the row at a place, also among rows without a height", () => {
    const heights = new Heights();
    heights.resize(600);
    for (let seq = 1; seq <= 600; seq++) heights.set(seq, seq % 3 ? 0 : 10);
    expect(heights.total).toBe(2_000);
    expect(heights.at(0)).toBe(3);
    expect(heights.at(9.9)).toBe(3);
    expect(heights.at(10)).toBe(6);
    expect(heights.at(1_999)).toBe(600);
    expect(heights.at(1e9)).toBe(600);
    expect(heights.at(-5)).toBe(1);
    for (let seq = 3; seq <= 600; seq += 3) expect(heights.at(heights.top(seq))).toBe(seq);
  });

  it("stay while the log grows, and go where it loses its end", () => {
    const heights = new Heights();
    heights.resize(10);
    for (let seq = 1; seq <= 10; seq++) heights.set(seq, 5);
    heights.resize(450);
    expect(heights.top(11)).toBe(50);
    expect(heights.total).toBeCloseTo(50 + 440 * heights.get(450));
    heights.resize(4);
    expect(heights.total).toBe(20);
    heights.resize(0);
    expect(heights.total).toBe(0);
    expect(heights.at(5)).toBe(0);
  });

  it("of a million rows fit into what a browser can draw, and cost nothing", () => {
    const heights = new Heights();
    heights.resize(1_000_000);
    expect(heights.total).toBeLessThan(17_000_000);
    const startedAt = performance.now();
    for (let n = 0; n < 2_000; n++) {
      heights.set(1 + ((n * 7_919) % 1_000_000), 20 + (n % 50));
      heights.at(heights.top(1 + ((n * 104_729) % 1_000_000)));
    }
    expect(performance.now() - startedAt).toBeLessThan(2_000);
  });
});
