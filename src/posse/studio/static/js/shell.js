/** What is around every page: the head with its tabs, bars that say what is wrong, dialogs, the tour. */

import { enter, go, link, retry, stop } from "./actions.js";
import { attr, flag, h, keyed, once, show, text } from "./dom.js";
import { change, state } from "./store.js";
import { KEYS } from "./transport.js";

const TITLES = /** @type {[string, string][]} */ ([["stage", "Stage"], ["runs", "Runs"], ["choose", "Choose"], ["privacy", "Privacy"]]);
const SEEN = "posse-studio-tour";
const SCHEME = "posse-studio-scheme";

/** Make the head of the page. */
export function head() {
  const count = h("span", { class: "count" });
  const tabs = TITLES.map(([page, title]) => h("a", {
    href: `#/${page}`,
    on: { click: (/** @type {Event} */ event) => { event.preventDefault(); go(page); } },
  }, title, page === "runs" ? count : null));
  const copied = h("span", { role: "status" });
  const copy = h("button", { type: "button", class: "plain", on: { click: async () => {
    try {
      await navigator.clipboard.writeText(new URL(link(), location.href).href);
      text(copied, "Copied");
    } catch {
      text(copied, "Copy it from the address bar");
    }
    setTimeout(() => text(copied, ""), 2500);
  } } }, "Copy link");
  const scheme = h("button", { type: "button", class: "plain icon", on: { click: () => paint(!state.dark) } }, "◐");
  const help = h("button", { type: "button", class: "plain icon", "aria-label": "Keys and help", title: "Keys and help (?)", on: { click: () => dialog.showModal() } }, "?");
  const dialog = keys();
  const node = h("header", { class: "top" }, h("p", { class: "brand" }, h("strong", {}, "posse"), " studio"),
    h("nav", { "aria-label": "Pages" }, ...tabs), h("div", { class: "tools" }, copied, copy, scheme, help), dialog);
  function update() {
    tabs.forEach((tab, place) => attr(tab, "aria-current", TITLES[place]?.[0] === state.page ? "page" : null));
    text(count, state.runs.length > 0 ? String(state.runs.length) : "");
    attr(scheme, "aria-label", state.dark ? "Light page" : "Dark page");
    attr(scheme, "title", state.dark ? "Light page" : "Dark page");
    show(copy, state.page === "stage");
    text(copy, state.narrow ? "Link" : "Copy link");
  }
  return { node, update, help: () => dialog.showModal() };
}

/** Take the colour scheme that was chosen, or that of the machine. */
export function scheme() {
  const machine = matchMedia("(prefers-color-scheme: dark)");
  const chosen = remembered(SCHEME);
  paint(chosen === null ? machine.matches : chosen === "dark", false);
  machine.addEventListener("change", () => {
    if (remembered(SCHEME) === null) paint(machine.matches, false);
  });
}

/**
 * @param {boolean} dark
 * @param {boolean} [keep]
 */
function paint(dark, keep = true) {
  document.documentElement.dataset["scheme"] = dark ? "dark" : "light";
  if (keep) remember(SCHEME, dark ? "dark" : "light");
  change({ dark });
}

/** @param {string} name */
function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/**
 * @param {string} name
 * @param {string} value
 */
function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // A browser that keeps nothing shows the tour again.
  }
}

function keys() {
  const dialog = h("dialog", { class: "help", "aria-label": "Keys and help" });
  const shut = h("button", { type: "button", class: "primary", on: { click: () => dialog.close() } }, "Close");
  const tourAgain = h("button", { type: "button", class: "plain", on: { click: () => { dialog.close(); openTour?.(); } } }, "Show the tour again");
  const rows = [...KEYS.map(([key, what]) => [key, what]), ["Tab, arrows", "between parties, tabs and choices"], ["Enter", "on a party: what it knows"], ["d", "light or dark"], ["?", "this list"], ["Esc", "close what is open"]];
  dialog.append(h("h2", {}, "Keys"), h("dl", { class: "keys" }, ...rows.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key ?? "")), h("dd", {}, what ?? "")])), h("p", { class: "acts" }, tourAgain, shut));
  return dialog;
}

