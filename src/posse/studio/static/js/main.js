/** Where the page begins: it makes the parts, renders them from the one state, and listens to keys and files. */

import { boot, drop, go } from "./actions.js";
import { closer } from "./closer.js";
import { paint } from "./colour.js";
import { attr, h, show } from "./dom.js";
import { audit, look, observe, survey } from "./looking.js";
import { cost, log, reward } from "./panels.js";
import { setup } from "./setup.js";
import { bars, head, scheme, tour } from "./shell.js";
import { stage } from "./stage.js";
import { change, refresh, rendering, state } from "./store.js";
import { press, transport } from "./transport.js";

const narrow = matchMedia("(max-width: 759px)");
const still = matchMedia("(prefers-reduced-motion: reduce)");

const top = head();
const notices = bars();
const guide = tour();
const picture = stage();
const [setting, controls, line, earned, spent, near] = [setup(), transport(), log(), reward(), cost(), closer()];
const parts = [setting, controls, line, earned, spent, near];
const charts = h("div", { class: "charts" }, earned.node, spent.node);
const loading = h("p", { class: "page empty", role: "status" }, "Loading the systems …");
const main = h("main", { id: "main" }, loading, notices.door);
const first = h("div", { class: "page stage-page" }, h("h1", { class: "unseen" }, "Stage"), setting.node, picture.node, controls.node, line.node, charts, near.node);
const pages = /** @type {Record<string, {node: HTMLElement, update: () => void}>} */ ({ stage: { node: first, update: () => {} } });
main.append(first);
document.body.replaceChildren(h("a", { class: "skip", href: "#main", on: { click: (/** @type {Event} */ event) => { event.preventDefault(); main.querySelector("button")?.focus(); } } }, "To the controls"), top.node, notices.node, main, guide.node);

/** Pages other than the stage are loaded when somebody goes there. */
async function load() {
  const page = state.page;
  if (page in pages) return;
  pages[page] = { node: h("div", { class: "page" }, h("p", { class: "empty" }, "Loading …")), update: () => {} };
  const modules = { runs: () => import("./runs.js"), choose: () => import("./choose.js"), privacy: () => import("./privacy.js") };
  const made = (await modules[/** @type {keyof typeof modules} */ (page)]()).page();
  pages[page]?.node.remove();
  pages[page] = made;
  main.append(made.node);
  refresh();
}

let painted = "";

rendering(() => {
  const colours = `${state.system?.name} ${state.dark}`;
  if (state.system && colours !== painted) {
    painted = colours;
    paint(document.documentElement, state.system.roles, state.dark, state.dark ? "#1b2330" : "#f4f6fa");
  }
  const first = state.observer === "" && state.stage?.system === state.system?.name ? watcher() : undefined;
  if (first !== undefined) observe(first);
  watched = state.observer || watched;
  top.update();
  notices.update();
  for (const [name, page] of Object.entries(pages)) show(page.node, name === state.page && state.entered === "yes");
  if (!(state.page in pages)) void load();
  let moves = false;
  if (state.page === "stage" && state.entered === "yes") {
    for (const part of parts) part.update();
    moves = picture.update();
  } else pages[state.page]?.update();
  guide.update();
  show(loading, state.entered === "unknown");
  attr(main, "aria-busy", String(state.entered === "unknown"));
  return moves && !document.hidden;
});

/** Who looked last. */
let watched = "";

/** Who looks at first: who did before, or the second party that there is one of, which compares; else the wire. */
function watcher() {
  const all = state.stage?.observers;
  if (all?.includes(watched)) return watched;
  const sole = all?.filter((one) => state.system?.roles.some((role) => role.kind === one && role.sole));
  return all && (sole?.[1] ?? sole?.[0] ?? all[0] ?? "wire");
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = /** @type {Element} */ (event.target);
  const typing = target.matches("input:not([type=range]):not([type=checkbox]), select, textarea, dialog *");
  if (event.key === "Escape") change({ pinned: null, selected: null, party: null });
  if (typing) return;
  if (event.key === "?") {
    top.help();
    event.preventDefault();
  } else if (event.key === "d") document.querySelector(".tools .icon")?.dispatchEvent(new MouseEvent("click"));
  else if (/^[1-4]$/.test(event.key)) go(["stage", "runs", "choose", "privacy"][Number(event.key) - 1] ?? "stage");
  else if (state.page === "stage") {
    if (target.matches("button, summary, a, input") && (event.key === " " || event.key === "Enter")) return;
    if (target.matches("input[type=range]") && event.key.startsWith("Arrow")) return;
    if (press(event.key)) event.preventDefault();
  }
});

addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
addEventListener("dragleave", () => document.body.classList.remove("dropping"));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  const file = event.dataTransfer?.files[0];
  if (file) void drop(file);
});

const fit = () => change({ narrow: narrow.matches, still: still.matches });
narrow.addEventListener("change", fit);
still.addEventListener("change", fit);
addEventListener("resize", refresh);
document.addEventListener("visibilitychange", refresh);
setInterval(() => {
  if (document.hidden) return;
  if (state.starting > 0 || state.gone !== null) refresh();
  else if (state.entered === "yes") void survey();
  if (state.stage?.phase === "paused" || state.stage?.phase === "done") {
    look();
    if (state.tab === "found" || matchMedia("(min-width: 1180px) and (min-height: 860px)").matches) void audit(false);
  }
}, 1000);
scheme();
fit();
void boot();
