/** The page of runs: a ledger of the store, two or more compared beside it, and runs that go on in the background. */

import { onRuns, replay } from "./actions.js";
import { get, post, remove } from "./api.js";
import { chart, look } from "./chart.js";
import { attr, flag, h, keyed, once, show, text } from "./dom.js";
import { listed, read } from "./schema.js";
import { change, refresh, state } from "./store.js";
import { ago, number, reason, seconds } from "./words.js";

/**
 * @typedef {import("./types.js").RunRow} RunRow
 * @typedef {import("./types.js").Section} Section
 * @typedef {{curves: {name: string, unit?: string, series: {name: string, points: [number, number][],
 *   low?: [number, number][], high?: [number, number][]}[]}[], sections: Section[]}} Comparison
 */

const UNDO = 10000;

const COLUMNS = /** @type {[keyof RunRow | "", string][]} */ ([["", ""], ["label", "label"], ["system", "system"], ["policy", "policy"], ["level", "level"], ["reward", "reward"], ["seconds", "time"], ["when", "when"]]);

/** Make the page. */
export function page() {
  let filter = "";
  let sort = "-when";
  let problem = "";
  /** @type {Set<string>} */
  const ticked = new Set();
  /** @type {Comparison | null} */
  let compared = null;
  let comparedOf = "";
  /** @type {{row: RunRow, until: number}[]} */
  let erased = [];

  let asked = 0;

  async function load() {
    const mine = ++asked; // answers may come in another order: only the newest counts
    try {
      const found = await get(`/api/runs?${new URLSearchParams({ filter, sort })}`);
      if (mine !== asked) return;
      problem = "";
      change({ runs: found.rows ?? found, runsLoaded: true });
    } catch (error) {
      if (mine !== asked) return;
      problem = reason(error);
      change({ runsLoaded: true });
    }
  }

  async function compare() {
    const ids = [...ticked].sort();
    const key = ids.join();
    if (key === comparedOf) return;
    comparedOf = key;
    compared = null;
    refresh();
    if (ids.length < 2) return;
    try {
      const found = await post("/api/runs/compare", { ids });
      if (comparedOf === key) compared = found;
    } catch (error) {
      problem = reason(error);
    }
    refresh();
  }

  /** @param {RunRow} row */
  async function erase(row) {
    try {
      await remove(`/api/runs/${encodeURIComponent(row.id)}`);
      erased = [...undoable(), { row, until: Date.now() + UNDO }];
      ticked.delete(row.id);
      setTimeout(refresh, UNDO + 50);
      await Promise.all([load(), compare()]);
    } catch (error) {
      problem = reason(error);
      refresh();
    }
  }

  const undoable = () => erased.filter((one) => Date.now() < one.until);

  /** Bring back every run that was deleted in the last seconds. */
  async function restore() {
    const back = undoable();
    erased = [];
    for (const { row } of back) {
      try {
        await post(`/api/runs/${encodeURIComponent(row.id)}/undelete`);
      } catch (error) {
        problem = reason(error);
      }
    }
    await load();
  }

  const search = h("input", { type: "text", id: "filter", placeholder: "policy, level, label …", autocomplete: "off", on: { input: () => {
    filter = search.value;
    void load();
  } } });
  const header = h("tr", {}, ...COLUMNS.map(([name, label]) => h("th", { scope: "col", class: name === "reward" || name === "seconds" ? "num" : null }, name === ""
    ? h("span", { class: "unseen" }, "compare")
    : h("button", { type: "button", class: "sort", on: { click: () => {
      sort = sort === name ? `-${name}` : name;
      void load();
    } } }, label))), h("th", { scope: "col" }, h("span", { class: "unseen" }, "what to do")));
  const body = h("tbody", {});
  const table = h("table", { class: "ledger" }, h("thead", {}, header), body);
  const empty = h("p", { class: "empty" });
  const undoText = h("span", {});
  const undoBar = h("p", { class: "strip", role: "status" }, undoText, h("button", { type: "button", class: "plain small", on: { click: () => restore() } }, "Undo"));
  const error = h("p", { class: "error", role: "alert" });
  const beside = h("section", { class: "beside", "aria-label": "Comparison" });
  const plots = h("div", { class: "plots" });
  const sections = h("div", {});
  const exports = h("p", { class: "acts" });
  beside.append(h("h2", {}, "Beside each other"), plots, sections, exports);
  const jobs = background();
  const split = h("div", { class: "split" }, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" }, table, empty), beside);
  const node = h("div", { class: "page runs-page" }, h("h1", { class: "unseen" }, "Runs"),
    h("div", { class: "toolbar" }, h("label", { for: "filter" }, "Show"), search), error, undoBar,
    split, jobs.node);

  const drawn = once((/** @type {Comparison | null} */ found) => {
    plots.replaceChildren(...(found?.curves ?? []).map((one) => {
      const plot = chart(one.name, 150);
      plot.draw({ series: one.series.map((line, place) => ({ ...line, ...look(place) })), x: "step", y: one.unit ?? one.name });
      return h("div", { class: "card pad" }, h("h3", {}, one.name), plot.node);
    }));
    sections.replaceChildren(...(found?.sections ?? []).map(sectionNode));
  });

  function update() {
    const rows = state.runs;
    keyed(body, rows, (one) => one.id, (one) => rowNode(one), (line, one) => patchRow(line, one));
    for (const [place, [name]] of COLUMNS.entries()) {
      const mark = sort === name ? "ascending" : sort === `-${name}` ? "descending" : null;
      attr(/** @type {Element} */ (header.children[place]), "aria-sort", mark);
    }
    show(table, rows.length > 0);
    text(empty, !state.runsLoaded ? "Loading the runs …" : filter ? `No run fits "${filter}".` : "No run is kept yet. Let one on the stage go to its end and keep it, or start one below; those of the command line are here too.");
    show(empty, rows.length === 0);
    text(error, problem);
    show(error, problem !== "");
    const back = undoable();
    show(undoBar, back.length > 0);
    text(undoText, `Deleted ${back.map(({ row }) => row.label || row.id).join(", ")}.`);
    show(beside, ticked.size >= 2);
    flag(split, "comparing", ticked.size >= 2);
    drawn(compared);
    const ids = [...ticked].join(",");
    keyed(exports, ticked.size > 0 ? ["csv", "parquet", "svg"] : [], (one) => `${one} ${ids}`, (one) =>
      h("a", { class: "plain link", href: `/api/runs/export?${new URLSearchParams({ ids, format: one })}`, download: "" }, `Save ${one.toUpperCase()}`));
    jobs.update();
  }

  /** @param {unknown} failure */
  function fail(failure) {
    problem = reason(failure);
    refresh();
  }

  /** @param {RunRow} one */
  function rowNode(one) {
    const tick = h("input", { type: "checkbox", "aria-label": `Compare ${one.label || one.id}`, on: { change: () => {
      if (tick.checked) ticked.add(one.id);
      else ticked.delete(one.id);
      void compare();
      refresh();
    } } });
    return h("tr", {}, h("td", {}, tick), h("th", { scope: "row" }), ...Array.from({ length: 3 }, () => h("td")),
      h("td", { class: "num" }), h("td", { class: "num" }), h("td"),
      h("td", {}, h("div", { class: "acts" },
        h("a", { class: "plain small link", href: `/api/runs/report?ids=${encodeURIComponent(one.id)}`, target: "_blank", rel: "noopener" }, "Report"),
        h("button", { type: "button", class: "plain small", on: { click: () => replay(one.id).catch(fail) } }, "On the stage"),
        h("button", { type: "button", class: "plain small", "aria-label": `Delete ${one.label || one.id}`, on: { click: () => erase(one) } }, "Delete"))));
  }

  /**
   * @param {HTMLTableRowElement} line
   * @param {RunRow} one
   */
  function patchRow(line, one) {
    const cells = [...line.children];
    const running = one.status === "running";
    const interval = one.interval ? ` (${number(one.interval[0])} to ${number(one.interval[1])})` : "";
    const texts = [one.label || one.id, one.system, one.policy, one.level, `${number(one.reward)}${interval}`, seconds(one.seconds),
      running && one.whole ? `goes on: ${number(one.time ?? 0)} of ${number(one.whole)}` : one.status === "finished" || one.status === "done" ? ago(one.when, Date.now()) : `${one.status}, ${ago(one.when, Date.now())}`];
    texts.forEach((value, place) => text(/** @type {Element} */ (cells[place + 1]), value));
    attr(/** @type {Element} */ (cells[1]), "title", one.id);
    flag(line, "running", running);
  }

  onRuns(() => void load());
  void load();
  setInterval(() => {
    if (state.page === "runs" && !document.hidden && state.runs.some((one) => one.status === "running")) void load();
  }, 2000);
  return { node, update };
}

/**
 * A table with notes.
 * @param {Section} one
 */
export function sectionNode(one) {
  return h("section", { class: "section" }, one.title ? h("h3", {}, one.title) : null,
    one.rows.length ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": one.title || "Table" }, h("table", {},
      h("thead", {}, h("tr", {}, ...one.columns.map((name, place) => h("th", { scope: "col", class: one.numeric.includes(place) ? "num" : null }, name)))),
      h("tbody", {}, ...one.rows.map((row) => h("tr", {}, ...row.map((value, place) => h("td", { class: one.numeric.includes(place) ? "num" : null }, value))))))) : null,
    one.notes.length ? h("ul", { class: "notes" }, ...one.notes.map((note) => h("li", {}, note.replace(/^- /, "")))) : null);
}

