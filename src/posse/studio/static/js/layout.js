/** Where parties stand and which way messages go between them: geometry alone, from what the system declares. */

/**
 * @typedef {import("./types.js").Role} Role
 * @typedef {import("./types.js").Party} Party
 * @typedef {{name: string, kind: string, shape: "row" | "chip" | "cell" | "circle", x: number, y: number, w: number,
 *   h: number}} Spot a place with its centre and size
 * @typedef {{kind: string, shape: Spot["shape"], x: number, y: number, w: number, h: number}} Crowd
 * @typedef {{x: number, y: number}} Dot
 * @typedef {[Dot, Dot, Dot, Dot]} Curve a cubic curve
 * @typedef {{spots: Map<string, Spot>, crowds: Crowd[], down: boolean, width: number, height: number}} Layout
 */

const EDGE = 14;
/** Room for the lines under a circle. */
const UNDER = 28;
const SIDE = 22;
/** How much less room two circles need above each other than beside each other. */
const WORDS = 0.8;
export const ROWS = 12;
export const CHIPS = 40;

/**
 * Place all parties in a box. `down`: the picture goes downwards, for a narrow screen.
 * @param {Role[]} roles
 * @param {Party[]} parties
 * @param {number} width
 * @param {number} height
 * @param {boolean} down
 * @returns {Layout}
 */
export function layout(roles, parties, width, height, down) {
  /** @type {Map<string, Party[]>} */
  const kinds = new Map();
  for (const party of parties) kinds.set(party.kind, [...(kinds.get(party.kind) ?? []), party]);
  const place = (/** @type {string} */ kind) => roles.find((role) => role.kind === kind)?.place ?? [0.5, 0.5];
  const many = [...kinds].filter(([, members]) => members.length > 1).sort((a, b) => place(a[0])[0] - place(b[0])[0]);
  const single = [...kinds].filter(([, members]) => members.length === 1);
  /** @type {Map<string, Spot>} */
  const spots = new Map();
  /** @type {Crowd[]} */
  const crowds = [];
  const length = down ? height : width;
  const share = many.length > 1 ? 0.4 : down ? 0.5 : 0.38;
  const depth = many.length === 0 ? 0 : Math.min(down ? 252 : many.length > 1 ? 236 : 224, length * share);
  many.forEach(([kind, members], turn) => {
    const first = turn === 0 || many.length === 1;
    const from = first ? EDGE : length - EDGE - depth - (many.length - 1 - turn) * (depth + EDGE);
    const box = down
      ? { x: EDGE, y: from, w: width - 2 * EDGE, h: depth }
      : { x: from, y: EDGE, w: depth, h: height - 2 * EDGE };
    const shape = shapeFor(members.length);
    crowds.push({ kind, shape, ...box });
    for (const spot of crowd(members, shape, box, down)) spots.set(spot.name, spot);
  });
  const left = many.length === 0 ? EDGE : EDGE + depth;
  const origin = many.length === 0 ? 0 : place(/** @type {[string, Party[]]} */ (many[0])[0])[0];
  const right = many.length > 1 ? length - EDGE - depth : length;
  const end = many.length > 1 ? place(/** @type {[string, Party[]]} */ (many[many.length - 1])[0])[0] : 1;
  const radius = down ? 31 : 33;
  /** @type {Spot[]} */
  const circles = single.map(([kind, members]) => {
    const [along, across] = place(kind);
    const part = end > origin ? (along - origin) / (end - origin) : 0.5;
    const main = left + Math.max(0, Math.min(1, part)) * (right - left);
    const side = across * (down ? width : height);
    const name = /** @type {Party} */ (members[0]).name;
    return { name, kind, shape: "circle", x: down ? side : main, y: down ? main : side, w: 2 * radius, h: 2 * radius };
  });
  const free = down
    ? { x: 0, y: left, w: width, h: right - left }
    : { x: left, y: 0, w: right - left, h: height };
  apart(circles, free, radius);
  for (const spot of circles) spots.set(spot.name, spot);
  return { spots, crowds, down, width, height };
}

/**
 * How a crowd of this size is drawn: rows, chips in an arc, or a dense grid.
 * @param {number} count
 * @returns {Spot["shape"]}
 */
export function shapeFor(count) {
  return count <= ROWS ? "row" : count <= CHIPS ? "chip" : "cell";
}

