// Users: the list of connected users, and the actions on the selected user.

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
    // Each user has a personal channel, `#` and the name.
    pattern: (text) => `#${patternOf(text)}`,
    name: (channel) => (channel.startsWith("#") ? channel.slice(1) : null),
    href: hrefOf,
    exact: (text) => (/[*?]/.test(text) ? null : { href: hrefOf(text), label: `Show “${text}” anyway` }),
  });
}

export function enter(name) {
  listing.enter(name);
  detail?.end();
  detail = name ? new User(find("user"), name) : null;
  if (!name) find("user").replaceChildren(make("p", { class: "empty" }, "Choose a user to see the connections, to push, to disconnect, or to block."));
}

export function leave() {
  listing.leave();
  detail?.end();
  detail = null;
}

/**
 * The actions on a user, in the order of the buttons: the label, the confirmation, and the call, which resolves with
 * the message to show. A new action is a row here. Harmless actions need no confirmation.
 */
const DEEDS = [
  {
    label: "Disconnect",
    sure: "Press again to disconnect",
    do: async (user) => {
      const { disconnected } = await call("disconnect", { user });
      return `${count(disconnected, "connection")} ended. Clients like the demo do not reconnect; others may reconnect at once.`;
    },
  },
  {
    label: "Block",
    sure: "Press again to block",
    do: async (user) => {
      const { disconnected } = await call("block_user", { user });
      return `Blocked. ${count(disconnected, "connection")} ended.`;
    },
  },
  {
    label: "Unblock",
    do: async (user) => {
      await call("unblock_user", { user });
      return "Unblocked.";
    },
  },
];

/** One user, whose data is read repeatedly while it is shown. */
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
      make("div", { class: "bar" }, deeds, make("a", { href: hrefOfChannel(`#${name}`) }, "Personal channel"), this.#said),
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
      else text = "Not connected, and not seen since the server process started.";
      if (blocked) text += " Blocked: new connections are rejected.";
    } catch (trouble) {
      text = `Not read: ${trouble.message}`;
    }
    if (this.#ended) return;
    say(this.#facts, text);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#read(), AGAIN_MS);
  }
}
