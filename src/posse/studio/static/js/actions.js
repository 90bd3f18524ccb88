/** What the page does: every change that talks to the server. */

import { get, Gone, post, Refused, remove, upload } from "./api.js";
import { look } from "./looking.js";
import { format, moment, parse, token } from "./route.js";
import { applies, current, differing, fromAddress, write } from "./schema.js";
import { joined, spending } from "./scale.js";
import { blank, change, refresh, state, told } from "./store.js";
import { stream } from "./stream.js";
import { reason } from "./words.js";

/**
 * @typedef {import("./types.js").Settings} Settings
 * @typedef {import("./types.js").Stage} Stage
 */

/** Milliseconds between the last change and what follows from it. */
const PAUSE = 250;

const STOPPED = "This run was stopped elsewhere. Go on with it, and it is taken up again from here.";

/** @type {ReturnType<typeof stream> | null} */
let line = null;

/** Begin: give the launch token, learn the systems, and put on the stage what the address says. */
export async function boot() {
  const given = token(location);
  if (given !== null) {
    history.replaceState(null, "", "/#/stage");
    try {
      await post("/api/enter", { token: given });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
    }
  }
  await arrive();
}

/** Load what the page needs; without a cookie it asks for a token instead. */
async function arrive() {
  try {
    const systems = await get("/api/systems");
    change({ systems, entered: "yes", problem: "", gone: null });
  } catch (error) {
    if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
      change({ entered: error.answer["enter"] === "password" ? "password" : "token", problem: "" });
      return;
    }
    change({ problem: reason(error), gone: error instanceof Gone ? state.gone ?? Date.now() : null });
    setTimeout(arrive, 2000);
    return;
  }
  line ??= stream({ frame, gone: (since) => change({ gone: since }) });
  await open();
  addEventListener("hashchange", open);
  addEventListener("pagehide", () => state.stage && void end(state.stage.id));
}

/**
 * Enter with a token or a password.
 * @param {string} secret
 */
export async function enter(secret) {
  try {
    await post("/api/enter", state.entered === "password" ? { password: secret } : { token: secret });
    await arrive();
  } catch (error) {
    change({ problem: reason(error) });
  }
}

/** @type {string | null} */
let written = null;

