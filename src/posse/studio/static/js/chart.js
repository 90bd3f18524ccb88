/** A chart of lines: units, round ticks, a cursor with values, a legend that toggles, and saving as SVG. */

import { attr, flag, h, keyed, once, s, show, text } from "./dom.js";
import { nearest, path, thin, ticks } from "./scale.js";
import { number } from "./words.js";

/**
 * @typedef {[number, number]} Point
 * @typedef {{name: string, points: Point[], colour: string, dash?: string, low?: Point[], high?: Point[]}} Series
 * @typedef {{series: Series[], x: string, y: string, most?: number, at?: number | null, logY?: boolean}} Drawing
 */

const POINTS = 400;
const DASHES = ["", "5 4", "2 3", "8 3 2 3"];

/**
 * The colour and dash of the n-th line of a chart that has no colours of its own.
 * @param {number} place
 */
export function look(place) {
  return { colour: `var(--line-${place % 6})`, dash: DASHES[place % DASHES.length] ?? "" };
}

/**
 * @param {string} title what the chart shows, for a screen reader and as the name of the saved file
 * @param {number} [height]
 */
export function chart(title, height = 128) {
  const off = new Set();
  const grid = s("g", { class: "grid" });
  const bands = s("g");
  const lines = s("g");
  const here = s("line", { class: "here" });
  const cursor = s("line", { class: "cursor" });
  const dots = s("g");
  const svg = s("svg", { role: "img", tabindex: "0", class: "plot" }, grid, bands, lines, here, cursor, dots);
  const legend = h("div", { class: "legend" });
  const values = h("p", { class: "values", "aria-live": "polite" });
  const save = h("button", { type: "button", class: "plain small", title: "Save this chart as SVG", "aria-label": `Save ${title} as SVG`, on: { click: () => keep(svg, title) } }, "SVG");
  const node = h("figure", { class: "chart", "aria-label": title }, svg, h("figcaption", {}, legend, values, save));
  let width = 0;
  /** @type {number | null} */
  let pointed = null;
  /** @type {Drawing | null} */
  let last = null;
  /** @type {(x: number) => number} */
  let unmap = (x) => x;
  new ResizeObserver(([entry]) => {
    width = Math.floor(entry?.contentRect.width ?? 0);
    if (last) draw(last);
  }).observe(node);

  const axes = once((/** @type {{width: number, xs: number[], ys: number[], x: string, y: string, left: number, xr: Point, yr: Point}} */ key) => {
    const x = map(key.xr, key.left, key.width - 12);
    const y = map(key.yr, height - 26, 14);
    grid.replaceChildren(
      ...key.ys.flatMap((tick) => [
        s("line", { class: "rule", x1: key.left, x2: key.width - 12, y1: y(tick), y2: y(tick) }),
        s("text", { x: key.left - 6, y: y(tick) + 4, "text-anchor": "end" }, number(tick)),
      ]),
      ...key.xs.map((tick, place) => s("text", {
        x: x(tick),
        y: height - 10,
        "text-anchor": place > 0 && x(tick) > key.width - 30 ? "end" : "middle",
      }, number(tick))),
      s("text", { class: "unit", x: key.left - 6, y: 8, "text-anchor": "start" }, key.y),
      s("text", { class: "unit", x: key.width - 12, y: height - 30, "text-anchor": "end" }, key.x),
    );
  });

  /** @param {Drawing} drawing */
  function draw(drawing) {
    last = drawing;
    if (width < 60) return;
    attr(svg, "viewBox", `0 0 ${width} ${height}`);
    attr(svg, "height", height);
    const visible = drawing.series.filter((one) => !off.has(one.name));
    const points = visible.flatMap((one) => [one.points, one.low ?? [], one.high ?? []]).flat();
    const end = drawing.most ?? points.reduce((most, [x]) => Math.max(most, x), 1);
    const begin = drawing.most === undefined ? points.reduce((least, [x]) => Math.min(least, x), end) : 0;
    let top = points.reduce((most, [, y]) => Math.max(most, y), -Infinity);
    let bottom = points.reduce((least, [, y]) => Math.min(least, y), 0);
    if (!Number.isFinite(top)) [bottom, top] = [0, 1];
    if (top === bottom) top = bottom + 1;
    const ys = ticks(bottom, top, 3);
    top = Math.max(top, ys[ys.length - 1] ?? top);
    const left = 14 + 6.2 * Math.max(...ys.map((tick) => number(tick).length), 2);
    const xr = /** @type {Point} */ ([begin < end ? begin : 0, end]);
    const yr = /** @type {Point} */ ([bottom, top]);
    const count = Math.max(2, Math.floor((width - left) / 80));
    axes({ width, xs: ticks(xr[0], xr[1], count), ys, x: drawing.x, y: drawing.y, left, xr, yr });
    const x = map(xr, left, width - 12);
    const y = map(yr, height - 26, 14);
    unmap = (at) => xr[0] + ((at - left) / Math.max(1, width - 12 - left)) * (xr[1] - xr[0]);
    keyed(bands, visible.filter((one) => one.low && one.high), (one) => one.name, () => s("path", { class: "band" }), (band, one) => {
      band.style.fill = one.colour;
      attr(band, "d", `${path(one.high ?? [], x, y)}${path([...(one.low ?? [])].reverse(), x, y).replace("M", "L")}Z`);
    });
    keyed(lines, visible, (one) => one.name, () => s("path", { class: "line" }), (line, one) => {
      line.style.stroke = one.colour;
      attr(line, "stroke-dasharray", one.dash || null);
      attr(line, "d", path(thin(one.points, POINTS), x, y));
    });
    const at = drawing.at ?? null;
    show(here, at !== null);
    if (at !== null) vertical(here, x(Math.max(xr[0], Math.min(xr[1], at))));
    names(drawing);
    point(visible, x, y, drawing);
  }

  /**
   * @param {SVGLineElement} line
   * @param {number} at
   */
  function vertical(line, at) {
    attr(line, "x1", at.toFixed(1));
    attr(line, "x2", at.toFixed(1));
    attr(line, "y1", 14);
    attr(line, "y2", height - 26);
  }

  /** @param {Drawing} drawing */
  function names(drawing) {
    keyed(legend, drawing.series, (one) => one.name, (one) => {
      const sample = s("svg", { width: 18, height: 8, "aria-hidden": "true" }, s("line", { x1: 0, x2: 18, y1: 4, y2: 4, "stroke-dasharray": one.dash || null }));
      sample.style.stroke = one.colour;
      return h("button", {
        type: "button",
        class: "plain small",
        title: `Show or hide ${one.name}`,
        on: {
          click: () => {
            if (!off.delete(one.name)) off.add(one.name);
            if (last) draw(last);
          },
        },
      }, sample, one.name);
    }, (button, one) => {
      attr(button, "aria-pressed", String(!off.has(one.name)));
      flag(button, "off", off.has(one.name));
    });
  }

  /**
   * @param {Series[]} visible
   * @param {(x: number) => number} x
   * @param {(y: number) => number} y
   * @param {Drawing} drawing
   */
  function point(visible, x, y, drawing) {
    const found = visible.map((one) => ({ one, at: nearest(one.points, pointed ?? drawing.at ?? Infinity) })).filter((pair) => pair.at !== null);
    const first = found[0]?.at ?? null;
    show(cursor, pointed !== null && first !== null);
    if (first && pointed !== null) vertical(cursor, x(first[0]));
    keyed(dots, pointed === null ? [] : found, (pair) => pair.one.name, () => s("circle", { class: "dot", r: 3 }), (dot, pair) => {
      const at = /** @type {Point} */ (pair.at);
      dot.style.fill = pair.one.colour;
      attr(dot, "cx", x(at[0]).toFixed(1));
      attr(dot, "cy", y(at[1]).toFixed(1));
    });
    const said = found.map((pair) => `${pair.one.name} ${number(pair.at?.[1])}`).join(", ");
    text(values, pointed === null ? "" : `${drawing.x} ${number(first?.[0])}: ${said}`);
    attr(svg, "aria-label", `${title}. ${first ? `${drawing.x} ${number(first[0])}: ${said}` : "No points yet."}`);
  }

  svg.addEventListener("pointermove", (event) => {
    pointed = unmap(event.clientX - svg.getBoundingClientRect().left);
    if (last) draw(last);
  });
  const leave = () => {
    pointed = null;
    if (last) draw(last);
  };
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const points = last?.series.find((one) => !off.has(one.name))?.points;
    if (step === undefined || !points?.length) return;
    const place = pointed === null ? points.length - 1 : points.indexOf(nearest(points, pointed) ?? [0, 0]);
    pointed = points[Math.max(0, Math.min(points.length - 1, place + step))]?.[0] ?? null;
    if (last) draw(last);
    event.preventDefault();
    event.stopPropagation();
  });

  return { node, draw };
}

