// Tests of the parts of the admin page that compute figures and texts without the DOM.

import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { test } from "node:test";
import { compare, Lines, POINTS_MAX, quantile, WORKERS_DRAWN_MAX } from "../../../web/admin/figures.js";
import { bytes, count, lasted, milliseconds, moment, percent, perSecond, short, whole } from "../../../web/admin/format.js";

const FOLDER = new URL("../../../web/admin/", import.meta.url);
const VENDOR = new URL("../../../web/vendor/uplot/", import.meta.url);
/**
 * Limit in bytes of all files that a browser loads, including uPlot. The page may load 200 KB in
 * total; the rest is left for its calls.
 */
const WHOLE_PAGE_BYTES_MAX = 150_000;

const BOUNDS = [50, 100, 1000];

test("a quantile lies in its bucket, as far as its share of it", () => {
  const rows = [
    [[0, 0, 0, 0], 0.5, null],
    [[10, 0, 0, 0], 0.5, 0.025],
    [[10, 0, 0, 0], 1, 0.05],
    [[0, 10, 0, 0], 0.5, 0.075],
    [[5, 5, 0, 0], 0.5, 0.05],
    [[99, 0, 1, 0], 0.99, 0.05],
    [[98, 0, 2, 0], 0.99, 0.55],
    [[0, 0, 0, 7], 0.5, 1],
  ];
  for (const [counts, share, expected] of rows) {
    const found = quantile(BOUNDS, counts, share);
    const isSame = expected === null ? found === null : Math.abs(found - expected) < 1e-9;
    assert.ok(isSame, `${counts} ${share}: ${found}, not ${expected}`);
  }
});

const worker = (changes = {}) => ({
  connections: 3, sessions: 2, users: 1, channels: 1, subscriptions: 2, history_bytes: 10, app_memory_bytes: 5, mailbox_depth: 0,
  messages: { in: 0, out: 0 }, push_fan_out: 0, pushes: 0, received_bytes: 0, sent_bytes: 0, slow_consumers: 0,
  publications_dropped: { drop_oldest: 0, latest: 0 }, protocol_errors: 0, turned_away: { rate: 0 }, turns: [0, 0, 0, 0], turn_us: 0,
  ...changes,
});
const reading = (uptime, workers, uid = "one") => ({ uid, uptime_ms: uptime, turn_bounds_us: BOUNDS, memory_bytes: 99, workers });

test("two readings give rates by the server's own clock, and sums over the workers", () => {
  const before = reading(1_000, [worker(), worker()]);
  const now = reading(3_000, [
    worker({ messages: { in: 10, out: 40 }, turns: [4, 0, 0, 0], turn_us: 200_000, publications_dropped: { drop_oldest: 1, latest: 3 } }),
    worker({ messages: { in: 6, out: 0 }, connections: 5 }),
  ]);
  const { all, workers, isSame } = compare(now, before);
  assert.ok(isSame);
  assert.deepEqual([all.connections, all.in, all.out, all.dropped, all.history, all.process], [8, 8, 20, 2, 20, 99]);
  assert.deepEqual([workers[0].in, workers[1].in, workers[0].memory], [5, 3, 15]);
  assert.deepEqual([workers[0].busy, workers[1].busy, all.busy], [10, 0, 5]);
  assert.deepEqual([workers[0].p50, workers[1].p50, all.p50], [0.025, null, 0.025]);
});

test("without an earlier reading, or after one of another process, there are no rates and nothing falls below zero", () => {
  const old = reading(90_000, [worker({ messages: { in: 1_000, out: 0 } })]);
  for (const before of [undefined, null, { ...old, uid: "another" }, reading(1_000, [worker(), worker()]), reading(5_000, [worker()])]) {
    const { all, isSame } = compare(reading(5_000, [worker()]), before);
    assert.deepEqual([isSame, all.in, all.p99, all.busy, all.connections], [false, null, null, null, 3], JSON.stringify(before)?.slice(0, 40));
  }
  const { all } = compare(reading(2_000, [worker()]), reading(1_000, [worker({ pushes: 5 })]));
  assert.equal(all.pushes, 0);
});

test("all columns are as long as the times, and not longer than a quarter of an hour", () => {
  const lines = new Lines();
  lines.add(1, compare(reading(1_000, [worker()]), null));
  lines.gap(1.5);
  const many = Array.from({ length: WORKERS_DRAWN_MAX + 4 }, () => worker());
  for (let second = 2; second < POINTS_MAX + 50; second += 1) lines.add(second, compare(reading(second * 1_000, many), null));
  assert.equal(lines.times.length, POINTS_MAX);
  for (const [name, column] of lines.columns) assert.equal(column.length, POINTS_MAX, name);
  assert.ok(lines.columns.has(`busy@${WORKERS_DRAWN_MAX - 1}`) && !lines.columns.has(`busy@${WORKERS_DRAWN_MAX}`));
  assert.ok(!lines.columns.has("turns@0") && lines.of("nothing").length === POINTS_MAX);
});

test("numbers as a person reads them", () => {
  const rows = [
    [whole(12_345.4), "12,345"], [whole(null), "–"], [short(999), "999"], [short(12_345), "12.3K"], [short(0), "0"],
    [bytes(0), "0 B"], [bytes(1536), "1.5 KiB"], [bytes(5 * 2 ** 30), "5 GiB"], [perSecond(short)(1.234), "1.23/s"], [perSecond(short)(null), "–"],
    [milliseconds(0.05), "50 µs"], [milliseconds(12.34), "12.3 ms"], [percent(0.123), "0.123 %"], [percent(99.6), "100 %"],
    [lasted(0), "0 s"], [lasted(61_000), "1 min 1 s"], [lasted(90_000_000), "1 d 1 h"], [lasted(3_600_000), "1 h"],
    [count(1, "line"), "1 line"], [count(2_000, "line"), "2,000 lines"],
  ];
  for (const [found, expected] of rows) assert.equal(found, expected);
  const now = new Date(2026, 4, 3, 12, 0, 9).getTime();
  assert.equal(moment(now - 5_000, now), "12:00:04");
  assert.equal(moment(now - 86_400_000, now), "2026-05-02 12:00:09");
});

test("the page is small, complete, loads nothing from other hosts, and never parses data as HTML", () => {
  const files = readdirSync(FOLDER).map((name) => new URL(name, FOLDER));
  const fetched = existsSync(VENDOR) ? readdirSync(VENDOR).map((name) => new URL(name, VENDOR)) : [];
  const size = [...files, ...fetched].reduce((sum, file) => sum + statSync(file).size, 0);
  assert.ok(size < WHOLE_PAGE_BYTES_MAX, `${size} bytes`);
  const html = readFileSync(new URL("index.html", FOLDER), "utf8");
  assert.doesNotMatch(html, /\sstyle=|\son\w+=|<script(?![^>]*src=)/, "nothing inline: the policy forbids it");
  for (const file of files) {
    const text = readFileSync(file, "utf8").replaceAll("http://www.w3.org/2000/svg", "");
    assert.doesNotMatch(text, /https?:\/\/[a-z]/, file.pathname);
    assert.doesNotMatch(text, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|localStorage/, file.pathname);
  }
});
