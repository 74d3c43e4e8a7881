// Controls the whole page: asks for the key, selects the view by the address, and shows whether the
// server answers.

import { hasKey, setKey } from "./api.js";
import * as channels from "./channels.js";
import * as config from "./config.js";
import { find, say } from "./dom.js";
import { clock, lasted } from "./format.js";
import * as log from "./log.js";
import * as nodes from "./nodes.js";
import * as overview from "./overview.js";
import { pulse } from "./pulse.js";
import * as slow from "./slow.js";
import * as tables from "./tables.js";
import * as users from "./users.js";

const VIEWS = { overview, nodes, channels, users, slow, tables, config, log };
/** How long the notice of a replaced server process is shown. */
const RESTARTED_SHOWN_MS = 60_000;

let current = null;

/** `#channels/room%3A1` is the view `channels` with the name `room:1`. */
function address() {
  const [view, name = ""] = location.hash.slice(1).split(/\/(.*)/s);
  let decoded = name;
  try {
    decoded = decodeURIComponent(name);
  } catch {
    // The address was typed without escapes, so the name is used unchanged.
  }
  return { view: view in VIEWS ? view : "overview", name: decoded };
}

/** Whether the server has accepted the key. */
const isOpen = (state) => state === "live" || state === "lost";

function show() {
  const isLocked = !isOpen(pulse.state);
  const { view, name } = address();
  const title = isLocked ? "login" : view;
  for (const id of ["login", ...Object.keys(VIEWS)]) find(`view-${id}`).hidden = id !== title;
  for (const link of document.querySelectorAll("#nav a")) {
    if (!isLocked && link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = isLocked ? "Veche admin" : `${name || view[0].toUpperCase() + view.slice(1)} – Veche admin`;
  if (current && (isLocked || current !== view)) VIEWS[current].leave?.();
  current = isLocked ? null : view;
  if (isLocked) find("key").focus();
  else VIEWS[view].enter?.(name);
}

function tell() {
  const { state, why, sinceMs, restartedMs, figures } = pulse;
  const was = document.body.dataset.state;
  document.body.dataset.state = state;
  say(find("pulse"), { locked: "", trying: "Connecting", live: "Live", lost: "No answer" }[state]);
  find("leave").hidden = !isOpen(state);
  find("nav").hidden = !isOpen(state);
  const banner = find("banner");
  const isNew = restartedMs > 0 && Date.now() - restartedMs < RESTARTED_SHOWN_MS;
  banner.hidden = !(state === "lost" || (state === "live" && isNew));
  if (state === "lost") say(banner, `The server has not answered since ${clock(sinceMs)} (${why}). Trying again; the figures shown are from before.`);
  else if (isNew) say(banner, `Another server process answers since ${clock(restartedMs)}: counters start at zero, and histories are those it has loaded.`);
  if (state === "locked") {
    say(find("login-said"), why);
    say(find("server"), "");
  }
  // A view is entered when the key is accepted, but not each time that a silent server answers
  // again. A refused key leads back to the login.
  if (isOpen(was) !== isOpen(state) || (state === "locked" && was !== "locked")) show();
  if (figures && isOpen(state)) say(find("server"), `${location.host}, Veche ${figures.version}, up ${lasted(figures.uptime_ms)}`);
}

function begin() {
  for (const view of Object.values(VIEWS)) view.begin();
  find("login").addEventListener("submit", (event) => {
    event.preventDefault();
    setKey(find("key").value);
    find("key").value = "";
    say(find("login-said"), "");
    pulse.start();
  });
  find("leave").addEventListener("click", () => pulse.lock());
  pulse.addEventListener("state", tell);
  pulse.addEventListener("figures", tell);
  addEventListener("hashchange", show);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) pulse.hurry();
  });
  addEventListener("keydown", (event) => {
    const isTyping = event.target.matches?.("input, textarea, select");
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const search = document.querySelector("section:not([hidden]) input[type=search]");
    if (!search) return;
    event.preventDefault();
    search.select();
  });
  if (!hasKey()) show();
  tell();
  pulse.start();
}

begin();
