// The lines that the demo page offers to copy are run here, by the languages themselves:
// any input must arrive unchanged, and must never become code.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createTcpServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { LINES, PUSH_HOST, PUSH_PORT, pushObject } from "../../../web/demo/lines.js";

const NASTY = [
  "hello",
  "",
  `it's "quoted" \\ and \\' \\" \\n`,
  "$(touch /tmp/veche-injected) `id` $HOME ${x} {$x} %s %% !! #{1}",
  "two\nlines\tand a tab\r",
  "вече, 鐘, 🔔 and \u2028",
  "-- --help -n @file ?>",
  "-",
];
const VALUES = [
  null, true, 0, -1.5, [], {}, [[], {}], { a: { 0: "x" }, b: null }, { 0: 1, 1: 2 }, { "it's": ["\\", '"'] },
];
const PUSHES = [
  ...NASTY.map((value) => ({ to: "user", name: "onfim27", word: "data", value })),
  ...NASTY.filter((name) => name.trim()).map((name) => ({ to: "user", name, word: "data", value: "x" })),
  ...VALUES.map((value) => ({ to: "channel", name: "news", word: "data", value })),
  { to: "user", name: "onfim27", word: "binary", value: "AP8K" },
];

let tcp, http, folder, arrived;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "veche-lines-"));
  tcp = createTcpServer((socket) => {
    let text = "";
    socket.on("data", (bytes) => (text += bytes));
    socket.on("end", () => {
      arrived(text);
      socket.end();
    });
  });
  http = createServer((request, response) => {
    let text = "";
    request.on("data", (bytes) => (text += bytes));
    request.on("end", () => {
      arrived(JSON.stringify([request.url, request.headers["x-api-key"], text]));
      response.end("{}");
    });
  });
  await Promise.all([tcp, http].map((server) => new Promise((done) => server.listen(0, "127.0.0.1", done))));
});

after(() => {
  tcp.close();
  http.close();
  rmSync(folder, { recursive: true });
});

/** Runs a program and resolves with what reached the server. */
function run(program, args) {
  return new Promise((done, fail) => {
    arrived = done;
    const child = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
    let complaint = "";
    child.stderr.on("data", (bytes) => (complaint += bytes));
    child.on("error", fail);
    child.on("exit", (code) => code && fail(new Error(`${program}: ${complaint}`)));
  });
}

function code(id, push, key = "demo") {
  const origin = `http://127.0.0.1:${http.address().port}`;
  const text = LINES.find((line) => line.id === id).code(push, { origin, key });
  return text.replaceAll(`${PUSH_HOST}:${PUSH_PORT}`, `127.0.0.1:${tcp.address().port}`)
    .replace(`("${PUSH_HOST}", ${PUSH_PORT})`, `("127.0.0.1", ${tcp.address().port})`)
    .replace(`${PUSH_HOST} ${PUSH_PORT}`, `127.0.0.1 ${tcp.address().port}`);
}

let scripts = 0;

/** Writes each script to a new file, since a shell may still be reading the previous one. */
function script(text) {
  scripts += 1;
  const path = join(folder, `line-${scripts}`);
  writeFileSync(path, text);
  return path;
}

const RUNNERS = {
  php: (text) => run("php", [script(`<?php\n${text}\n`)]),
  python: (text) => run("python3", [script(`${text}\n`)]),
  shell: (text) => run("bash", [script(`${FAST_NC}\n${text}\n`)]),
};

/** Replaces `nc -w 1`, which waits for a second before it ends. The real `nc` is run once below. */
const FAST_NC = 'nc() { cat > "/dev/tcp/${@: -2:1}/${@: -1}"; }';

for (const id of Object.keys(RUNNERS)) {
  test(`${id}: the typed text arrives`, async () => {
    for (const push of PUSHES) {
      const text = await RUNNERS[id](code(id, push));
      assert.equal(text.split("\n").length, 2, `one line and its end: ${JSON.stringify([push, text])}`);
      assert.deepEqual(JSON.parse(text), pushObject(push));
    }
  });
}

test("shell: with the real nc", async (context) => {
  if (spawnSync("sh", ["-c", "command -v nc"]).status !== 0) return context.skip("no nc on this machine");
  const text = await run("sh", [script(`${code("shell", PUSHES[0])}\n`)]);
  assert.deepEqual(JSON.parse(text), pushObject(PUSHES[0]));
});

test("curl: the typed text arrives, with the key", async () => {
  for (const push of PUSHES) {
    const [url, key, body] = JSON.parse(await RUNNERS.shell(code("curl", push, "it's a key")));
    assert.equal(url, push.to === "user" ? "/api/push" : "/api/publish");
    assert.equal(key, "it's a key");
    assert.deepEqual(JSON.parse(body), pushObject(push));
  }
});

test("veche: the arguments are the typed text", async () => {
  // A stand-in for the command that writes down its arguments and its standard input.
  const record = join(folder, "record");
  const fake = script(`#!/bin/sh\n{ printf '%s\\0' "$@"; cat; } > ${record}\n`);
  for (const push of PUSHES) {
    const text = `veche() { sh ${fake} "$@"; }\n${code("veche", push)} < /dev/null`.replace(/(\|[^|]*-) < \/dev\/null$/, "$1");
    await new Promise((done) => spawn("sh", ["-c", text]).on("exit", done));
    const words = readFileSync(record).toString("latin1").split("\0").map((word) => Buffer.from(word, "latin1").toString());
    const [option, ...rest] = words[1].includes("=") ? words[1].split(/=(.*)/s) : words.slice(1);
    assert.deepEqual([words[0], option, rest[0]], ["push", `--${push.to}`, push.name], text);
    if (typeof push.value === "string" && push.word === "data") assert.ok(words.includes(push.value), text);
  }
});
