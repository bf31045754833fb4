import { expect, test } from "vitest";
import { withVisibleControls } from "@/views/deceptiveText";

test("controls that deceive are seen, as they are and escaped", () => {
  const original = { task: "\u202egnp.exe\u202c \u2066a\u2069 \u009b31m b\u0085" };
  const seen = { task: "\ufffdgnp.exe\ufffd \ufffda\ufffd \ufffd31m b\ufffd" };
  expect(JSON.parse(withVisibleControls(JSON.stringify(original)))).toEqual(seen);
  const escaped = JSON.stringify(original).replace(
    /[\u0080-\uffff]/g,
    (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  expect(JSON.parse(withVisibleControls(escaped))).toEqual(seen);
});

test("everything else stays: other scripts, joined emoji, and backslashes", () => {
  const original = { a: 'שלום עולם, مرحبا, 👩‍💻 \\u202e \\\\u202e "quoted"\n\t' };
  expect(JSON.parse(withVisibleControls(JSON.stringify(original)))).toEqual(original);
});
