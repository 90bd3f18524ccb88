/** Under the stage: the sentence about what happens now, what was earned, what it cost. */

import { chart, look } from "./chart.js";
import { tint } from "./colour.js";
import { attr, h, keyed, once, s, show, text } from "./dom.js";
import { keep, measure } from "./looking.js";
import { reach } from "./scale.js";
import { change, event, kindOf, labelOf, state } from "./store.js";
import { capital, number, pieces, seconds, size } from "./words.js";

/** The log line: one sentence, with party names in the colour of their role. */
export function log() {
  const line = h("p", {});
  const step = h("span", { class: "stepname" });
  const node = h("section", { class: "log", "aria-label": "What happens now", role: "status" }, step, line);
  const write = once((/** @type {[string, unknown]} */ [said]) => {
    line.replaceChildren(...pieces(said).map((piece) => {
      if (!piece.party) return piece.text;
      const name = h("strong", { class: "who" }, labelOf(piece.text));
      tint(name, state.system?.roles ?? [], kindOf(piece.text));
      return name;
    }));
  });
  function update() {
    const now = state.stage;
    attr(node, "aria-live", now?.phase === "playing" ? "off" : "polite");
    const shown = event();
    const last = now?.done && state.selected === null;
    const headline = now?.scene?.figures[0];
    const said = last
      ? `The end: ${headline?.text ?? ""}. ${now.says ?? ""}`
      : shown?.says || (now?.phase === "playing" || now?.phase === "moving" ? "The first step is under way; what runs for the first time is compiled first." : now && now.phase !== "starting" ? "Everything is ready, and nothing has happened yet. Press Play, or go forward by one message." : "");
    write([said, state.system?.name]);
    text(step, shown?.step && !last ? `Step ${shown.step} · ${shown.name}` : last ? "Done" : shown?.name ?? "");
    show(step, step.textContent !== "");
  }
  return { node, update };
}

/** What was earned, against time. */
export function reward() {
  const title = h("h2", {});
  const headline = h("p", { class: "headline" });
  const plot = chart("What was earned");
  const figures = h("ul", { class: "figures" });
  const save = h("button", { type: "button", class: "plain small", on: { click: () => keep() } }, "Keep this run");
  const node = h("section", { class: "card reward" }, h("div", { class: "bar" }, title, save), headline, plot.node, figures);
  const draw = once((/** @type {unknown[]} */ _key) => {
    const names = Object.keys(state.curves);
    plot.draw({
      series: names.map((name, place) => ({ name, points: state.curves[name] ?? [], ...look(place) })),
      x: state.stage?.unit || "time",
      y: state.system?.words["reward"] ?? "reward",
      most: reach(state.stage?.time ?? 0, state.stage?.horizon ?? 1),
      at: state.stage?.time ?? 0,
    });
  });
  function update() {
    const all = state.stage?.scene?.figures ?? [];
    text(title, capital(all[0]?.name ?? state.system?.words["reward"] ?? "reward"));
    text(headline, all[0]?.text ?? "");
    draw([state.stage?.id, state.stage?.time, state.stage?.horizon, Object.entries(state.curves).map(([name, points]) => [name, points.length, points.at(-1)])]);
    keyed(figures, all.slice(1), (one) => one.name, (one) => h("li", {}, h("span", { class: "label" }, capital(one.name)), " ", h("span", {})),
      (item, one) => text(/** @type {Element} */ (item.lastChild), one.text));
    show(save, state.stage?.done === true);
  }
  return { node, update };
}

