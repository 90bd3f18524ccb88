/** Where parties stand, from 2 to 100 of them, on a wide and on a narrow screen. */

import assert from "node:assert/strict";
import { along, corner, drawn, layout, shapeFor, way } from "../../../src/posse/studio/static/js/layout.js";

/** @param {string} kind @param {[number, number]} place */
const role = (kind, place) => ({ kind, label: kind, colour: /** @type {[string, string]} */ (["#2563eb", "#7aa2ff"]), holds: "", place, sole: kind !== "shop" });
const ROLES = [role("shop", [0.15, 0.5]), role("first", [0.5, 0.3]), role("second", [0.5, 0.75]), role("third", [0.62, 0.1]), role("buyer", [0.85, 0.5])];

/** @param {number} count */
function parties(count) {
  const many = Array.from({ length: count }, (_, i) => ({ name: `shop-${i + 1}`, kind: "shop", label: `Shop ${i + 1}` }));
  return [...many, ...ROLES.slice(1).map((one) => ({ name: one.kind, kind: one.kind, label: one.kind }))];
}

for (const [width, height, down] of /** @type {[number, number, boolean][]} */ ([[584, 374, false], [368, 500, true]])) {
  for (const count of [2, 3, 8, 12, 13, 20, 40, 41, 100]) {
    Deno.test(`${count} parties in ${width} x ${height}: inside, and none covers another`, () => {
      const made = layout(ROLES, parties(count), width, height, down);
      const spots = [...made.spots.values()];
      assert.equal(spots.length, count + 4);
      for (const one of spots) {
        assert.ok(one.x - one.w / 2 >= 0 && one.x + one.w / 2 <= width, `${one.name} leaves at the side`);
        assert.ok(one.y - one.h / 2 >= 0 && one.y + one.h / 2 <= height, `${one.name} leaves above or below`);
        for (const other of spots) {
          if (one === other) continue;
          const beside = Math.abs(one.x - other.x) >= (one.w + other.w) / 2 - 0.5;
          const above = Math.abs(one.y - other.y) >= (one.h + other.h) / 2 - 0.5;
          const round = one.shape === "circle" && other.shape === "circle" && Math.hypot(one.x - other.x, one.y - other.y) >= one.w;
          assert.ok(beside || above || round, `${one.name} covers ${other.name}`);
        }
      }
    });
  }
}

Deno.test("the rest of the stage does not move when the crowd grows", () => {
  const at = (/** @type {number} */ count) => ROLES.slice(1).map((one) => layout(ROLES, parties(count), 584, 374, false).spots.get(one.kind));
  for (const count of [8, 13, 41, 100]) assert.deepEqual(at(count), at(2));
});

Deno.test("rows, chips in an arc, a dense grid", () => {
  assert.deepEqual([2, 12, 13, 40, 41].map(shapeFor), ["row", "row", "chip", "chip", "cell"]);
});

Deno.test("a message begins at its sender's edge and ends at its receiver's", () => {
  const made = layout(ROLES, parties(8), 584, 374, false);
  const [shop, first, second] = ["shop-3", "first", "second"].map((name) => made.spots.get(name));
  assert.ok(shop && first && second);
  const curve = way(made, shop, first);
  assert.equal(along(curve, 0).x, shop.x + shop.w / 2);
  assert.ok(Math.abs(Math.hypot(along(curve, 1).x - first.x, along(curve, 1).y - first.y) - first.w / 2) < 3);
  const [there, back] = [way(made, first, second, 6), way(made, second, first, 6)];
  assert.ok(Math.hypot(along(there, 0.5).x - along(back, 0.5).x, along(there, 0.5).y - along(back, 0.5).y) > 8, "both directions apart");
  assert.match(drawn(curve), /^M[\d.]+ [\d.]+C/);
});

Deno.test("parties of one crowd send to each other beside the crowd, not through it", () => {
  const made = layout(ROLES, parties(4), 584, 374, false);
  const [one, other] = [made.spots.get("shop-1"), made.spots.get("shop-4")];
  assert.ok(one && other);
  assert.ok(along(way(made, one, other), 0.5).x > one.x + one.w / 2 + 10);
});

Deno.test("a card goes where it covers least", () => {
  const made = layout(ROLES, parties(2), 584, 374, false);
  const best = corner(made, 120, 100);
  assert.equal(best.covers, 0);
});

Deno.test("a card that must cover something does not cover the party that it is about", () => {
  const made = layout(ROLES, parties(4), 584, 374, false);
  const [w, h] = [216, 290];
  for (const [name, spot] of made.spots) {
    const { x, y } = corner(made, w, h, name);
    const wide = Math.min(x + w, spot.x + spot.w / 2) - Math.max(x, spot.x - spot.w / 2);
    const high = Math.min(y + h, spot.y + spot.h / 2) - Math.max(y, spot.y - spot.h / 2);
    assert.ok(wide <= 0 || high <= 0, name);
  }
});
