/** The stream of the server: one for a visible tab, closed while the tab is hidden, opened again when it breaks. */

const FIRST_WAIT = 500;
const LONGEST_WAIT = 5000;
/** The server sends a heartbeat every ten seconds: longer silence means that it is gone. */
const SILENCE = 25000;

/**
 * @typedef {{frame: (event: string, data: any, fresh: boolean) => void, gone: (since: number | null) => void}} Listener
 */

/**
 * @param {Listener} listener
 */
export function stream(listener) {
  /** @type {EventSource | null} */
  let source = null;
  /** @type {string[]} */
  let stages = [];
  let wait = FIRST_WAIT;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let watch;
  /** @type {number | null} */
  let since = null;
  let fresh = true;

  function close() {
    clearTimeout(timer);
    clearTimeout(watch);
    source?.close();
    source = null;
  }

  function alive() {
    if (since !== null) {
      since = null;
      listener.gone(null);
    }
    wait = FIRST_WAIT;
    clearTimeout(watch);
    watch = setTimeout(broken, SILENCE);
  }

  function broken() {
    close();
    if (since === null) since = Date.now();
    listener.gone(since);
    timer = setTimeout(open, wait);
    wait = Math.min(2 * wait, LONGEST_WAIT);
  }

  function open() {
    close();
    if (document.hidden) return;
    const query = new URLSearchParams(stages.map((id) => ["stage", id]));
    fresh = true;
    source = new EventSource(`/api/stream?${query}`);
    source.onopen = alive;
    source.onerror = broken;
    for (const name of ["state", "gone", "jobs", "runs"]) {
      source.addEventListener(name, (event) => {
        const message = /** @type {MessageEvent<string>} */ (event);
        alive();
        if (message.data) listener.frame(name, JSON.parse(message.data), fresh);
        if (name === "state") fresh = false;
      });
    }
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));

  return {
    /**
     * Follow these stages from now on.
     * @param {string[]} ids
     */
    follow(ids) {
      stages = ids;
      open();
    },
    /** Try at once. */
    retry() {
      wait = FIRST_WAIT;
      open();
    },
  };
}
