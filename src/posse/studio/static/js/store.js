/** The one state object of the page. Whoever changes it asks for a render; there is one render an animation frame. */

/**
 * @typedef {import("./types.js").System} System
 * @typedef {import("./types.js").Settings} Settings
 * @typedef {import("./types.js").Stage} Stage
 * @typedef {import("./types.js").Message} Message
 * @typedef {{page: string, entered: "unknown" | "yes" | "token" | "password", problem: string,
 *   systems: System[], system: System | null, scenario: string, settings: Settings,
 *   check: import("./types.js").Check | null, checking: boolean, file: string,
 *   stage: Stage | null, stageOf: string, starting: number, curves: Record<string, import("./types.js").Point[]>, spent: import("./types.js").Point[],
 *   full: import("./types.js").Stage[] | null,
 *   unit: string, speed: number, observer: string, tab: string, messages: Message[], fetched: string, selected: number | null,
 *   pointed: string | null, pinned: string | null, party: import("./types.js").PartyView | null,
 *   code: Record<string, string[]> | null, codeKind: string, source: {kind: string, text: string, file: string, first: number} | null,
 *   real: boolean, audit: import("./types.js").Audit | null, auditing: boolean, auditFor: string,
 *   cost: import("./types.js").Cost | null, costing: boolean,
 *   gone: number | null, said: string, runs: import("./types.js").RunRow[], runsLoaded: boolean,
 *   jobs: import("./types.js").Job[], dark: boolean, narrow: boolean, still: boolean}} State
 */

/** What is known of a run that was just put on the stage, beside its own state: nothing. */
export const blank = () => /** @satisfies {Partial<State>} */ ({
  curves: {},
  spent: [],
  observer: "",
  messages: [],
  fetched: "",
  selected: null,
  pinned: null,
  party: null,
  code: null,
  source: null,
  audit: null,
  auditing: false,
  auditFor: "",
  cost: null,
  costing: false,
});

/** @type {State} */
export const state = {
  ...blank(),
  page: "stage",
  entered: "unknown",
  problem: "",
  systems: [],
  system: null,
  scenario: "",
  settings: {},
  check: null,
  checking: false,
  file: "",
  stage: null,
  stageOf: "",
  starting: 0,
  full: null,
  unit: "time",
  speed: 2,
  tab: "messages",
  pointed: null,
  codeKind: "",
  real: false,
  gone: null,
  said: "",
  runs: [],
  runsLoaded: false,
  jobs: [],
  dark: false,
  narrow: false,
  still: false,
};

/** @type {() => boolean} */
let render = () => false;
let asked = false;

/** Ask for a render in the next animation frame. */
export function refresh() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    if (render()) refresh();
  });
}

/**
 * Change the state and ask for a render.
 * @param {Partial<State>} values
 */
export function change(values) {
  Object.assign(state, values);
  refresh();
}

/**
 * Say what renders: a function that patches the page and returns whether something still moves.
 * @param {() => boolean} draw
 */
export function rendering(draw) {
  render = draw;
}

/** Whose bytes are shown: an observer of one run. */
export function subject() {
  return `${state.stage?.id} ${state.observer}`;
}

/**
 * Whether a run is set up.
 * @param {Stage} stage
 */
export function ready(stage) {
  return stage.phase !== "starting" && stage.phase !== "failed";
}

/**
 * A stage with what the stream says of it. `heard` is the phase on the server. While the server has not answered a
 * press, the button knows better, unless the run is over; a frame that is older than an answer changes no phase.
 * @param {Stage} stage
 * @param {Partial<Stage>} news
 * @param {boolean} pressed whether a press of play or pause is unanswered
 * @returns {Stage}
 */
export function told(stage, news, pressed) {
  const older = (news.change ?? Infinity) < (stage.change ?? 0);
  const heard = (older ? undefined : news.phase) ?? stage.heard ?? stage.phase;
  const over = heard === "done" || heard === "failed";
  const change = older ? stage.change : news.change ?? stage.change;
  return { ...stage, ...news, change, heard, phase: pressed && !over ? stage.phase : heard };
}

/**
 * The party through whose eyes an observer looks: of several of one kind the first one.
 * @param {string} observer
 */
export function watcher(observer) {
  return state.stage?.watchers?.[observer] ?? observer;
}

/**
 * What an observer is called: one of several parties with its kind.
 * @param {string} observer
 */
export function observerLabel(observer) {
  const name = watcher(observer);
  return name === observer ? labelOf(observer) : `${labelOf(name)} (${labelOf(observer)})`;
}

/**
 * A party of the stage by its name.
 * @param {string} name
 */
export function partyOf(name) {
  return state.stage?.scene?.parties.find((party) => party.name === name) ?? null;
}

/**
 * The kind of role that a name stands for: a party's, or a kind itself.
 * @param {string} name
 */
export function kindOf(name) {
  return partyOf(name)?.kind ?? name;
}

/**
 * What a party or a kind is called.
 * @param {string} name
 */
export function labelOf(name) {
  return partyOf(name)?.label ?? state.system?.roles.find((role) => role.kind === name)?.label ?? name;
}

/**
 * The event that everything shows: the message that somebody selected, or the last one.
 * @returns {Message | import("./types.js").Last | null}
 */
export function event() {
  if (state.selected !== null) {
    const found = state.messages.find((message) => message.number === state.selected);
    if (found) return found;
  }
  return state.stage?.last ?? null;
}
