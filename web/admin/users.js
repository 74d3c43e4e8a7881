// Users: the list of those who are connected, and what can be done about one.

import { call } from "./api.js";
import { careful, find, make, say } from "./dom.js";
import { hrefOf as hrefOfChannel } from "./channels.js";
import { count, lasted, moment } from "./format.js";
import { Listing, patternOf } from "./listing.js";
import { sender } from "./sender.js";

const AGAIN_MS = 2_000;

let listing, detail;

const hrefOf = (name) => `#users/${encodeURIComponent(name)}`;

export function begin() {
  listing = new Listing(find("users-list"), {
    noun: "User",
    label: "Find",
    none: "No user is connected.",
    // Each user has a channel of his own, which is `#` and his name.
    pattern: (text) => `#${patternOf(text)}`,
    name: (channel) => (channel.startsWith("#") ? channel.slice(1) : null),
    href: hrefOf,
    exact: (text) => (/[*?]/.test(text) ? null : { href: hrefOf(text), label: `Look at “${text}” all the same` }),
  });
}

export function enter(name) {
  listing.enter(name);
  detail?.end();
  detail = name ? new User(find("user"), name) : null;
  if (!name) find("user").replaceChildren(make("p", { class: "empty" }, "Choose a user to see whether he is connected, to push to him, to end his connections, or to block him."));
}

export function leave() {
  listing.leave();
  detail?.end();
  detail = null;
}

/**
 * What can be done about a user, in the order of the buttons: the label, what is asked once more, and the call, which
 * resolves with what is to be said. Whatever the server learns to do is a row here. What harms nobody is not asked once more.
 */
const DEEDS = [
  {
    label: "Disconnect",
    sure: "Press again to disconnect",
    do: async (user) => {
      const { disconnected } = await call("disconnect", { user });
      return `${count(disconnected, "connection")} ended. Clients of the demo's kind stay away; others may come back at once.`;
    },
  },
  {
    label: "Block",
    sure: "Press again to block",
    do: async (user) => {
      const { disconnected } = await call("block_user", { user });
      return `Not let in from now on. ${count(disconnected, "connection")} ended.`;
    },
  },
  {
    label: "Let in again",
    do: async (user) => {
      await call("unblock_user", { user });
      return "Let in again.";
    },
  },
];

/** One user, asked about as long as he is looked at. */
class User {
  #name;
  #timer = 0;
  #ended = false;
  #facts = make("p", { class: "small", role: "status" });
  #said = make("p", { class: "said", role: "status" });

  constructor(holder, name) {
    this.#name = name;
    const deeds = DEEDS.map((deed) => careful(deed.label, deed.sure, () => this.#do(deed)));
    holder.replaceChildren(
      make("a", { class: "back", href: "#users" }, "All users"), make("h2", { class: "name" }, name), this.#facts,
      make("div", { class: "bar" }, deeds, make("a", { href: hrefOfChannel(`#${name}`) }, "What his channel remembers"), this.#said),
      make("h3", {}, "Push"), sender({ user: name }, () => this.#read()));
    this.#read();
  }

  end() {
    this.#ended = true;
    clearTimeout(this.#timer);
  }

  async #do(deed) {
    try {
      say(this.#said, await deed.do(this.#name));
    } catch (trouble) {
      say(this.#said, `Not done: ${trouble.message}`);
    }
    this.#read();
  }

  async #read() {
    clearTimeout(this.#timer);
    let text;
    try {
      const { online, connections, last_seen: seen, blocked } = await call("user_status", { user: this.#name });
      if (online) text = `Connected, by ${count(connections, "connection")}.`;
      else if (seen) text = `Not connected; last seen ${moment(seen)}, ${lasted(Date.now() - seen)} ago.`;
      else text = "Not connected, and not seen since the server process has begun.";
      if (blocked) text += " Blocked: he is not let in.";
    } catch (trouble) {
      text = `Not read: ${trouble.message}`;
    }
    if (this.#ended) return;
    say(this.#facts, text);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#read(), AGAIN_MS);
  }
}
