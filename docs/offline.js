// A browser starts no worker for a page that was opened from disk, and the search is one: there, a hidden frame does its work.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = (this.inside = frame.contentWindow);
      this.ready = new Promise(done => { inside.done = done; });
      addEventListener("message", event => {
        if (event.source !== inside) return;
        const answer = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(answer);
        if (this.onmessage) this.onmessage(answer);
      });
      inside.document.open();
      inside.document.write(`<body><script>
        postMessage = data => parent.postMessage(data, "*");
        importScripts = (...urls) => urls.reduce((before, src) => before.then(() => new Promise(onload =>
          document.body.append(Object.assign(document.createElement("script"), { src, onload })))), Promise.resolve());
        <\/script><script src="${url}" onload="done()"><\/script>`);
      inside.document.close();
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) })));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
