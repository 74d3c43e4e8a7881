// Shows a chat: the list on the left, the open dialogue on the right. The fragment of the address selects the open
// dialogue, such as #bob.

import { ask } from "./server.js";

const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((each) => [each.id, each]));
const LOOK_EVERY_MS = 20_000; // the online state of users without a dialogue

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const date = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const isToday = (at) => new Date(at).toDateString() === new Date().toDateString();
const dayOf = (at) => (isToday(at) ? "Today" : date.format(at));
const timeOf = (at) => (isToday(at) ? clock.format(at) : `${date.format(at)}, ${clock.format(at)}`);

/** Shows a chat until the returned function is called. */
export function show(chat) {
  const end = new AbortController();
  const on = (target, event, f) => target.addEventListener(event, f, { signal: end.signal });
  let open = null; // the name in the address

  // ------------------------------------------------------------------------------------------------ drawing

  let isDue = false;
  function draw() {
    if (isDue || end.signal.aborted) return;
    isDue = true;
    setTimeout(() => {
      isDue = false;
      if (end.signal.aborted) return;
      drawLists();
      if (open) drawDialog(chat.dialog(open));
      const unread = [...chat.dialogs.values()].reduce((sum, { unread }) => sum + unread, 0);
      document.title = unread > 0 ? `(${unread}) Chat` : "Chat";
      document.body.toggleAttribute("data-offline", !chat.isConnected);
    });
  }

  function drawLists() {
    const isLookedFor = (name) => name.startsWith(page.search.value.trim().toLowerCase());
    const invitations = [...chat.invitations].filter(isLookedFor);
    fill(page.invitations, invitations, (name) => name, entry, (element, name) => {
      write(element, name, chat.people.some((one) => one.name === name && one.online), "wants to talk to you", 0);
    });
    const lastOf = ({ messages }) => messages.at(-1)?.at ?? 0;
    const talks = [...chat.dialogs.values()]
      .filter(({ other, isBegun }) => isBegun && isLookedFor(other))
      .sort((a, b) => lastOf(b) - lastOf(a));
    fill(page.talks, talks, ({ other }) => other, entry, (element, dialog) => {
      const { other, isOnline, isTyping, messages, unread, state } = dialog;
      const last = messages.at(-1);
      const words = state === "sent" ? "Invited" : isTyping ? "typing…" : last ? `${last.by === chat.me ? "You: " : ""}${last.text}` : "";
      write(element, other, isOnline, words, unread);
    });
    const people = chat.people
      .filter(({ name }) => isLookedFor(name) && !chat.dialogs.get(name)?.isBegun && !chat.invitations.has(name))
      .sort((a, b) => b.online - a.online || a.name.localeCompare(b.name));
    fill(page.people, people, ({ name }) => name, entry, (element, { name, online, last_seen }) => {
      write(element, name, online, online ? "online" : seen(last_seen * 1000), 0);
    });
    page["invitations-title"].hidden = invitations.length === 0;
    page["talks-title"].hidden = talks.length === 0;
    page["people-title"].hidden = people.length === 0;
    page.nobody.hidden = invitations.length + talks.length + people.length > 0 || page.search.value !== "";
  }

  const entry = () => make("li", make("a", make("span.avatar"), make("strong"), make("span.words"), make("span.unread")));

  function write(element, name, isOnline, words, unread) {
    const [face, title, line, count] = element.firstChild.children;
    element.firstChild.href = `#${name}`;
    element.firstChild.setAttribute("aria-current", name === open);
    paint(face, name, isOnline);
    title.textContent = name;
    line.textContent = words;
    count.textContent = unread || "";
    count.title = unread > 0 ? `${unread} unread` : "";
  }

  function drawDialog(dialog) {
    const { other, isOnline, isTyping, messages, fault, state } = dialog;
    const lastSeen = dialog.lastSeen ?? chat.people.find(({ name }) => name === other)?.last_seen * 1000;
    paint(page["other-avatar"], other, isOnline);
    page["other-name"].textContent = other;
    const presence = isTyping ? "typing…" : isOnline ? "online" : seen(lastSeen);
    page["other-state"].textContent = chat.isConnected ? presence : "connecting…";
    page["other-state"].toggleAttribute("data-live", isTyping || isOnline);
    page.fault.textContent = fault ?? "";
    page.leave.hidden = !dialog.isBegun;
    page.leave.textContent = state === "sent" ? "Take back" : "Leave";
    page.invited.hidden = state !== "sent";
    page.asked.hidden = state !== "received";
    page["asked-by"].textContent = other;

    const { scroll } = page;
    const isAtEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
    const before = page.messages.lastChild;
    const rows = messages.flatMap((message, index) => {
      const day = dayOf(message.at);
      const isNewDay = index === 0 || dayOf(messages[index - 1].at) !== day;
      return isNewDay ? [{ by: "day before", id: `${message.by} ${message.id}`, day }, message] : [message];
    });
    fill(page.messages, rows, ({ by, id }) => `${by} ${id}`, bubble, (element, message) => {
      if (message.by === chat.me) mark(element, dialog.stateOf(message));
    });
    const last = messages.at(-1);
    const isNew = page.messages.lastChild !== before;
    if (isNew && (isAtEnd || last.by === chat.me)) scroll.scrollTop = scroll.scrollHeight;
    else if (isNew) page.newer.hidden = false;
  }

  function bubble({ day, by, text, at }) {
    if (day) return make("li.day", day);
    const time = make("time", clock.format(at));
    time.title = timeOf(at);
    return make(by === chat.me ? "li.mine" : "li.theirs", make("p", text), time);
  }

  // ------------------------------------------------------------------------------------------------ actions

  function go() {
    const name = decodeURIComponent(location.hash.slice(1)).toLowerCase();
    if (name === open) return;
    if (open) chat.close(open);
    open = /^[a-z][a-z0-9._-]{1,19}$/.test(name) && name !== chat.me ? name : null;
    document.body.toggleAttribute("data-open", open !== null);
    page.messages.replaceChildren();
    page.newer.hidden = true;
    page.text.value = "";
    if (open) {
      chat.dialog(open).open();
      watch();
      page.text.focus();
    }
    draw();
  }

  /** Visible messages count as read if the page has the focus. */
  function watch() {
    if (open) chat.dialog(open).watch(document.visibilityState === "visible" && document.hasFocus());
  }

  on(chat, "change", draw);
  on(window, "hashchange", go);
  for (const event of ["focus", "blur"]) on(window, event, watch);
  on(document, "visibilitychange", () => {
    watch();
    if (document.visibilityState === "visible") chat.look();
  });

  function send(event) {
    event.preventDefault();
    if (!page.text.value.trim()) return;
    chat.dialog(open).say(page.text.value.trim());
    page.text.value = "";
  }
  on(page.composer, "submit", send);
  on(page.text, "keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  });
  on(page.text, "input", () => page.text.value && chat.dialog(open).type());

  on(page.search, "input", () => {
    chat.look(page.search.value.trim().toLowerCase());
    draw();
  });
  on(page.scroll, "scroll", () => {
    if (page.scroll.scrollHeight - page.scroll.scrollTop - page.scroll.clientHeight < 60) page.newer.hidden = true;
  });
  on(page.newer, "click", () => page.scroll.scrollTo({ top: page.scroll.scrollHeight, behavior: "smooth" }));
  /** Performs an action and shows its error. */
  async function attempt(what) {
    const dialog = chat.dialog(open);
    try {
      await what(dialog);
      return true;
    } catch (error) {
      dialog.fail(error.message);
      return false;
    }
  }
  const away = async () => (await attempt((dialog) => dialog.leave())) && (location.hash = "");
  on(page.leave, "click", away);
  on(page.decline, "click", away);
  on(page.accept, "click", () => attempt((dialog) => dialog.begin()));
  on(page.logout, "click", async () => {
    await ask("POST", "logout").catch(() => {});
    chat.end();
  });

  // Keyboard shortcuts: Control+K finds people, arrow keys move through the list, Escape leaves the dialogue.
  on(document, "keydown", (event) => {
    if (event.key === "k" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      page.search.focus();
    } else if (event.key === "Escape" && open) {
      location.hash = "";
      page.search.focus();
    } else if (/^Arrow(Up|Down)$/.test(event.key) && page.side.contains(event.target)) {
      event.preventDefault();
      const stops = [page.search, ...page.lists.querySelectorAll("a")];
      const next = stops.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1);
      stops[Math.max(0, Math.min(next, stops.length - 1))].focus();
    }
  });

  const looking = setInterval(() => document.visibilityState === "visible" && chat.look(), LOOK_EVERY_MS);
  on(end.signal, "abort", () => clearInterval(looking));

  paint(page["my-avatar"], chat.me, false);
  page["my-name"].textContent = chat.me;
  go();
  draw();
  return () => {
    end.abort();
    document.body.removeAttribute("data-open");
    for (const list of [page.invitations, page.talks, page.people, page.messages]) list.replaceChildren();
    document.title = "Chat";
  };
}

