/** Looking closer at the run: messages as an observer has them, a party, code, attacks, costs. */

import { get, Gone, post, Refused } from "./api.js";
import { change, ready, state, subject } from "./store.js";
import { reason } from "./words.js";

/** @typedef {import("./types.js").Stage} Stage */

/** Units a second above which messages are not fetched one by one. */
const QUICK = 5;
/** Milliseconds between two looks while a run plays quickly, and after a look that failed. */
const LOOK = 1000;
/** Milliseconds from which on attacks are not tried again by themselves. */
const SLOW = 1500;

/**
 * Ask about the run on the stage. When the answer comes, something else may stand there: it is dropped, and null is
 * returned, unless the run and everything else that the question is about are still the same.
 * @param {string} path
 * @param {unknown} [body] what is posted; without it the path is read
 * @param {() => unknown[]} [about] what the question is about, beside the run
 * @returns {Promise<{answer: any, error: unknown} | null>}
 */
async function ask(path, body, about = () => []) {
  const stage = state.stage;
  if (stage === null) return null;
  const before = [stage.id, ...about()];
  const same = () => [state.stage?.id, ...about()].every((one, place) => one === before[place]);
  const address = `/api/stages/${stage.id}/${path}`;
  try {
    const answer = await (body === undefined ? get(address) : post(address, body));
    return same() ? { answer, error: null } : null;
  } catch (error) {
    return same() ? { answer: null, error } : null;
  }
}

/**
 * Whether another try would fail too.
 * @param {unknown} error
 */
function final(error) {
  return error instanceof Refused && error.status === 404;
}

/**
 * Keep what is shown of the run up to date: it is asked for whenever the run has moved, once a second where it plays
 * quickly, and again a second after a failure.
 * @param {() => string} about what it is about, beside the run; empty: nothing is wanted
 * @param {(quick: boolean) => Promise<boolean>} fetch whether there was an answer
 */
function following(about, fetch) {
  let held = "";
  let last = "";
  let busy = "";
  let failed = false;
  let later = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  return function look() {
    const stage = state.stage;
    if (stage === null || !ready(stage) || state.page !== "stage" || state.gone !== null || about() === "") return;
    const what = `${stage.id} ${about()}`;
    const moment = `${what} ${stage.message}`;
    if (moment === held || what === busy) return;
    const quick = stage.phase === "playing" && rate(stage) > QUICK;
    const wait = what === last && (quick || failed) ? later - Date.now() : 0;
    if (wait > 0) {
      timer ??= setTimeout(() => {
        timer = undefined;
        look();
      }, wait);
      return;
    }
    held = moment;
    last = busy = what;
    later = Date.now() + LOOK;
    void fetch(quick).then((fine) => {
      if (busy !== what) return; // something else is asked for by now
      busy = "";
      failed = !fine;
      if (failed) held = "";
      look();
    });
  };
}

/**
 * Time steps a second, roughly, at which a stage plays.
 * @param {Stage} stage
 */
export function rate(stage) {
  return stage.speed === 0 ? Infinity : stage.speed;
}

/** Fetch the newest messages as the observer has them, and the state of the party whose card is open. */
export function look() {
  lookAtMessages();
  lookAtParty();
}

const observed = () => encodeURIComponent(state.observer);

const lookAtMessages = following(() => state.observer, async (quick) => {
  const found = await ask(`messages?count=${quick ? 6 : 12}&observer=${observed()}`, undefined, () => [state.observer]);
  if (found === null) return true;
  if (found.error !== null) {
    if (found.error instanceof Refused) change({ said: found.error.message });
    return final(found.error);
  }
  change({ messages: found.answer, fetched: subject() });
  if (state.code === null) {
    const code = await ask("code");
    if (code?.answer) change({ code: code.answer });
  }
  if (state.real && state.source === null) void source();
  return true;
});

/** How often a card was opened: each time its state is asked for, also at the same moment. */
let pins = 0;

const lookAtParty = following(() => (state.pinned === null ? "" : `${state.pinned} ${pins}`), async () => {
  const name = encodeURIComponent(state.pinned ?? "");
  const found = await ask(`party/${name}`, undefined, () => [state.pinned]);
  if (found?.answer) change({ party: found.answer });
  // Without an answer the card keeps what the level says about the role.
  return found === null || found.error === null || final(found.error);
});

/** Fetch messages before the oldest on display. */
export async function older() {
  const first = state.messages[0];
  if (first === undefined || first.number <= 1 || state.fetched !== subject()) return;
  const path = `messages?before=${first.number - 1}&count=20&observer=${observed()}`;
  const found = await ask(path, undefined, () => [state.observer, state.messages[0]]);
  if (found?.answer) change({ messages: [...found.answer, ...state.messages] });
  else if (found) change({ said: reason(found.error) });
}

/**
 * See messages as another observer has them.
 * @param {string} observer
 */
export function observe(observer) {
  change({ observer, audit: null, auditing: false, auditFor: "" });
  look();
  void audit(false);
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
export function pin(name) {
  pins += 1;
  change({ pinned: name === state.pinned ? null : name, party: null });
  look();
}

/** Show the real source of the role whose code is on display. */
export async function source() {
  const kind = state.codeKind || Object.keys(state.code ?? {})[0] || "";
  if (!state.real || state.source?.kind === kind) return;
  const found = await ask(`source?kind=${encodeURIComponent(kind)}`, undefined, () => [state.codeKind]);
  if (found === null) return;
  const shown = found.answer ?? { text: reason(found.error), file: "", first: 1 };
  change({ source: { kind, ...shown } });
}

/** The run on which attacks took long. */
let slow = "";

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
  if (!wanted && (slow === stage.id || key === state.auditFor || stage.phase === "playing" || observer === "wire")) return;
  change({ auditing: true, auditFor: key });
  const began = performance.now();
  const found = await ask("audit", beside ? { observer, beside } : { observer }, () => [state.observer]);
  if (found === null) return;
  change({ audit: found.answer ?? { rows: [], note: reason(found.error) }, auditing: false });
  slow = performance.now() - began > SLOW ? stage.id : "";
}

/** Measure what each protection costs. */
export async function measure() {
  if (state.stage === null || state.costing) return;
  change({ costing: true });
  const found = await ask("cost", {});
  if (found) change({ cost: found.answer ?? { rows: [], note: reason(found.error) }, costing: false });
}

/** Keep the run of the stage in the store. */
export async function keep() {
  const found = await ask("keep", {});
  if (found) change({ said: found.answer ? `Kept as ${found.answer.run}: it is under Runs.` : reason(found.error) });
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
