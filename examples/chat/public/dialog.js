// A dialogue of two: what was said, what of it has arrived and was read, and what is still to be sent. Knows no page.
//
// All of it is one log, the history of the channel "dialog:#ann,bob". Its entries are
//
//   {"said":{"id":…,"text":…,"at":…}}     `id` is the sender's: what is sent again after a tunnel is shown once
//   {"delivered":OFFSET}                  everything up to that entry has arrived
//   {"read":OFFSET}                       …and was read
//
// and who has written an entry is said by the server (`info.user`), never by the entry. What was missed in a tunnel the
// SDK recovers: marks as well as messages, once and in order.

import { ask, Refused } from "./server.js";

const HISTORY_MAX = 1000; // as in veche.toml
const TEXT_MAX = 4000;
const MARK_AFTER_MS = 100; // several messages are marked at once
const RETRY_AFTER_MS = 2000;
const TYPING_EVERY_MS = 2000;
const TYPING_SHOWN_MS = 4000;

const channelOf = (kind, ...two) => `${kind}:#${two.sort().join()}`;

/** Emits "change". */
export class Dialog extends EventTarget {
  log = []; // {id, by, text, at, offset}
  waiting = []; // mine that are not in the log yet: {id, by, text, at}
  isOnline = false;
  isTyping = false;
  /** When the other one has left, if we were there. */
  lastSeen = null;
  /** "sent" or "received" of an invitation, "accepted" of a dialogue, "none" before there is either. */
  state = "none";
  /** Why the server does not let it begin, or that it is over. */
  fault = null;

  #client;
  #subscription;
  #typing = null; // the subscription that tells who types, while the dialogue is open
  #typingTimer;
  #typedAt = 0;
  #isWatched = false; // somebody looks at it
  #held = null; // what comes while the history is not there; null when it is
  #last = 0; // offset of the last entry that was taken
  #ids = new Set(); // of what is in the log
  #marks = {}; // of each of the two: {delivered, read}
  #told = { delivered: 0, read: 0 }; // of mine, what is on its way
  #markTimer = null;
  #isSending = false;

