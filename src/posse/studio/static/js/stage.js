/** The picture of the run: parties, arrows, the message that moves. Nodes are made once a layout and patched afterwards. */

import { tint } from "./colour.js";
import { attr, flag, h, once, s, show, text } from "./dom.js";
import { along, corner, drawn, layout, way } from "./layout.js";
import { observe, pin, rate } from "./looking.js";
import { SHAPES } from "./shapes.js";
import { change, event, kindOf, labelOf, refresh, state, watcher } from "./store.js";
import { size } from "./words.js";

/**
 * @typedef {import("./types.js").Party} Party
 * @typedef {import("./layout.js").Spot} Spot
 * @typedef {import("./layout.js").Curve} Curve
 * @typedef {{curve: Curve, path: SVGPathElement, heat: number, drawn: string, kind: string, passing: boolean}} Link
 * @typedef {{curve: Curve, node: SVGGElement, began: number, rest: number}} Flight
 */

const TRAVEL = 340;
const QUICK = 5;
/** Messages on as many arrows at once have one label for all. */
const PILLS = 12;
const FADE = 450;
/** Where on its way a label may come to rest: in the middle, or beside others. */
const RESTS = [0.5, 0.38, 0.62, 0.27, 0.73];
const HIGH = 16;

/** Make the stage. */
export function stage() {
  /** @type {string | null} */
  let pressed = null;
  const links = s("g", { class: "links" });
  const parties = s("g", { class: "parties" });
  const flights = s("g", { class: "flights", "aria-hidden": "true" });
  const svg = s("svg", { role: "group", "aria-label": "Stage: the parties and what moves between them" }, links, parties, flights);
  const card = h("div", { class: "knows", hidden: true, role: "region", "aria-label": "About a party" });
  const present = h("div", {});
  const wait = h("p", { class: "wait", hidden: true, role: "status" });
  const node = h("section", { class: "card stage", "aria-label": "Stage" }, svg, card, wait);
  let box = { width: 0, height: 0 };
  new ResizeObserver(([entry]) => {
    const { width, height } = entry?.contentRect ?? { width: 0, height: 0 };
    box = { width, height };
    refresh();
  }).observe(node);

  /** @type {import("./layout.js").Layout | null} */
  let where = null;
  /** @type {Map<string, Link>} */
  let lines = new Map();
  /** @type {Map<string, {node: SVGGElement, patch: (party: Party, most: number) => void}>} */
  let drawnParties = new Map();
  /** @type {Flight[]} */
  let flying = [];
  /** @type {Link[]} */
  let marked = [];
  let sent = "";
  let clock = 0;

  const rebuild = once((/** @type {unknown} */ _key) => {
    const scene = state.stage?.scene;
    const system = state.system;
    const focused = nameAt(document.activeElement) ?? "";
    links.replaceChildren();
    parties.replaceChildren();
    flights.replaceChildren();
    flying = [];
    marked = [];
    lines = new Map();
    drawnParties = new Map();
    where = null;
    if (!scene || !system || box.width === 0) return;
    attr(svg, "viewBox", `0 0 ${box.width} ${box.height}`);
    where = layout(system.roles, scene.parties, box.width, box.height, state.narrow);
    for (const [from, to] of scene.links) addLinks(scene.parties, from, to, scene.links);
    flag(links, "dense", lines.size > 20);
    for (const party of scene.parties) {
      const spot = where.spots.get(party.name);
      if (!spot) continue;
      const made = SHAPES[spot.shape](spot, party);
      tint(made.node, system.roles, party.kind);
      attr(made.node, "class", `party ${spot.shape}`);
      attr(made.node, "transform", `translate(${(spot.x - spot.w / 2).toFixed(1)} ${(spot.y - spot.h / 2).toFixed(1)})`);
      attr(made.node, "role", "button");
      attr(made.node, "tabindex", drawnParties.size === 0 ? "0" : "-1");
      attr(made.node, "data-party", party.name);
      parties.append(made.node);
      drawnParties.set(party.name, made);
    }
    for (const crowd of where.crowds) {
      if (crowd.shape !== "cell") continue;
      parties.append(s("text", { class: "named", x: crowd.x, y: crowd.y + crowd.h - 6, "data-crowd": crowd.kind }));
    }
    focus(focused);
  });

  /** @param {string} name of the party that the keyboard is at */
  function focus(name) {
    const party = drawnParties.get(name);
    if (!party) return;
    for (const made of drawnParties.values()) attr(made.node, "tabindex", made === party ? "0" : "-1");
    party.node.focus({ preventScroll: true });
  }

  /**
   * @param {Party[]} all
   * @param {string} from
   * @param {string} to
   * @param {[string, string][]} every
   */
  function addLinks(all, from, to, every) {
    const both = every.some(([a, b]) => a === to && b === from);
    const crowdOf = (/** @type {string} */ kind) => where?.crowds.find((one) => one.kind === kind && one.shape === "cell");
    const ends = (/** @type {string} */ kind) => {
      const crowd = crowdOf(kind);
      return crowd ? [{ name: kind, at: crowd }] : all.filter((party) => party.kind === kind).flatMap((party) => {
        const at = where?.spots.get(party.name);
        return at ? [{ name: party.name, at }] : [];
      });
    };
    if (from === to) return;
    for (const one of ends(from)) {
      for (const other of ends(to)) {
        if (where === null) return;
        const circles = one.at.shape === "circle" && other.at.shape === "circle";
        if (both && !circles && lines.has(`${other.name}>${one.name}`)) continue;
        const curve = way(where, one.at, other.at, both && circles ? 6 : 0);
        addLink(`${one.name}>${other.name}`, curve, from);
      }
    }
  }

  /**
   * @param {string} key
   * @param {Curve} curve
   * @param {string} kind
   */
  function addLink(key, curve, kind) {
    const path = s("path", { d: drawn(curve), class: "link" });
    tint(path, state.system?.roles ?? [], kind);
    links.append(path);
    const link = { curve, path, heat: 0, drawn: "", kind, passing: false };
    lines.set(key, link);
    return link;
  }

  /**
   * The arrow a message takes, made where the picture has none; a party of a dense grid shares its crowd's.
   * @param {string} from
   * @param {string} to
   */
  function linkOf(from, to) {
    const near = where?.spots.get(from);
    const far = where?.spots.get(to);
    if (!where || !near || !far) return null;
    const name = (/** @type {Spot} */ spot) => (spot.shape === "cell" ? spot.kind : spot.name);
    const found = lines.get(`${name(near)}>${name(far)}`) ?? lines.get(`${name(far)}>${name(near)}`) ?? lines.get(`${from}>${to}`);
    if (found) return found;
    const made = addLink(`${from}>${to}`, way(where, near, far), near.kind);
    made.passing = true;
    return made;
  }

  /**
   * @param {[string, string][]} pairs
   * @param {number} bytes
   * @param {boolean} travel
   */
  function send(pairs, bytes, travel) {
    flights.replaceChildren();
    flying = [];
    for (const link of marked) {
      flag(link.path, "marked", false);
      link.drawn = "";
    }
    marked = [];
    /** @type {Map<Link, number>} */
    const shared = new Map();
    /** @type {[string, string][]} */
    const taken = [];
    let within = 0;
    for (const [from, to] of pairs) {
      const [near, far] = [where?.spots.get(from), where?.spots.get(to)];
      if (near?.shape === "cell" && near.kind === far?.kind && (within += 1) > PILLS) continue;
      const link = linkOf(from, to);
      if (!link || !where) continue;
      const again = shared.get(link) ?? 0;
      shared.set(link, again + 1);
      if (again > 0) continue;
      link.heat = 1;
      link.path.style.setProperty("--c", roleColour(from));
      if (!travel && rate0() > QUICK) continue;
      flag(link.path, "marked", true);
      marked.push(link);
      taken.push([from, to]);
    }
    const many = marked.length > PILLS || within > PILLS;
    const middle = Math.floor(taken.length / 2);
    /** @type {{x: number, y: number, wide: number}[]} */
    const placed = [];
    for (const [from, to] of many ? taken.slice(middle, middle + 1) : taken) {
      const link = linkOf(from, to);
      const count = many ? pairs.length : link ? shared.get(link) ?? 0 : 0;
      if (!link || !where || count === 0) continue;
      const spots = /** @type {[Spot, Spot]} */ ([where.spots.get(from), where.spots.get(to)]);
      const both = lines.has(`${from}>${to}`) && lines.has(`${to}>${from}`);
      const curve = count > 1 ? link.curve : way(where, spots[0], spots[1], both ? 6 : 0);
      const free = (/** @type {number} */ part) => {
        const dot = along(curve, part);
        return placed.every((one) => Math.abs(one.x - dot.x) > (one.wide + wide) / 2 || Math.abs(one.y - dot.y) > HIGH);
      };
      const label = `${count > 1 ? `${count} × ` : ""}${size(bytes).replace(" bytes", " B")}`;
      const wide = Math.max(26, 10 + label.length * 6);
      const rest = RESTS.find(free);
      if (rest === undefined) continue; // its arrow alone says that a message moves
      placed.push({ ...along(curve, rest), wide });
      const pill = s("g", { class: "pill" },
        s("rect", { x: -wide / 2, y: -HIGH / 2, width: wide, height: HIGH, rx: HIGH / 2 }),
        s("text", { "text-anchor": "middle", y: 3.5 }, label));
      pill.style.setProperty("--c", roleColour(from));
      pill.style.setProperty("--co", roleColour(from, "-on"));
      flights.append(pill);
      flying.push({ curve, node: pill, rest, began: travel ? clock : clock - 2 * TRAVEL });
    }
  }

  const rate0 = () => (state.stage?.phase === "playing" ? rate(state.stage) : 0);

  /** @returns {boolean} whether something still moves */
  function update() {
    const now = state.stage;
    const scene = now?.scene ?? null;
    show(wait, !scene || now?.phase === "starting");
    text(wait, waiting());
    if (!now || !scene) {
      rebuild(["nothing"]);
      show(card, false);
      return state.starting > 0;
    }
    rebuild([now.system, state.system?.name, scene.parties.map((one) => [one.name, one.kind, one.label]), scene.links, box.width, box.height, state.narrow]);
    if (!where) return false;
    const before = clock;
    clock = performance.now();
    patchParties(scene.parties, new Set(scene.now?.chosen ?? []));
    const shown = event();
    const key = `${now.id} ${shown?.number ?? -1} ${state.selected}`;
    if (shown && key !== sent) {
      const moved = "moved" in shown && shown.moved?.length ? shown.moved : [[shown.sender, shown.receiver]];
      sent = key;
      send(/** @type {[string, string][]} */ (moved), shown.size, !state.still && rate0() <= QUICK && state.selected === null);
    } else if (!shown && sent !== "") {
      sent = "";
      send([], 0, false);
    }
    patchCard();
    return move(Math.min(100, clock - before));
  }

  /**
   * @param {number} passed
   */
  function move(passed) {
    let moves = false;
    for (const flight of flying) {
      const part = (clock - flight.began) / TRAVEL;
      const rest = part >= 1;
      const dot = along(flight.curve, rest ? flight.rest : part * part * (3 - 2 * part));
      attr(flight.node, "transform", `translate(${dot.x.toFixed(1)} ${dot.y.toFixed(1)})`);
      flag(flight.node, "resting", rest);
      moves ||= !rest;
    }
    for (const link of lines.values()) {
      if (link.heat > 0) link.heat = Math.max(0, link.heat - passed / FADE);
      const heat = link.heat.toFixed(1);
      if (heat === link.drawn) continue;
      link.drawn = heat;
      link.path.style.setProperty("--heat", heat);
      if (link.heat === 0 && !marked.includes(link)) tint(link.path, state.system?.roles ?? [], link.kind);
      moves ||= link.heat > 0;
    }
    for (const [key, link] of lines) {
      moves ||= link.heat > 0;
      if (!link.passing || link.heat > 0 || marked.includes(link)) continue;
      link.path.remove();
      lines.delete(key);
    }
    return moves;
  }

  /**
   * @param {Party[]} all
   * @param {Set<string>} chosen
   */
  function patchParties(all, chosen) {
    let most = 1;
    for (const party of all) most = Math.max(most, party.weight ?? 0);
    for (const party of all) {
      const made = drawnParties.get(party.name);
      if (!made) continue;
      made.patch(party, most);
      flag(made.node, "chosen", chosen.has(party.name));
      flag(made.node, "observer", watcher(state.observer) === party.name);
      flag(made.node, "pinned", state.pinned === party.name);
      attr(made.node, "aria-pressed", String(state.pinned === party.name));
    }
    for (const named of parties.querySelectorAll(".named")) {
      const kind = named.getAttribute("data-crowd");
      const pointed = state.pointed !== null && kindOf(state.pointed) === kind ? state.pointed : null;
      const name = pointed ?? [...chosen].find((one) => kindOf(one) === kind);
      const party = all.find((one) => one.name === name);
      text(named, party ? `${pointed ? "" : "chosen: "}${party.label}  ${party.text ?? ""}` : "");
    }
  }

  const fillCard = once((/** @type {unknown} */ _key) => {
    card.replaceChildren();
    const name = state.pinned ?? state.pointed ?? state.observer;
    const known = state.stage?.knowledge?.[kindOf(name)];
    if (!known) return;
    const title = labelOf(name);
    const parts = /** @type {[string, string[]][]} */ ([
      [`${title} knows`, known.knows],
      [`can never know${state.stage?.level ? ` at ${state.stage.level}` : ""}`, known.never],
      ["could find out", known.could],
    ]);
    for (const [heading, sentences] of parts) {
      if (sentences.length === 0) continue;
      const shown = state.pinned === null ? sentences.slice(0, 2).map(brief) : sentences;
      card.append(h("h2", {}, heading), h("ul", {}, ...shown.map((one) => h("li", {}, one))));
    }
    if (state.pinned !== null) {
      card.append(present, h("p", { class: "acts" },
        h("button", { type: "button", class: "plain", on: { click: () => observe(name) } }, `See messages as ${title}`),
        h("button", { type: "button", class: "plain", on: { click: () => pin(null) } }, "Close")));
    }
  });

  // The rest of the card stays as it is while the run moves, so that its buttons can be pressed.
  const fillState = once((/** @type {Record<string, unknown>} */ values) => {
    const lines = Object.entries(values).flatMap(([key, value]) => [
      h("dt", {}, key.replaceAll("_", " ")),
      h("dd", {}, typeof value === "object" ? JSON.stringify(value) : String(value)),
    ]);
    present.replaceChildren(...(lines.length > 0 ? [h("h2", {}, "its state now"), h("dl", {}, ...lines)] : []));
  });

  function patchCard() {
    const name = state.pinned ?? state.pointed ?? (state.observer !== "wire" ? state.observer : "");
    fillCard([name, state.pinned, state.stage?.knowledge?.[kindOf(name)] ?? null, state.stage?.level]);
    fillState(state.party?.name === state.pinned ? state.party?.state ?? {} : {});
    const wide = Math.min(state.pinned === null ? 216 : 320, box.width - 24);
    card.style.width = `${wide}px`;
    card.style.maxHeight = `${Math.max(120, box.height - 24)}px`;
    const on = name !== "" && card.childElementCount > 0 && where !== null;
    show(card, on);
    if (!on || !where) return;
    const spot = corner(where, wide, Math.min(card.offsetHeight, box.height - 24), name);
    const quiet = state.pinned === null && state.pointed === null && (spot.covers > 0 || state.narrow);
    show(card, !quiet);
    flag(card, "passing", state.pinned === null && state.pointed !== null);
    card.style.left = `${spot.x}px`;
    card.style.top = `${spot.y}px`;
  }

  svg.addEventListener("pointerover", (happened) => point(happened.target));
  svg.addEventListener("pointerleave", () => change({ pointed: null }));
  svg.addEventListener("focusin", (happened) => point(happened.target));
  svg.addEventListener("focusout", () => change({ pointed: null }));
  // A picture that is drawn anew between press and release must not swallow the click.
  svg.addEventListener("pointerdown", (happened) => (pressed = nameAt(happened.target)));
  svg.addEventListener("click", (happened) => pin(nameAt(happened.target) ?? pressed));
  svg.addEventListener("keydown", (happened) => {
    const name = nameAt(happened.target);
    if (name === null) return;
    if (happened.key === "Enter" || happened.key === " ") {
      pin(name);
      happened.preventDefault();
      happened.stopPropagation();
    }
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[happened.key];
    if (step === undefined) return;
    const names = [...drawnParties.keys()];
    focus(names[(names.indexOf(name) + step + names.length) % names.length] ?? "");
    happened.preventDefault();
    happened.stopPropagation();
  });

  return { node, update };
}