/**
 * @param {Point} range
 * @param {number} from
 * @param {number} to
 */
function map(range, from, to) {
  const scale = (to - from) / (range[1] - range[0] || 1);
  return (/** @type {number} */ value) => from + (value - range[0]) * scale;
}

const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "fill-opacity", "stroke-opacity", "font-size", "font-family", "font-weight"];

/**
 * A drawing as an SVG document of its own: what the style sheet says becomes attributes.
 * @param {SVGSVGElement} svg
 */
export function standalone(svg) {
  const copy = /** @type {SVGSVGElement} */ (svg.cloneNode(true));
  const from = [svg, ...svg.querySelectorAll("*")];
  const to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((source, place) => {
    const style = getComputedStyle(source);
    const target = to[place];
    if (!target) return;
    for (const name of KEPT) target.setAttribute(name, style.getPropertyValue(name));
    for (const name of ["style", "class", "tabindex"]) target.removeAttribute(name);
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const back = s("rect", { width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor });
  copy.insertBefore(back, copy.firstChild);
  return new XMLSerializer().serializeToString(copy);
}

/**
 * @param {SVGSVGElement} svg
 * @param {string} title
 */
export function keep(svg, title) {
  const address = URL.createObjectURL(new Blob([standalone(svg)], { type: "image/svg+xml" }));
  h("a", { href: address, download: `${title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-")}.svg` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
