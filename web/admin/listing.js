// A list of channels or users with a search: requested by pattern, sorted, and shown one page at a
// time.

import { call } from "./api.js";
import { make, say } from "./dom.js";
import { count, whole } from "./format.js";

const PAGE = 100;
const TYPED_MS = 250;
const AGAIN_MS = 3_000;
/** Maximum length of lists that are refreshed automatically. */
const BY_ITSELF_MAX = 2_000;
/** Error code for a result with too many entries. */
const TOO_MANY = 106;

export class Listing {
  #about;
  #input;
  #note;
  #body;
  #pages;
  #rows = [];
  #page = 0;
  #order = "count";
  #timer = 0;
  #asked = 0;
  #sorters = {};
  #chosen = "";

  /**
   * `about` describes the list. `noun` is the heading of the names, and `label` the label of the search field. `pattern(text)`
   * returns the server's pattern for a typed text. `name(channel)` returns the listed name of a channel, or `null` if the channel
   * is not listed. `href(name)` returns the address of a name's view. `exact(text)`, which is optional, returns a link for a name
   * that may not be listed, or `null`.
   */
  constructor(holder, about) {
    this.#about = about;
    this.#input = make("input", { type: "search", autocomplete: "off", spellcheck: "false", "data-search": true, oninput: () => this.#soon(TYPED_MS, true) });
    const again = make("button", { type: "button", onclick: () => this.ask() }, "Refresh");
    this.#note = make("p", { class: "small", role: "status" });
    const sorter = (order, label) => {
      const button = make("button", { type: "button", class: "sorter", onclick: () => this.#sort(order) }, label);
      this.#sorters[order] = button;
      return button;
    };
    const table = make("table", { class: "pick" },
      make("thead", {}, make("tr", {},
        make("th", { scope: "col" }, sorter("name", about.noun)),
        make("th", { scope: "col", class: "number" }, sorter("count", "Clients")))),
      (this.#body = make("tbody")));
    this.#pages = make("div", { class: "bar" });
    const search = make("form", { class: "bar", role: "search" }, make("label", { class: "field grow" }, about.label, this.#input), again);
    search.addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask();
    });
    holder.append(search, this.#note, table, this.#pages);
    this.#mark();
  }

  /** Reads the list now and repeatedly while the view is shown; marks the chosen name. */
  enter(chosen) {
    this.#chosen = this.#about.href(chosen);
    for (const link of this.#body.querySelectorAll("a")) this.#markChosen(link);
    this.ask();
  }

  leave() {
    clearTimeout(this.#timer);
    this.#asked += 1;
  }

  async ask() {
    const number = (this.#asked += 1);
    const text = this.#input.value.trim();
    let found;
    try {
      ({ channels: found } = await call("channels", { pattern: this.#about.pattern(text) }));
    } catch (trouble) {
      if (number !== this.#asked) return;
      this.#rows = [];
      this.#draw();
      if (trouble.code === TOO_MANY) say(this.#note, "More than 10,000 match: type a part of the name.");
      else {
        say(this.#note, `Not listed: ${trouble.message}`);
        this.#soon(AGAIN_MS);
      }
      return;
    }
    if (number !== this.#asked) return;
    const rows = Object.entries(found).map(([channel, { num_clients }]) => [this.#about.name(channel), num_clients]);
    this.#rows = rows.filter(([name]) => name !== null);
    this.#arrange();
    this.#draw();
    if (rows.length <= BY_ITSELF_MAX) this.#soon(AGAIN_MS);
  }

  #soon(ms, isTyped = false) {
    clearTimeout(this.#timer);
    if (isTyped) this.#page = 0;
    this.#timer = setTimeout(() => {
      // Rows must not move while one of them has the focus.
      if (!isTyped && this.#body.contains(document.activeElement)) this.#soon(ms);
      else this.ask();
    }, ms);
  }

  #sort(order) {
    this.#order = order;
    this.#page = 0;
    this.#mark();
    this.#arrange();
    this.#draw();
  }

  #mark() {
    for (const [order, button] of Object.entries(this.#sorters)) button.setAttribute("aria-pressed", String(order === this.#order));
  }

  #arrange() {
    const byName = (a, b) => (a[0] < b[0] ? -1 : Number(a[0] > b[0]));
    this.#rows.sort(this.#order === "name" ? byName : (a, b) => b[1] - a[1] || byName(a, b));
  }

  #draw() {
    const pages = Math.max(1, Math.ceil(this.#rows.length / PAGE));
    this.#page = Math.min(this.#page, pages - 1);
    const from = this.#page * PAGE;
    const shown = this.#rows.slice(from, from + PAGE);
    const text = this.#input.value.trim();
    this.#body.replaceChildren(...shown.map(([name, clients]) => {
      const link = this.#markChosen(make("a", { href: this.#about.href(name) }, name));
      return make("tr", {}, make("td", {}, link), make("td", { class: "number" }, whole(clients)));
    }));
    const exact = text && !this.#rows.some(([name]) => name === text) ? this.#about.exact?.(text) : null;
    if (exact) this.#body.append(make("tr", {}, make("td", { colspan: "2" }, make("a", { href: exact.href }, exact.label))));
    const { noun } = this.#about;
    const none = text ? `Nothing in use matches “${text}”.` : this.#about.none;
    say(this.#note, this.#rows.length === 0 ? none : `${count(this.#rows.length, noun.toLowerCase())}${pages > 1 ? `, ${from + 1} to ${from + shown.length} shown` : ""}`);
    const turn = (by) => () => {
      this.#page += by;
      this.#draw();
      this.#pages.querySelector("button:not([disabled])")?.focus();
    };
    this.#pages.replaceChildren(...(pages === 1 ? [] : [
      make("button", { type: "button", disabled: this.#page === 0, onclick: turn(-1) }, "Previous"),
      make("span", { class: "small" }, `Page ${this.#page + 1} of ${pages}`),
      make("button", { type: "button", disabled: this.#page === pages - 1, onclick: turn(1) }, "Next"),
    ]));
  }

  #markChosen(link) {
    if (link.getAttribute("href") === this.#chosen) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    return link;
  }
}

/** The server's pattern for a typed text: a part of the name, unless the text is a pattern itself. */
export const patternOf = (text) => (text === "" ? "*" : /[*?]/.test(text) ? text : `*${text}*`);
