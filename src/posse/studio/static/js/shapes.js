/** How a party is drawn: a row, a chip, a cell of a grid, a circle. Each is made once and patched afterwards. */

import { attr, s, show, text } from "./dom.js";

/**
 * @typedef {import("./types.js").Party} Party
 * @typedef {import("./layout.js").Spot} Spot
 */

/** @param {Party} party */
function spoken(party) {
  const bar = party.bar ? `, estimate ${party.bar.estimate.toFixed(2)}` : "";
  return `${party.label}${party.text ? `: ${party.text}` : ""}${bar}`;
}

/** Weight and size of names and of what stands under them, as in the style sheet. */
const NAME = "650 12px";
const UNDER = "400 11px";

/** @type {CanvasRenderingContext2D | null | undefined} */
let pen;
/** @type {Map<string, number>} */
const widths = new Map();

/**
 * How wide a text is in the page's typeface, in pixels.
 * @param {string} line
 * @param {string} font weight and size
 */
function width(line, font) {
  const known = widths.get(font + line);
  if (known !== undefined) return known;
  pen ??= document.createElement("canvas").getContext("2d");
  if (pen) pen.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
  const found = pen?.measureText(line).width ?? 7 * line.length;
  if (widths.size > 2000) widths.clear();
  widths.set(font + line, found);
  return found;
}

/**
 * Shorten a text to the room there is for it.
 * @param {string} line
 * @param {number} room
 * @param {string} font
 */
function fit(line, room, font) {
  if (width(line, font) <= room) return line;
  let most = line.length - 1;
  while (most > 2 && width(`${line.slice(0, most)}…`, font) > room) most -= 1;
  return `${line.slice(0, most).trimEnd()}…`;
}

/**
 * Fold a line into two of at most so many letters, the second one shortened where that is not enough.
 * @param {string} line
 * @param {number} most
 */
export function folded(line, most) {
  if (line.length <= most) return [line];
  const cut = line.lastIndexOf(" ", most);
  const at = cut > 0 ? cut : most;
  const rest = line.slice(at).trim();
  return [line.slice(0, at), rest.length <= most ? rest : `${rest.slice(0, most - 1).trim()}…`];
}

/** @typedef {(spot: Spot, party: Party) => {node: SVGGElement, patch: (party: Party, most: number) => void}} Shape */

/** @type {Shape} */
function row(spot, party) {
  const low = spot.h < 29;
  const bar = party.bar ? Math.max(30, Math.min(low ? 46 : 72, spot.w - 50 - width(party.label, NAME))) : 0;
  const left = spot.w - bar - 10;
  const middle = spot.h / 2;
  const name = s("text", { class: "name", x: 30, y: low ? middle + 4 : middle - 2 });
  const under = low
    ? s("text", { class: "under", x: left - 8, y: middle + 4, "text-anchor": "end" })
    : s("text", { class: "under", x: 30, y: middle + 11 });
  const track = s("line", { class: "track", x1: left, x2: left + bar, y1: middle, y2: middle });
  const range = s("line", { class: "range", y1: middle, y2: middle });
  const truth = s("line", { class: "truth", y1: middle - 7, y2: middle + 7 });
  const dot = s("circle", { class: "estimate", cy: middle, r: 3.5 });
  const node = s("g", {},
    s("rect", { class: "back", width: spot.w, height: spot.h, rx: 7 }),
    s("circle", { class: "mark", cx: 16, cy: middle, r: low ? 5 : 6.5 }), name, under,
    ...(bar ? [track, range, truth, dot] : []));
  return {
    node,
    patch(one) {
      const beside = low ? 44 + width(one.text ?? "", UNDER) : 38;
      text(name, fit(one.label, left - beside, NAME));
      text(under, low ? one.text ?? "" : fit(one.text ?? "", left - 36, UNDER));
      attr(node, "aria-label", spoken(one));
      if (!one.bar) return;
      const x = (/** @type {number} */ value) => (left + Math.max(0, Math.min(1, value)) * bar).toFixed(1);
      attr(range, "x1", x(one.bar.low));
      attr(range, "x2", x(one.bar.high));
      attr(dot, "cx", x(one.bar.estimate));
      show(truth, one.bar.truth !== undefined && one.bar.truth !== null);
      attr(truth, "x1", x(one.bar.truth ?? 0));
      attr(truth, "x2", x(one.bar.truth ?? 0));
    },
  };
}

/** @type {Shape} */
function chip(spot, party) {
  const number = party.short ?? party.name.match(/\d+$/)?.[0] ?? party.label.slice(0, 3);
  const left = 24;
  const bar = spot.w - left - 7;
  const fill = s("rect", { class: "fill", x: left, y: spot.h / 2 - 2.5, height: 5, rx: 2.5 });
  const truth = s("line", { class: "truth", y1: spot.h / 2 - 5, y2: spot.h / 2 + 5 });
  const node = s("g", {},
    s("rect", { class: "back", width: spot.w, height: spot.h, rx: spot.h / 2 }),
    s("text", { class: "number", x: 21, y: spot.h / 2 + 4, "text-anchor": "end" }, number),
    s("rect", { class: "track-fill", x: left, y: spot.h / 2 - 2.5, width: bar, height: 5, rx: 2.5 }), fill, truth);
  const title = s("title");
  node.append(title);
  return {
    node,
    patch(one, most) {
      const part = one.bar ? one.bar.estimate : (one.weight ?? 0) / most;
      attr(fill, "width", (Math.max(0, Math.min(1, part)) * bar).toFixed(1));
      show(truth, typeof one.bar?.truth === "number");
      attr(truth, "x1", (left + (one.bar?.truth ?? 0) * bar).toFixed(1));
      attr(truth, "x2", (left + (one.bar?.truth ?? 0) * bar).toFixed(1));
      attr(node, "aria-label", spoken(one));
      text(title, spoken(one));
    },
  };
}

/** @type {Shape} */
function cell(spot) {
  const back = s("rect", { class: "square", width: spot.w, height: spot.h, rx: 3 });
  const node = s("g", {}, back);
  let drawnOpacity = "";
  return {
    node,
    patch(one, most) {
      const opacity = (0.12 + 0.88 * Math.sqrt((one.weight ?? 0) / most)).toFixed(2);
      if (opacity === drawnOpacity) return;
      drawnOpacity = opacity;
      back.style.fillOpacity = opacity;
      attr(node, "aria-label", spoken(one));
    },
  };
}

/** @type {Shape} */
function circle(spot, party) {
  const middle = spot.w / 2;
  const words = party.label.split(" ");
  const two = party.label.length > 11 && words.length > 1;
  const lines = two ? [words.slice(0, -1).join(" "), words.at(-1) ?? ""] : [party.label];
  const names = lines.map((line, place) =>
    s("text", { class: "name", x: middle, y: middle + 4 + (place - (lines.length - 1) / 2) * 14, "text-anchor": "middle" }, fit(line, 2 * middle - 2, NAME))
  );
  const under = [14, 26].map((y) => s("text", { class: "under", x: middle, y: spot.h + y, "text-anchor": "middle" }));
  const node = s("g", {},
    s("circle", { class: "halo", cx: middle, cy: middle, r: middle + 5 }),
    s("circle", { class: "ring", cx: middle, cy: middle, r: middle }), ...names, ...under);
  return {
    node,
    patch(one) {
      const said = folded(one.text ?? "", 21);
      under.forEach((line, place) => text(line, said[place] ?? ""));
      attr(node, "aria-label", spoken(one));
    },
  };
}

/** @type {Record<Spot["shape"], Shape>} */
export const SHAPES = { row, chip, cell, circle };

