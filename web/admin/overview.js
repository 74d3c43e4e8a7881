// The first view: the current figures, the charts, and a row for each worker.

import { Charts } from "./charts.js";
import { fill, find, heads, make, say } from "./dom.js";
import { compare, Lines, WORKERS_DRAWN_MAX } from "./figures.js";
import { bytes, lasted, milliseconds, percent, perSecond, short, whole } from "./format.js";
import * as pools from "./pools.js";
import { pulse } from "./pulse.js";

/** If no figures arrive for more than this many seconds, the lines of the charts have a gap. */
const HOLE_S = 5;

const rate = perSecond(short);
/** For each tile: the label, and functions that return the value for all workers and an optional note. */
const TILES = [
  ["Connections", ({ all }) => whole(all.connections), (_, now) => (now.connections_max ? `of ${short(now.connections_max)}` : "")],
  ["Users", ({ all }) => whole(all.users)],
  ["Channels", ({ all }) => whole(all.channels), ({ all }) => `${short(all.subscriptions)} subscriptions`],
  ["Messages in", ({ all }) => rate(all.in)],
  ["Messages out", ({ all }) => rate(all.out)],
  ["Loop, 99th percentile", ({ all }) => milliseconds(all.p99), ({ all }) => `busy ${percent(all.busy)}`],
  ["Memory", ({ all }) => bytes(all.process), (_, now) => (now.memory_limit_bytes ? `limit ${bytes(now.memory_limit_bytes)}` : "no limit")],
  ["Up for", (_, now) => lasted(now.uptime_ms)],
];
/** For each column: heading, and value of a worker. */
const COLUMNS = [
  ["Worker", (_, at) => String(at)],
  ["Connections", (worker) => whole(worker.connections)],
  ["WebSockets", (worker) => whole(worker.sessions)],
  ["Users", (worker) => whole(worker.users)],
  ["Channels", (worker) => whole(worker.channels)],
  ["Subscriptions", (worker) => whole(worker.subscriptions)],
  ["In", (worker) => rate(worker.in)],
  ["Out", (worker) => rate(worker.out)],
  ["Deliveries", (worker) => rate(worker.fanout)],
  ["Loop, median", (worker) => milliseconds(worker.p50)],
  ["Loop, 99 %", (worker) => milliseconds(worker.p99)],
  ["Busy", (worker) => percent(worker.busy)],
  ["Mailbox", (worker) => whole(worker.mailbox)],
  ["Histories", (worker) => bytes(worker.history)],
  ["Apps", (worker) => bytes(worker.apps)],
];

const lines = new Lines();
let charts, tiles;
let lastS = 0;

export function begin() {
  tiles = TILES.map(([label]) => {
    const [value, more] = [make("dd"), make("dd", { class: "more" })];
    find("tiles").append(make("div", {}, make("dt", {}, label), value, more));
    return { value, more };
  });
  heads(find("workers"), ...COLUMNS.map(([heading], at) => (at === 0 ? heading : [heading, "number"])));
  pools.begin();
  charts = new Charts(find("charts"), lines);
  const show = () => charts.show(Number(document.querySelector("[name=span]:checked").value), find("by-worker").checked);
  find("span").addEventListener("change", show);
  find("by-worker").addEventListener("change", show);
  pulse.addEventListener("figures", ({ detail }) => take(detail));
}

/** Draws the charts when the view is shown again. */
export const enter = () => charts.draw();

function take({ figures, before }) {
  const said = compare(figures, before);
  const nowS = Date.now() / 1000;
  if (lastS > 0 && (nowS - lastS > HOLE_S || !said.isSame)) lines.gap((lastS + nowS) / 2);
  // Times must increase even if the clock was set back.
  lastS = Math.max(nowS, lastS + 0.001);
  lines.add(lastS, said);
  TILES.forEach(([, value, more], at) => {
    say(tiles[at].value, value(said, figures));
    say(tiles[at].more, more?.(said, figures) ?? "");
  });
  const rows = said.workers.map((worker, at) => COLUMNS.map(([, value]) => value(worker, at)));
  fill(find("workers"), rows, COLUMNS.map((_, at) => (at === 0 ? "" : "number")));
  const drawn = said.workers.length;
  say(find("charts-note"), drawn > WORKERS_DRAWN_MAX ? `Lines of the first ${WORKERS_DRAWN_MAX} of ${drawn} workers; the table has them all.` : "");
  charts.draw(drawn);
}