/**
 * @param {Party[]} members
 * @param {Spot["shape"]} shape
 * @param {{x: number, y: number, w: number, h: number}} box
 * @param {boolean} down
 * @returns {Spot[]}
 */
function crowd(members, shape, box, down) {
  const count = members.length;
  /** @type {(place: number) => {x: number, y: number, w: number, h: number}} */
  let at;
  if (shape === "row") {
    const columns = down && count > 3 ? 2 : 1;
    const lines = Math.ceil(count / columns);
    const pitch = Math.min(44, box.h / lines);
    const top = box.y + (box.h - pitch * lines) / 2;
    const w = (box.w - (columns - 1) * 8) / columns;
    const h = Math.min(33, pitch - 4);
    at = (i) => ({
      x: box.x + (i % columns) * (w + 8) + w / 2,
      y: top + (Math.floor(i / columns) + 0.5) * pitch,
      w,
      h,
    });
  } else if (shape === "chip") {
    const columns = down ? 5 : Math.ceil(count / 14);
    const lines = Math.ceil(count / columns);
    const pitch = down ? Math.min(28, box.h / lines) : box.h / lines;
    const bend = down ? 0 : 26;
    const w = Math.min(62, (box.w - bend - (columns - 1) * 6) / columns);
    const gap = columns === 1 ? 0 : (box.w - bend - w) / (columns - 1);
    at = (i) => {
      const column = down ? i % columns : Math.floor(i / lines);
      const line = down ? Math.floor(i / columns) : i % lines;
      const lean = lines < 2 ? 0 : bend * ((2 * line) / (lines - 1) - 1) ** 2;
      const start = columns === 1 ? box.x + (box.w - bend - w) / 2 : box.x;
      return { x: start + column * gap + lean + w / 2, y: box.y + (line + 0.5) * pitch, w, h: Math.min(20, pitch - 4) };
    };
  } else {
    const h = box.h - 24;
    const columns = Math.ceil(Math.sqrt((count * box.w) / h));
    const lines = Math.ceil(count / columns);
    const pitch = Math.min(box.w / columns, h / lines);
    at = (i) => ({
      x: box.x + ((i % columns) + 0.5) * pitch,
      y: box.y + (Math.floor(i / columns) + 0.5) * pitch,
      w: pitch - 3,
      h: pitch - 3,
    });
  }
  return members.map((party, i) => ({ name: party.name, kind: party.kind, shape, ...at(i) }));
}

/**
 * Move circles within a box until none overlaps another.
 * @param {Spot[]} circles
 * @param {{x: number, y: number, w: number, h: number}} box
 * @param {number} radius
 */
function apart(circles, box, radius) {
  const gap = 2 * radius + 44;
  const edge = radius + 10;
  for (let turn = 0; turn < 60; turn += 1) {
    for (const one of circles) {
      one.x = Math.max(box.x + edge + SIDE, Math.min(box.x + box.w - edge - SIDE, one.x));
      one.y = Math.max(box.y + edge, Math.min(box.y + box.h - edge - UNDER, one.y));
      for (const other of circles) {
        const dx = other.x - one.x;
        const dy = other.y - one.y;
        const far = Math.hypot(dx * WORDS, dy); // the words under a circle are wider than it
        if (one === other || far >= gap) continue;
        const push = (gap - far) / 2 / (far || 1);
        one.x -= (far ? dx : 1) * push;
        one.y -= dy * push;
        other.x += (far ? dx : 1) * push;
        other.y += dy * push;
      }
    }
  }
}

/**
 * The way of a message from one place to another. `shift` moves a line between two circles aside, so that both
 * directions can be told apart.
 * @param {Layout} where
 * @param {Spot | Crowd} from
 * @param {Spot | Crowd} to
 * @param {number} [shift]
 * @returns {Curve}
 */
export function way(where, from, to, shift = 0) {
  const same = from.kind === to.kind && from.shape !== "circle";
  const start = same ? side(from, where.down, 1) : anchor(where, from, to, shift);
  const end = same ? side(to, where.down, 1) : anchor(where, to, from, -shift);
  if (from.shape === "circle" && to.shape === "circle") {
    return [start, between(start, end, 1 / 3), between(start, end, 2 / 3), end];
  }
  const far = Math.hypot(end.x - start.x, end.y - start.y);
  const bend = same ? 18 + far * 0.2 : Math.max(24, far * 0.42);
  return [start, leave(from, start, end, where.down, bend, same), leave(to, end, start, where.down, bend, same), end];
}

