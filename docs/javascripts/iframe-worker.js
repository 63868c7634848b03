/* Search without a server. A page opened from the disk may not start a Worker, so this one runs the search in a hidden
   frame of the same page and passes its messages on. Served pages use the browser's own Worker. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      const inside = this.frame.contentDocument;
      inside.open();
      inside.write(
        "<!doctype html><script>" +
          "self.postMessage = (data) => parent.dispatchEvent(new MessageEvent('search', {data}));" +
          "self.importScripts = (...urls) => Promise.all(urls.map((src) => new Promise((done, failed) => {" +
          "const script = Object.assign(document.createElement('script'), {src, onload: done, onerror: failed});" +
          "document.head.append(script); })));" +
          "</script><script src=\"" + url + "\" onload=\"parent.dispatchEvent(new Event('search-ready'))\"></script>"
      );
      inside.close();
      addEventListener("search", (event) => this.dispatchEvent(new MessageEvent("message", { data: event.data })));
      addEventListener("search-ready", () => {
        this.waiting.forEach((data) => this.deliver(data));
        this.waiting = null;
      });
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.deliver(data);
    }

    deliver(data) {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
