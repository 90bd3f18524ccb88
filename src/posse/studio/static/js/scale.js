/** Axes and curves as numbers: how far an axis reaches, ticks, thinning, the nearest point. Nothing here draws. */

/** @typedef {[number, number]} Point */

/**
 * Round ticks from `low` to `high`, about `count` of them.
 * @param {number} low
 * @param {number} high
 * @param {number} count
 */
export function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999) ?? 10 * power;
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place += 1) {
    found.push(Number((place * step).toPrecision(12)));
  }
  return found;
}

/**
 * Where an axis of time ends: at a round number not far beyond `at` while a run is young, at the horizon later.
 * @param {number} at
 * @param {number} horizon
 */
export function reach(at, horizon) {
  const wanted = Math.max(20, 1.25 * at);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const round = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= wanted) ?? 10 * power;
  return 2 * round > horizon ? horizon : round;
}

/**
 * At most `most` points that keep the highest and lowest of every stretch.
 * @param {Point[]} points
 * @param {number} most
 * @returns {Point[]}
 */
export function thin(points, most) {
  if (points.length <= most) return points;
  const first = /** @type {Point} */ (points[0]);
  const last = /** @type {Point} */ (points[points.length - 1]);
  const stretches = Math.max(1, Math.floor((most - 2) / 2));
  /** @type {Point[]} */
  const kept = [first];
  for (let stretch = 0; stretch < stretches; stretch += 1) {
    const from = 1 + Math.floor((stretch * (points.length - 2)) / stretches);
    const to = 1 + Math.floor(((stretch + 1) * (points.length - 2)) / stretches);
    if (from >= to) continue;
    let low = from;
    let high = from;
    for (let place = from; place < to; place += 1) {
      if (at(points, place)[1] < at(points, low)[1]) low = place;
      if (at(points, place)[1] > at(points, high)[1]) high = place;
    }
    kept.push(at(points, Math.min(low, high)));
    if (low !== high) kept.push(at(points, Math.max(low, high)));
  }
  kept.push(last);
  return kept;
}

/**
 * @param {Point[]} points
 * @param {number} place
 */
function at(points, place) {
  return /** @type {Point} */ (points[place]);
}

/**
 * The point whose x is nearest; points are in the order of x.
 * @param {Point[]} points
 * @param {number} x
 * @returns {Point | null}
 */
export function nearest(points, x) {
  if (points.length === 0) return null;
  let low = 0;
  let high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (at(points, middle)[0] <= x) low = middle;
    else high = middle;
  }
  return Math.abs(at(points, low)[0] - x) <= Math.abs(at(points, high)[0] - x) ? at(points, low) : at(points, high);
}

/**
 * Append the points of a stream frame: `from` says where they begin, so that a repeated frame adds nothing twice.
 * @param {Point[]} points
 * @param {Point[]} added
 * @param {number} from
 * @returns {Point[]}
 */
export function joined(points, added, from) {
  return from <= 0 ? added : [...points.slice(0, from), ...added];
}

/**
 * The path of a line through points, after two linear maps to the screen.
 * @param {Point[]} points
 * @param {(x: number) => number} x
 * @param {(y: number) => number} y
 */
export function path(points, x, y) {
  let text = "";
  for (const [a, b] of points) text += `${text === "" ? "M" : "L"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`;
  return text;
}

/**
 * CPU seconds of all roles against time, with the moment of a stage; what was after it is taken away.
 * @param {Point[]} before
 * @param {import("./types.js").Stage} stage
 * @returns {Point[]}
 */
export function spending(before, stage) {
  const last = before.at(-1);
  if (!stage.costs?.length || last?.[0] === stage.time) return before;
  const all = stage.costs.reduce((sum, one) => sum + one.seconds, 0);
  const kept = last && last[0] > stage.time ? before.filter(([time]) => time < stage.time) : before;
  return [...thin(kept, 400), [stage.time, all]];
}
