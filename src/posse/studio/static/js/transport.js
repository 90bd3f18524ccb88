/** Under the stage, as under a film: to the start, back, play, forward, to the end, the unit, a track, t of N. */

import { act, toggle } from "./actions.js";
import { attr, h, put, s, segments, text } from "./dom.js";
import { change, state } from "./store.js";
import { number } from "./words.js";

/** Speeds, in units a second; 0 is as fast as it goes. */
const SPEEDS = [0.5, 1, 2, 5, 20, 100, 0];

/** @type {Record<string, string>} */
const ICONS = {
  start: "M3 2h2v10H3zM12 2v10L5.5 7z",
  back: "M10 2v10L4 7z",
  play: "M3 1.5v11L12 7z",
  pause: "M3 2h3v10H3zM8 2h3v10H8z",
  forward: "M3 2v10l6-5zM10 2h2v10h-2z",
  end: "M1 2v10l5-5zM6.5 2v10l5-5zM11.5 2h2v10h-2z",
};

/**
 * @param {string} name
 * @returns {SVGSVGElement}
 */
function icon(name) {
  return s("svg", { viewBox: "0 0 14 14", width: 14, height: 14, "aria-hidden": "true" }, s("path", { d: ICONS[name] }));
}

/** Make the controls. */
export function transport() {
  const button = (/** @type {string} */ name, /** @type {string} */ label, /** @type {() => void} */ press) =>
    h("button", { type: "button", class: "control", "aria-label": label, title: label, on: { click: press } }, icon(name));
  const start = button("start", "To the start (Home)", () => act("jump", { time: 0 }));
  const back = button("back", "Back (left arrow)", () => act("back"));
  const playIcon = icon("play");
  const playText = h("span", {}, "Play");
  const play = h("button", { type: "button", class: "play", on: { click: () => toggle() } }, playIcon, playText);
  const forward = button("forward", "Forward (right arrow)", () => act("forward"));
  const end = button("end", "Run to the end (End)", () => act("end"));
  const unit = segments("unit of forward, back and play", (value) => pace({ unit: value }));
  const speed = h("select", {
    "aria-label": "speed, units a second",
    on: { change: () => pace({ speed: Number(speed.value) }) },
  }, ...SPEEDS.map((one) => h("option", { value: one }, one === 0 ? "fastest" : `${one} / s`)));
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let dragging;
  const track = h("input", {
    type: "range",
    min: 0,
    step: 1,
    "aria-label": "time",
    on: {
      input: () => {
        clearTimeout(dragging);
        dragging = setTimeout(() => {
          dragging = undefined;
          void act("jump", { time: Number(track.value) });
        }, 120);
      },
    },
  });
  const place = h("output", { class: "place" });
  const node = h("section", { class: "transport", "aria-label": "Controls" }, 
    h("div", { class: "buttons" }, start, back, play, forward, end, unit.node, speed), h("div", { class: "along" }, track, place));

  function update() {
    const now = state.stage;
    const ready = now !== null && state.starting === 0 && now.phase !== "starting" && now.phase !== "failed";
    const plays = now?.phase === "playing";
    for (const one of [start, back, play, forward, end, track]) attr(one, "disabled", !ready);
    attr(forward, "disabled", !ready || now.done);
    attr(end, "disabled", !ready || now.done);
    attr(back, "disabled", !ready || (now.time === 0 && now.message === 0));
    attr(start, "disabled", !ready || (now.time === 0 && now.message === 0));
    attr(play, "disabled", !ready || now.done);
    attr(/** @type {Element} */ (playIcon.firstChild), "d", ICONS[plays ? "pause" : "play"]);
    text(playText, plays ? "Pause" : "Play");
    attr(play, "title", plays ? "Pause (space)" : "Play (space)");
    attr(play, "aria-label", plays ? "Pause" : "Play");
    unit.update(["message", "step", "time"].map((one) => ({ value: one, label: one })), state.unit);
    put(speed, String(state.speed));
    attr(track, "max", now?.horizon ?? 1);
    const time = now?.time ?? 0;
    if (dragging === undefined && Number(track.value) !== time) track.value = String(time);
    track.style.setProperty("--part", `${(100 * time) / Math.max(1, now?.horizon ?? 1)}%`);
    attr(track, "aria-valuetext", `${now?.unit ?? "step"} ${time} of ${now?.horizon ?? 0}`);
    text(place, `t = ${number(time)} of ${number(now?.horizon ?? 0)}`);
  }
  return { node, update };
}

/** What each key does; the help dialog lists it. */
export const KEYS = /** @type {[string, string, () => void][]} */ ([
  ["space", "play or pause", () => toggle()],
  ["→", "forward by one unit", () => act("forward")],
  ["←", "back by one unit", () => act("back")],
  ["↑", "ten units forward", () => act("forward", { n: 10 })],
  ["↓", "ten units back", () => act("back", { n: 10 })],
  ["Home", "to the start", () => act("jump", { time: 0 })],
  ["End", "run to the end", () => act("end")],
  ["m", "unit: message", () => pace({ unit: "message" })],
  ["s", "unit: step of the protocol", () => pace({ unit: "step" })],
  ["t", "unit: time step", () => pace({ unit: "time" })],
  ["+", "faster", () => faster(1)],
  ["−", "slower", () => faster(-1)],
]);

const CODES = /** @type {Record<string, string>} */ ({
  " ": "space",
  ArrowRight: "→",
  ArrowLeft: "←",
  ArrowUp: "↑",
  ArrowDown: "↓",
  "-": "−",
  "=": "+",
});

/** @param {number} step */
function faster(step) {
  const place = SPEEDS.indexOf(state.speed);
  pace({ speed: SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, place + step))] ?? 2 });
}

/**
 * Take another unit or speed, also for a run that plays.
 * @param {{unit?: string, speed?: number}} values
 */
function pace(values) {
  change(values);
  if (state.stage?.phase === "playing") void act("play");
}

/**
 * Do what a key stands for; whether it stands for something.
 * @param {string} key
 */
export function press(key) {
  const name = CODES[key] ?? key;
  const found = KEYS.find(([one]) => one === name);
  found?.[2]();
  return found !== undefined;
}
