// Search in pages that are opened from a folder (file://), where browsers start no worker: its script runs in a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = (this.inside = frame.contentWindow);
      const script = inside.document.createElement("script");
      script.src = new URL(url, location.href);
      this.loaded = new Promise((resolve) => script.addEventListener("load", resolve));
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) =>
        Promise.all(
          urls.map(
            (each) =>
              new Promise((resolve) => {
                const more = inside.document.createElement("script");
                more.src = new URL(each, script.src);
                more.addEventListener("load", resolve);
                inside.document.body.append(more);
              }),
          ),
        );
      inside.document.body.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
