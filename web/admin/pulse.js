// Reads the figures each second, and detects lost, returned and replaced servers. It draws nothing,
// but emits events:
//   "figures"  with `detail` = { figures, before }
//   "state"    after every change of `state`

import { call, hasKey, setKey } from "./api.js";

const EVERY_MS = 1_000;
const LONGEST_MS = 5_000;

class Pulse extends EventTarget {
  /** "locked" (no valid key) | "trying" | "live" | "lost" */
  state = "locked";
  /** The reason for the current state, as a text. */
  why = "";
  /** When the current state began, by this machine's clock, in milliseconds since 1970. */
  sinceMs = 0;
  /** The figures that were read last; null if there are none. */
  figures = null;
  /** When a replaced server process was detected; 0: never. */
  restartedMs = 0;

  #timer = 0;
  #run = 0;
  #failures = 0;

  /** Starts to read figures with the stored key. Without a stored key, the state becomes
   * "locked". */
  start() {
    this.#run += 1;
    this.#failures = 0;
    if (!hasKey()) return this.#set("locked", "");
    this.#set("trying", "");
    this.#beat(this.#run);
  }

  /** Forgets the key and stops reading. */
  lock(why = "") {
    this.#run += 1;
    clearTimeout(this.#timer);
    setKey("");
    this.figures = null;
    this.#set("locked", why);
  }

  /** Reads the figures at once if the state is "lost"; called when the tab becomes visible. */
  hurry() {
    if (this.state !== "lost") return;
    this.#run += 1;
    clearTimeout(this.#timer);
    this.#beat(this.#run);
  }

  async #beat(run) {
    const began = performance.now();
    let figures;
    try {
      figures = await call("figures");
    } catch (trouble) {
      if (run !== this.#run) return;
      if (trouble.kind === "key") return this.lock(trouble.message);
      this.#failures += 1;
      this.#set("lost", trouble.message ?? String(trouble));
      return this.#again(run, Math.min(LONGEST_MS, EVERY_MS * this.#failures));
    }
    if (run !== this.#run) return;
    this.#failures = 0;
    const before = this.figures;
    if (before && before.uid !== figures.uid) this.restartedMs = Date.now();
    this.figures = figures;
    this.#set("live", "");
    this.dispatchEvent(new CustomEvent("figures", { detail: { figures, before } }));
    this.#again(run, Math.max(100, EVERY_MS - (performance.now() - began)));
  }

  #again(run, ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#beat(run), ms);
  }

  #set(state, why) {
    if (this.state === state && this.why === why) return;
    if (this.state !== state) this.sinceMs = Date.now();
    this.state = state;
    this.why = why;
    this.dispatchEvent(new Event("state"));
  }
}

export const pulse = new Pulse();