/**
 * @param {Dot} a
 * @param {Dot} b
 * @param {number} part
 */
function between(a, b, part) {
  return { x: a.x + (b.x - a.x) * part, y: a.y + (b.y - a.y) * part };
}

/**
 * @param {Spot | Crowd} spot
 * @param {boolean} down
 * @param {number} sign
 */
function side(spot, down, sign) {
  const [x, y] = centre(spot);
  return down ? { x, y: y + (sign * spot.h) / 2 } : { x: x + (sign * spot.w) / 2, y };
}

/**
 * @param {Spot | Crowd} spot
 * @returns {[number, number]}
 */
function centre(spot) {
  return "name" in spot ? [spot.x, spot.y] : [spot.x + spot.w / 2, spot.y + spot.h / 2];
}

/**
 * @param {Layout} where
 * @param {Spot | Crowd} spot
 * @param {Spot | Crowd} towards
 * @param {number} shift
 */
function anchor(where, spot, towards, shift) {
  const [x, y] = centre(spot);
  const [a, b] = centre(towards);
  if (spot.shape !== "circle") return side(spot, where.down, Math.sign(where.down ? b - y : a - x) || 1);
  const far = Math.hypot(a - x, b - y) || 1;
  const radius = spot.w / 2 + 2;
  const ahead = Math.sqrt(Math.max(0, radius * radius - shift * shift));
  const [cos, sin] = [(a - x) / far, (b - y) / far];
  if (towards.shape !== "circle") {
    return where.down ? { x, y: y + radius * Math.sign(b - y) } : { x: x + radius * Math.sign(a - x), y };
  }
  return { x: x + cos * ahead - sin * shift, y: y + sin * ahead + cos * shift };
}

/**
 * @param {Spot | Crowd} spot
 * @param {Dot} at
 * @param {Dot} other
 * @param {boolean} down
 * @param {number} bend
 * @param {boolean} same
 */
function leave(spot, at, other, down, bend, same) {
  const sign = same ? 1 : Math.sign(down ? other.y - at.y : other.x - at.x) || 1;
  return down ? { x: at.x, y: at.y + sign * bend } : { x: at.x + sign * bend, y: at.y };
}

/**
 * The point of a curve at a part of the way, 0 to 1.
 * @param {Curve} curve
 * @param {number} part
 * @returns {Dot}
 */
export function along([a, b, c, d], part) {
  const rest = 1 - part;
  const [wa, wb, wc, wd] = [rest ** 3, 3 * rest * rest * part, 3 * rest * part * part, part ** 3];
  return { x: wa * a.x + wb * b.x + wc * c.x + wd * d.x, y: wa * a.y + wb * b.y + wc * c.y + wd * d.y };
}

/**
 * A curve as the path of an SVG element.
 * @param {Curve} curve
 */
export function drawn([a, b, c, d]) {
  const text = (/** @type {Dot} */ dot) => `${dot.x.toFixed(1)} ${dot.y.toFixed(1)}`;
  return `M${text(a)}C${text(b)} ${text(c)} ${text(d)}`;
}

/**
 * The corner of the stage in which a card of this size covers least: its top left point, and how much it covers.
 * @param {Layout} where
 * @param {number} w
 * @param {number} h
 * @param {string} [about] the party that is covered last
 */
export function corner(where, w, h, about) {
  const gap = 12;
  let best = { x: where.width - w - gap, y: where.height - h - gap, covers: Infinity };
  for (const y of [where.height - h - gap, gap]) {
    for (const x of [where.width - w - gap, gap, (where.width - w) / 2]) {
      let covers = 0;
      for (const [name, spot] of where.spots) {
        const wide = Math.min(x + w, spot.x + spot.w / 2) - Math.max(x, spot.x - spot.w / 2);
        const high = Math.min(y + h, spot.y + spot.h / 2) - Math.max(y, spot.y - spot.h / 2);
        if (wide > 0 && high > 0) covers += wide * high * (name === about ? 1000 : 1);
      }
      if (covers < best.covers) best = { x, y, covers };
    }
  }
  return best;
}
