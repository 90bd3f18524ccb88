/** Look closer: messages as an observer has them, the code with the lines that ran, and what attacks find out. */

import { described, named, runs } from "./bytes.js";
import { tint } from "./colour.js";
import { attr, flag, h, keyed, once, segments, show, text } from "./dom.js";
import { audit, look, observe, older, select, source } from "./looking.js";
import { change, event, kindOf, labelOf, observerLabel, partyOf, state, subject, watcher } from "./store.js";
import { number, size } from "./words.js";

/** @typedef {import("./types.js").Message} Message */

const TABS = /** @type {[string, string][]} */ ([["messages", "Messages"], ["code", "Code"], ["found", "Found out"]]);

/** Make the column at the right. */
export function closer() {
  const parts = [messages(), code(), found()];
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": "Look closer" }, ...TABS.map(([id, label]) =>
    h("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}`, on: { click: () => open(id) } }, label)));
  list.addEventListener("keydown", (happened) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[happened.key];
    if (step === undefined) return;
    const place = TABS.findIndex(([id]) => id === state.tab);
    const next = TABS[(place + step + TABS.length) % TABS.length]?.[0] ?? "messages";
    open(next);
    list.querySelector(`#tab-${next}`)?.setAttribute("tabindex", "0");
    /** @type {HTMLElement | null} */ (list.querySelector(`#tab-${next}`))?.focus();
    happened.preventDefault();
    happened.stopPropagation();
  });
  const observer = segments("seen by", observe);
  const seen = h("div", { class: "seen" }, h("span", { class: "label", "aria-hidden": "true" }, "seen by"), observer.node);
  const panels = parts.map((part, place) => {
    const [id = "", label = ""] = TABS[place] ?? [];
    attr(part.node, "id", `panel-${id}`);
    attr(part.node, "role", "tabpanel");
    attr(part.node, "aria-labelledby", `tab-${id}`);
    attr(part.node, "data-label", label);
    return part.node;
  });
  const node = h("aside", { class: "closer", "aria-label": "Look closer" }, list, seen, ...panels);
  const tall = matchMedia("(min-width: 1180px) and (min-height: 860px)");

  function update() {
    const system = state.system;
    if (!system) return;
    const options = [...(state.stage?.observers ?? []), "wire"].map((one) => ({ value: one, label: one }));
    if (state.observer !== "" && !options.some((one) => one.value === state.observer)) {
      options.splice(-1, 0, { value: state.observer, label: labelOf(state.observer) });
    }
    observer.update(options, state.observer, (button, value) => tint(button, system.roles, kindOf(value)));
    for (const [id] of TABS) {
      const tab = /** @type {Element} */ (list.querySelector(`#tab-${id}`));
      attr(tab, "aria-selected", String(state.tab === id));
      attr(tab, "tabindex", state.tab === id ? "0" : "-1");
    }
    panels.forEach((panel, place) => {
      const on = state.tab === TABS[place]?.[0] || tall.matches;
      show(panel, on);
      flag(panel, "below", tall.matches);
      if (on) parts[place]?.update();
    });
    panels.forEach((panel) => panel.style.setProperty("order", panel.id === `panel-${state.tab}` ? "0" : "1"));
    flag(node, "tall", tall.matches);
  }
  return { node, update };
}

/** @param {string} tab */
function open(tab) {
  change({ tab });
  if (tab === "found") void audit(false);
  else look();
}

// Messages -----------------------------------------------------------------------------------------------------------

function messages() {
  const list = h("ol", { class: "messages", "aria-label": "Messages, the newest first", tabindex: "0" });
  const more = h("button", { type: "button", class: "plain", on: { click: () => older() } }, "Earlier messages");
  const empty = h("p", { class: "empty" });
  const node = h("div", {}, empty, list, more);
  function update() {
    // Bytes of another observer, and messages of a moment that the run has gone back from, are never shown.
    const held = state.fetched === subject() ? state.messages.filter((one) => one.number <= (state.stage?.message ?? 0)) : [];
    const shown = [...held].reverse();
    show(empty, shown.length === 0);
    text(empty, without());
    show(list, shown.length > 0);
    keyed(list, shown, (one) => `${state.stage?.id} ${one.number} ${one.sees} ${one.bytes?.slice(0, 24)} ${state.observer}`, message, (item, one) => {
      const current = event()?.number === one.number;
      flag(item, "selected", current);
      attr(/** @type {Element} */ (item.querySelector("button")), "aria-pressed", String(state.selected === one.number));
    });
    show(more, (held[0]?.number ?? 1) > 1 && state.stage?.phase !== "playing");
  }
  return { node, update };
}

/** What is said where no message is shown. */
function without() {
  const stage = state.stage;
  if (stage && stage.message > 0) return state.fetched === subject() && state.messages.length === 0 ? "No message of this run is held." : "Fetching the messages …";
  return "No message has moved yet. Press Play, or go forward by one message.";
}

/**
 * A value with the names that the stage shows for the parties in it.
 * @param {string} value
 */