  constructor(client, me, other) {
    super();
    this.me = me;
    this.other = other;
    this.#client = client;
    this.#forget();
    this.#held = [];
    this.#subscription = client.newSubscription(channelOf("dialog", me, other), { joinLeave: true });
    this.#subscription
      .on("subscribed", ({ recovered }) => this.#come(recovered))
      .on("subscribing", () => this.#set({ isOnline: false, isTyping: false }))
      .on("publication", (publication) => this.#take(publication))
      .on("join", ({ info }) => info.user === other && this.#set({ isOnline: true }))
      .on("leave", ({ info }) => info.user === other && this.#set({ isOnline: false, isTyping: false, lastSeen: Date.now() }))
      .subscribe();
  }

  /** Whether I want it. */
  get isBegun() {
    return this.state === "sent" || this.state === "accepted";
  }

  /** Whether it is shown. */
  get isOpen() {
    return this.#typing !== null;
  }

  /** Everything to be shown, in order. */
  get messages() {
    return [...this.log, ...this.waiting];
  }

  /** How many of the other's messages I have not read. */
  get unread() {
    const { read } = this.#marks[this.me];
    return this.log.filter(({ by, offset }) => by === this.other && offset > read).length;
  }

  /** How far a message of mine has come: "waiting", "sent", "delivered" or "read". */
  stateOf({ offset }) {
    if (!offset) return "waiting";
    const { delivered, read } = this.#marks[this.other];
    if (offset <= read) return "read";
    return offset <= delivered ? "delivered" : "sent";
  }

  /** Sends a text, now or when the connection is back. */
  say(text) {
    const id = Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => byte.toString(36)).join("");
    this.waiting.push({ id, by: this.me, text: text.slice(0, TEXT_MAX), at: Date.now() });
    this.#typedAt = 0;
    this.#changed();
    this.#send();
  }

  /** Invites the other one, or accepts an invitation. */
  async begin() {
    this.become((await ask("POST", "dialogs", { with: this.other })).state);
  }

  /** Leaves it, declines an invitation, or takes one back. */
  async leave() {
    await ask("DELETE", `dialogs/${this.other}`);
    this.become("none");
  }

  /** Something could not be done. */
  fail(fault) {
    this.#set({ fault });
  }

  /** The server says how far it has come. */
  become(state) {
    if (state === this.state) return;
    const isOver = state === "none" && this.isBegun;
    this.#set({ state, fault: isOver ? "This dialogue is over." : null });
    this.#mark();
  }

  /** Tells the other one that I am typing. */
  type() {
    if (!this.#typing || Date.now() - this.#typedAt < TYPING_EVERY_MS) return;
    this.#typedAt = Date.now();
    this.#typing.publish({}).catch(() => {}); // it is no loss
  }

  /** It is open now: who types is told from here on. */
  open() {
    this.#typing = this.#client.newSubscription(channelOf("typing", this.me, this.other));
    this.#typing
      .on("publication", ({ info }) => {
        if (info?.user !== this.other) return;
        clearTimeout(this.#typingTimer);
        this.#typingTimer = setTimeout(() => this.#set({ isTyping: false }), TYPING_SHOWN_MS);
        this.#set({ isTyping: true });
      })
      .subscribe();
  }

  /** It is open no more. */
  close() {
    this.watch(false);
    this.isTyping = false;
    if (this.#typing) this.#client.removeSubscription(this.#typing);
    this.#typing = null;
  }

  /** Somebody looks at it, or does no more: what is seen is marked as read. */
  watch(isWatched) {
    this.#isWatched = isWatched;
    this.#mark();
  }

  /** Leaves the channel for good. */
  end() {
    this.close();
    this.#client.removeSubscription(this.#subscription);
  }

  // ------------------------------------------------------------------------------------------------ what comes

  /** The subscription is there, for the first time or again. */
  async #come(recovered) {
    this.#told = { delivered: 0, read: 0 };
    this.#lookWhoIsThere();
    const isLoaded = this.#held === null;
    if (isLoaded && recovered) {
      await null; // the SDK hands out what was missed right behind this event
    } else {
      // For the first time; or more was missed than the server keeps. The history says what is left.
      this.#held ??= [];
      try {
        const { publications } = await this.#subscription.history({ limit: HISTORY_MAX });
        const held = this.#held;
        this.#forget();
        for (const publication of [...publications, ...held]) this.#take(publication);
      } catch {
        return; // the connection was lost again: it will come back to here
      }
    }
    // What of mine has not come back by now did not reach the server.
    for (const message of this.waiting) message.isSent = false;
    this.#send();
    this.#mark();
    this.#changed();
  }

  #forget() {
    this.log = [];
    this.#held = null;
    this.#last = 0;
    this.#ids.clear();
    this.#marks = { [this.me]: { delivered: 0, read: 0 }, [this.other]: { delivered: 0, read: 0 } };
  }

  #take(publication) {
    if (this.#held) return this.#held.push(publication);
    const { offset, info, data } = publication;
    if (offset <= this.#last) return; // it was in the history already
    this.#last = offset;
    const marks = this.#marks[info?.user];
    if (!marks || typeof data !== "object" || data === null) return;
    // What others send may be anything.
    const { said, delivered, read } = data;
    if (typeof said?.id === "string" && typeof said.text === "string") this.#hear(info.user, said, offset);
    if (Number.isInteger(read) && read < offset) marks.read = Math.max(marks.read, read);
    if (Number.isInteger(delivered) && delivered < offset) marks.delivered = Math.max(marks.delivered, delivered);
    this.#changed();
  }

  #hear(by, { id, text, at }, offset) {
    if (by === this.me) this.waiting = this.waiting.filter((message) => message.id !== id);
    else this.isTyping = false;
    if (this.#ids.has(`${by} ${id}`)) return; // sent again because the answer was lost
    this.#ids.add(`${by} ${id}`);
    // Never before what was said before it, nor in the future: clocks differ, and `at` may be anything.
    const [earliest, now] = [this.log.at(-1)?.at ?? 0, Date.now()];
    const when = Math.max(earliest, Math.min(Number.isFinite(at) ? at : now, now));
    this.log.push({ id, by, text: text.slice(0, TEXT_MAX), at: when, offset });
    this.#mark();
  }

  async #lookWhoIsThere() {
    const there = await this.#subscription.presence().catch(() => null);
    if (there) this.#set({ isOnline: Object.values(there.clients).some(({ user }) => user === this.other) });
  }

  // ------------------------------------------------------------------------------------------------ what goes

  /** Sends what waits, one after the other: so they are in the log in the order in which they were written. */
  async #send() {
    if (this.#isSending || this.#held) return;
    this.#isSending = true;
    try {
      let next;
      while ((next = this.waiting.find(({ isSent }) => !isSent)) && this.#subscription.state === "subscribed") {
        if (!this.isBegun) await this.begin(); // an answer accepts
        const { id, text, at } = next;
        await this.#subscription.publish({ said: { id, text, at } });
        next.isSent = true; // it leaves `waiting` when the server has said it to all, and so to us
      }
    } catch (error) {
      if (error instanceof Refused) this.#set({ fault: error.message });
      // A lost connection begins anew when it is back; what else it may be is tried again.
      else setTimeout(() => this.#send(), RETRY_AFTER_MS);
    } finally {
      this.#isSending = false;
    }
  }

  /** Marks what has come as delivered, or as read if the page is visible; an inviter is not told. */
  #mark() {
    this.#markTimer ??= setTimeout(() => {
      this.#markTimer = null;
      const last = this.log.findLast(({ by }) => by === this.other)?.offset ?? 0;
      const what = this.#isWatched ? "read" : "delivered";
      const mine = this.#marks[this.me];
      const isTold = Math.max(mine.read, mine[what], this.#told.read, this.#told[what]) >= last;
      if (isTold || this.state !== "accepted" || this.#held || this.#subscription.state !== "subscribed") return;
      this.#told[what] = last;
      this.#subscription.publish({ [what]: last }).catch(() => (this.#told[what] = 0));
    }, MARK_AFTER_MS);
  }

  #set(values) {
    Object.assign(this, values);
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}
