/**
 * The stream of the server. All visible tabs of a browser share one connection, in a worker (`shared.js`), because a
 * browser opens six to a server at most; where there is no such worker a tab has its own. A hidden tab has none.
 */

const FIRST_WAIT = 500;
const LONGEST_WAIT = 5000;
/** The server sends something every ten seconds: longer silence means that it is gone. */
const SILENCE = 25000;
/** How often a tab says that it is there, and how long it may be silent, in milliseconds. */
export const PRESENT = 5000;
export const ABSENT = 30000;

/**
 * @typedef {{frame: (event: string, data: any) => void, gone: (since: number | null) => void}} Receiver
 * @typedef {{frame: (event: string, data: any, fresh: boolean) => void, gone: (since: number | null) => void}} Listener
 */

/**
 * One connection: opened again when it breaks.
 * @param {Receiver} receiver
 */
export function connection(receiver) {
  /** @type {EventSource | null} */
  let source = null;
  /** @type {string[] | null} */
  let stages = null;
  let wait = FIRST_WAIT;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let watch;
  /** @type {number | null} */
  let since = null;

  function close() {
    clearTimeout(timer);
    clearTimeout(watch);
    source?.close();
    source = null;
  }

  function alive() {
    if (since !== null) {
      since = null;
      receiver.gone(null);
    }
    wait = FIRST_WAIT;
    clearTimeout(watch);
    watch = setTimeout(broken, SILENCE);
  }

  function broken() {
    close();
    since ??= Date.now();
    receiver.gone(since);
    timer = setTimeout(open, wait);
    wait = Math.min(2 * wait, LONGEST_WAIT);
  }

  function open() {
    close();
    if (stages === null) return;
    source = new EventSource(`/api/stream?${new URLSearchParams(stages.map((id) => ["stage", id]))}`);
    watch = setTimeout(broken, SILENCE);
    source.onerror = broken;
    source.addEventListener("beat", alive);
    for (const name of ["state", "gone", "jobs", "runs"]) {
      source.addEventListener(name, (event) => {
        const message = /** @type {MessageEvent<string>} */ (event);
        // Before it is back: the page takes up a run that was lost.
        if (message.data) receiver.frame(name, JSON.parse(message.data));
        alive();
      });
    }
  }

  return {
    /**
     * Follow these stages from now on; null: nothing, without a connection.
     * @param {string[] | null} ids
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

/**
 * The stream of this tab. `fresh`: no picture has come since the server was gone or the tab was hidden, so that a stage
 * that is gone was lost meanwhile.
 * @param {Listener} listener
 */
export function stream(listener) {
  /** @type {string[]} */
  let stages = [];
  let fresh = true;
  const receiver = {
    /**
     * @param {string} name
     * @param {any} data
     */
    frame(name, data) {
      listener.frame(name, data, fresh);
      if (name === "state" && stages.includes(data.id)) fresh = false;
    },
    /** @param {number | null} since */
    gone(since) {
      fresh ||= since !== null;
      listener.gone(since);
    },
  };
  const line = shared(receiver) ?? connection(receiver);
  const follow = () => line.follow(document.hidden ? null : stages);
  document.addEventListener("visibilitychange", () => {
    fresh ||= document.hidden;
    follow();
  });
  addEventListener("pagehide", () => line.follow(null));
  addEventListener("pageshow", (event) => event.persisted && follow());
  return {
    /**
     * Follow these stages from now on.
     * @param {string[]} ids
     */
    follow(ids) {
      stages = ids;
      follow();
    },
    /** Try at once. */
    retry: () => line.retry(),
  };
}

/**
 * The connection that all tabs share; null where the browser has no workers for that.
 * @param {Receiver} receiver
 */
function shared(receiver) {
  if (typeof SharedWorker === "undefined") return null;
  const { port } = new SharedWorker("/static/js/shared.js", { type: "module", name: "stream" });
  /** @type {string[] | null} */
  let stages = null;
  port.onmessage = ({ data }) => {
    if (data.name === "lost") receiver.gone(data.data);
    else receiver.frame(data.name, data.data);
  };
  setInterval(() => stages !== null && port.postMessage({ here: true }), PRESENT);
  return {
    /** @param {string[] | null} ids */
    follow(ids) {
      stages = ids;
      port.postMessage({ stages });
    },
    retry: () => port.postMessage({ retry: true }),
  };
}
