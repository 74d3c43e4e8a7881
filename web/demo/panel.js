// "Play the back end": pushes over HTTP to this page's own origin, and shows the same push in other
// languages.

import { LINES, methodOf, pushObject } from "./lines.js";
import { count, typed } from "./payload.js";

const SAMPLES = { text: "Your order is on its way", json: '{"order": 42, "state": "on its way"}', binary: "56 65 63 68 65" };
const ANSWER_TIMEOUT_MS = 10_000;
const COPIED_FOR_MS = 1_500;

const element = (id) => document.getElementById(id);

export class Panel {
  #form = element("push");
  #user;
  #line = LINES[0];
  #text = "";

  constructor(user) {
    this.#user = user;
    element("name").value = user;
    element("tabs").append(...LINES.map((line) => this.#tab(line)));
    element("tabs").addEventListener("keydown", (event) => this.#walk(event));
    element("copy").addEventListener("click", () => copy(this.#text, element("code"), element("copy")));
    this.#form.addEventListener("submit", (event) => this.#send(event));
    this.#form.addEventListener("input", (event) => this.#edited(event));
    element("message").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.#form.requestSubmit();
    });
    this.#select(this.#line);
  }

  get #fields() {
    return Object.fromEntries(new FormData(this.#form));
  }

  /**
   * The push that the form describes. Throws an error to be shown if the input is not valid JSON
   * or hex.
   */
  get #push() {
    const { to, name, kind, message } = this.#fields;
    return { to, name: name.trim(), ...typed(kind, message) };
  }

  #edited({ target }) {
    if (target.name === "to") element("name").value = target.value === "user" ? this.#user : "news";
    const isSample = Object.values(SAMPLES).includes(element("message").value);
    if (target.name === "kind" && isSample) element("message").value = SAMPLES[target.value];
    this.#report("");
    this.#show();
  }

  async #send(event) {
    event.preventDefault();
    let push;
    try {
      push = this.#push;
    } catch (error) {
      return this.#report(error.message, "bad");
    }
    element("send").disabled = true;
    const { text, tone } = await post(push, this.#fields.key);
    element("send").disabled = false;
    this.#report(text, tone);
  }

  #report(text, tone = "good") {
    element("result").textContent = text;
    element("result").dataset.tone = tone;
  }

  #tab(line) {
    const tab = document.createElement("button");
    Object.assign(tab, { type: "button", id: `tab-${line.id}`, textContent: line.label });
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", "lines");
    tab.addEventListener("click", () => this.#select(line));
    return tab;
  }

  /** Arrow keys select the next or previous tab, as in the ARIA pattern. */
  #walk(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    this.#select(LINES.at((LINES.indexOf(this.#line) + step) % LINES.length));
    element(`tab-${this.#line.id}`).focus();
  }

  #select(line) {
    this.#line = line;
    for (const { id } of LINES) {
      element(`tab-${id}`).setAttribute("aria-selected", String(id === line.id));
      element(`tab-${id}`).tabIndex = id === line.id ? 0 : -1;
    }
    element("lines").setAttribute("aria-labelledby", `tab-${line.id}`);
    this.#show();
  }

  #show() {
    let text;
    try {
      text = this.#line.code(this.#push, { origin: location.origin, key: this.#fields.key });
    } catch (error) {
      text = error.message;
    }
    this.#text = text;
    // One block per line, so that a wrapped line is indented and does not look like two.
    element("code").replaceChildren(...text.split("\n").map(codeLine));
    element("note").textContent = this.#line.note;
  }
}

function codeLine(text) {
  const line = document.createElement("span");
  line.textContent = text;
  return line;
}

/** Pushes over HTTP; returns the answer as a sentence. */
async function post(push, key) {
  const started = performance.now();
  try {
    const response = await fetch(`/api/${methodOf(push)}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-API-Key": key },
      body: JSON.stringify(pushObject(push)),
      signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
    });
    return sentence(response.status, await response.json().catch(() => ({})), push, performance.now() - started);
  } catch {
    return { text: `No answer from ${location.host}. Is the server running?`, tone: "bad" };
  }
}

function sentence(status, answer, push, tookMs) {
  if (status === 401) return { text: "Refused (401): that is not one of the keys under [api] in veche.toml.", tone: "bad" };
  if (status === 404) return { text: "No API on this listener (404): the demo’s veche.toml routes /api/* to it.", tone: "bad" };
  if (answer.error) return { text: `Refused (${answer.error.code}): ${answer.error.message}`, tone: "bad" };
  const { handed } = answer.result ?? {};
  if (handed === undefined) return { text: `The server answered ${status}.`, tone: status < 400 ? "good" : "bad" };
  if (handed > 0) return { text: `Handed to ${count(handed, "connection")} in ${tookMs.toFixed(0)} ms.`, tone: "good" };
  const nobody = push.to === "user" ? `No page is open as ${push.name}` : `No page listens to ${push.name}`;
  return { text: `Handed to 0 connections. ${nobody}, so this message is gone.`, tone: "none" };
}

/**
 * Copies with the clipboard API, which exists only on https and localhost, or else with the
 * deprecated `document.execCommand`.
 */
async function copy(text, code, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    getSelection().selectAllChildren(code);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), COPIED_FOR_MS);
}
