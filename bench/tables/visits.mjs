// visits.mjs objects|typed FILE: stores the visits as an array of objects, or as one typed array
// per column. The index of `objects` is a Map of sorted arrays; the index of `typed` is a typed
// array of sorted row numbers, and another with the start of each key. Prints a line of JSON. Needs
// --expose-gc.
import fs from "node:fs";

const [kind, file] = process.argv.slice(2);
const ROWS = Number(process.env.ROWS);

function memory(name) {
  const line = fs.readFileSync("/proc/self/status", "utf8").split("\n").find((one) => one.startsWith(name + ":"));
  return Number(line.match(/\d+/)[0]) * 1024;
}

function settled() {
  for (let i = 0; i < 3; i++) global.gc();
  return memory("VmRSS");
}

// Reads the file in pieces and calls `each` with the numbers of each line, without creating
// strings.
function read(each) {
  const descriptor = fs.openSync(file);
  const piece = Buffer.allocUnsafe(1 << 20);
  const fields = [0, 0, 0, 0, 0];
  let at = 0, is_head = true;
  for (let length; (length = fs.readSync(descriptor, piece)) > 0; ) {
    for (let i = 0; i < length; i++) {
      const byte = piece[i];
      if (byte === 10) {
        if (!is_head) each(fields[0], fields[1], fields[2], fields[3], fields[4]);
        is_head = false;
        at = 0;
        fields[0] = 0;
      } else if (byte === 44) fields[++at] = 0;
      else fields[at] = (fields[at] * 10 + byte - 48) | 0; // or V8 keeps doubles, a box for each
    }
  }
  fs.closeSync(descriptor);
}

function objects() {
  const visits = [];
  return {
    load() {
      read((id, location, user, visited_at, mark) => visits.push({ id, location, user, visited_at, mark }));
      return visits.length;
    },
    index() {
      this.indexes = ["user", "location"].map((column) => {
        const index = new Map();
        for (const visit of visits) {
          const list = index.get(visit[column]);
          if (list) list.push(visit);
          else index.set(visit[column], [visit]);
        }
        for (const list of index.values()) list.sort((a, b) => a.visited_at - b.visited_at);
        return index;
      });
    },
    of: (index, key) => index.get(key) ?? [],
  };
}

function typed() {
  const id = new Uint32Array(ROWS), location = new Uint32Array(ROWS), user = new Uint32Array(ROWS);
  const visited_at = new Int32Array(ROWS), mark = new Uint8Array(ROWS);
  return {
    load() {
      let row = 0;
      read((...values) => {
        [id[row], location[row], user[row], visited_at[row], mark[row]] = values;
        row++;
      });
      return row;
    },
    index() {
      this.indexes = [user, location].map((column) => {
        let keys = 0;
        for (const key of column) if (key > keys) keys = key;
        const begins = new Uint32Array(keys + 2), rows = new Uint32Array(ROWS);
        for (const key of column) begins[key + 1]++;
        for (let key = 1; key < begins.length; key++) begins[key] += begins[key - 1];
        const next = begins.slice();
        for (let row = 0; row < ROWS; row++) rows[next[column[row]]++] = row;
        for (let key = 0; key <= keys; key++)
          rows.subarray(begins[key], begins[key + 1]).sort((a, b) => visited_at[a] - visited_at[b]);
        return { begins, rows };
      });
    },
    of: ({ begins, rows }, key) =>
      [...rows.subarray(begins[key], begins[key + 1])].map((row) => ({ visited_at: visited_at[row], mark: mark[row] })),
  };
}

const before = settled();
const table = { objects, typed }[kind]();
const rows = table.load();
const with_rows = settled();
table.index();
const with_indexes = settled();
const highest = memory("VmHWM");
const cpu_s = process.cpuUsage().user / 1e6;
let order = 0, marks = 0;
for (let key = 1; key <= 1000; key++) {
  table.of(table.indexes[0], key).forEach((visit, place) => (order += (place + 1) * visit.visited_at));
  for (const visit of table.of(table.indexes[1], key)) marks += key * visit.mark;
}
console.log(JSON.stringify({ rows, before, with_rows, with_indexes, highest, cpu_s, order, marks }));
