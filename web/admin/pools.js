// The worker processes of applications.

import { fill, find, heads } from "./dom.js";
import { bytes, milliseconds, whole } from "./format.js";
import { pulse } from "./pulse.js";

/** For each column: the heading, and a function that returns the value for an application. */
const COLUMNS = [
  ["App", (pool) => pool.app],
  ["Idle", (pool) => whole(pool.processes.idle)],
  ["Busy", (pool) => whole(pool.processes.busy)],
  ["Starting", (pool) => whole(pool.processes.starting)],
  ["Stopping", (pool) => whole(pool.processes.stopping)],
  ["Waiting events", (pool) => whole(pool.queue)],
  ["Answered", (pool) => whole(pool.events.answered)],
  ["Failed", (pool) => whole(pool.events.failed)],
  ["Refused", (pool) => whole(pool.events.refused)],
  ["Mean wait", (pool) => mean(pool.wait_seconds, pool.events.answered)],
  ["Mean run", (pool) => mean(pool.run_seconds, pool.events.answered)],
  ["Memory", (pool) => bytes(pool.memory_bytes)],
  ["Restarts", (pool) => restarts(pool.restarts)],
];
const TEXTS = ["App", "Restarts"];
const KINDS = COLUMNS.map(([heading]) => (TEXTS.includes(heading) ? "" : "number"));

export function begin() {
  heads(find("pools"), ...COLUMNS.map(([heading], at) => (KINDS[at] ? [heading, "number"] : heading)));
  pulse.addEventListener("figures", ({ detail }) => take(detail.figures.pools));
}

/** Returns the mean time of an event, in milliseconds. */
const mean = (seconds, events) => (events > 0 ? milliseconds((seconds * 1e3) / events) : "");

function restarts(counts) {
  const said = Object.entries(counts).filter(([, count]) => count > 0);
  return said.map(([reason, count]) => `${reason} ${whole(count)}`).join(", ");
}

function take(pools) {
  find("pools-part").hidden = pools.length === 0;
  fill(find("pools"), pools.map((pool) => COLUMNS.map(([, value]) => value(pool))), KINDS);
}
