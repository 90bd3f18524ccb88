/** Role colours on a page: as they are for rings and bars, and in a shade that text can have. */

/** @typedef {[number, number, number]} Rgb */

/**
 * @param {string} hex such as #2563eb
 * @returns {Rgb}
 */
export function parse(hex) {
  const value = Number.parseInt(hex.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

/** @param {Rgb} rgb */
function hex(rgb) {
  return `#${rgb.map((one) => Math.round(one).toString(16).padStart(2, "0")).join("")}`;
}

/**
 * Relative luminance of WCAG 2.
 * @param {Rgb} rgb
 */
function luminance(rgb) {
  const [red, green, blue] = rgb.map((one) => {
    const part = one / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * (red ?? 0) + 0.7152 * (green ?? 0) + 0.0722 * (blue ?? 0);
}

/**
 * Contrast ratio of two colours, 1 to 21.
 * @param {string} one
 * @param {string} other
 */
export function contrast(one, other) {
  const [low, high] = [luminance(parse(one)), luminance(parse(other))].sort((a, b) => a - b);
  return ((high ?? 0) + 0.05) / ((low ?? 0) + 0.05);
}

/**
 * The colour, moved away from the background until text in it can be read.
 * @param {string} colour
 * @param {string} background
 * @param {number} [ratio]
 */
export function readable(colour, background, ratio = 4.6) {
  const goal = luminance(parse(background)) > 0.18 ? 0 : 255;
  let rgb = parse(colour);
  for (let step = 0; step < 40 && contrast(hex(rgb), background) < ratio; step += 1) {
    rgb = /** @type {Rgb} */ (rgb.map((one) => one + (goal - one) * 0.06));
  }
  return hex(rgb);
}

/**
 * Set the colours of a system's roles as variables of the page: --role-0, --role-0-text, ...
 * @param {HTMLElement} root
 * @param {import("./types.js").Role[]} roles
 * @param {boolean} dark
 * @param {string} background the panel that text stands on
 */
export function paint(root, roles, dark, background) {
  roles.forEach((role, place) => {
    const colour = role.colour[dark ? 1 : 0];
    root.style.setProperty(`--role-${place}`, colour);
    root.style.setProperty(`--role-${place}-text`, readable(colour, background));
    root.style.setProperty(`--role-${place}-on`, contrast(colour, "#ffffff") >= 4 ? "#ffffff" : "#10141d");
  });
}

/**
 * Give an element the colour of a role; what is in it draws with --c and writes with --ct.
 * @param {HTMLElement | SVGElement} node
 * @param {import("./types.js").Role[]} roles
 * @param {string} kind
 */
export function tint(node, roles, kind) {
  const place = roles.findIndex((role) => role.kind === kind);
  node.style.setProperty("--c", place < 0 ? "var(--muted)" : `var(--role-${place})`);
  node.style.setProperty("--ct", place < 0 ? "var(--muted)" : `var(--role-${place}-text)`);
}
