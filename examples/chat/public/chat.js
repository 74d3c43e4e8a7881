// One person's connection: all dialogues of hers, and the people there are. Knows no page.

import { Dialog } from "./dialog.js";
import { ask, Refused } from "./server.js";

const { Centrifuge } = globalThis; // vendor/centrifuge.js

/** Emits "change", and "end" when the session is over. */
export class Chat extends EventTarget {
  dialogs = new Map(); // name -> Dialog
  people = []; // {name, online, last_seen}: those whose names begin with what is looked for
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
        // Where a network lets no WebSocket through.
        { transport: "http_stream", endpoint: at("http_stream") },
        { transport: "sse", endpoint: at("sse") },
      ],
      { emulationEndpoint: at("emulation"), getToken, maxReconnectDelay: 5000 },
    );
    this.#client
      .on("connected", () => this.#come())
      .on("connecting", () => this.#set({ isConnected: false }))
      .on("disconnected", () => this.dispatchEvent(new Event("end")))
      // On the own channel: somebody has begun a dialogue, or I have in another tab.
      .on("publication", ({ data }) => this.#begun(JSON.parse(data).dialog));
    this.#client
      .newSubscription("people:all")
      .on("publication", ({ data }) => this.#registered(JSON.parse(data).registered))
      .subscribe();
    this.#client.connect();
  }

  /** The dialogue with somebody, which may be new. */
  dialog(name) {
    let dialog = this.dialogs.get(name);
    if (!dialog) {
      dialog = new Dialog(this.#client, this.me, name);
      dialog.addEventListener("change", () => this.#changed());
      this.dialogs.set(name, dialog);
    }
    return dialog;
  }

  /** Nobody looks at it any more: one in which nothing was ever said goes. */
  leave(name) {
    const dialog = this.dialogs.get(name);
    dialog?.close();
    if (!dialog || dialog.isBegun || dialog.messages.length > 0) return;
    dialog.end();
    this.dialogs.delete(name);
  }

  /** Looks for people whose names begin so. */
  async look(search = this.#search) {
    this.#search = search;
    try {
      const { people } = await ask("GET", `people?name=${encodeURIComponent(search)}`);
      if (search === this.#search) this.#set({ people });
    } catch {
      // They stay as they were.
    }
  }

  end() {
    this.#client.disconnect();
  }

  async #come() {
    this.#set({ isConnected: true });
    this.look();
    try {
      for (const name of (await ask("GET", "dialogs")).dialogs) this.#begun(name);
    } catch (error) {
      if (isOver(error)) this.end(); // the token still holds, but whoever it was is forgotten
    }
  }

  #begun(name) {
    this.dialog(name).isBegun = true;
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

/** The SDK asks for a token when it connects, and for the next one before that is over. */
async function getToken() {
  try {
    return (await ask("GET", "token")).token;
  } catch (error) {
    // The SDK gives up. Anything else it tries again.
    throw isOver(error) ? new Centrifuge.UnauthorizedError() : error;
  }
}

/** Whether the session is over. */
const isOver = (error) => error instanceof Refused && error.status === 401;
