// The search of a site that is read from disk: a browser starts no worker from a file, so that an unseen frame does its
// work there. Served over HTTP, the browser's own worker stays.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    addEventListener("message", (event) => {
      if (event.source !== this.frame.contentWindow) return;
      const message = new MessageEvent("message", { data: event.data });
      this.dispatchEvent(message);
      this.onmessage?.(message);
    });
    this.ready = new Promise((done) => this.frame.addEventListener("load", done, { once: true }));
    const inside = this.frame.contentWindow.document;
    inside.open();
    inside.write(
      `<script>postMessage = (data) => parent.postMessage(data, "*"); importScripts = () => {};</script>` +
        `<script src="${url}"></script>`,
    );
    inside.close();
  }

  postMessage(data) {
    // Not by the frame's postMessage, which is the worker's way out.
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") globalThis.Worker = FrameWorker;