// In the background -------------------------------------------------------------------------------------------------

function background() {
  const count = h("input", { type: "text", id: "job-runs", inputmode: "numeric", value: "5" });
  const over = h("select", { id: "job-over" });
  const values = h("input", { type: "text", id: "job-values", placeholder: "such as 2, 5, 10" });
  const error = h("p", { class: "error", role: "alert" });
  const about = h("p", { class: "note" });
  const list = h("ul", { class: "jobs", "aria-label": "In the background" });
  const start = h("button", { type: "submit", class: "primary" }, "Start in the background");
  const node = h("section", { class: "card pad background", "aria-label": "In the background" }, h("h2", {}, "In the background"), about,
    h("form", { class: "line", on: { submit: (/** @type {Event} */ event) => { event.preventDefault(); void begin(); } } },
      h("div", { class: "field" }, h("label", { for: "job-runs" }, "runs"), count),
      h("div", { class: "field" }, h("label", { for: "job-over" }, "vary a setting"), over),
      h("div", { class: "field" }, h("label", { for: "job-values" }, "values"), values), start), error, list);

  async function begin() {
    const system = state.system;
    if (system === null) return;
    const vary = over.value;
    const given = /** @type {import("./schema.js").Field} */ ({ kind: "list" });
    try {
      await post("/api/jobs", {
        kind: vary ? "sweep" : "run",
        system: system.name,
        settings: state.settings,
        runs: Number(count.value) || 1,
        over: vary ? { [vary]: read(given, values.value) ?? [] } : {},
      });
      text(error, ""); // the stream brings the job; an answer to a question of our own could be older than what it brings
    } catch (failure) {
      text(error, reason(failure));
    }
  }
  const options = once((/** @type {string[]} */ names) => {
    over.replaceChildren(h("option", { value: "" }, "none"), ...names.map((one) => h("option", { value: one }, one.replaceAll("_", " "))));
  });
  function update() {
    const system = state.system;
    options(system ? Object.keys(system.schema.properties).filter((name) => name !== "runs" && name !== "points") : []);
    text(about, system ? `The settings that stand in the set-up of the stage: ${system.title}, ${listed(state.settings)}.` : "");
    show(error, error.textContent !== "");
    keyed(list, state.jobs, (one) => one.id, jobNode, patchJob);
  }
  return { node, update };
}

/** @param {import("./types.js").Job} one */
export function jobNode(one) {
  return h("li", { class: "job" }, h("span", { class: "text" }), h("progress", { max: 1, "aria-label": "progress" }),
    h("button", { type: "button", class: "plain small", on: { click: () => void remove(`/api/jobs/${one.id}`) } }, "Cancel"));
}

/**
 * @param {HTMLElement} item
 * @param {import("./types.js").Job} one
 */
export function patchJob(item, one) {
  const [words, bar, cancel] = /** @type {[HTMLElement, HTMLProgressElement, HTMLButtonElement]} */ ([...item.children]);
  text(words, one.error ? `${one.kind} of ${one.system}: ${one.error}` : `${one.kind} of ${one.system}: ${one.text}, ${number(one.done)} of ${number(one.of)}`);
  bar.value = one.finished ? 1 : one.share;
  text(cancel, one.finished ? "Forget" : "Cancel");
  flag(item, "bad", Boolean(one.error));
}