/** Show what the address says. */
async function open() {
  if (location.hash === written) return;
  written = location.hash;
  const route = parse(location.hash);
  change({ page: route.page });
  if (route.page !== "stage") {
    if (state.system === null) choose(state.systems[0]?.name ?? "");
    line?.follow(state.stage ? [state.stage.id] : []);
    return;
  }
  const named = state.systems.find((one) => one.name === route.values["system"]);
  if (named === undefined) {
    if (route.values["system"]) change({ said: `This studio has no system '${route.values["system"]}'; it shows ${state.systems[0]?.title ?? "none"} instead.` });
    if (state.system === null || state.stage === null) {
      choose(state.systems[0]?.name ?? "");
      await start();
    }
    return;
  }
  const settings = fromAddress(named, route.values);
  change({ system: named, settings, scenario: route.values["scenario"] ?? "", check: null, file: route.values["file"] ?? "" });
  const at = moment(route.values);
  if (at === undefined && Number(route.values["t"] ?? 0) !== 0) {
    change({ said: `The address names no moment of a run with t=${route.values["t"]}: it stands at the beginning.` });
  }
  await start(at);
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let addressing;

/** Write set-up and moment into the address, at most four times a second. */
function address() {
  if (addressing !== undefined || state.page !== "stage") return;
  addressing = setTimeout(() => {
    addressing = undefined;
    if (state.page !== "stage" || state.system === null) return;
    const next = link();
    if (next === location.hash) return;
    written = next;
    history.replaceState(null, "", next);
  }, PAUSE);
}

/** The address of this moment. */
export function link() {
  const system = state.system;
  if (system === null) return "#/stage";
  const given = Object.entries(state.stage ? JSON.parse(state.stageOf || "{}") : state.settings);
  /** @type {Record<string, string>} */
  const values = { system: system.name, scenario: state.scenario };
  for (const [name, value] of given) values[name] = write(value);
  if (values["data"]?.startsWith("file:") && state.file) values["file"] = state.file;
  const stage = state.stage;
  if (stage && stage.time > 0) values["t"] = String(stage.time);
  if (stage && stage.message > 0 && stage.phase !== "playing") values["m"] = String(stage.message);
  return format({ page: "stage", values });
}

/**
 * Go to a page.
 * @param {string} page
 */
export function go(page) {
  const next = page === "stage" ? link() : `#/${page}`;
  written = next;
  history.pushState(null, "", next);
  change({ page });
}

// Set-up -------------------------------------------------------------------------------------------------------------

/**
 * Take another system, with its first scenario.
 * @param {string} name
 */
export function choose(name) {
  const system = state.systems.find((one) => one.name === name) ?? null;
  const scenario = system?.scenarios[0];
  change({ system, scenario: scenario?.name ?? "", settings: { ...(scenario?.settings ?? {}) }, check: null, observer: "" });
  verify();
}

/**
 * Take a scenario of the system.
 * @param {string} name
 */
export function take(name) {
  const scenario = state.system?.scenarios.find((one) => one.name === name);
  change({ scenario: name, settings: { ...(scenario?.settings ?? {}) } });
  verify();
}

/**
 * Give a setting a value; null takes it back to its default.
 * @param {string} name
 * @param {unknown} value
 */
export function set(name, value) {
  const settings = { ...state.settings };
  const fallback = state.system?.schema.properties[name]?.default ?? null;
  if (value === null || JSON.stringify(value) === JSON.stringify(fallback)) delete settings[name];
  else settings[name] = value;
  for (const other of state.system?.schema.properties[name]?.instead ?? []) delete settings[other];
  if (name === "policy") {
    const policies = (state.system?.policies ?? []).filter((one) => typeof one.parameters === "object");
    for (const parameter of policies.flatMap((one) => Object.keys(one.parameters))) delete settings[parameter];
  }
  for (const other of Object.keys(settings)) if (state.system && !applies(state.system, settings, other)) delete settings[other];
  change({ settings });
  verify();
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let verifying;
let asked = 0;

/** Have the server check the settings, a moment after the last change. */
export function verify() {
  clearTimeout(verifying);
  verifying = setTimeout(async () => {
    const system = state.system;
    if (system === null) return;
    const turn = (asked += 1);
    change({ checking: true });
    try {
      const check = await post("/api/check", { system: system.name, settings: state.settings });
      if (turn === asked) change({ check: named(check), checking: false });
    } catch (error) {
      if (turn !== asked) return;
      change({ check: refused(error), checking: false });
    }
  }, PAUSE);
}

/** @param {unknown} error */
function refused(error) {
  return named({ ok: false, errors: [{ field: error instanceof Refused ? error.field : "", message: reason(error) }] });
}

/**
 * A check in which errors about a user's own file name it, also where the server does not have it.
 * @param {import("./types.js").Check} check
 */
function named(check) {
  const own = state.file && write(value("data")).startsWith("file:");
  const errors = check.errors.map((one) => {
    const nameless = own && one.field === "data" && !one.message.includes(state.file);
    return nameless ? { ...one, message: `${state.file}: ${one.message}` } : one;
  });
  return { ...check, errors };
}

/**
 * Send a file of the user's own and use it as data, instead of everything that said what is learnt.
 * @param {File} file
 */
export async function drop(file) {
  try {
    const kept = await upload(`/api/files?name=${encodeURIComponent(file.name)}`, file);
    const about = new Set(state.system?.groups?.find((group) => group.fields.includes("data"))?.fields ?? []);
    const rest = Object.entries(state.settings).filter(([name]) => !about.has(name));
    change({ said: `${kept.name}: ${kept.note ?? `${kept.size} bytes`}`, file: kept.name, settings: Object.fromEntries(rest), scenario: "" });
    set("data", `file:${kept.id}`);
  } catch (error) {
    const errors = [{ field: "data", message: `${file.name}: ${reason(error)}` }];
    change({ check: { ...(state.check ?? { ok: true }), errors } }); // the settings are as they were
  }
}

// The run ------------------------------------------------------------------------------------------------------------

/** How often a stage was asked for: only the last one is shown. */
let begun = 0;

/**
 * Put the settings on the stage, at a moment if one is given.
 * @param {{time: number, message?: number | undefined}} [at]
 */
export async function start(at) {
  const system = state.system;
  if (system === null) return;
  const settings = state.settings;
  const turn = ++begun;
  change({ starting: Date.now(), problem: "", full: null, selected: null, pinned: null, party: null });
  verify();
  try {
    const made = await post("/api/stages", { system: system.name, settings, scenario: state.scenario, ...(at ? { at } : {}) });
    if (turn !== begun) { // another was asked for meanwhile
      void end(made.id);
      return;
    }
    const before = state.stage;
    change({
      ...blank(),
      stage: made.state ?? made,
      stageOf: JSON.stringify(settings),
      starting: made.state?.phase === "starting" ? state.starting : 0,
      said: state.said === STOPPED ? "" : state.said,
    });
    line?.follow([made.id]);
    written = location.hash;
    address();
    if (before !== null && before.id !== made.id) void end(before.id);
  } catch (error) {
    if (turn !== begun) return;
    if (error instanceof Refused && error.answer["live"]) {
      wanted = at;
      change({ full: /** @type {Stage[]} */ (error.answer["live"]), starting: 0, problem: error.message });
    } else if (error instanceof Refused) {
      change({ check: refused(error), starting: 0, problem: error.message });
    } else change({ starting: 0, problem: reason(error), said: state.stage ? reason(error) : state.said });
  }
}

/**
 * Put a run of the store on the stage, from its beginning.
 * @param {string} id
 */
export async function replay(id) {
  const run = await get(`/api/runs/${encodeURIComponent(id)}`);
  const system = state.systems.find((one) => one.name === (run.kind ?? run.system));
  if (!system || !run.again) throw new Error("This run cannot be started again from here.");
  change({ system, settings: differing(system, run.again), scenario: "", check: null, page: "stage" });
  history.pushState(null, "", "#/stage");
  await start();
}

/**
 * End a stage that nobody looks at any more; also while the page itself ends.
 * @param {string} id
 */
async function end(id) {
  try {
    await remove(`/api/stages/${id}`, true);
  } catch {
    // The server ends idle stages by itself.
  }
}

/** @type {{time: number, message?: number | undefined} | undefined} */
let wanted;

/**
 * Stop a stage that takes up room, then start at the moment that was asked for.
 * @param {string} id
 */
export async function stop(id) {
  await end(id);
  await start(wanted);
}

/**
 * Move the run.
 * @param {string} action
 * @param {Record<string, unknown>} [more]
 */
export async function act(action, more = {}) {
  const stage = state.stage;
  if (stage === null || state.starting !== 0) return;
  change({ selected: null });
  try {
    // The stream shows what came of it: this answer may be older than what the stream has said by now.
    return await post(`/api/stages/${stage.id}/do`, { action, unit: state.unit, speed: state.speed, n: 1, ...more });
  } catch (error) {
    if (error instanceof Refused && error.status === 404) await again();
    else if (error instanceof Refused) {
      change({ said: error.message });
      line?.retry(); // it sends everything again
    }
  }
}

/** @type {Promise<void>} */
let pressed = Promise.resolve();
/** How many presses of play or pause the server has not answered: until then the button knows better than the stream. */
let unanswered = 0;

/** Play, or pause if it plays; the button says so at once, and the stream what came of it. Presses stay in order. */
export function toggle() {
  const stage = state.stage;
  if (stage === null || state.starting !== 0) return;
  const plays = stage.phase === "playing";
  change({ stage: { ...stage, heard: stage.heard ?? stage.phase, phase: plays ? "paused" : "playing", speed: plays ? stage.speed : state.speed } });
  unanswered += 1;
  pressed = pressed.then(() => act(plays ? "pause" : "play")).then((made) => {
    unanswered -= 1;
    const now = state.stage;
    if (now === null || now.id !== stage.id) return;
    const { phase, change: number } = made?.state ?? {};
    change({ stage: told(now, phase ? { phase, change: number } : {}, unanswered > 0) });
  });
}

/** Take the run up again from where it was: the server does not know it any more. */
async function again() {
  const stage = state.stage;
  if (stage === null) return;
  /** @type {Settings} */
  const settings = JSON.parse(state.stageOf || "{}");
  change({ settings });
  await start({ time: stage.time, message: stage.message });
}

/**
 * A frame of the stream; `fresh`: no picture has come since it was opened, so that a stage that is gone was lost with
 * its server, and is taken up again at once.
 * @param {string} name
 * @param {any} data
 * @param {boolean} fresh
 */
function frame(name, data, fresh) {
  if (name === "state") merge(data);
  else if (name === "gone" && data.id === state.stage?.id) {
    if (fresh) void again();
    else change({ said: STOPPED });
  }
  if (name === "jobs") change({ jobs: data });
  else if (name === "runs") changed();
}

/** @type {() => void} */
let changed = () => {};

/**
 * Say who looks at the store when its runs change.
 * @param {() => void} look
 */
export function onRuns(look) {
  changed = look;
}

/**
 * Take over what changed of the stage.
 * @param {Partial<Stage> & {id?: string, curves?: any}} news
 */
function merge(news) {
  const stage = state.stage;
  if (stage === null || (news.id !== undefined && news.id !== stage.id)) return;
  const { curves, ...rest } = news;
  if (curves?.lines) {
    for (const [name, points] of Object.entries(curves.lines)) {
      state.curves[name] = joined(state.curves[name] ?? [], points, curves.from[name] ?? 0);
    }
    for (const name of Object.keys(state.curves)) if (!(name in curves.lines)) delete state.curves[name];
  }
  const now = told(stage, rest, unanswered > 0);
  change({ stage: now, spent: spending(state.spent, now), starting: now.phase === "starting" ? state.starting : 0 });
  address();
  look();
}

/** Whether the settings in the form are other ones than those on the stage. */
export function edited() {
  return state.stage !== null && (state.stageOf !== JSON.stringify(state.settings) || state.stage.system !== state.system?.name);
}

/**
 * The value of a setting in the form.
 * @param {string} name
 */
export function value(name) {
  return state.system === null ? null : current(state.system, state.settings, name);
}

/** Try to reach the server at once. */
export function retry() {
  line?.retry();
  refresh();
}
