/** Fields of a form, made from a description of settings; each shows its value, its help and what is wrong with it. */

import { attr, flag, h, keyed, put, s, segments, show, text } from "./dom.js";
import { read, write } from "./schema.js";

/**
 * @typedef {import("./schema.js").Field} Field
 * @typedef {import("./schema.js").Block} Block
 * @typedef {{value: (name: string) => unknown, set: (name: string, value: unknown) => void, error: (name: string) => string,
 *   note?: (field: Field) => string, id: string, words?: (field: Field, option: string) => string, sliders?: boolean}} Owner
 */

/** Choices up to so many are buttons beside each other; more are a list. */
const BESIDE = 3;
const LETTERS = 26;

/**
 * Make a form.
 * @param {Owner} owner
 */
export function form(owner) {
  const node = h("div", { class: "form" });
  /** @type {WeakMap<Element, (field: Field) => void>} */
  const patches = new WeakMap();
  /** @type {WeakMap<Element, Element>} */
  const insides = new WeakMap();

  /** @param {Block[]} blocks */
  function update(blocks) {
    keyed(node, blocks, (one) => `${one.title} ${one.folded}`, (one) => {
      const inside = h("div", { class: "fields" });
      const made = one.folded
        ? h("details", { class: "fold" }, h("summary", {}, one.title), inside)
        : h("fieldset", {}, one.title ? h("legend", {}, one.title) : null, inside);
      insides.set(made, inside);
      return made;
    }, (made, one) => {
      const inside = insides.get(made);
      if (!inside) return;
      keyed(inside, one.fields, (field) => `${field.name} ${field.kind} ${field.options.join()}`, (field) => {
        const [element, patch] = make(owner, field);
        patches.set(element, patch);
        return element;
      }, (element, field) => patches.get(element)?.(field));
      if (made instanceof HTMLDetailsElement && one.fields.some((field) => owner.error(field.name) !== "")) made.open = true;
    });
  }
  return { node, update };
}

/**
 * @param {Owner} owner
 * @param {Field} field
 * @returns {[HTMLElement, (field: Field) => void]}
 */
function make(owner, field) {
  const id = `${owner.id}-${field.name}`;
  const error = h("p", { class: "error", id: `${id}-error`, role: "alert" });
  const note = h("p", { class: "note" });
  const name = field.label;
  const says = (/** @type {string} */ option) => owner.words?.(field, option) ?? option;
  /** @type {HTMLElement} */
  let body;
  /** @type {(field: Field) => void} */
  let patch;
  if (field.kind === "switch") {
    const input = h("input", { type: "checkbox", id, on: { change: () => owner.set(field.name, input.checked) } });
    body = h("label", { class: "switch", for: id }, input, h("span", {}, name));
    patch = () => {
      const on = owner.value(field.name) === true || owner.value(field.name) === "true";
      if (input.checked !== on) input.checked = on;
      wrong(input);
    };
  } else if (field.kind === "choice" && field.options.length > 1 && field.options.length <= BESIDE && field.options.join("").length <= LETTERS) {
    const choice = segments(name, (value) => owner.set(field.name, value));
    body = h("div", {}, h("span", { class: "label" }, name), choice.node);
    patch = () => {
      choice.update(field.options.map((one) => ({ value: one, label: says(one) })), write(owner.value(field.name)));
      wrong(choice.node);
    };
  } else if (field.kind === "choice") {
    const select = h("select", { id, on: { change: () => owner.set(field.name, select.value === "" ? null : select.value) } },
      field.empty ? h("option", { value: "" }, "as it comes") : null,
      ...field.options.map((one) => h("option", { value: one }, says(one))));
    body = h("div", {}, h("label", { for: id }, name), select);
    patch = () => {
      put(select, write(owner.value(field.name)));
      wrong(select);
    };
  } else {
    const numeric = field.kind === "number";
    const input = h("input", {
      id,
      type: "text",
      inputmode: numeric ? (field.whole ? "numeric" : "decimal") : null,
      autocomplete: "off",
      spellcheck: "false",
      on: { change: () => owner.set(field.name, read(field, input.value)) },
    });
    const written = field.kind === "text" && Number(field.fallback) > 0; // a number that may be given exactly
    const slider = owner.sliders && (numeric || written) ? sliderFor(owner, field) : null;
    body = h("div", {}, h("label", { for: id }, name), input, slider?.node);
    patch = (one) => {
      put(input, write(owner.value(field.name)));
      attr(input, "placeholder", one.fallback === null ? (one.empty ? "by itself" : null) : write(one.fallback));
      slider?.update();
      wrong(input);
    };
  }
  if (field.help) attr(body, "title", field.help);
  /** @param {Element} input */
  function wrong(input) {
    const said = owner.error(field.name);
    text(error, said);
    show(error, said !== "");
    const why = owner.note?.(field) ?? "";
    text(note, why);
    show(note, why !== "");
    attr(input, "aria-invalid", said === "" ? null : "true");
    attr(input, "aria-describedby", said === "" ? null : `${id}-error`);
  }
  const wide = field.kind === "choice" || field.kind === "list" || field.kind === "text" || owner.sliders;
  const element = h("div", { class: `field${wide ? " wide" : ""}`, "data-field": field.name }, body, error, note);
  return [element, (one) => {
    patch(one);
    flag(element, "wrong", owner.error(field.name) !== "");
  }];
}

/**
 * A slider over the decades around a number.
 * @param {Owner} owner
 * @param {Field} field
 */
function sliderFor(owner, field) {
  const start = Number(field.fallback ?? 1) || 1;
  const low = Math.log10(field.least && field.least > 0 ? field.least : field.whole ? 1 : start / 1000);
  const high = Math.log10(field.most ?? (field.whole ? Math.max(100, start * 100) : start < 1 ? 1 : start * 20));
  const node = h("input", {
    type: "range",
    min: low,
    max: high,
    step: (high - low) / 200,
    "aria-label": `${field.label}, slider`,
    on: {
      input: () => {
        const value = 10 ** Number(node.value);
        const short = field.whole ? Math.round(value) : Number(value.toPrecision(2));
        owner.set(field.name, field.kind === "text" ? String(short) : short);
      },
    },
  });
  return {
    node,
    update() {
      const value = Number(owner.value(field.name) ?? field.fallback ?? start);
      if (value > 0 && document.activeElement !== node) node.value = String(Math.log10(value));
      node.style.setProperty("--part", `${(100 * (Number(node.value) - low)) / (high - low)}%`);
      attr(node, "aria-valuetext", String(value));
    },
  };
}

/**
 * A small histogram: bars that count as a reward are filled.
 * @param {{value: number, count: number, pays?: boolean}[]} bars
 */
export function histogram(bars) {
  const most = Math.max(1, ...bars.map((one) => one.count));
  const wide = 240 / Math.max(1, bars.length);
  return s("svg", { class: "histogram", viewBox: "0 0 240 62", role: "img", "aria-label": `Ratings by value: ${bars.map((one) => `${one.value}: ${one.count}`).join(", ")}` },
    ...bars.flatMap((one, place) => {
      const high = (46 * one.count) / most;
      return [
        s("rect", { class: one.pays === false ? "no" : "yes", x: place * wide + 1.5, y: 48 - high, width: Math.max(1, wide - 3), height: Math.max(1, high), rx: Math.min(3, wide / 4) }),
        bars.length <= 12 ? s("text", { x: (place + 0.5) * wide, y: 60, "text-anchor": "middle" }, String(one.value)) : null,
      ];
    }));
}