function labelled(value) {
  return value.replace(/[\w-]+/g, (word) => partyOf(word)?.label ?? word);
}

/** @param {Message} one */
function message(one) {
  const roles = state.system?.roles ?? [];
  const explained = h("p", { class: "part", "aria-live": "polite" });
  const item = h("li", { class: "message" },
    h("div", { class: "head" },
      h("button", { type: "button", class: "pick" }, h("span", { class: "dot", "aria-hidden": "true" }), `${labelOf(one.sender)} → ${labelOf(one.receiver)}`),
      h("span", { class: "size" }, `${one.name} · ${size(one.size)}`)),
    h("div", { class: "sides" },
      h("div", {}, h("p", { class: "label" }, "in the clear"),
        ...(one.clear.length ? one.clear.map(([name, value]) => h("p", { class: "mono" }, `${name} ${labelled(value)}`)) : [h("p", { class: "soft" }, "nothing beyond its bytes")])),
      h("div", {}, h("p", { class: "label" }, `what ${observerLabel(state.observer)} sees of it`), seenBytes(one, explained))),
    one.bytes === null ? null : legend(one), explained);
  tint(item, roles, kindOf(one.sender));
  item.addEventListener("click", () => select(one.number));
  return item;
}

/**
 * @param {Message} one
 * @param {HTMLElement} explained
 */
function seenBytes(one, explained) {
  if (one.sees === "nothing") {
    return h("p", { class: "soft" }, state.observer === "wire" ? `${size(one.size)} inside TLS: when, from whom to whom, how long` : "nothing arrives");
  }
  if (one.bytes === null) return h("p", { class: "soft" }, one.sees === "sealed" ? `${size(one.size)} that it cannot open` : "nothing arrives");
  const box = h("p", { class: "bytes" });
  for (const run of runs(one.bytes, one.parts)) {
    const part = run.part;
    const span = h("span", { class: `run p-${part?.protection ?? "header"}`, title: part ? described(part) : "" }, run.hex.join(" "), run.left > 0 ? ` … ${number(run.left)} more` : "");
    if (part) span.addEventListener("pointerenter", () => text(explained, described(part)));
    box.append(span, " ");
  }
  box.addEventListener("pointerleave", () => text(explained, ""));
  return box;
}

/** @param {Message} one */
function legend(one) {
  /** @type {Map<string, {protection: string, why: string, name: string}>} */
  const kinds = new Map();
  for (const part of one.parts) {
    if (!kinds.has(part.protection)) kinds.set(part.protection, { protection: part.protection, why: part.why ?? "", name: part.name });
  }
  return h("p", { class: "legend-parts" }, ...[...kinds.values()].map((one) =>
    h("span", { class: `run p-${one.protection}` }, one.why ? `${named(one.protection)}: ${one.why}` : named(one.protection))));
}

// Code ---------------------------------------------------------------------------------------------------------------

function code() {
  const who = segments("code of", (kind) => {
    change({ codeKind: kind, source: null });
    void source();
  });
  let role = "";
  const real = h("button", { type: "button", class: "plain small", on: { click: () => {
    change({ real: !state.real, codeKind: role }); // the source of the role that is on display
    void source();
  } } });
  const file = h("p", { class: "note" });
  const list = h("ol", { class: "code", tabindex: "0", "aria-label": "Code" });
  const empty = h("p", { class: "empty" });
  const node = h("div", {}, h("div", { class: "bar" }, h("h2", {}, "Code"), file, real), who.node, empty, list);
  const lines = once((/** @type {[string[], number]} */ [texts, first]) => {
    list.replaceChildren(...texts.map((line, place) => h("li", {}, h("span", { class: "no", "aria-hidden": "true" }, String(first + place)), h("code", {}, line || " "))));
  });
  let followed = -1;
  function update() {
    const kinds = Object.keys(state.code ?? {});
    const now = event();
    const ran = now?.lines ?? {};
    const acting = Object.keys(ran).find((kind) => kinds.includes(kind));
    const kind = state.codeKind || acting || (now ? kindOf(now.sender) : "") || kinds[0] || "";
    const shown = kinds.includes(kind) ? kind : kinds[0] ?? kind;
    role = shown;
    const options = kinds.length ? kinds : (state.system?.roles.map((role) => role.kind) ?? []);
    who.update(options.map((one) => ({ value: one, label: one })), shown, (button, value) => tint(button, state.system?.roles ?? [], value));
    text(real, state.real ? "Pseudocode" : "Real source");
    attr(real, "aria-pressed", String(state.real));
    const given = state.real ? state.source?.text.split("\n") ?? [] : state.code?.[shown] ?? [];
    lines([given, state.real ? state.source?.first ?? 1 : 1]);
    text(file, state.real ? state.source?.file ?? "" : [shown, state.stage?.level].filter((one) => one).join(", "));
    show(empty, !state.real && given.length === 0);
    text(empty, state.stage === null ? "The code stands here as soon as a run is on the stage." : state.code === null ? "Fetching the code …" : "This system has no pseudocode for these settings; the real source is there.");
    show(list, given.length > 0);
    tint(list, state.system?.roles ?? [], shown);
    const marked = new Set(state.real ? [] : ran[shown] ?? []);
    [...list.children].forEach((line, place) => {
      const on = marked.has(place + 1);
      flag(line, "ran", on);
      attr(line, "aria-current", on ? "step" : null);
    });
    if (now && now.number !== followed && marked.size > 0) {
      followed = now.number;
      const first = list.children[Math.min(...marked) - 1];
      if (first instanceof HTMLElement && list.scrollHeight > list.clientHeight) {
        list.scrollTop = Math.max(0, first.offsetTop - list.offsetTop - 60);
      }
    }
  }
  return { node, update };
}

