/** The set-up beside the stage: system, scenario, settings from the schema, what the data give, and Start again. */

import { choose, drop, edited, set, start, take, value } from "./actions.js";
import { attr, flag, h, once, put, show, text } from "./dom.js";
import { form, histogram } from "./form.js";
import { blocks, current, write } from "./schema.js";
import { refresh, state } from "./store.js";
import { label, number } from "./words.js";

/** Make the set-up. */
export function setup() {
  const system = h("select", { id: "system", on: { change: () => { choose(system.value); void start(); } } });
  const scenario = h("select", { id: "scenario", on: { change: () => { take(scenario.value); void start(); } } });
  const about = h("p", { class: "note about" });
  /** @type {import("./form.js").Owner} */
  const owner = {
    id: "setting",
    value,
    set,
    error: wrong,
    note,
    words: (field, option) => (field.name === "data" ? dataName(option) : option),
  };
  const [fields, more] = [form(owner), form(owner)];
  const preview = h("div", { class: "preview" });
  const file = h("input", { type: "file", id: "own-file", accept: ".csv,.json,.gz,.dat,.inter,text/csv", class: "hidden-file", on: {
    change: () => { if (file.files?.[0]) void drop(file.files[0]); },
  } });
  const own = h("p", { class: "own" }, h("label", { for: "own-file", class: "linklike" }, "Use a CSV of your own"), file, " or drop it on the page.");
  const errors = h("p", { class: "error", role: "alert" });
  const level = h("p", { class: "note level" });
  const go = h("button", { type: "submit", class: "primary" }, "Start again");
  const fold = h("button", { type: "button", class: "foldline", "aria-expanded": "false", on: { click: () => { open = !open; refresh(); } } });
  let open = false;
  const inside = h("form", { class: "inside", on: { submit: (/** @type {Event} */ event) => { event.preventDefault(); void start(); } } },
    h("div", { class: "field wide" }, h("label", { for: "system" }, "System"), system),
    h("div", { class: "field wide" }, h("label", { for: "scenario" }, "Scenario"), scenario, about),
    fields.node, errors, level, go, more.node, preview, own);
  const node = h("aside", { class: "setup", "aria-label": "Set-up" }, h("h2", {}, "Set-up"), fold, inside);

  const systems = once((/** @type {string[]} */ _names) => {
    system.replaceChildren(...state.systems.map((one) => h("option", { value: one.name }, `${one.title}: ${one.protects || one.summary}`)));
  });
  const scenarios = once((/** @type {string[]} */ names) => {
    scenario.replaceChildren(h("option", { value: "" }, "your own settings"), ...names.map((one) => h("option", { value: one }, one)));
  });
  const seen = once((/** @type {import("./types.js").Preview | null} */ shown) => {
    preview.replaceChildren();
    if (!shown) return;
    if (shown.histogram?.length) preview.append(histogram(shown.histogram));
    if (shown.arms?.length) {
      preview.append(h("details", { class: "fold" },
        h("summary", {}, `${shown.arms.length} arms, means ${number(Math.min(...shown.arms.map((one) => one.mean)), 2)} to ${number(Math.max(...shown.arms.map((one) => one.mean)), 2)}`),
        h("table", {}, h("thead", {}, h("tr", {}, ...["arm", "mean", "ratings"].map((one) => h("th", { scope: "col" }, one)))),
          h("tbody", {}, ...shown.arms.map((one) => h("tr", {}, h("td", {}, one.name), h("td", { class: "num" }, number(one.mean, 3)), h("td", { class: "num" }, number(one.ratings ?? null))))))));
    }
    if (shown.central) preview.append(central(shown.central));
    if (shown.note) preview.append(h("p", { class: "note" }, shown.note));
  });

  function update() {
    const now = state.system;
    if (!now) return;
    systems(state.systems.map((one) => one.name));
    put(system, now.name);
    scenarios(now.scenarios.map((one) => one.name));
    put(scenario, now.scenarios.some((one) => one.name === state.scenario) ? state.scenario : "");
    text(about, now.scenarios.find((one) => one.name === state.scenario)?.about ?? now.summary);
    const all = blocks(now, state.settings);
    fields.update(all.filter((one) => !one.folded));
    more.update(all.filter((one) => one.folded));
    seen(state.check?.preview ?? null);
    show(own, "data" in now.schema.properties);
    const named = new Set(Object.keys(now.schema.properties));
    const rest = (state.check?.errors ?? []).filter((one) => !named.has(one.field)).map((one) => one.message).join(" ");
    text(errors, rest);
    show(errors, rest !== "");
    const known = now.levels.find((one) => one.name === (state.check?.level ?? ""));
    const less = state.check?.protection && state.check.protection !== known?.name; // a level of which something is switched off
    text(level, known ? (less ? `${state.check?.protection}.` : `${known.name}: ${known.summary}`) : state.check?.level ? `${state.check.level}: nothing is protected.` : "");
    text(go, state.stage === null ? "Start" : edited() ? "Start with these settings" : "Start again");
    flag(go, "quiet", !edited() && state.stage !== null);
    attr(go, "disabled", state.check?.ok === false);
    const words = ["policy", "level"].map((name) => write(current(now, state.settings, name))).filter((one) => one !== "");
    text(fold, `Set-up: ${[now.title, ...words, `N = ${number(state.stage?.horizon ?? null)}`].join(", ")}`);
    attr(fold, "aria-expanded", String(open));
    flag(node, "open", open);
  }
  return { node, update };
}

/**
 * The first rows that one place would read, if it did for all what each owner does with its own rows.
 * @param {NonNullable<import("./types.js").Preview["central"]>} read
 */
function central(read) {
  return h("details", { class: "fold" }, h("summary", {}, `What one place would read: ${number(read.rows)} rows`),
    h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "What one place would read" },
      h("table", { class: "central" }, h("thead", {}, h("tr", {}, ...read.columns.map((one) => h("th", { scope: "col" }, one)))),
        h("tbody", {}, ...read.sample.map((row) => h("tr", {}, ...row.map((one) => h("td", {}, write(one)))))))));
}

/** @param {string} name */
function wrong(name) {
  return state.check?.errors.find((one) => one.field === name)?.message ?? "";
}

/** @param {string} name */
function dataName(name) {
  const known = state.system?.data?.find((one) => one.name === name);
  if (name === "") return `${label(state.system?.schema.properties["data"]?.instead?.[0] ?? "")} of your own`;
  if (name.startsWith("file:")) return state.file || `your file ${name.slice(5, 13)}…`;
  return known && known.ready === false ? `${name} (not here)` : name;
}

/** @param {import("./schema.js").Field} field */
function note(field) {
  if (field.name === "data") {
    const now = write(value("data"));
    if (now === "") return `Given below; a data set takes their place.`;
    if (state.system?.data === null) return "The other data sets are being looked through …";
    const known = state.system?.data?.find((one) => one.name === now);
    return known ? [known.what, known.reason].filter((one) => one).join("; ") : "";
  }
  if (field.name === "policy") return state.system?.policies.find((one) => one.name === write(value("policy")))?.summary ?? "";
  return "";
}