/** @param {EventTarget | null} target */
function nameAt(target) {
  return target instanceof Element ? target.closest("[data-party]")?.getAttribute("data-party") ?? null : null;
}

/** @param {EventTarget | null} target */
function point(target) {
  const name = nameAt(target);
  if (name !== state.pointed) change({ pointed: name });
}

/**
 * @param {string} party
 * @param {string} [variant]
 */
function roleColour(party, variant = "") {
  const place = state.system?.roles.findIndex((role) => role.kind === kindOf(party)) ?? -1;
  return place < 0 ? "var(--muted)" : `var(--role-${place}${variant})`;
}

/**
 * The beginning of a sentence, where a glance must do; a click shows all of it.
 * @param {string} sentence
 */
function brief(sentence) {
  if (sentence.length <= 96) return sentence;
  const cut = sentence.slice(0, 96);
  return `${cut.slice(0, Math.max(40, cut.lastIndexOf(" ")))} …`;
}

/** What is said while there is no picture. */
function waiting() {
  const now = state.stage;
  if (now?.phase === "failed") return now.refused ?? "This run could not be started.";
  if (state.full) return "";
  if (state.problem) return state.problem;
  if (state.starting === 0 && now?.phase !== "starting") return now ? "This run has no picture." : "";
  const gone = state.starting ? (Date.now() - state.starting) / 1000 : 0;
  return `${now?.doing || "Setting up the run"}${gone > 1.5 ? `, ${gone.toFixed(0)} s` : ""} …`;
}
