// wss:// and https:// in Chromium, with the test's own certificate: the demo page, a push, and a
// renewal of the certificate while the page is open. run.sh passes the binary.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, renameSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { answers, end, freePort, launch } from "./ground.mjs";

const { VECHE_BIN } = process.env;
const KEY = "a key of sixteen characters".replaceAll(" ", "-");

let folder, server, site, api, browser, page;
const complaints = [];

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "veche-tls-"));
  certificate("own");
  const [port, internal] = [await freePort(), await freePort()];
  writeFileSync(join(folder, "veche.toml"), `
    [[listen]]
    address = "127.0.0.1:${port}"
    tls = { certificate = "own.pem", key = "own.key" }
    [[listen]]
    address = "127.0.0.1:${internal}"
    role = "internal"
    [api]
    keys = ["${KEY}"]
    [[route]]
    path = "/ws"
    handler = "push"
    identity = "query:user"
    channels = ["*"]
    [[route]]
    path = "/*"
    handler = "static"
    root = "builtin:demo"
  `);
  server = spawn(VECHE_BIN, ["serve"], { cwd: folder, stdio: ["ignore", "ignore", "inherit"] });
  site = `https://localhost:${port}`;
  api = `http://127.0.0.1:${internal}`;
  await answers(`${api}/health`);
  browser = await launch("--ignore-certificate-errors");
  page = await (await browser.newContext()).newPage();
  page.setDefaultTimeout(15_000);
  page.on("pageerror", (error) => complaints.push(String(error)));
});

after(() => end(browser, server, folder));

/** A certificate for localhost in NAME.pem, with its key in NAME.key. */
function certificate(name) {
  execFileSync("openssl", [
    "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
    "-keyout", join(folder, `${name}.key`), "-out", join(folder, `${name}.pem`),
  ], { stdio: "ignore" });
}

async function push(text) {
  const answer = await fetch(`${api}/api/push`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-API-Key": KEY },
    body: JSON.stringify({ user: "anna", data: text }),
  });
  assert.equal(answer.status, 200);
}

const shows = (text) =>
  page.waitForFunction((wanted) => document.querySelector(".push-body")?.textContent === wanted, text);

test("the page comes by https, its socket is wss, and a push arrives", async () => {
  const sockets = [];
  page.on("websocket", (socket) => sockets.push(socket.url()));
  const response = await page.goto(`${site}/?user=anna`);
  assert.equal(response.status(), 200);
  assert.equal((await response.securityDetails()).protocol, "TLS 1.3");
  await page.waitForSelector("body[data-state=open]");
  assert.match(sockets[0], /^wss:/);
  await push("sealed");
  await shows("sealed");
});

test("the renewal of a certificate closes no connection", async () => {
  certificate("new");
  for (const end of ["key", "pem"]) renameSync(join(folder, `new.${end}`), join(folder, `own.${end}`));
  execFileSync(VECHE_BIN, ["reload"], { cwd: folder });
  await push("still there");
  await shows("still there");
  assert.equal(await page.locator(".push-body").count(), 2);
  const other = await (await browser.newContext()).newPage();
  assert.equal((await other.goto(`${site}/`)).status(), 200);
  assert.deepEqual(complaints, []);
});
