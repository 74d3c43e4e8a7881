// A dialogue of two: messages, delivery and read marks, and messages still to be sent. Independent of the page.
//
// All of it is one log, the history of the channel "dialog:#ann,bob". Its entries are
//
//   {"said":{"id":…,"text":…,"at":…}}     `id` is the sender's: a message repeated after a disconnect is shown once
//   {"delivered":OFFSET}                  everything up to that entry has arrived
//   {"read":OFFSET}                       …and was read
//
// and the author of an entry is named by the server (`info.user`), never by the entry. Missed entries are recovered by the
// SDK: marks as well as messages, once and in order.

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
  /** The time at which the other user left; null if this page did not see it. */
  lastSeen = null;
  /** "sent" or "received" for an invitation, "accepted" for a dialogue, otherwise "none". */
  state = "none";
  /** An error to show: why the server refused an action, or that the dialogue is over. */
  fault = null;

  #client;
  #subscription;
  #typing = null; // the subscription for typing notices, while the dialogue is open
  #typingTimer;
  #typedAt = 0;
  #isWatched = false; // it is visible
  #held = null; // entries that arrive before the history; null afterwards
  #last = 0; // offset of the last applied entry
  #ids = new Set(); // of the entries in the log
  #marks = {}; // of each of the two: {delivered, read}
  #told = { delivered: 0, read: 0 }; // my marks that are being sent
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

  /** Whether I have begun or accepted the dialogue. */
  get isBegun() {
    return this.state === "sent" || this.state === "accepted";
  }

  /** Whether the page shows the dialogue. */
  get isOpen() {
    return this.#typing !== null;
  }

  /** All messages to be shown, in order. */
  get messages() {
    return [...this.log, ...this.waiting];
  }

  /** The number of unread messages from the other user. */
  get unread() {
    const { read } = this.#marks[this.me];
    return this.log.filter(({ by, offset }) => by === this.other && offset > read).length;
  }

  /** The state of my message: "waiting", "sent", "delivered" or "read". */
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

  /** Invites the other user, or accepts an invitation. */
  async begin() {
    this.become((await ask("POST", "dialogs", { with: this.other })).state);
  }

  /** Leaves the dialogue, or declines or withdraws an invitation. */
  async leave() {
    await ask("DELETE", `dialogs/${this.other}`);
    this.become("none");
  }

  /** Shows the error of a failed action. */
  fail(fault) {
    this.#set({ fault });
  }

  /** Applies the state of the dialogue that the server has reported. */
  become(state) {
    if (state === this.state) return;
    const isOver = state === "none" && this.isBegun;
    this.#set({ state, fault: isOver ? "This dialogue is over." : null });
    this.#mark();
  }

  /** Sends a typing notice. */
  type() {
    if (!this.#typing || Date.now() - this.#typedAt < TYPING_EVERY_MS) return;
    this.#typedAt = Date.now();
    this.#typing.publish({}).catch(() => {}); // a lost notice is harmless
  }

  /** Called when the page shows the dialogue; subscribes to typing notices. */
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

  /** Called when the page no longer shows the dialogue. */
  close() {
    this.watch(false);
    this.isTyping = false;
    if (this.#typing) this.#client.removeSubscription(this.#typing);
    this.#typing = null;
  }

  /** Called when the dialogue becomes visible or hidden; visible messages are marked as read. */
  watch(isWatched) {
    this.#isWatched = isWatched;
    this.#mark();
  }

  /** Leaves the channel permanently. */
  end() {
    this.close();
    this.#client.removeSubscription(this.#subscription);
  }

  // ------------------------------------------------------------------------------------------------ input

  /** Called when the subscription is established, for the first time or again. */
  async #come(recovered) {
    this.#told = { delivered: 0, read: 0 };
    this.#lookWhoIsThere();
    const isLoaded = this.#held === null;
    if (isLoaded && recovered) {
      await null; // the SDK emits missed publications right after this event
    } else {
      // This is the first subscription, or more messages were missed than the server stores. So the stored
      // history is read.
      this.#held ??= [];
      try {
        const { publications } = await this.#subscription.history({ limit: HISTORY_MAX });
        const held = this.#held;
        this.#forget();
        for (const publication of [...publications, ...held]) this.#take(publication);
      } catch {
        return; // the connection was lost again: this runs again after the reconnect
      }
    }
    // My messages that are not in the log by now did not reach the server.
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
    // The other user may publish any data.
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
    // The time shown is never before that of the previous message, nor in the future, since clocks
    // differ and `at` may be anything.
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

  /**
   * Sends waiting messages one at a time, so that the log has them in the order in which they were
   * written.
   */
  async #send() {
    if (this.#isSending || this.#held) return;
    this.#isSending = true;
    try {
      let next;
      while ((next = this.waiting.find(({ isSent }) => !isSent)) && this.#subscription.state === "subscribed") {
        if (!this.isBegun) await this.begin(); // an answer accepts
        const { id, text, at } = next;
        await this.#subscription.publish({ said: { id, text, at } });
        next.isSent = true; // it leaves `waiting` when the server has published it to all, us included
      }
    } catch (error) {
      if (error instanceof Refused) this.#set({ fault: error.message });
      // After a lost connection, `#come` sends again; other errors are retried here.
      else setTimeout(() => this.#send(), RETRY_AFTER_MS);
    } finally {
      this.#isSending = false;
    }
  }

  /** Marks received messages as delivered, or as read if the page is visible; an inviter gets no marks. */
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
