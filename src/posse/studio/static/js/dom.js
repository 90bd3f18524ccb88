/** Making nodes and patching standing ones. Data only ever become text and attributes, never markup. */

/**
 * @typedef {Node | string | null | undefined | false} Child
 * @typedef {Record<string, unknown>} Attributes `class`, `on` (listeners by event), or any attribute
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an HTML element.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  fill(node, attributes, children);
  return node;
}

/**
 * Make an SVG element.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function s(tag, attributes = {}, ...children) {
  const node = /** @type {SVGElementTagNameMap[Tag]} */ (document.createElementNS(SVG, tag));
  fill(node, attributes, children);
  return node;
}

/**
 * @param {Element} node
 * @param {Attributes} attributes
 * @param {Child[]} children
 */
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(/** @type {Record<string, EventListener>} */ (value))) {
        node.addEventListener(event, listener);
      }
    } else attr(node, name, value);
  }
  for (const child of children) if (child !== null && child !== undefined && child !== false) node.append(child);
}

/**
 * Set an attribute where it differs; null, undefined and false remove it.
 * @param {Element} node
 * @param {string} name
 * @param {unknown} value
 */
export function attr(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

/**
 * Set the text of a node that holds text alone, where it differs.
 * @param {Element} node
 * @param {string} value
 */
export function text(node, value) {
  const first = node.firstChild;
  if (first instanceof Text && first.nextSibling === null) {
    if (first.data !== value) first.data = value;
  } else if (first !== null || value !== "") node.textContent = value;
}

/**
 * Put a class on a node or take it off.
 * @param {Element} node
 * @param {string} name
 * @param {boolean} on
 */
export function flag(node, name, on) {
  if (node.classList.contains(name) !== on) node.classList.toggle(name, on);
}

/**
 * Show or hide a node.
 * @param {HTMLElement | SVGElement} node
 * @param {boolean} on
 */
export function show(node, on) {
  if (node.hasAttribute("hidden") === on) node.toggleAttribute("hidden", !on);
}

/**
 * Set the value of a field unless somebody is typing in it.
 * @param {HTMLInputElement | HTMLSelectElement} node
 * @param {string} value
 */
export function put(node, value) {
  if (node.value !== value && document.activeElement !== node) node.value = value;
}

/**
 * Keep a list of child nodes in step with items: made once for each key, patched afterwards, moved only if needed.
 * @template Item
 * @template {Element} Made
 * @param {Element} parent
 * @param {Item[]} items
 * @param {(item: Item, place: number) => string} key
 * @param {(item: Item) => Made} make
 * @param {(node: Made, item: Item) => void} [patch]
 */
export function keyed(parent, items, key, make, patch) {
  const known = /** @type {Map<string, Made>} */ (lists.get(parent) ?? new Map());
  const kept = new Map();
  let next = parent.firstChild;
  items.forEach((item, place) => {
    const name = key(item, place);
    const node = known.get(name) ?? make(item);
    patch?.(node, item);
    if (node === next) next = node.nextSibling;
    else parent.insertBefore(node, next);
    kept.set(name, node);
  });
  for (const [name, node] of known) if (!kept.has(name)) node.remove();
  lists.set(parent, kept);
}

/** @type {WeakMap<Element, Map<string, Element>>} */
const lists = new WeakMap();

/**
 * Make something again only when what it is made from changes: returns a function that compares keys.
 * @template Key
 * @param {(key: Key) => void} make
 * @returns {(key: Key) => void}
 */
export function once(make) {
  /** @type {string | undefined} */
  let last;
  return (key) => {
    const now = JSON.stringify(key);
    if (now === last) return;
    last = now;
    make(key);
  };
}

/**
 * A group of buttons of which one is pressed.
 * @param {string} name what is chosen, for a screen reader
 * @param {(value: string) => void} choose
 */
export function segments(name, choose) {
  const node = h("div", { class: "segments", role: "radiogroup", "aria-label": name });
  node.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    const buttons = [...node.querySelectorAll("button")];
    const next = buttons[(buttons.findIndex((one) => one === document.activeElement) + step + buttons.length) % buttons.length];
    next?.focus();
    next?.click();
    event.preventDefault();
    event.stopPropagation();
  });
  return {
    node,
    /**
     * @param {{value: string, label: string}[]} options
     * @param {string} value
     * @param {(button: HTMLButtonElement, value: string) => void} [each]
     */
    update(options, value, each) {
      keyed(
        node,
        options,
        (one) => one.value,
        (one) => h("button", { type: "button", role: "radio", on: { click: () => choose(one.value) } }, one.label),
        (button, one) => {
          attr(button, "aria-checked", String(one.value === value));
          attr(button, "tabindex", one.value === value ? "0" : "-1");
          text(button, one.label);
          each?.(button, one.value);
        },
      );
    },
  };
}
