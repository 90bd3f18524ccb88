/** Calls to the server: JSON in, JSON out, and errors that say what the server said. */

/** An answer that is no success: the status, the sentence, the field it is about, and the whole answer. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {string} message
   * @param {Record<string, unknown>} answer
   */
  constructor(status, message, answer) {
    super(message);
    this.status = status;
    this.field = typeof answer["field"] === "string" ? answer["field"] : "";
    this.answer = answer;
  }
}

/** The server does not answer at all. */
export class Gone extends Error {}

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {Blob} [file]
 * @param {boolean} [late] whether the page may end before the answer
 * @returns {Promise<any>}
 */
async function call(method, path, body, file, late = false) {
  /** @type {Response} */
  let answer;
  try {
    answer = await fetch(path, {
      method,
      credentials: "same-origin",
      keepalive: late,
      headers: file
        ? { "Content-Type": "application/octet-stream" }
        : body === undefined
        ? {}
        : { "Content-Type": "application/json" },
      body: file ?? (body === undefined ? null : JSON.stringify(body)),
    });
  } catch (error) {
    throw new Gone(String(error));
  }
  if (answer.status === 204) return null;
  const said = await answer.text();
  /** @type {any} */
  let value;
  try {
    value = JSON.parse(said);
  } catch {
    value = { error: said };
  }
  if (!answer.ok) throw new Refused(answer.status, String(value?.error ?? answer.statusText), value ?? {});
  return value;
}

/** @param {string} path */
export const get = (path) => call("GET", path);

/**
 * @param {string} path
 * @param {unknown} [body]
 */
export const post = (path, body = {}) => call("POST", path, body);

/**
 * @param {string} path
 * @param {boolean} [late]
 */
export const remove = (path, late) => call("DELETE", path, undefined, undefined, late);

/**
 * @param {string} path
 * @param {Blob} file
 */
export const upload = (path, file) => call("POST", path, undefined, file);