// ---------------------------------------------------------------------------------------------------- elements

/** Creates an element from "tag.class" and its content. Strings become text nodes, never HTML. */
function make(name, ...inside) {
  const [tag, kind] = name.split(".");
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.append(...inside);
  return element;
}

function paint(element, name, isOnline) {
  element.textContent = name[0].toUpperCase();
  const sum = [...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt()) % 360, 7);
  element.style.setProperty("--hue", sum);
  element.toggleAttribute("data-online", isOnline);
}

const seen = (at) => (at ? `last seen ${timeOf(at)}` : "offline");

/** The state of a message, as an icon with a label for screen readers. */
function mark(element, state) {
  if (element.dataset.state === state) return;
  element.dataset.state = state;
  element.querySelector("svg")?.remove();
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", state);
  svg.append(document.createElementNS(svg.namespaceURI, "use"));
  svg.firstChild.setAttribute("href", `#${state}`);
  element.append(svg);
}

/** Synchronises the children of a list with `items`: existing ones are updated in place. */
function fill(list, items, keyOf, create, update) {
  const there = new Map([...list.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, index) => {
    const key = keyOf(item);
    const child = there.get(key) ?? create(item);
    there.delete(key);
    child.dataset.key = key;
    update(child, item);
    if (list.children[index] !== child) list.insertBefore(child, list.children[index] ?? null);
  });
  for (const child of there.values()) child.remove();
}