// Found out ----------------------------------------------------------------------------------------------------------

/**
 * The colour of a verdict: green only where nothing was found.
 * @param {string | undefined} verdict
 */
export function judged(verdict) {
  if (verdict?.startsWith("nothing")) return "good";
  return verdict === "finds it out" || verdict === "a little" ? "bad" : "";
}

/**
 * Who makes an attack: the observer alone, or together with others.
 * @param {import("./types.js").Attack} one
 */
function whose(one) {
  const all = (one.at ?? "").split(/ \+ |, | and /).filter((name) => name !== "");
  return all.length > 1 ? `${all.join(" and ")} together, by ${one.name}` : one.name ? `by ${one.name}` : "";
}

/** @param {unknown} value */
function shown(value) {
  return typeof value === "number" || value === null || value === undefined ? number(value) : String(value);
}

function found() {
  const title = h("h2", {});
  const again = h("button", { type: "button", class: "plain small", on: { click: () => audit(true) } });
  const beside = h("button", { type: "button", class: "plain small", on: { click: () => audit(true, true) } }, "Beside other levels");
  const head = h("thead", {}, h("tr", {}, ...["attack", "finds", "guessing", "verdict"].map((one) => h("th", { scope: "col" }, one))));
  const body = h("tbody", {});
  const table = h("table", { class: "found" }, head, body);
  const note = h("p", { class: "note" });
  const stated = h("ul", { class: "stated" });
  const who7 = h("div", { class: "sees" });
  const node = h("div", {}, h("div", { class: "bar" }, title, again), table, note, h("p", { class: "acts" }, beside), stated, who7);
  const seen = once((/** @type {import("./types.js").Sees | null} */ sees) => {
    if (sees === null) return who7.replaceChildren();
    const heads = ["", ...sees.columns].map((one) => h("th", { scope: "col" }, one));
    const lines = sees.rows.map((one) => h("tr", {}, h("th", { scope: "row" }, one.data), ...one.cells.map((cell) => h("td", {}, cell))));
    who7.replaceChildren(h("details", { class: "fold" }, h("summary", {}, "Who sees what, by message"),
      h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Who sees what, by message" },
        h("table", { class: "found" }, h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...lines))), h("p", { class: "note" }, sees.note)));
  });
  const rows = once((/** @type {import("./types.js").Attack[]} */ attacks) => {
    body.replaceChildren(...attacks.map((one) => h("tr", { title: one.says ?? one.power ?? "" },
      h("th", { scope: "row" }, one.attack, h("p", { class: "note" }, whose(one)), ...(one.beside ?? []).map((other) =>
        h("p", { class: "note" }, `at ${other.level}: ${shown(other.finds)}, `, h("span", { class: `verdict ${judged(other.verdict)}` }, other.verdict)))), h("td", { class: "num" }, shown(one.finds)), h("td", { class: "num" }, shown(one.without)),
      h("td", { class: `verdict ${judged(one.verdict)}` }, one.verdict))));
  });
  const said = once((/** @type {string[]} */ sentences) => stated.replaceChildren(...sentences.map((one) => h("li", {}, one))));
  function update() {
    const who = state.observer === "wire" ? "who watches the wire" : labelOf(state.observer);
    text(title, who ? `Found out by ${who} so far` : "Found out so far");
    const stage = state.stage;
    const audit = state.audit && (state.audit.time ?? 0) <= (stage?.time ?? 0) ? state.audit : null; // none of a later moment
    text(again, state.auditing ? "Trying …" : audit ? "Try again now" : "Try the attacks now");
    attr(again, "disabled", state.auditing || state.stage === null);
    const attacks = audit?.rows ?? [];
    rows(attacks);
    attr(beside, "disabled", state.auditing);
    show(beside, attacks.length > 0);
    seen(audit?.sees ?? null);
    show(table, attacks.length > 0);
    const idle = state.auditing ? "The attacks run on what this observer has seen so far." : "Press the button: the attacks of this system run on what this observer has seen so far.";
    text(note, audit ? audit.note ?? (attacks.length ? "" : "No attack of this system takes this view.") : idle);
    const known = stage?.knowledge?.[kindOf(state.observer)]?.could ?? stage?.not_protected ?? [];
    said([...(attacks.length > 0 ? [] : audit?.stated ?? known), ...(audit?.notes ?? [])]);
  }
  return { node, update };
}
