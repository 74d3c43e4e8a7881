// The same as connection.js with the public `centrifuge` SDK, which reconnects automatically. The
// SDK is loaded on request (?by=sdk), and may be missing: tests/setup/centrifuge_page.sh fetches it
// before the binary is built.

import { explain } from "./closing.js";

const MISSING = "The centrifuge SDK is not in this binary: make setup-run fetches it, make build builds it in.";

export class SdkConnection extends EventTarget {
  state = "ended";
  hasBeenOpen = false;
  failures = 0;
  end = null;

  #options;
  #client = null;

  /**
   * The page connects as `user`, and receives the publications of this user's personal channel and
   * of `channel`.
   */
  constructor(user, channel) {
    super();
    this.#options = { user, channel };
  }

  async retry() {
    this.#set("connecting");
    this.#client ??= await this.#make();
    if (this.#client) this.#client.connect();
    else this.#ended(MISSING);
  }

  hurry() {} // the SDK listens to the browser itself

  close() {
    this.#client?.disconnect();
  }

  async #make() {
    if (!(await load("vendor/centrifuge/centrifuge.js"))) return null;
    const { user, channel } = this.#options;
    const url = new URL(`connection/websocket?user=${encodeURIComponent(user)}`, location.href.replace(/^http/, "ws"));
    const client = new globalThis.Centrifuge(url.href, { maxReconnectDelay: 5_000 });
    const hear = ({ data }) => {
      const detail = typeof data === "string" ? data : JSON.stringify(data);
      this.dispatchEvent(new CustomEvent("message", { detail }));
    };
    client.on("publication", hear); // the user's own channel, in which the server has put us
    client.newSubscription(channel).on("publication", hear).subscribe();
    client.on("connecting", () => {
      this.failures += 1;
      this.#set("connecting");
    });
    client.on("connected", () => {
      this.hasBeenOpen = true;
      this.failures = 0;
      this.#set("open");
    });
    client.on("disconnected", ({ code, reason }) => this.#ended(explain({ code, reason, wasOpen: true }).text));
    return client;
  }

  #ended(text) {
    this.end = { text, again: false };
    this.#set("ended");
  }

  #set(state) {
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }
}

/** Loads a classic script; resolves with whether that worked. */
function load(source) {
  return new Promise((done) => {
    const script = Object.assign(document.createElement("script"), { src: source });
    script.onload = () => done(true);
    script.onerror = () => done(false);
    document.head.append(script);
  });
}
