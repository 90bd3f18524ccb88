/** The address of the page: its fragment holds the page, the whole set-up and the moment of the run. */

export const PAGES = ["stage", "runs", "choose", "privacy"];

/** @typedef {{page: string, values: Record<string, string>}} Route */

/**
 * Read a fragment such as #/stage?system=x&horizon=200&t=40.
 * @param {string} fragment
 * @returns {Route}
 */
export function parse(fragment) {
  const [path = "", query = ""] = fragment.replace(/^#\/?/, "").split("?", 2);
  const page = PAGES.includes(path) ? path : "stage";
  return { page, values: Object.fromEntries(new URLSearchParams(query)) };
}

/**
 * The moment of the run that an address names; what is no number from 0 on is left out.
 * @param {Record<string, string>} values
 * @returns {{time: number, message?: number | undefined} | undefined}
 */
export function moment(values) {
  const [time, message] = ["t", "m"].map((name) => (/^\d{1,12}$/.test(values[name] ?? "") ? Number(values[name]) : undefined));
  return time || message ? { time: time ?? 0, message } : undefined;
}

/**
 * Write a fragment; values that are empty are left out.
 * @param {Route} route
 */
export function format(route) {
  const pairs = Object.entries(route.values).filter(([, value]) => value !== "");
  const query = new URLSearchParams(pairs).toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
  return `#/${route.page}${query ? `?${query}` : ""}`;
}

/**
 * Find the launch token in an address, in its fragment or its query.
 * @param {{hash: string, search: string}} address
 */
export function token(address) {
  const inside = new URLSearchParams(address.hash.replace(/^#(\/\w*\?)?/, "")).get("token");
  return inside ?? new URLSearchParams(address.search).get("token");
}
