// Shows the tables of scripts: rows and memory of each table, and for the chosen table also the
// memory by column and index.

import { call } from "./api.js";
import { fill, find, heads, make, say, table } from "./dom.js";
import { bytes, count, percent, whole } from "./format.js";

/** Milliseconds between two readings of a table's details. Each reading costs the server CPU time. */
const AGAIN_MS = 5_000;

let timer = 0;
let isSeen = false;
let chosen = "";
let columns, indexes;

export function begin() {
  heads(find("tables"), "Table", ["Rows", "number"], ["Memory", "number"], ["Of its limit", "number"], ["Evicted", "number"]);
}

export function enter(name) {
  isSeen = true;
  if (name !== chosen) {
    chosen = name;
    find("table").replaceChildren();
  }
  read();
}

export function leave() {
  isSeen = false;
  clearTimeout(timer);
}

async function read() {
  clearTimeout(timer);
  try {
    const { tables } = await call("tables");
    if (!isSeen) return;
    draw(tables);
  } catch (trouble) {
    say(find("tables-note"), `Not read: ${trouble.message}`);
  }
  if (!isSeen) return;
  clearTimeout(timer);
  timer = setTimeout(read, AGAIN_MS);
}

function draw(tables) {
  const total = tables.reduce((sum, { bytes: size }) => sum + size, 0);
  say(find("tables-note"), tables.length === 0 ? "No script has created a table." : `${count(tables.length, "table")}, ${bytes(total)} in all`);
  find("tables").hidden = tables.length === 0;
  const kinds = ["", "number", "number", "number", "number"];
  const texts = (one) => [one.name, whole(one.rows), bytes(one.bytes), percent(Math.round((one.bytes / one.bytes_max) * 1e4) / 100), whole(one.evicted)];
  const body = find("tables").tBodies[0];
  while (body.rows.length > tables.length) body.lastElementChild.remove();
  tables.forEach((one, at) => {
    const row = body.rows[at] ?? body.appendChild(make("tr", {}, kinds.map((kind) => make("td", { class: kind }))));
    const [name, ...cells] = row.cells;
    const link = name.querySelector("a") ?? name.appendChild(make("a"));
    link.setAttribute("href", `#tables/${encodeURIComponent(one.name)}`);
    if (one.name === chosen) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    say(link, one.name);
    cells.forEach((cell, column) => say(cell, texts(one)[column + 1]));
  });
  detail(tables.find(({ name }) => name === chosen));
}

function detail(one) {
  const holder = find("table");
  if (!one) {
    holder.replaceChildren(make("p", { class: "empty" }, chosen ? `No table is named “${chosen}”.` : "Choose a table to see what takes its memory."));
    return;
  }
  if (!holder.querySelector("h2")) {
    [columns, indexes] = [table(), table()];
    heads(columns, "Column", "Type", ["Memory", "number"]);
    heads(indexes, "Index", "Columns", ["Memory", "number"]);
    const region = (label, inside) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, inside);
    holder.replaceChildren(
      make("a", { class: "back", href: "#tables" }, "‹ All tables"),
      make("h2", { class: "name" }, one.name),
      make("p", { class: "small" }),
      make("h3", {}, "Columns"), region("Columns", columns),
      make("h3", {}, "Indexes"), region("Indexes", indexes));
  }
  const words = [`at most ${bytes(one.bytes_max)}`, one.ttl ? "rows may expire" : "rows do not expire", one.loading ? "being loaded: its indexes are not there yet" : ""];
  say(holder.querySelector("p.small"), words.filter(Boolean).join(", "));
  const size = ["", "mono", "number"];
  fill(columns, one.columns.map(({ name, type, bytes: taken }, at) => [at === 0 ? `${name} (key)` : name, type, bytes(taken)]), size);
  indexes.hidden = one.indexes.length === 0;
  fill(indexes, one.indexes.map(({ name, columns: of, unique, bytes: taken }) => [unique ? `${name} (unique)` : name, of.join(", "), bytes(taken)]), size);
}
