/** Numbers, words, colours, addresses, curves and bytes: what needs no page. */

import assert from "node:assert/strict";
import { described, named, runs } from "../../../src/posse/studio/static/js/bytes.js";
import { contrast, readable } from "../../../src/posse/studio/static/js/colour.js";
import { format, moment, parse, token } from "../../../src/posse/studio/static/js/route.js";
import { joined, nearest, path, reach, thin, ticks } from "../../../src/posse/studio/static/js/scale.js";
import { told } from "../../../src/posse/studio/static/js/store.js";
import { ago, number, pieces, seconds, size } from "../../../src/posse/studio/static/js/words.js";

/** @typedef {[number, number]} Point */

Deno.test("numbers, times and sizes", () => {
  assert.deepEqual([1234567, 0.71349, 12.3456, -3, 0.00001, null].map((one) => number(one)), ["1,234,567", "0.7135", "12.35", "−3", "1.00e−5", "–"]);
  assert.deepEqual([0, 3.1e-8, 6.7e-6, 0.02, 4.12, 195, 7260, null].map(seconds), ["0 s", "31 ns", "6.7 µs", "20 ms", "4.1 s", "3 min 15 s", "2 h 1 min", "–"]);
  assert.deepEqual([0, 1, 92, 487200].map(size), ["0 bytes", "1 byte", "92 bytes", "487 kB"]);
  const now = Date.parse("2026-01-02T12:00:00Z");
  assert.deepEqual(["2026-01-02T11:59:30Z", "2026-01-02T11:30:00Z", "2026-01-02T02:00:00Z", "2025-12-01T00:00:00Z"].map((one) => ago(one, now)), ["just now", "30 min ago", "10 h ago", "2025-12-01"]);
});

Deno.test("party names in a sentence", () => {
  assert.deepEqual(pieces("{shop-3} sends to {second}."), [
    { text: "shop-3", party: true },
    { text: " sends to ", party: false },
    { text: "second", party: true },
    { text: ".", party: false },
  ]);
  assert.deepEqual(pieces("nothing"), [{ text: "nothing", party: false }]);
});

Deno.test("role colours become readable text on both pages", () => {
  for (const colour of ["#d97706", "#f5b041", "#7aa2ff", "#2563eb", "#6b8e23", "#b07d12"]) {
    for (const back of ["#f4f6fa", "#1b2330"]) assert.ok(contrast(readable(colour, back), back) >= 4.5, `${colour} on ${back}`);
  }
  assert.ok(Math.abs(contrast("#000000", "#ffffff") - 21) < 0.01);
});

Deno.test("an address is read as it was written", () => {
  const route = { page: "stage", values: { system: "x", means: "0.2,0.5", data: "file:abc", label: "a&b=c d", t: "40" } };
  assert.deepEqual(parse(format(route)), route);
  assert.equal(format({ page: "runs", values: { filter: "" } }), "#/runs");
  assert.equal(parse("#/nowhere?x=1").page, "stage");
  assert.equal(token({ hash: "#/enter?token=a.b", search: "" }), "a.b");
  assert.equal(token({ hash: "#/stage?system=x", search: "" }), null);
  const moments = /** @type {Record<string, string>[]} */ ([{ t: "40", m: "7" }, { t: "40" }, { m: "7" }, { t: "-3" }, { t: "1.5" }, { t: "0" }, {}]);
  assert.deepEqual(moments.map(moment), [{ time: 40, message: 7 }, { time: 40, message: undefined }, { time: 0, message: 7 }, undefined, undefined, undefined, undefined]);
});

