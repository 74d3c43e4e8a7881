// Channels: the list, and the details of the chosen one.

import { call } from "./api.js";
import { fill, find, heads, make, say, table } from "./dom.js";
import { count, moment, whole } from "./format.js";
import { Listing, patternOf } from "./listing.js";
import { sender } from "./sender.js";

/** Number of publications that are read at a time. */
const HISTORY = 50;
/** Maximum length of data shown; a button shows all of it. */
const DATA_SHOWN = 2_000;
/** Maximum number of members shown. */
const MEMBERS_SHOWN = 200;
const AGAIN_MS = 2_000;
/** The error code if the namespace has no history or no presence. */
const NOT_KEPT = 108;

let listing, detail;

export const hrefOf = (name) => `#channels/${encodeURIComponent(name)}`;

export function begin() {
  listing = new Listing(find("channels-list"), {
    noun: "Channel",
    label: "Find",
    none: "No channel has subscribers.",
    pattern: patternOf,
    // Personal channels are omitted here; the view of users has them.
    name: (channel) => (channel.startsWith("#") ? null : channel),
    href: hrefOf,
    exact: (text) => (/[*?]/.test(text) ? null : { href: hrefOf(text), label: `Show “${text}” anyway` }),
  });
}

export function enter(name) {
  listing.enter(name);
  detail?.end();
  detail = name ? new Channel(find("channel"), name) : null;
  if (!name) find("channel").replaceChildren(make("p", { class: "empty" }, "Choose a channel to see its members and its history, and to publish to it."));
}

export function leave() {
  listing.leave();
  detail?.end();
  detail = null;
}

/** One channel, whose data is read repeatedly while it is shown. */
class Channel {
  #name;
  #timer = 0;
  #ended = false;
  #facts = make("p", { class: "small", role: "status" });
  #members = table();
  #membersNote = make("p", { class: "small" });
  #history = table({ class: "history" });
  #historyNote = make("p", { class: "small" });
  /** The position of the newest publication that is drawn. */
  #drawn = "";

  constructor(holder, name) {
    this.#name = name;
    heads(this.#members, "User", "Connection", "Info");
    heads(this.#history, ["Offset", "number"], "When", "Data");
    const scroll = (label, content) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, content);
    holder.replaceChildren(
      make("a", { class: "back", href: "#channels" }, "All channels"), make("h2", { class: "name" }, name), this.#facts,
      make("h3", {}, "Publish"), sender({ channel: name }, () => this.#read()),
      make("h3", {}, "Presence"), this.#membersNote, scroll("Presence", this.#members),
      make("h3", {}, "History"), this.#historyNote, scroll("History", this.#history));
    this.#read();
  }

  end() {
    this.#ended = true;
    clearTimeout(this.#timer);
  }

  async #read() {
    clearTimeout(this.#timer);
    const channel = this.#name;
    const [listed, counted, members, page] = await Promise.allSettled([
      call("channels", { pattern: channel }),
      call("presence_stats", { channel }),
      call("presence", { channel }),
      call("history", { channel, limit: HISTORY, reverse: true }),
    ]);
    if (this.#ended) return;
    this.#tell(listed, counted);
    this.#tellMembers(members, counted);
    this.#tellHistory(page);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#read(), AGAIN_MS);
  }

  #tell(listed, counted) {
    const parts = [];
    if (listed.value) parts.push(count(listed.value.channels[this.#name]?.num_clients ?? 0, "subscriber"));
    else parts.push(`Not read: ${listed.reason.message}`);
    if (counted.value) parts.push(`${count(counted.value.num_clients, "member")} of ${count(counted.value.num_users, "user")}`);
    say(this.#facts, parts.join(", "));
  }

  #tellMembers({ value, reason }, counted) {
    const members = Object.entries(value?.presence ?? {});
    this.#members.hidden = members.length === 0;
    if (!value) {
      const isMany = counted.value && reason.code !== NOT_KEPT;
      const why = isMany ? `Too many to list: ${reason.message}` : reason.message;
      return say(this.#membersNote, reason.code === NOT_KEPT ? "Its namespace has no presence." : `Not read: ${why}`);
    }
    const more = members.length > MEMBERS_SHOWN ? `The first ${MEMBERS_SHOWN} of ${whole(members.length)}.` : "";
    say(this.#membersNote, members.length === 0 ? "No members." : more);
    const told = (member) => {
      const info = { ...(member.conn_info !== undefined && { conn_info: member.conn_info }), ...(member.chan_info !== undefined && { chan_info: member.chan_info }) };
      return Object.keys(info).length === 0 ? "" : JSON.stringify(info);
    };
    fill(this.#members, members.slice(0, MEMBERS_SHOWN).map(([client, member]) => [member.user || "anonymous", client, told(member)]), ["", "mono", "mono"]);
  }

  #tellHistory({ value, reason }) {
    const publications = value?.publications ?? [];
    this.#history.hidden = publications.length === 0;
    if (!value) return say(this.#historyNote, reason.code === NOT_KEPT ? "Its namespace has no history." : `Not read: ${reason.message}`);
    const place = `Position ${value.epoch}:${value.offset}.`;
    say(this.#historyNote, publications.length === 0 ? `Empty. ${place}` : `The latest ${publications.length}, newest first. ${place}`);
    const drawn = `${value.epoch}:${publications[0]?.offset}:${publications.length}`;
    // Rows are replaced only if they have changed, so that a text selection survives.
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.#history.tBodies[0].replaceChildren(...publications.map((publication) =>
      make("tr", {}, make("td", { class: "number" }, String(publication.offset)), make("td", { class: "when" }, publication.time ? moment(publication.time) : ""), make("td", {}, dataOf(publication)))));
  }
}

/** The data of a publication: JSON indented, text as it is, bytes as base64; long data in full on request. */
function dataOf({ data, b64data, base64 }) {
  const isBytes = data === undefined;
  const text = isBytes ? `base64 ${b64data ?? base64 ?? ""}` : typeof data === "string" ? data : JSON.stringify(data, null, 1);
  if (text.length <= DATA_SHOWN) return make("pre", {}, text);
  const shown = make("pre", {}, `${text.slice(0, DATA_SHOWN)}…`);
  const all = make("button", { type: "button", onclick: () => { shown.textContent = text; all.remove(); } }, `All ${whole(text.length)} characters`);
  return [shown, all];
}