/** What it cost: time by role, traffic by arrow, and what each protection adds. */
export function cost() {
  const headline = h("p", { class: "headline" });
  const bars = h("ul", { class: "bars", "aria-label": "Time a step, by role" });
  const empty = h("p", { class: "empty" }, "No time has been spent yet.");
  const button = h("button", { type: "button", class: "plain small", on: { click: () => measure() } });
  const measured = h("div", { class: "measured" });
  const against = chart("Time against steps", 112);
  const traffic = h("tbody", {});
  const fold = h("details", { class: "fold" }, h("summary", {}, "Messages and bytes"),
    h("table", {}, h("thead", {}, h("tr", {}, ...["from", "to", "messages", "bytes"].map((one) => h("th", { scope: "col" }, one)))), traffic));
  const node = h("section", { class: "card cost" }, h("div", { class: "bar" }, h("h2", {}, "Cost"), headline), empty, bars, fold, against.node, h("p", { class: "acts" }, button), measured);
  const table = once((/** @type {import("./types.js").Cost | null} */ found) => {
    measured.replaceChildren();
    if (!found) return;
    const most = Math.max(...found.rows.map((one) => one.per_step ?? 0), 1e-12);
    if (found.rows.length > 0) {
      measured.append(h("table", {}, h("thead", {}, h("tr", {}, ...["measured now", "a step", "in all"].map((one) => h("th", { scope: "col" }, one)))),
        h("tbody", {}, ...found.rows.map((one) => h("tr", {}, h("th", { scope: "row" }, one.name, meter((one.per_step ?? 0) / most)), h("td", { class: "num" }, seconds(one.per_step)), h("td", { class: "num" }, seconds(one.seconds)))))));
    }
    for (const note of [found.note, ...(found.notes ?? [])]) if (note) measured.append(h("p", { class: "note" }, note));
  });
  const draw = once((/** @type {unknown[]} */ _key) => {
    const lines = [{ name: "this run", points: state.spent }, ...(state.cost?.rows ?? []).map((one) => ({ name: one.name, points: one.points ?? [] }))];
    against.draw({
      series: lines.filter((one) => one.points.length > 0).map((one, place) => ({ ...one, points: one.points.map(([time, spent]) => [time, 1000 * spent]), ...look(place) })),
      x: state.stage?.unit || "step",
      y: "ms of CPU in all",
      most: reach(Math.max(state.stage?.time ?? 0, ...lines.map((one) => one.points.at(-1)?.[0] ?? 0)), state.stage?.horizon ?? 1),
      at: state.stage?.time ?? 0,
    });
  });
  function update() {
    const now = state.stage;
    const costs = now?.costs ?? [];
    const total = costs.reduce((sum, one) => sum + (one.per_step ?? 0), 0);
    const most = Math.max(...costs.map((one) => one.per_step ?? 0), 1e-12);
    text(headline, total > 0 ? `${seconds(total)} a ${now?.unit || "step"}` : "");
    show(empty, total === 0);
    show(bars, total > 0);
    keyed(bars, costs, (one) => one.kind, (one) => {
      const item = h("li", {}, h("span", { class: "label" }, one.kind), h("span", { class: "rail" }, h("span", { class: "fill" })), h("span", { class: "num" }));
      tint(item, state.system?.roles ?? [], one.kind);
      return item;
    }, (item, one) => {
      const fill = /** @type {HTMLElement} */ (item.querySelector(".fill"));
      const width = `${((100 * (one.per_step ?? 0)) / most).toFixed(1)}%`;
      if (fill.style.width !== width) fill.style.width = width;
      text(/** @type {Element} */ (item.lastChild), seconds(one.per_step));
    });
    if (fold.open) {
      keyed(traffic, now?.traffic ?? [], (one) => `${one.from} ${one.to}`, (one) => h("tr", {}, h("td", {}, one.from), h("td", {}, one.to), h("td", { class: "num" }), h("td", { class: "num" })),
        (line, one) => {
          text(/** @type {Element} */ (line.children[2]), number(one.messages));
          text(/** @type {Element} */ (line.children[3]), size(one.bytes));
        });
    }
    show(against.node, state.spent.length > 1 || (state.cost?.rows ?? []).some((one) => (one.points ?? []).length > 1));
    draw([now?.id, now?.horizon, state.spent.length, state.spent.at(-1), state.cost]);
    text(button, state.costing ? "Measuring …" : "Measure what each protection adds");
    attr(button, "disabled", state.costing || now === null);
    table(state.cost);
  }
  fold.addEventListener("toggle", () => change({}));
  return { node, update };
}

/**
 * A small bar beside a number.
 * @param {number} part
 */
function meter(part) {
  const svg = s("svg", { class: "meter", viewBox: "0 0 60 6", width: 60, height: 6, "aria-hidden": "true" },
    s("rect", { width: Math.max(1, 60 * part), height: 6, rx: 3 }));
  return svg;
}
