/** The page of budgets: move epsilon, delta, unit and rounds, and see noise, figures, and what they do not cover. */

import { get, post, Refused } from "./api.js";
import { chart, look } from "./chart.js";
import { h, keyed, once, put, show, text } from "./dom.js";
import { form } from "./form.js";
import { field, write } from "./schema.js";
import { sectionNode } from "./runs.js";
import { refresh } from "./store.js";
import { label, reason } from "./words.js";

/**
 * @typedef {import("./types.js").Budget} Budget
 * @typedef {import("./types.js").Section} Section
 * @typedef {{settings: Record<string, unknown>, sections: Section[], data?: unknown[], says?: string, not_covered?: string[],
 *   notes: string[]}} Answer
 * @typedef {{sentence: string, not_covered: string[]}} Guarantee
 */

const WAIT = 200;
const POINTS = 9;

/** Make the page. */
export function page() {
  /** @type {Budget[]} */
  let budgets = [];
  let chosen = "";
  /** @type {Record<string, unknown>} */
  let values = {};
  /** @type {Answer | null} */
  let answer = null;
  let wrong = { field: "", message: "" };
  let busy = false;
  /** @type {{over: string, points: [number, number][], name: string} | null} */
  let curve = null;

  const which = h("select", { id: "budget", on: { change: () => take(which.value) } });
  const about = h("p", { class: "note" });
  const fields = form({
    id: "budget-setting",
    sliders: true,
    value: (name) => (name in values ? values[name] : answer?.settings[name] ?? null),
    set: (name, value) => {
      if (value === null) delete values[name];
      else values[name] = value;
      refresh();
      ask();
    },
    error: (name) => (wrong.field === name ? wrong.message : ""),
  });
  const error = h("p", { class: "error", role: "alert" });
  const sentence = h("p", { class: "answer", role: "status" });
  const covered = h("ul", { class: "uncovered" });
  const coveredBox = h("section", { class: "card pad", "aria-label": "What this does not cover" }, h("h2", {}, "What this does not cover"), covered);
  const sections = h("div", {});
  const over = h("select", { id: "curve-over" });
  const trace = h("button", { type: "button", class: "plain", on: { click: () => void sweep() } });
  const plot = chart("Figure against a setting", 170);
  plot.node.hidden = true;
  const node = h("div", { class: "page privacy-page" }, h("h1", { class: "unseen" }, "Privacy"),
    h("section", { class: "card pad", "aria-label": "Budget" }, h("div", { class: "field wide" }, h("label", { for: "budget" }, "Budget"), which, about), fields.node, error),
    h("div", { class: "results" }, sentence, coveredBox,
      h("section", { class: "card pad", "aria-label": "Curve" }, h("div", { class: "bar" }, h("label", { for: "curve-over" }, "against"), over, trace), plot.node), sections));

  async function load() {
    try {
      budgets = await get("/api/budgets");
      take(budgets[0]?.name ?? "");
    } catch (failure) {
      wrong = { field: "", message: reason(failure) };
    }
    refresh();
  }

  /** @param {string} name */
  function take(name) {
    chosen = name;
    values = {};
    answer = null;
    curve = null;
    wrong = { field: "", message: "" };
    ask();
    refresh();
  }

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let asking;
  let turn = 0;

  function ask() {
    clearTimeout(asking);
    asking = setTimeout(async () => {
      const now = (turn += 1);
      try {
        const found = await post(`/api/budgets/${encodeURIComponent(chosen)}`, values);
        if (now !== turn) return;
        answer = found;
        wrong = { field: "", message: "" };
      } catch (failure) {
        if (now !== turn) return;
        wrong = { field: failure instanceof Refused ? failure.field : "", message: reason(failure) };
      }
      refresh();
    }, WAIT);
  }

  /** Ask for the figure at several values of one setting. */
  async function sweep() {
    const name = over.value;
    const middle = Number(values[name] ?? answer?.settings[name] ?? 1) || 1;
    const whole = budgets.find((one) => one.name === chosen)?.schema.properties[name]?.type === "integer";
    busy = true;
    curve = { over: name, points: [], name: "" };
    for (let place = 0; place < POINTS; place += 1) {
      const raw = middle * 10 ** ((place - (POINTS - 1) / 2) / 4);
      const at = whole ? Math.max(1, Math.round(raw)) : Number(raw.toPrecision(3));
      try {
        const found = /** @type {Answer} */ (await post(`/api/budgets/${encodeURIComponent(chosen)}`, { ...values, [name]: at }));
        const figure = name === "epsilon" ? figureIn(found.data, ["noise_multiplier", "noise", "multiplier"]) : figureIn(found.data, ["epsilon"]);
        const named = figure ?? figureIn(found.data, ["epsilon"]);
        if (named !== null) {
          curve.name = named.name.replaceAll("_", " ");
          curve.points.push([at, named.value]);
        }
      } catch {
        // A value that is refused has no point.
      }
      refresh();
    }
    busy = false;
    refresh();
  }

  const options = once((/** @type {string[]} */ _names) => {
    which.replaceChildren(...budgets.map((one) => h("option", { value: one.name }, one.title ?? label(one.name))));
  });
  const shown = once((/** @type {Section[]} */ all) => {
    sections.replaceChildren(...all.filter((one) => one.title !== "Not covered").map(sectionNode));
  });
  const draw = once((/** @type {typeof curve} */ found) => {
    show(plot.node, found !== null);
    plot.draw({ series: found ? [{ name: found.name || "figure", points: found.points, ...look(0) }] : [], x: found ? label(found.over) : "", y: found?.name ?? "" });
  });
  const axes = once((/** @type {string[]} */ names) => over.replaceChildren(...names.map((one) => h("option", { value: one }, label(one)))));

  function update() {
    options(budgets.map((one) => one.name));
    put(which, chosen);
    const budget = budgets.find((one) => one.name === chosen);
    text(about, budget?.summary ?? (budgets.length ? "" : "Loading …"));
    const all = budget ? Object.entries(budget.schema.properties).map(([name, property]) => field(name, property)) : [];
    fields.update(all.length ? [{ title: "", folded: false, fields: all }] : []);
    text(error, wrong.field === "" ? wrong.message : "");
    show(error, error.textContent !== "");
    const found = guarantees(answer?.data ?? []);
    const first = found[0];
    text(sentence, first ? first.sentence.replace(/ Not covered:.*$/s, "") : answer?.says || (answer?.notes.join(" ") ?? ""));
    show(sentence, sentence.textContent !== "");
    const missing = [...new Set([...found.flatMap((one) => one.not_covered), ...(answer?.not_covered ?? [])])];
    keyed(covered, missing, (one) => one, (one) => h("li", {}, one));
    show(coveredBox, missing.length > 0);
    shown(answer?.sections ?? []);
    axes(all.filter((one) => one.kind === "number" || !Number.isNaN(Number(write(one.fallback) || "x"))).map((one) => one.name));
    text(trace, busy ? "Drawing …" : "Draw the curve");
    trace.disabled = busy;
    draw(curve === null ? null : { ...curve, points: [...curve.points] });
  }

  void load();
  return { node, update };
}

/**
 * Guarantees anywhere in what a budget found.
 * @param {unknown} value
 * @returns {Guarantee[]}
 */
function guarantees(value) {
  if (Array.isArray(value)) return value.flatMap(guarantees);
  if (value === null || typeof value !== "object") return [];
  if ("sentence" in value && "not_covered" in value) return [/** @type {Guarantee} */ (value)];
  return Object.values(value).flatMap(guarantees);
}

/**
 * The first number under one of these names, anywhere in what was found.
 * @param {unknown} value
 * @param {string[]} names
 * @returns {{name: string, value: number} | null}
 */
function figureIn(value, names) {
  if (value === null || typeof value !== "object") return null;
  for (const name of names) {
    const own = /** @type {Record<string, unknown>} */ (value)[name];
    if (typeof own === "number") return { name, value: own };
  }
  for (const [name, inner] of Object.entries(value)) {
    const found = name === "settings" ? null : figureIn(inner, names);
    if (found) return found;
  }
  return null;
}

