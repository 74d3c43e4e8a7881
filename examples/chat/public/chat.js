// Manages one user's connection, dialogues and list of users. Does not depend on the page.

import { Dialog } from "./dialog.js";
import { ask, Refused } from "./server.js";

const { Centrifuge } = globalThis; // vendor/centrifuge.js

/** Emits "change", and "end" when the session is over. */
export class Chat extends EventTarget {
  dialogs = new Map(); // name -> Dialog
  invitations = new Set(); // names of inviting users; their messages are not marked as read before I open them
  people = []; // {name, online, last_seen}: users whose names begin with the search text
  isConnected = false;

  #client;
  #search = "";

  constructor(me) {
    super();
    this.me = me;
    const at = (name) => new URL(`connection/${name}`, location.href).href;
    this.#client = new Centrifuge(
      [
        { transport: "websocket", endpoint: at("websocket").replace(/^http/, "ws") },
        // For networks that block WebSockets.
        { transport: "http_stream", endpoint: at("http_stream") },
        { transport: "sse", endpoint: at("sse") },
      ],
      { emulationEndpoint: at("emulation"), getToken, maxReconnectDelay: 5000 },
    );
    this.#client
      .on("connected", () => this.#come())
      .on("connecting", () => this.#set({ isConnected: false }))
      .on("disconnected", () => this.dispatchEvent(new Event("end")))
      // On my personal channel: another user has invited me, accepted or left, or I have done so in
      // another tab. An exception in a handler ends the client, so unexpected publications are
      // skipped.
      .on("publication", ({ data }) => {
        if (typeof data?.dialog === "string") this.#told(data);
      });
    this.#client
      .newSubscription("people:all")
      .on("publication", ({ data }) => {
        if (typeof data?.registered === "string") this.#registered(data.registered);
      })
      .subscribe();
    this.#client.connect();
  }

  /** Returns the dialogue with a user, and creates it if necessary. */
  dialog(name) {
    let dialog = this.dialogs.get(name);
    if (!dialog) {
      dialog = new Dialog(this.#client, this.me, name);
      dialog.addEventListener("change", () => this.#changed());
      if (this.invitations.has(name)) dialog.become("received");
      this.dialogs.set(name, dialog);
    }
    return dialog;
  }

  /**
   * Called when a dialogue is no longer shown. A dialogue that I have neither begun nor accepted
   * is removed.
   */
  close(name) {
    const dialog = this.dialogs.get(name);
    dialog?.close();
    if (!dialog || dialog.isBegun || dialog.waiting.length > 0) return;
    dialog.end();
    this.dialogs.delete(name);
  }

  /** Searches for users whose names begin with a text. */
  async look(search = this.#search) {
    this.#search = search;
    try {
      const { people } = await ask("GET", `people?name=${encodeURIComponent(search)}`);
      // The list has only the latest invitations, so a search may find earlier ones.
      for (const { name, dialog } of people) if (dialog === "received") this.#told({ dialog: name, state: dialog });
      if (search === this.#search) this.#set({ people });
    } catch {
      // They stay unchanged.
    }
  }

  end() {
    this.#client.disconnect();
  }

  async #come() {
    this.#set({ isConnected: true });
    this.look();
    try {
      const { dialogs } = await ask("GET", "dialogs");
      // Dialogues that ended while this page was disconnected are missing from the list.
      const gone = new Set([...this.dialogs.keys(), ...this.invitations]);
      for (const { with: name, state } of dialogs) {
        this.#told({ dialog: name, state });
        gone.delete(name);
      }
      for (const name of gone) this.#told({ dialog: name, state: "none" });
    } catch (error) {
      if (isOver(error)) this.end(); // the token is still valid, but the user is unknown
    }
  }

  /**
   * Applies the server's state of a dialogue: "sent" or "received" (an invitation), "accepted" or
   * "none".
   */
  #told({ dialog: name, state }) {
    if (state === "received") this.invitations.add(name);
    else this.invitations.delete(name);
    const isMine = state === "sent" || state === "accepted";
    const dialog = isMine ? this.dialog(name) : this.dialogs.get(name);
    dialog?.become(state);
    if (dialog && !dialog.isBegun && !dialog.isOpen) this.close(name);
    this.#changed();
  }

  #registered(name) {
    const isLookedFor = name !== this.me && name.startsWith(this.#search);
    if (!isLookedFor || this.people.some((one) => one.name === name)) return;
    this.#set({ people: [...this.people, { name, online: true }] });
  }

  #set(values) {
    Object.assign(this, values);
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}

/** The SDK requests a token when it connects, and the next one before that token expires. */
async function getToken() {
  try {
    return (await ask("GET", "token")).token;
  } catch (error) {
    // `UnauthorizedError` makes the SDK stop; after any other error it retries.
    throw isOver(error) ? new Centrifuge.UnauthorizedError() : error;
  }
}

/** Returns whether an error means that the session is over. */
const isOver = (error) => error instanceof Refused && error.status === 401;
