// The status bar: bell, state, and the wait for the next attempt. Draws the state of a Connection.

const TICK_MS = 200;
const RINGS = 12;
const RING_FIRST_RADIUS = 90;
const RING_STEP = 78;
/** The minimum time between animations of the bell, in milliseconds. */
const RING_EVERY_MS = 250;

const element = (id) => document.getElementById(id);

export class Status {
  #connection;
  #user;
  #pushes = 0;
  #openSince = 0;
  #rungAt = 0;
  /** The result of a probe over plain HTTP: null | "absent" | "refuses". */
  #probe = null;

  constructor(connection, user) {
    this.#connection = connection;
    this.#user = user;
    drawWaves();
    connection.addEventListener("state", () => this.#changed());
    element("retry").addEventListener("click", () => connection.retry());
    addEventListener("online", () => this.#words());
    addEventListener("offline", () => this.#words());
    setInterval(() => this.#tick(), TICK_MS);
  }

  /** Counts a push and animates the bell, unless it was animated just before. */
  ring() {
    this.#pushes += 1;
    element("fact-pushes").textContent = this.#pushes.toLocaleString("en");
    const now = performance.now();
    if (now - this.#rungAt < RING_EVERY_MS || document.hidden || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    this.#rungAt = now;
    swing(element("status-bell"));
    element("waves").querySelectorAll("circle").forEach((circle, index) => {
      circle.animate([{ strokeOpacity: 0.9, offset: 0.25 }], { duration: 700, delay: index * 70, easing: "ease-out" });
    });
  }

  /** Sets the result of the probe after a failed attempt. */
  probed(finding) {
    this.#probe = finding;
    this.#words();
  }

  #changed() {
    const { state } = this.#connection;
    if (state === "open") {
      this.#openSince = Date.now();
      this.#probe = null;
    }
    this.#words();
    this.#tick();
  }

  #words() {
    const { state, end, hasBeenOpen, failures } = this.#connection;
    const { label, title, text } = words(state, { end, hasBeenOpen, failures, user: this.#user, probe: this.#probe });
    document.body.dataset.state = state === "connecting" && hasBeenOpen ? "reconnecting" : state;
    say("state", label);
    say("status-title", title);
    say("status-text", text);
    element("retry").hidden = state !== "waiting" && state !== "ended";
    element("retry").textContent = state === "ended" ? "Connect again" : "Retry now";
    element("wait").hidden = state !== "waiting";
    element("facts").hidden = state === "waiting" || state === "ended";
  }

  #tick() {
    if (document.hidden) return;
    const { state, nextAt, waitFrom } = this.#connection;
    element("fact-since").textContent = state === "open" ? clock(Date.now() - this.#openSince) : "–";
    if (state !== "waiting") return;
    const left = Math.max(0, nextAt - Date.now());
    say("countdown", `Next attempt in ${(left / 1000).toFixed(1)} s`);
    element("wait-bar").value = 1 - left / Math.max(1, nextAt - waitFrom);
  }
}

/** Returns the label, the title and the text that describe a state. */
function words(state, { end, hasBeenOpen, failures, user, probe }) {
  const offline = navigator.onLine ? "" : " The browser says that it is offline.";
  switch (state) {
    case "open":
      return { label: "Open", title: `Listening as ${user}`, text: "Pushes of your back end to this name appear below at once." };
    case "connecting": {
      const attempt = failures > 1 ? ` Attempt ${failures}.` : "";
      return hasBeenOpen
        ? { label: "Reconnecting", title: `Reconnecting as ${user}`, text: `The server has not answered yet.${attempt}` }
        : { label: "Connecting", title: `Connecting as ${user}`, text: `The server has not answered yet.${attempt}` };
    }
    case "waiting":
      return { label: hasBeenOpen ? "Lost" : "Not connected", title: "Trying again soon", text: found(end, probe) + offline };
    default:
      return { label: "Disconnected", title: "No automatic reconnect", text: end?.text ?? "" };
  }
}

function found(end, probe) {
  if (end?.code !== 1006 || end.wasOpen || !probe) return end?.text ?? "";
  return probe === "absent"
    ? `Nothing answers at ${location.host}. Is veche serve running?`
    : `The server at ${location.host} answers, but refuses the WebSocket. Its log says why: the route, the origin, or a limit.`;
}

function drawWaves() {
  const svg = "http://www.w3.org/2000/svg";
  const rings = Array.from({ length: RINGS }, (_, index) => {
    const circle = document.createElementNS(svg, "circle");
    circle.setAttribute("r", RING_FIRST_RADIUS + index * RING_STEP);
    circle.setAttribute("stroke-opacity", (0.5 * (1 - index / RINGS)).toFixed(2));
    return circle;
  });
  element("waves").replaceChildren(...rings);
}

function swing(bell) {
  const angles = [0, 13, -10, 7, -4.5, 2.5, -1, 0];
  bell.animate(angles.map((angle) => ({ transform: `rotate(${angle}deg)` })), { duration: 1300, easing: "ease-in-out" });
}

/** Writes only what changed, so that a screen reader speaks a state once. */
function say(id, text) {
  if (element(id).textContent !== text) element(id).textContent = text;
}

/** "0:42", "1:05:09" */
function clock(ms) {
  const seconds = Math.floor(ms / 1000);
  const two = (number) => String(number).padStart(2, "0");
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor(seconds / 60) % 60;
  return hours ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
}

