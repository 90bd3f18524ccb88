/** Looking closer at the run: messages as an observer has them, a party, code, attacks, costs. */

import { get, Gone, post, Refused } from "./api.js";
import { change, state } from "./store.js";
import { reason } from "./words.js";

/** @typedef {import("./types.js").Stage} Stage */

/** Units a second above which messages are not fetched one by one. */
const QUICK = 5;
/** Milliseconds between two looks at the messages while a run plays quickly. */
const LOOK = 1000;

let looked = "";
let looking = false;
let later = 0;

/** Fetch the newest messages as the observer has them, if they are not those on display. */
export function look() {
  const stage = state.stage;
  if (stage === null || state.page !== "stage" || state.observer === "") return;
  if (stage.phase === "starting" || stage.phase === "failed") return;
  const quick = stage.phase === "playing" && rate(stage) > QUICK;
  const key = `${stage.id} ${stage.message} ${state.observer}`;
  if (key === looked || looking) return;
  const wait = quick ? later - Date.now() : 0;
  if (wait > 0) {
    setTimeout(look, wait);
    looking = true;
    setTimeout(() => (looking = false), wait - 1);
    return;
  }
  looked = key;
  later = Date.now() + LOOK;
  looking = true;
  void fetchMessages(stage, quick ? 6 : 12).finally(() => {
    looking = false;
    look();
  });
}

/**
 * Time steps a second, roughly, at which a stage plays.
 * @param {Stage} stage
 */
export function rate(stage) {
  return stage.speed === 0 ? Infinity : stage.speed;
}

/**
 * @param {Stage} stage
 * @param {number} count
 */
async function fetchMessages(stage, count) {
  try {
    const observer = encodeURIComponent(state.observer || "wire");
    const messages = await get(`/api/stages/${stage.id}/messages?count=${count}&observer=${observer}`);
    if (stage.id !== state.stage?.id) return; // another one is on the stage by now
    change({ messages, fetched: stage.id });
    if (state.code === null) change({ code: await get(`/api/stages/${stage.id}/code`) });
  } catch (error) {
    if (error instanceof Refused && stage.id === state.stage?.id) change({ said: error.message });
  }
}

/** Fetch messages before the oldest on display. */
export async function older() {
  const stage = state.stage;
  const first = state.messages[0];
  if (stage === null || first === undefined || first.number <= 1) return;
  const observer = encodeURIComponent(state.observer || "wire");
  const more = await get(`/api/stages/${stage.id}/messages?before=${first.number - 1}&count=20&observer=${observer}`);
  change({ messages: [...more, ...state.messages] });
}

/**
 * See messages as another observer has them.
 * @param {string} observer
 */
export function observe(observer) {
  change({ observer, audit: null });
  look();
  audit(false);
}

/**
 * Select a message: stage, log line and code show it.
 * @param {number | null} number
 */
export function select(number) {
  change({ selected: state.selected === number ? null : number });
}

/**
 * Pin a party's card on the stage, or take it away.
 * @param {string | null} name
 */
export async function pin(name) {
  if (name === null || name === state.pinned) {
    change({ pinned: null, party: null });
    return;
  }
  change({ pinned: name, party: null });
  const stage = state.stage;
  if (stage === null) return;
  for (let tries = 0; tries < 5 && state.pinned === name; tries += 1) {
    try {
      const party = await get(`/api/stages/${stage.id}/party/${encodeURIComponent(name)}`);
      if (state.pinned === name) change({ party });
      return;
    } catch {
      // Until then the card keeps what the level says about the role.
      await new Promise((after) => setTimeout(after, 1000));
    }
  }
}

/** Show the real source of the role whose code is on display. */
export async function source() {
  const stage = state.stage;
  const kind = state.codeKind || Object.keys(state.code ?? {})[0] || "";
  if (stage === null || !state.real || state.source?.kind === kind) return;
  try {
    const found = await get(`/api/stages/${stage.id}/source?kind=${encodeURIComponent(kind)}`);
    change({ source: { kind, ...found } });
  } catch (error) {
    change({ source: { kind, text: reason(error), file: "", first: 1 } });
  }
}

let slow = false;

/**
 * Try the attacks on what the observer has seen so far. Unless it was asked for it is done at rest only, and not again
 * by itself where it took long.
 * @param {boolean} wanted
 * @param {boolean} [beside] whether the same attacks run at the other levels too
 */
export async function audit(wanted, beside = false) {
  const stage = state.stage;
  const observer = state.observer;
  if (stage === null || observer === "" || state.auditing || stage.phase === "starting") return;
  const key = `${stage.id} ${stage.message} ${observer}`;
  if (!wanted && (slow || key === state.auditFor || stage.phase === "playing" || observer === "wire")) return;
  change({ auditing: true, auditFor: key });
  const began = performance.now();
  try {
    const found = await post(`/api/stages/${stage.id}/audit`, beside ? { observer, beside } : { observer });
    change({ audit: state.observer === observer ? found : null, auditing: false });
  } catch (error) {
    change({ audit: { rows: [], note: reason(error) }, auditing: false });
  }
  slow = performance.now() - began > 1500;
}

/** Measure what each protection costs. */
export async function measure() {
  const stage = state.stage;
  if (stage === null || state.costing) return;
  change({ costing: true });
  try {
    change({ cost: await post(`/api/stages/${stage.id}/cost`), costing: false });
  } catch (error) {
    change({ cost: { rows: [], note: reason(error) }, costing: false });
  }
}

let asking = false;

/** Have the data of all systems looked through, which takes a while: once the first picture stands. */
export async function survey() {
  if (asking || state.systems.every((one) => one.data !== null)) return;
  asking = true;
  try {
    const data = await get("/api/data");
    const systems = state.systems.map((one) => ({ ...one, data: data[one.name] ?? [] }));
    change({ systems, system: systems.find((one) => one.name === state.system?.name) ?? state.system });
  } catch (error) {
    if (!(error instanceof Gone)) change({ said: reason(error) });
  }
  asking = false;
}
