// Shows the latest lines of the server's log, and new lines as they are written.

import { call } from "./api.js";
import { find, make, say } from "./dom.js";
import { count } from "./format.js";
import { pulse } from "./pulse.js";

const AGAIN_MS = 1_500;
const LINES_MAX = 1_000;
const LEVELS = { TRACE: 0, DEBUG: 0, INFO: 1, WARN: 2, ERROR: 3 };

let timer = 0;
let isSeen = false;
/** The number of log lines that the process had written at the last request. */
let after = 0;
let uid = "";
let lines = [];

export function begin() {
  for (const id of ["log-find", "log-level"]) find(id).addEventListener("input", drawAll);
  find("log-follow").addEventListener("change", follow);
}

export function enter() {
  isSeen = true;
  read();
}

export function leave() {
  isSeen = false;
  clearTimeout(timer);
}

/** The level of a line, in text or JSON. */
function levelOf(line) {
  const found = /"level":"([A-Z]+)"/.exec(line) ?? /^\S*\s+([A-Z]+)\s/.exec(line) ?? /^([A-Z]+)\s/.exec(line);
  return LEVELS[found?.[1]] ?? 1;
}

async function read() {
  clearTimeout(timer);
  try {
    // The server process was replaced, and the new process counts its lines from 0.
    if (pulse.figures && pulse.figures.uid !== uid) {
      uid = pulse.figures.uid;
      after = 0;
      lines = [];
      find("log").replaceChildren();
    }
    const said = await call("log", { after });
    if (!isSeen) return;
    after = said.count;
    const fresh = said.lines.map((text) => ({ text, level: levelOf(text) }));
    lines.push(...fresh);
    lines.splice(0, Math.max(0, lines.length - LINES_MAX));
    add(fresh);
    const lost = said.lost > 0 ? `; ${count(said.lost, "line")} of the log lost, because they could not be written` : "";
    say(find("log-note"), lines.length === 0 ? "No lines since the start of this process." : `The last ${count(lines.length, "line")} of ${said.count}${lost}`);
  } catch (trouble) {
    say(find("log-note"), `Not read: ${trouble.message}`);
  }
  if (!isSeen) return;
  clearTimeout(timer);
  timer = setTimeout(read, AGAIN_MS);
}

function fits({ text, level }) {
  const wanted = find("log-find").value.trim().toLowerCase();
  return level >= Number(find("log-level").value) && text.toLowerCase().includes(wanted);
}

const row = ({ text, level }) => make("li", { class: `level${level}` }, text);

function add(fresh) {
  const shown = fresh.filter(fits);
  if (shown.length === 0) return;
  const log = find("log");
  log.append(...shown.map(row));
  while (log.children.length > LINES_MAX) log.firstElementChild.remove();
  follow();
}

function drawAll() {
  find("log").replaceChildren(...lines.filter(fits).map(row));
  follow();
}

function follow() {
  const log = find("log");
  if (find("log-follow").checked) log.scrollTop = log.scrollHeight;
}
