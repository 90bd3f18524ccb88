/** Forms from a schema: a setting that nobody foresaw gets its field, its type and its place. */

import assert from "node:assert/strict";
import { blocks, current, field, fromAddress, listed, read, write } from "../../../src/posse/studio/static/js/schema.js";

const SYSTEM = /** @type {import("../../../src/posse/studio/static/js/types.js").System} */ ({
  name: "toy", title: "Toy", summary: "", reference: "", protects: "", roles: [], levels: [], words: {},
  schema: {
    properties: {
      policy: { default: "ucb" },
      width: { anyOf: [{ type: "number" }, { type: "null" }], default: null, description: "How wide.\nVery." },
      tau: { anyOf: [{ type: "number" }, { type: "null" }], default: null },
      data: { default: "small" },
      owners: { anyOf: [{ type: "integer" }, { type: "null" }], default: null },
      names: { anyOf: [{ type: "array", items: { type: "string" } }, { type: "null" }], default: null },
      horizon: { type: "integer", default: 100 },
      level: { enum: ["strict", "paper"], type: "string", default: "strict" },
      sealed: { type: "boolean", default: true },
      brand_new: { type: "number", default: 0.5, minimum: 0, maximum: 1 },
    },
  },
  groups: [{ name: "How to choose", fields: ["policy", "width", "tau"] }, { name: "What is new", fields: ["brand_new", "names"] }],
  scenarios: [{ name: "first", settings: { owners: 3, sealed: false, names: ["a"] } }],
  policies: [{ name: "ucb", parameters: { width: 2 } }, { name: "softmax", parameters: { tau: 0.1 } }],
  data: [{ name: "small", ready: true, what: "" }],
});

Deno.test("what scenarios set stands in front, a new setting is folded under its heading", () => {
  const made = blocks(SYSTEM, {});
  assert.deepEqual(made.map((one) => one.title), ["", "What is new"]);
  assert.deepEqual(made[0]?.fields.map((one) => one.name), ["data", "policy", "width", "owners", "horizon", "level", "sealed"]);
  assert.deepEqual(made[1]?.fields.map((one) => one.name), ["brand_new", "names"]);
  assert.deepEqual(made.map((one) => one.folded), [false, true]);
});

Deno.test("only parameters of the chosen policy are shown, with their defaults", () => {
  const names = (/** @type {object} */ settings) => blocks(SYSTEM, { ...settings })[0]?.fields.map((one) => one.name) ?? [];
  assert.ok(names({}).includes("width") && !names({}).includes("tau"));
  assert.ok(names({ policy: "softmax" }).includes("tau") && !names({ policy: "softmax" }).includes("width"));
  const width = blocks(SYSTEM, {})[0]?.fields.find((one) => one.name === "width");
  assert.equal(width?.fallback, 2);
  assert.equal(width?.help, "How wide. Very.");
});

Deno.test("types follow the schema", () => {
  const kind = (/** @type {string} */ name) => field(name, SYSTEM.schema.properties[name] ?? {});
  assert.deepEqual(["brand_new", "level", "sealed", "names", "data"].map((name) => kind(name).kind), ["number", "choice", "switch", "list", "text"]);
  assert.deepEqual([kind("brand_new").least, kind("brand_new").most, kind("owners").empty, kind("owners").whole], [0, 1, true, true]);
  assert.equal(read(kind("horizon"), "1,000"), 1000);
  assert.equal(read(kind("horizon"), "many"), "many");
  assert.equal(read(kind("owners"), " "), null);
  assert.deepEqual(read(kind("names"), "a, b,3"), ["a", "b", 3]);
  assert.equal(read(kind("sealed"), false), false);
});

Deno.test("settings survive the address", () => {
  const settings = { policy: "softmax", tau: 0.25, owners: 4, names: ["a", "b"], sealed: false, level: "paper" };
  const values = Object.fromEntries(Object.entries(settings).map(([name, value]) => [name, write(value)]));
  assert.deepEqual(fromAddress(SYSTEM, { ...values, t: "4", unknown: "x" }), settings);
  assert.equal(current(SYSTEM, settings, "horizon"), 100);
});

Deno.test("a setting that has no meaning beside the others is not asked for, unless it was given", () => {
  const properties = { ...SYSTEM.schema.properties, sealed: { type: "boolean", default: true, only: { level: ["paper"] } } };
  const system = { ...SYSTEM, schema: { properties } };
  const asked = (/** @type {Record<string, unknown>} */ settings) => blocks(system, settings).flatMap((one) => one.fields.map((field) => field.name)).includes("sealed");
  assert.equal(asked({}), false);
  assert.equal(asked({ level: "paper" }), true);
  assert.equal(asked({ sealed: false }), true);
});

Deno.test("settings that stand in the place of another one are said in its field", () => {
  const data = { default: "small", instead: ["names"] };
  const system = { ...SYSTEM, schema: { ...SYSTEM.schema, properties: { ...SYSTEM.schema.properties, data } } };
  const field = (/** @type {Record<string, unknown>} */ settings) => blocks(system, settings)[0]?.fields.find((one) => one.name === "data");
  assert.deepEqual(field({})?.options, ["small"]);
  assert.deepEqual(field({ names: ["a"] })?.options, ["", "small"]);
  assert.equal(current(system, {}, "data"), "small");
  assert.equal(current(system, { names: ["a"] }, "data"), null);
});

Deno.test("data that are still being looked through do not hide the one that is set", () => {
  const made = blocks({ ...SYSTEM, data: null }, { data: "mine" })[0]?.fields.find((one) => one.name === "data");
  assert.deepEqual([made?.kind, made?.options], ["choice", ["mine"]]);
});

Deno.test("settings in a line do not depend on their order, and leave out what a grid varies", () => {
  const given = { means: [0.2, 0.5], horizon: 90, level: "strict", data: `file:${"ab".repeat(32)}` };
  assert.equal(listed(given, ["level"]), "data file:abababab…, horizon 90, means 0.2,0.5");
  assert.equal(listed({ level: "strict" }, ["level"]), "as they come");
});
