// One WebSocket that reconnects: connects, notices the end, waits with jitter, connects again.
// It does not use the DOM; the page listens to its two events:
//   "state"    after every change of `state`, `nextAt`, `end`
//   "message"  with `detail` = a string, or an ArrayBuffer

import { soonMs, STEADY_MS, waitMs } from "./backoff.js";
import { explain } from "./closing.js";

/** The time limit of an attempt to connect. */
const OPEN_TIMEOUT_MS = 10_000;

export class Connection extends EventTarget {
  /** The state: "connecting", "open", "waiting" (for the next attempt) or "ended" (until `retry`). */
  state = "ended";
  /** Whether the connection was ever open, which distinguishes "connecting" from "reconnecting". */
  hasBeenOpen = false;
  /** Consecutive failed attempts. */
  failures = 0;
  /** In the state "waiting": the `Date.now()` at which the wait began. */
  waitFrom = 0;
  /** In the state "waiting": the `Date.now()` of the next attempt. */
  nextAt = 0;
  /** The explanation of why the connection last ended; null if it has not ended. */
  end = null;

  #url;
  #socket = null;
  #timer = 0;
  #openedAt = 0;

  constructor(url) {
    super();
    this.#url = url;
  }

  /** Connects now, in any state; the action of "Retry now". */
  retry() {
    this.#drop();
    this.#set("connecting");
    const socket = new WebSocket(this.#url);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.#opened();
    socket.onmessage = (event) => this.dispatchEvent(new CustomEvent("message", { detail: event.data }));
    socket.onclose = (event) => this.#closed(event.code, event.reason);
    this.#socket = socket;
    // A server that accepts and then stays silent would otherwise block the page for minutes.
    this.#timer = setTimeout(() => {
      this.#drop();
      this.#closed(1006, "");
    }, OPEN_TIMEOUT_MS);
  }

  /** Shortens a long wait, with jitter. Called when the browser goes online or the tab becomes visible. */
  hurry() {
    const soon = soonMs();
    if (this.state === "waiting" && this.nextAt - Date.now() > soon) this.#wait(soon);
  }

  /** Closes the connection permanently; no event follows. */
  close() {
    this.#drop();
    this.state = "ended";
  }

  #opened() {
    clearTimeout(this.#timer);
    this.hasBeenOpen = true;
    this.#openedAt = Date.now();
    this.end = null;
    this.#set("open");
  }

  #closed(code, reason) {
    const wasOpen = this.state === "open";
    this.#drop();
    // Only a connection that lasted resets the count: a server that accepts and then drops connections must not be flooded.
    const lasted = wasOpen && Date.now() - this.#openedAt >= STEADY_MS;
    this.failures = lasted ? 0 : this.failures + 1;
    this.end = { ...explain({ code, reason, wasOpen }), code, wasOpen };
    if (!this.end.again) return this.#set("ended");
    this.#wait(waitMs(Math.max(0, this.failures - 1), this.end.leastCeilingMs));
  }

  #wait(ms) {
    clearTimeout(this.#timer);
    this.waitFrom = Date.now();
    this.nextAt = this.waitFrom + ms;
    this.#timer = setTimeout(() => this.retry(), ms);
    this.#set("waiting");
  }

  /**
   * Releases the socket and the timer. Handlers are removed first, so that late events of an old socket are ignored.
   */
  #drop() {
    clearTimeout(this.#timer);
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  #set(state) {
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }
}
