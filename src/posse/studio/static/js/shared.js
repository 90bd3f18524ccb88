/** The worker of all tabs of a browser: one stream with the stages of all that are visible, and to each tab its own. */

import { ABSENT, connection, PRESENT } from "./stream.js";

/** @typedef {{stages: string[], seen: number}} Tab */

/** @type {Map<MessagePort, Tab>} */
const tabs = new Map();
let followed = "";
/** @type {number | null} */
let lost = null;

const line = connection({
  frame(name, data) {
    for (const [port, tab] of tabs) if (data?.id === undefined || tab.stages.includes(data.id)) port.postMessage({ name, data });
  },
  gone(since) {
    lost = since;
    for (const port of tabs.keys()) port.postMessage({ name: "lost", data: since });
  },
});

/**
 * Follow what the tabs look at.
 * @param {boolean} anew whether somebody came who has seen nothing yet
 */
function follow(anew) {
  const ids = [...new Set([...tabs.values()].flatMap((tab) => tab.stages))].sort();
  const next = tabs.size > 0 ? ids.join() : "nobody";
  if (next === followed && !anew) return;
  followed = next;
  line.follow(tabs.size > 0 ? ids : null);
}

addEventListener("connect", (event) => {
  const [port] = /** @type {MessageEvent} */ (event).ports;
  if (!port) return;
  port.onmessage = ({ data }) => {
    if (data.stages === null) {
      tabs.delete(port);
      follow(false);
    } else if (data.stages) {
      tabs.set(port, { stages: data.stages, seen: Date.now() });
      if (lost !== null) port.postMessage({ name: "lost", data: lost });
      follow(true);
    } else if (data.retry) line.retry();
    const tab = tabs.get(port);
    if (tab) tab.seen = Date.now();
  };
});

/** A tab that ended without a word is forgotten. */
setInterval(() => {
  for (const [port, tab] of tabs) if (Date.now() - tab.seen > ABSENT) tabs.delete(port);
  follow(false);
}, PRESENT);
