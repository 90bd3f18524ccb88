/** A message's bytes, cut into the runs that its parts name. */

/**
 * @typedef {import("./types.js").Part} Part
 * @typedef {{part: Part | null, hex: string[], left: number}} Run
 */

/**
 * Cut hexadecimal text into runs, each of one part; long parts keep their first bytes and say how many are left out.
 * @param {string} text
 * @param {Part[]} parts
 * @param {number} [most] bytes shown of one part
 * @returns {Run[]}
 */
export function runs(text, parts, most = 48) {
  /** @type {Run[]} */
  const found = [];
  let place = 0;
  const total = text.length / 2;
  for (const part of [...parts, null]) {
    const length = part === null ? total - place : Math.min(part.length, total - place);
    if (length <= 0) continue;
    const shown = Math.min(length, most);
    const hex = [];
    for (let byte = place; byte < place + shown; byte += 1) hex.push(text.slice(2 * byte, 2 * byte + 2));
    found.push({ part, hex, left: length - shown });
    place += length;
  }
  return found;
}

/** What each protection is called on the page. */
const PROTECTIONS = /** @type {Record<string, string>} */ ({
  header: "header",
  clear: "in the clear",
  nonce: "AES-GCM nonce",
  aes: "AES-GCM body",
  tag: "AES-GCM tag",
  permutation: "permuted",
  mask: "masked",
  share: "share",
  pad: "padded",
  paillier: "Paillier",
  signature: "signature",
  noise: "with noise",
});

/**
 * A protection in words; an unknown one keeps its name.
 * @param {string} protection
 */
export function named(protection) {
  return PROTECTIONS[protection] ?? protection;
}

/**
 * What is said of a part when somebody points at it: name, length, who can open it.
 * @param {Part} part
 */
export function described(part) {
  const who = part.protection === "header" || part.protection === "clear"
    ? "anybody who has the message reads it"
    : part.opens.length === 0
    ? "nobody can open it alone"
    : `${part.opens.join(", ")} can open it`;
  const bytes = part.length === 1 ? "1 byte" : `${part.length} bytes`;
  return `${part.name}: ${named(part.protection)}, ${bytes}; ${who}${part.why ? `; ${part.why}` : ""}`;
}
