/** The page to choose with: policies against levels on the chosen data; reward, cost, and what is found out. */

import { replay } from "./actions.js";
import { judged } from "./closer.js";
import { post, remove } from "./api.js";
import { attr, flag, h, keyed, once, s, show, text } from "./dom.js";
import { listed, write } from "./schema.js";
import { refresh, state } from "./store.js";
import { number, reason, seconds } from "./words.js";

/**
 * @typedef {import("./types.js").Cell} Cell
 * @typedef {import("./types.js").Job} Job
 */

/** Settings that a grid varies. */
const GRID = ["policy", "level"];
/** Policies that are ticked at first, at most. */
const FIRST = 4;

/** Make the page. */
export function page() {
  /** @type {Set<string>} */
  let ticks = new Set();
  let runs = 5;
  let problem = "";
  let current = "";
  let begun = ""; // a job that the stream has not brought yet
  const about = h("p", { class: "note" });
  const policies = h("fieldset", { class: "ticks" });
  const count = h("input", { type: "text", id: "choose-runs", inputmode: "numeric", value: String(runs), on: { change: () => { runs = Math.max(1, Number(count.value) || 1); } } });
  const start = h("button", { type: "submit", class: "primary" }, "Run the grid");
  const cancel = h("button", { type: "button", class: "plain", on: { click: () => void remove(`/api/jobs/${current}`).catch(fail) } }, "Cancel");
  const error = h("p", { class: "error", role: "alert" });
  const answer = h("p", { class: "answer", role: "status" });
  const given = h("p", { class: "note given" });
  const progress = h("progress", { max: 1, "aria-label": "progress" });
  const head = h("tr", {});
  const body = h("tbody", {});
  const grid = h("table", { class: "grid-table" }, h("thead", {}, head), body);
  const empty = h("p", { class: "empty" }, "Nothing has been run yet. Tick policies and press Run the grid: each cell fills in when its runs are done.");
  const form = h("form", { class: "card pad choose-form", on: { submit: (/** @type {Event} */ event) => { event.preventDefault(); void begin(); } } },
    h("h2", {}, "Which bandit, which protection?"), about, policies,
    h("div", { class: "field" }, h("label", { for: "choose-runs" }, "runs of each"), count), h("div", { class: "acts" }, start, cancel), error);
  const node = h("div", { class: "page choose-page" }, h("h1", { class: "unseen" }, "Choose"), form,
    h("section", { class: "results", "aria-label": "What came out" }, answer, given, progress, empty, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Policies and levels" }, grid)));

  async function begin() {
    const system = state.system;
    if (system === null) return;
    try {
      const over = { policy: [...ticks] };
      const job = await post("/api/jobs", { kind: "choose", system: system.name, settings: state.settings, over, runs });
      begun = job.id;
      problem = "";
      refresh();
    } catch (failure) {
      fail(failure);
    }
  }

  /** @param {unknown} failure */
  function fail(failure) {
    problem = reason(failure);
    refresh();
  }

  const options = once((/** @type {[string, string[]]} */ [, names]) => {
    const now = write(state.settings["policy"] ?? "");
    const first = [...new Set([...names.filter((one) => one === now), ...names])].slice(0, FIRST);
    ticks = new Set(first);
    policies.replaceChildren(h("legend", {}, "policies"), ...names.map((value) => {
      const box = h("input", { type: "checkbox", on: { change: () => {
        if (box.checked) ticks.add(value);
        else ticks.delete(value);
        refresh();
      } } });
      box.checked = first.includes(value);
      return h("label", { class: "switch" }, box, value);
    }));
  });

  function update() {
    const system = state.system;
    if (!system) return;
    options([system.name, system.policies.map((one) => one.name)]);
    text(about, `${state.scenario || system.title}, with the settings of the stage, at every level and in the clear.`);
    text(error, problem);
    show(error, problem !== "");
    const own = state.jobs.filter((one) => one.kind === "choose" && one.system === system.name);
    if (own.some((one) => one.id === begun)) [current, begun] = [begun, ""];
    const job = own.find((one) => one.id === current) ?? own[0];
    current = job?.id ?? current;
    const [ran, now] = [job?.settings ?? {}, state.settings].map((one) => listed(one, GRID));
    text(given, ran === now ? `Run with the settings of the stage: ${ran}.` : `Run with other settings than the stage has now: ${ran}.`);
    flag(given, "other", ran !== now);
    show(given, job !== undefined);
    show(cancel, job !== undefined && !job.finished);
    attr(start, "disabled", ticks.size === 0 || (job !== undefined && !job.finished));
    show(progress, job !== undefined && !job.finished);
    progress.value = job?.share ?? 0;
    text(answer, job ? job.says ?? (job.error || (job.finished ? job.text : `${job.done} of ${job.of} cells are done.`)) : "");
    show(answer, answer.textContent !== "");
    show(empty, !job);
    show(grid, job !== undefined);
    if (job) draw(job);
  }

  /** @param {Job} job */
  function draw(job) {
    const cells = job.cells ?? [];
    const columns = [...new Set(cells.map((one) => one.level))];
    const rows = [...new Set(cells.map((one) => one.policy))];
    keyed(head, ["", ...columns], (one) => one, (one) => h("th", { scope: "col" }, one));
    const most = Math.max(1e-9, ...cells.map((one) => Math.max(one.best ?? 0, one.reward?.high ?? 0)));
    keyed(body, rows, (one) => one, () => h("tr", {}), (line, policy) => {
      const own = columns.map((level) => cells.find((one) => one.policy === policy && one.level === level));
      const nodes = own.map((one, place) => ({ one, level: columns[place] ?? "" }));
      keyed(line, [{ one: undefined, level: "" }, ...nodes], (pair) => pair.level,
        (pair) => (pair.level === "" ? h("th", { scope: "row" }, policy) : h("td", {})),
        (box, pair) => { if (pair.level !== "") patch(box, pair.one, most, fail); });
    });
  }
  return { node, update };
}

/** @type {WeakMap<Element, string>} */
const drawn = new WeakMap();

/**
 * @param {Element} box
 * @param {Cell | undefined} cell
 * @param {number} most
 * @param {(failure: unknown) => void} fail
 */
function patch(box, cell, most, fail) {
  const key = JSON.stringify([cell, most]);
  if (drawn.get(box) === key) return;
  drawn.set(box, key);
  flag(box, "waiting", !cell?.done);
  if (!cell?.reward) {
    box.replaceChildren(h("p", { class: "note" }, cell?.error ?? (cell?.done ? "no figure" : "waits")));
    return;
  }
  const { mean, low, high } = cell.reward;
  const x = (/** @type {number} */ value) => 4 + (182 * value) / most;
  const best = cell.best ?? null;
  box.replaceChildren(
    s("svg", { class: "small-chart", viewBox: "0 0 190 22", role: "img", "aria-label": `reward ${number(mean)}, ${number(low)} to ${number(high)}` },
      s("line", { class: "rule", x1: 4, x2: 186, y1: 11, y2: 11 }),
      best === null ? null : s("line", { class: "best", x1: x(best), x2: x(best), y1: 3, y2: 19 }),
      s("line", { class: "range", x1: x(low), x2: x(high), y1: 11, y2: 11 }),
      s("circle", { class: "dot", cx: x(mean), cy: 11, r: 4 })),
    h("p", {}, h("strong", {}, number(mean)), best ? ` · ${number((100 * mean) / best, 3)} % of the best arm` : ""),
    h("p", { class: "note" }, `${seconds(cell.per_step ?? null)} a step`),
    h("p", { class: `verdict ${judged(cell.verdict)}` }, cell.finds ? `${cell.verdict}: ${cell.finds}` : cell.verdict ?? ""),
    cell.together ? h("p", { class: "note" }, `together, ${cell.together}`) : "",
    cell.run ? h("p", {}, h("button", { type: "button", class: "plain small", on: { click: () => void replay(cell.run ?? "").catch(fail) } }, "On the stage")) : "",
  );
}
