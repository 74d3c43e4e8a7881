// Start reading here: the user of this page, one connection, and the three parts that show it.
//   connection.js  keeps the WebSocket up          status.js  shows its state
//   sdk.js         the same with centrifuge's SDK  panel.js   pushes, and shows how to
//   feed.js        lists received pushes

import { Connection } from "./connection.js";
import { Feed } from "./feed.js";
import { addressOf, nameFromAddress, randomName } from "./names.js";
import { Panel } from "./panel.js";
import { SdkConnection } from "./sdk.js";
import { Status } from "./status.js";

/** The demo's route lets a page listen to this channel. */
const CHANNEL = "news";
/**
 * Minimum interval of probes after refused attempts, so that they don't double the load on an
 * overloaded server.
 */
const PROBE_EVERY_MS = 20_000;

const user = nameFromAddress();
const isBySdk = new URLSearchParams(location.search).get("by") === "sdk";
const connection = isBySdk ? new SdkConnection(user, CHANNEL) : new Connection(socketUrl(user));
const status = new Status(connection, user);
const feed = new Feed();
new Panel(user);

showUser();
showWays();
reactToMessages();
reactToTheBrowser();
probeWhenRefused();
connection.retry();

function socketUrl(name) {
  const url = new URL("/ws", location.href);
  url.protocol = url.protocol.replace("http", "ws");
  url.searchParams.set("user", name);
  url.searchParams.set("channel", CHANNEL);
  return url;
}

function showUser() {
  const input = document.getElementById("user");
  const another = document.getElementById("another");
  input.value = user;
  document.getElementById("who").addEventListener("submit", (event) => {
    event.preventDefault();
    const name = input.value.trim();
    if (name && name !== user) location.assign(addressOf(name));
  });
  // Each click gets a new name, so that three clicks open pages of three users.
  const renew = () => (another.href = addressOf(randomName()));
  another.addEventListener("click", () => setTimeout(renew));
  renew();
}

/** Sets the two links that reload this page with the plain WebSocket or with the SDK, and marks the link in use. */
function showWays() {
  for (const way of ["ws", "sdk"]) {
    const address = new URL(location.href);
    if (way === "sdk") address.searchParams.set("by", way);
    else address.searchParams.delete("by");
    const link = document.getElementById(`by-${way}`);
    link.href = address.pathname + address.search;
    link.setAttribute("aria-current", (way === "sdk") === isBySdk);
  }
}

function reactToMessages() {
  let unseen = 0;
  const title = () => (document.title = `${unseen ? `(${unseen}) ` : ""}${user} · Veche`);
  connection.addEventListener("message", ({ detail }) => {
    feed.add(detail);
    status.ring();
    if (document.hidden) unseen += 1;
    if (unseen) title();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    unseen = 0;
    title();
    connection.hurry();
  });
  title();
}

function reactToTheBrowser() {
  addEventListener("online", () => connection.hurry());
  // A page in the back/forward cache must hold no socket; it connects again when it is shown again.
  addEventListener("pagehide", () => connection.close());
  addEventListener("pageshow", (event) => event.persisted && connection.retry());
}

/** The WebSocket API hides why a handshake failed, so an HTTP request checks whether the server answers. */
function probeWhenRefused() {
  let probedAt = -Infinity;
  connection.addEventListener("state", async () => {
    const { state, end } = connection;
    if (state !== "waiting" || end.code !== 1006 || end.wasOpen) return;
    if (performance.now() - probedAt < PROBE_EVERY_MS) return;
    probedAt = performance.now();
    const answers = await fetch(location.pathname, { method: "HEAD", cache: "no-store" }).then(() => true, () => false);
    status.probed(answers ? "refuses" : "absent");
  });
}
