// Search runs in a worker, and a browser starts none for a page that was opened from the disk. Such a page gets a
// worker of this kind instead: the same script in a hidden frame, with the messages passed on as events.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      this.ready = new Promise((loaded, failed) => {
        script.onload = () => loaded(inside);
        script.onerror = () => failed(new Error(`${url} cannot be read`));
      });
      script.src = url;
      inside.document.head.append(script);
    }

    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
