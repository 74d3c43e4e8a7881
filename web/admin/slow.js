// Shows the numbers of slow clients, and slow turns, handlers and requests by name.

import { call } from "./api.js";
import { fill, find, heads, make, table } from "./dom.js";
import { lasted, perSecond, short, whole } from "./format.js";
import { pulse } from "./pulse.js";

const AGAIN_MS = 2_000;

const added = (object) => Object.values(object ?? {}).reduce((sum, value) => sum + value, 0);
/** The counters of slow and fast clients. */
const CLIENTS = [
  ["Closed as slow consumers (1013)", (worker) => worker.slow_consumers],
  ["Publications dropped for slow consumers", (worker) => added(worker.publications_dropped)],
  ["Closed as silent", (worker) => worker.silent_closed],
  ["Throttled for exceeding a rate limit", (worker) => worker.paced],
  ["Closed for exceeding a rate limit", (worker) => worker.outpaced],
  ["Messages dropped by a rate limit", (worker) => worker.messages_dropped],
  ["Commands of back ends rejected by rate or memory limits", (worker) => added(worker.pushes_turned_away)],
];
const KINDS = { turn: "Turns of workers", handler: "Handlers of apps", request: "Requests", consumer: "Slow consumers, and how long they had not read" };

let timer = 0;
let isSeen = false;
/** The last two readings of the server's counters. */
let last = null;
const tables = {};

export function begin() {
  heads(find("slow-clients"), "What", ["Now", "number"], ["Since the start", "number"]);
  for (const [kind, title] of Object.entries(KINDS)) {
    const note = make("p", { class: "small" });
    tables[kind] = { note, table: table() };
    heads(tables[kind].table, ["Lasted", "number"], "What", ["Worker", "number"], "Ended");
    find("slow-work").append(make("h3", {}, title), note, tables[kind].table);
  }
  pulse.addEventListener("figures", ({ detail }) => {
    last = detail;
    if (isSeen) clients();
  });
}

export function enter() {
  isSeen = true;
  if (last) clients();
  read();
}

export function leave() {
  isSeen = false;
  clearTimeout(timer);
}

function clients() {
  const { figures, before } = last;
  const isSame = before?.uid === figures.uid;
  const seconds = isSame ? (figures.uptime_ms - before.uptime_ms) / 1000 : 0;
  const rows = CLIENTS.map(([what, counted]) => {
    const sum = ({ workers }) => workers.reduce((all, worker) => all + counted(worker), 0);
    const now = seconds > 0 ? (sum(figures) - sum(before)) / seconds : null;
    return [what, perSecond(short)(now), whole(sum(figures))];
  });
  fill(find("slow-clients"), rows, ["", "number", "number"]);
}

async function read() {
  clearTimeout(timer);
  try {
    const { slow } = await call("slow");
    if (!isSeen) return;
    for (const [kind, { note, table: rows }] of Object.entries(tables)) {
      const found = slow[kind] ?? [];
      rows.hidden = found.length === 0;
      note.textContent = found.length === 0 ? "None was slow." : "";
      fill(rows, found.map(({ ms, what, worker, ago_s: ago }) => [`${whole(ms)} ms`, what, String(worker), `${lasted(ago * 1000)} ago`]), ["number", "", "number", ""]);
    }
  } catch (trouble) {
    for (const { note } of Object.values(tables)) note.textContent = `Not read: ${trouble.message}`;
  }
  if (!isSeen) return;
  clearTimeout(timer);
  timer = setTimeout(read, AGAIN_MS);
}