Deno.test("a press shows at once, and what the server did when it has answered, whatever comes first", () => {
  const stage = /** @type {import("../../../src/posse/studio/static/js/types.js").Stage} */ ({ id: "a", phase: "paused", change: 3, time: 0 });
  const played = { ...stage, heard: stage.phase, phase: /** @type {const} */ ("playing") };
  assert.equal(told(played, { time: 1, change: 4 }, true).phase, "playing");
  assert.equal(told(played, { phase: "paused", change: 4 }, true).phase, "playing");
  const over = told(played, { phase: "done", change: 5 }, true);
  assert.equal(over.phase, "done");
  assert.equal(told(over, { phase: "playing", change: 4 }, false).phase, "done"); // an answer from before the end
  const stopped = told(played, { phase: "paused", change: 6 }, true); // stopped elsewhere, before the answer to the press
  assert.equal(told(stopped, { phase: "playing", change: 5 }, false).phase, "paused");
  assert.equal(told(played, {}, false).phase, "paused"); // no answer came
  assert.equal(told(told(played, { phase: "playing", change: 4 }, false), { time: 2, change: 5 }, false).phase, "playing");
});

Deno.test("an axis of time reaches a round number beyond a young run, and the horizon of an older one", () => {
  assert.deepEqual([0, 10, 17, 40, 90, 900].map((at) => reach(at, 10_000)), [20, 20, 50, 50, 200, 2000]);
  assert.deepEqual([0, 10, 4000, 10_000].map((at) => reach(at, 30)), [30, 30, 30, 30]);
  assert.equal(reach(3999, 10_000), 5000);
  assert.equal(reach(4001, 10_000), 10_000);
});

Deno.test("ticks are round and within the range", () => {
  assert.deepEqual(ticks(0, 1000, 4), [0, 250, 500, 750, 1000]);
  assert.deepEqual(ticks(0, 0.7, 3), [0, 0.25, 0.5]);
  assert.deepEqual(ticks(3, 3, 4), [3]);
});

Deno.test("thinning keeps ends and peaks", () => {
  const points = /** @type {Point[]} */ (Array.from({ length: 5000 }, (_, i) => [i, i === 3210 ? 99 : Math.sin(i)]));
  const kept = thin(points, 400);
  assert.ok(kept.length <= 400);
  assert.deepEqual([kept[0], kept.at(-1)], [points[0], points.at(-1)]);
  assert.ok(kept.some(([, y]) => y === 99));
  assert.equal(thin(points.slice(0, 5), 400).length, 5);
});

Deno.test("frames of a curve join without a point twice", () => {
  const begun = /** @type {Point[]} */ ([[0, 0], [1, 1], [2, 2]]);
  assert.deepEqual(joined(begun, [[3, 3]], 3), [...begun, [3, 3]]);
  assert.deepEqual(joined(begun, [[2, 5]], 2), [[0, 0], [1, 1], [2, 5]]);
  assert.deepEqual(joined(begun, [[0, 9]], 0), [[0, 9]]);
  assert.deepEqual(nearest(begun, 1.4), [1, 1]);
  assert.equal(nearest([], 1), null);
  assert.equal(path([[0, 0], [1, 2]], (x) => x * 10, (y) => 5 - y), "M0.0 5.0L10.0 3.0");
});

Deno.test("bytes are cut where their parts end", () => {
  const parts = [
    { name: "tag", protection: "header", length: 2, opens: [] },
    { name: "x - pad", protection: "share", length: 3, opens: ["second"], why: "uniform" },
  ];
  const cut = runs("aabbccddeeff", parts);
  assert.deepEqual(cut.map((one) => one.hex.join("")), ["aabb", "ccddee", "ff"]);
  assert.deepEqual(cut.map((one) => one.part?.name ?? null), ["tag", "x - pad", null]);
  assert.deepEqual(runs("aabbccdd", [{ name: "all", protection: "aes", length: 4, opens: [] }], 3).map((one) => [one.hex.length, one.left]), [[3, 1]]);
  assert.equal(described(parts[1] ?? { name: "", protection: "", length: 0, opens: [] }), "x - pad: share, 3 bytes; second can open it; uniform");
  assert.equal(named("unheard-of"), "unheard-of");
});
