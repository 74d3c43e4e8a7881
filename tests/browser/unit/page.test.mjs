// Tests of the parts of the demo page that contain decisions and don't use the DOM.

import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { test } from "node:test";
import { FIRST_MS, LONGEST_MS, SOON_MS, soonMs, waitMs } from "../../../web/demo/backoff.js";
import { explain } from "../../../web/demo/closing.js";
import { count, readable, typed } from "../../../web/demo/payload.js";

const FOLDER = new URL("../../../web/demo/", import.meta.url);
const WHOLE_PAGE_BYTES_MAX = 60_000;

test("a wait doubles, is drawn at random, and is never at once nor for ever", () => {
  for (let failures = 0; failures < 2_000; failures += 1) {
    const least = waitMs(failures, 0, () => 0);
    const most = waitMs(failures, 0, () => 1);
    assert.ok(least >= FIRST_MS / 5 && most <= LONGEST_MS && least < most, `${failures}: ${least}..${most}`);
  }
  assert.equal(waitMs(0, 0, () => 1), FIRST_MS);
  assert.equal(waitMs(1, 0, () => 1), 2 * FIRST_MS);
  assert.equal(waitMs(0, 10_000, () => 1), 10_000);
  assert.ok(soonMs(() => 0) > 0 && soonMs(() => 1) === SOON_MS);
});

test("ten thousand pages that lose one server reconnect spread over time", () => {
  const slots = new Array(20).fill(0);
  for (let page = 0; page < 10_000; page += 1) slots[Math.floor((waitMs(0) / (FIRST_MS + 1)) * slots.length)] += 1;
  assert.ok(Math.max(...slots) < 1_000, `no twentieth of the time sees a tenth of the pages: ${slots}`);
});

test("each close code has a sentence and a rule", () => {
  const rule = (code, wasOpen = true) => explain({ code, reason: "", wasOpen });
  for (const code of [1001, 1006, 1011, 1012, 1013, 3000, 4000]) assert.ok(rule(code).again, String(code));
  for (const code of [1000, 1008, 3500, 3999, 4500]) assert.ok(!rule(code).again, String(code));
  assert.ok(rule(1013).leastCeilingMs > rule(1012).leastCeilingMs && rule(1012).leastCeilingMs > 0);
  assert.match(explain({ code: 1012, reason: "upgrade", wasOpen: true }).text, /1012, “upgrade”/);
  assert.notEqual(rule(1006, true).text, rule(1006, false).text);
});

test("payloads as a person reads them", () => {
  const rows = [
    ["plain", { kind: "text", size: "5 bytes", body: "plain" }],
    ["", { kind: "text", size: "0 bytes", body: "" }],
    ["5", { kind: "text", size: "1 byte", body: "5" }],
    ["вече", { kind: "text", size: "8 bytes", body: "вече" }],
    ['{"a":[1]}', { kind: "json", size: "9 bytes", body: '{\n  "a": [\n    1\n  ]\n}' }],
    ["{not json", { kind: "text", size: "9 bytes", body: "{not json" }],
    [new Uint8Array([0, 65, 255]).buffer, { kind: "binary", size: "3 bytes", body: `${"00 41 ff".padEnd(47)}  ·A·` }],
    [new ArrayBuffer(0), { kind: "binary", size: "0 bytes", body: "" }],
  ];
  for (const [data, expected] of rows) assert.deepEqual(readable(data), { ...expected, cut: false });
  assert.ok(readable("x".repeat(100_000)).cut);
  assert.ok(readable(new ArrayBuffer(100_000)).cut);
  assert.equal(count(1_234, "byte"), "1,234 bytes");
});

test("typed text becomes a value, or an error message", () => {
  assert.deepEqual(typed("text", "5"), { word: "data", value: "5" });
  assert.deepEqual(typed("json", "5"), { word: "data", value: 5 });
  assert.deepEqual(typed("binary", "0a ff\n0x41"), { word: "binary", value: "Cv9B" });
  assert.deepEqual(typed("binary", ""), { word: "binary", value: "" });
  assert.throws(() => typed("json", "{"), /Not valid JSON/);
  assert.throws(() => typed("binary", "abc"), /pairs of hex/);
});

test("the page is small, whole, and asks nothing of other hosts", () => {
  const files = readdirSync(FOLDER);
  const bytes = files.reduce((sum, file) => sum + statSync(new URL(file, FOLDER)).size, 0);
  assert.ok(bytes < WHOLE_PAGE_BYTES_MAX, `${bytes} bytes`);
  const html = readFileSync(new URL("index.html", FOLDER), "utf8");
  assert.doesNotMatch(html, /\sstyle=|\son\w+=|<script(?![^>]*src=)/, "nothing inline: the policy forbids it");
  for (const file of files) {
    const text = readFileSync(new URL(file, FOLDER), "utf8").replaceAll("http://www.w3.org/2000/svg", "");
    assert.doesNotMatch(text, /https?:\/\/[a-z]/, file);
  }
});