/** Bars across the page: the server is gone, too many runs, a remark. */
export function bars() {
  const gone = h("p", { class: "alert bad", role: "alert" });
  const again = h("button", { type: "button", class: "plain", on: { click: () => retry() } }, "Try now");
  const goneBar = h("div", { class: "strip bad" }, gone, again);
  const said = h("p", { role: "status" });
  const saidBar = h("div", { class: "strip" }, said, h("button", { type: "button", class: "plain", on: { click: () => change({ said: "" }) } }, "Close"));
  const full = h("ul", {});
  const fullText = h("p", { role: "alert" });
  const fullBar = h("div", { class: "strip bad tall" }, fullText, full);
  const secret = h("input", { type: "password", id: "secret", autocomplete: "off", spellcheck: "false" });
  const secretLabel = h("label", { for: "secret" });
  const why = h("p", { class: "error", role: "alert" });
  const hint = h("p", { class: "note" });
  const door = h("form", { class: "card door", on: { submit: (/** @type {Event} */ event) => {
    event.preventDefault();
    void enter(secret.value.trim());
  } } }, h("h1", {}, "posse studio"), hint, secretLabel, secret, why, h("button", { type: "submit", class: "primary" }, "Enter"));
  const node = h("section", { class: "notices", "aria-label": "Notices" }, goneBar, saidBar, fullBar);
  function update() {
    show(goneBar, state.gone !== null);
    if (state.gone !== null) {
      const at = new Date(state.gone).toLocaleTimeString("en-GB");
      text(gone, `The server is gone since ${at}, trying again. The run can be taken up from this address.`);
    }
    show(saidBar, state.said !== "");
    text(said, state.said);
    show(fullBar, state.full !== null);
    text(fullText, state.full !== null ? `${state.problem} Which one shall stop?` : "");
    keyed(full, state.full ?? [], (one) => one.id, (one) => h("li", {}, h("span", {}, `${one.system}, t = ${one.time} of ${one.horizon}`),
      h("button", { type: "button", class: "plain", on: { click: () => stop(one.id) } }, "Stop it")));
    const closed = state.entered === "token" || state.entered === "password";
    show(door, closed);
    text(secretLabel, state.entered === "password" ? "Password" : "Launch token");
    text(hint, state.entered === "password"
      ? "This studio asks for its password."
      : "This browser has not entered yet. Open the address that the studio printed, or paste a token: posse studio --token prints another one.");
    text(why, closed ? state.problem : "");
    flag(document.body, "closed", closed);
  }
  return { node, door, update };
}

/** @type {(() => void) | null} */
let openTour = null;

/** The tour of a first visit: a few sentences, each beside what it is about; it can be skipped. */
export function tour() {
  const title = h("h2", {});
  const line = h("p", {});
  const count = h("span", { class: "note" });
  const next = h("button", { type: "button", class: "primary", on: { click: () => step(place + 1) } });
  const skip = h("button", { type: "button", class: "plain", on: { click: () => close() } }, "Skip");
  const node = h("div", { class: "tour", role: "dialog", "aria-label": "Tour", hidden: true }, title, line, h("p", { class: "acts" }, count, skip, next));
  let place = -1;
  /** @type {() => [string, string, string][]} */
  const sentences = () => [
    ["What this is", `${state.system?.summary ?? ""} Every party on the stage is a real one, and every byte is real.`, ".stage"],
    ["Play", "Play, pause, go back, or move by one message. The line below says in words what happens now.", ".transport"],
    ["Who sees what", "Choose an observer: each message is shown in the clear, and beside it the bytes that this observer really has.", ".closer"],
    ["Change it", "Other settings, other protection, data of your own: then start again. The address holds all of it.", ".setup"],
  ];
  function close() {
    place = -1;
    remember(SEEN, "yes");
    show(node, false);
    for (const one of document.querySelectorAll(".toured")) flag(one, "toured", false);
  }
  /** @param {number} to */
  function step(to) {
    const all = sentences();
    if (to >= all.length) return close();
    place = to;
    const [heading, words, where] = all[to] ?? ["", "", ""];
    text(title, heading);
    text(line, words);
    text(count, `${to + 1} of ${all.length}`);
    text(next, to + 1 === all.length ? "Done" : "Next");
    show(node, true);
    for (const one of document.querySelectorAll(".toured")) flag(one, "toured", false);
    const about = document.querySelector(where);
    if (about) flag(about, "toured", true);
    if (state.narrow) about?.scrollIntoView({ block: "center", behavior: state.still ? "auto" : "smooth" });
    next.focus({ preventScroll: true });
  }
  openTour = () => step(0);
  node.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    event.stopPropagation();
  });
  let begun = false;
  function update() {
    if (begun || state.stage?.scene === null || state.stage === null || state.page !== "stage") return;
    begun = true;
    if (remembered(SEEN) === null) step(0);
  }
  return { node, update };
}
