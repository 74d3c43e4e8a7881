// The list of pushes to this page, newest first.
// Pushes are gathered and drawn once per frame, so a burst of thousands costs one layout.

import { count, readable } from "./payload.js";

/** Maximum number of entries; older ones are removed. */
const ENTRIES_MAX = 200;
/** A screen reader announces pushes at most this often. */
const SPEAK_EVERY_MS = 3_000;

const element = (id) => document.getElementById(id);

export class Feed {
  #arrived = 0;
  #waiting = [];
  #frame = 0;
  #spokeAt = 0;
  #isNarrow = matchMedia("(max-width: 36rem)");
  #time = new Intl.DateTimeFormat(undefined, {
    hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hour12: false,
  });

  constructor() {
    element("clear").addEventListener("click", () => this.#clear());
  }

  /** Adds a received push. */
  add(data) {
    this.#arrived += 1;
    this.#waiting.push({ number: this.#arrived, at: new Date(), data });
    if (this.#waiting.length > ENTRIES_MAX) this.#waiting.shift();
    // A hidden tab draws no frames; a timer updates and shortens its list instead.
    this.#frame ||= document.hidden ? setTimeout(() => this.#draw()) : requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#frame = 0;
    const list = element("pushes");
    const fresh = this.#waiting.splice(0).reverse();
    list.prepend(...fresh.map((push) => this.#entry(push)));
    while (list.childElementCount > ENTRIES_MAX) list.lastElementChild.remove();
    const gone = this.#arrived - list.childElementCount;
    element("older").hidden = gone === 0;
    element("older").textContent = `${count(gone, "older push").replace("pushs", "pushes")} not shown`;
    this.#showEmptiness();
    this.#speak(fresh[0]);
  }

  #entry({ number, at, data }) {
    const { kind, size, body, cut } = readable(data, this.#isNarrow.matches);
    const entry = node("li", "push");
    entry.dataset.kind = kind;
    const head = node("p", "push-head");
    const time = node("time", "", this.#time.format(at));
    time.dateTime = at.toISOString();
    head.append(node("span", "push-number", `#${number}`), time, node("span", "push-kind", `${kind === "json" ? "JSON" : kind} · ${size}`));
    // An empty text is a message too.
    entry.append(head, node(kind === "text" ? "p" : "pre", body ? "push-body" : "push-body push-none", body || "(empty)"));
    if (cut) entry.append(node("p", "push-cut", "Only the beginning is shown."));
    return entry;
  }

  #speak(newest) {
    if (!newest || Date.now() - this.#spokeAt < SPEAK_EVERY_MS) return;
    this.#spokeAt = Date.now();
    const { kind, body } = readable(newest.data);
    element("spoken").textContent = `Push ${newest.number}: ${kind === "binary" ? "bytes" : body.slice(0, 200)}`;
  }

  #clear() {
    element("pushes").replaceChildren();
    element("older").hidden = true;
    this.#showEmptiness();
    element("pushes").focus();
  }

  #showEmptiness() {
    const isEmpty = element("pushes").childElementCount === 0;
    element("empty").hidden = !isEmpty;
    element("clear").hidden = isEmpty;
  }
}

function node(tag, className, text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}
