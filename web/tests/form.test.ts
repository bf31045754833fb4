import { describe, expect, test } from "vitest";
import { readForm } from "../src/views/formValues";
import { type Field, fieldsOf } from "../src/views/schemaForm";

const schemaOf = (properties: Record<string, unknown>, required: string[] = []) => ({
  type: "object",
  properties,
  required,
});
const fieldOf = (schema: unknown, name = "x", required = false): Field => {
  const [field] = fieldsOf(schemaOf({ [name]: schema }, required ? [name] : []));
  if (!field) throw new Error("there is no field");
  return field;
};
const readField = (schema: unknown, text?: string, required = false) =>
  readForm([fieldOf(schema, "x", required)], text === undefined ? {} : { x: text });

describe("which fields there are", () => {
  test.each([
    ["x", { type: "string" }, "line"],
    ["prompt", { type: "string" }, "prose"],
    ["TASK", { type: "string" }, "prose"],
    ["shortDescription", { type: "string" }, "prose"],
    ["textile", { type: "string" }, "line"],
    ["x", { type: "string", maxLength: 201 }, "prose"],
    ["x", { type: "string", maxLength: 200 }, "line"],
    ["x", { type: "string", "x-multiline": true }, "prose"],
    ["x", { type: "string", format: "multiline" }, "prose"],
    ["x", { type: "string", default: "one\ntwo" }, "prose"],
    ["x", { type: "number" }, "number"],
    ["x", { type: "integer" }, "integer"],
    ["x", { type: "boolean" }, "boolean"],
    ["x", { type: "array" }, "array"],
    ["x", { type: "object" }, "object"],
    ["x", { enum: ["a", "b"] }, "choice"],
    ["x", { type: ["string", "null"] }, "line"],
    ["x", { type: ["string", "number"] }, "any"],
    ["x", { anyOf: [{ type: "integer" }, { type: "null" }] }, "integer"],
    ["x", { anyOf: [{ type: "integer" }, { type: "string" }] }, "any"],
    ["x", { $ref: "#/$defs/y" }, "any"],
    ["x", {}, "any"],
    ["x", "not a schema", "any"],
  ])("%s %j: %s", (name, schema, kind) => expect(fieldOf(schema, name).kind).toBe(kind));

  test.each([
    ["NAME", "Name"],
    ["MAX_ROUNDS", "Max rounds"],
    ["maxRounds", "Max rounds"],
    ["repo-url", "Repo url"],
    ["repoURL", "Repo URL"],
    ["step2Name", "Step2 name"],
    ["été", "Été"],
    ["x", "X"],
    ["__", "__"],
    ["", ""],
  ])("%s is called %s", (name, label) => expect(fieldOf({ type: "string" }, name).label).toBe(label));

  test("what is said of them", () => {
    expect(
      fieldOf(
        { type: "integer", title: "Lines", description: "How many", minimum: 1, maximum: 9, default: 3 },
        "LINES",
        true,
      ),
    ).toMatchObject({
      name: "LINES",
      label: "Lines",
      description: "How many",
      required: true,
      initial: "3",
      min: 1,
      max: 9,
    });
    expect(fieldOf({ type: "string" }, "NAME")).toMatchObject({
      name: "NAME",
      label: "Name",
      description: null,
      required: false,
      initial: "",
    });
  });

  test("a schema that says nothing has none", () => {
    for (const schema of [{}, { properties: null }, { type: "object", properties: {} }])
      expect(fieldsOf(schema)).toEqual([]);
  });
});

describe("what stands in them at first", () => {
  test.each([
    [{ type: "string", default: "brief" }, "brief"],
    [{ type: "number", default: 0 }, "0"],
    [{ type: "boolean" }, "false"],
    [{ type: "boolean", default: true }, "true"],
    [{ type: "array", default: ["a"] }, '[\n  "a"\n]'],
    [{ enum: ["a", "b"], default: "b" }, "1"],
    [{ enum: ["a", "b"], default: "c" }, ""],
    [{ enum: ["a", "b"] }, ""],
    [{ type: "string", default: null }, ""],
  ])("%j: %j", (schema, text) => expect(fieldOf(schema).initial).toBe(text));
});

describe("what was typed", () => {
  test.each([
    [{ type: "string" }, "Ada", "Ada"],
    [{ type: "string" }, " as it is ", " as it is "],
    [{ type: "number" }, "1.5", 1.5],
    [{ type: "number" }, "-1e3", -1000],
    [{ type: "integer", minimum: 1, maximum: 9 }, "9", 9],
    [{ type: "boolean" }, "true", true],
    [{ type: "boolean", default: true }, "false", false],
    [{ enum: ["a", 2, null] }, "1", 2],
    [{ enum: ["a", 2, null] }, "2", null],
    [{ type: "array" }, '["a", 1]', ["a", 1]],
    [{ type: "object" }, '{"a": 1}', { a: 1 }],
    [{}, "5", 5],
    [{}, "five", "five"],
    [{}, "[1", "[1"],
  ])("%j with %j is %j", (schema, text, value) =>
    expect(readField(schema, text)).toEqual({ input: { x: value }, problems: {} }),
  );

  test.each([
    [{ type: "number" }, "one", "Must be a number."],
    [{ type: "number" }, "Infinity", "Must be a number."],
    [{ type: "integer" }, "1.5", "Must be a whole number."],
    [{ type: "integer", minimum: 1 }, "0", "Must be at least 1."],
    [{ type: "number", maximum: 9 }, "9.1", "Must be at most 9."],
    [{ type: "array" }, '{"a": 1}', 'Must be a list, e.g. ["one", "two"].'],
    [{ type: "object" }, "[1]", 'Must be an object, e.g. {"name": "value"}.'],
    [{ type: "object" }, "null", 'Must be an object, e.g. {"name": "value"}.'],
  ])("%j with %j: %s", (schema, text, problem) =>
    expect(readField(schema, text)).toEqual({ input: {}, problems: { x: problem } }),
  );

  test("what is no JSON says where", () =>
    expect(readField({ type: "array" }, "[1,").problems.x).toMatch(/^Invalid JSON: ./));
});

describe("what was left empty", () => {
  test.each([
    [{ type: "string" }],
    [{ type: "number" }],
    [{ type: "array" }],
    [{ enum: ["a"] }],
    [{ type: "boolean" }],
    [{}],
  ])("%j is left out", (schema) => expect(readField(schema)).toEqual({ input: {}, problems: {} }));

  test.each([[{ type: "string" }], [{ type: "integer" }], [{ type: "object" }], [{ enum: ["a"] }], [{}]])(
    "%j is missed where it is needed",
    (schema) => {
      expect(readField(schema, undefined, true).problems).toEqual({ x: "Required." });
      expect(readField(schema, "  ", true).problems).toEqual({ x: "Required." });
    },
  );

  test("a truth that is needed is false", () =>
    expect(readField({ type: "boolean" }, undefined, true).input).toEqual({ x: false }));

  test("a default is given as it is", () => {
    expect(readField({ type: "string", default: "brief" }).input).toEqual({ x: "brief" });
    expect(readField({ type: "array", default: ["a"] }).input).toEqual({ x: ["a"] });
    expect(readField({ enum: ["a", "b"], default: "b" }).input).toEqual({ x: "b" });
    // Without a type, the text could be parsed as a number: the server applies the default.
    expect(readField({ default: "5" }).input).toEqual({});
  });

  test("a text that somebody emptied is empty; of others the default holds", () => {
    expect(readField({ type: "string", default: "brief" }, "").input).toEqual({ x: "" });
    expect(readField({ type: "integer", default: 3 }, "").input).toEqual({});
  });
});
