// The demo page as its users see it: two browsers, one server, every way to push.
// run.sh starts the server and passes its address.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { connect } from "node:net";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { launch } from "./ground.mjs";

const { VECHE_BIN, VECHE_URL, VECHE_API, VECHE_PUSH, VECHE_KEY, VECHE_CONFIG, VECHE_PID, VECHE_SHOTS } = process.env;
const SILENCE_MS = 400; // long enough for a stray push to show
const DESKTOP = { width: 1280, height: 800 };
const PHONE = { width: 360, height: 740 };

const run = promisify(execFile);
let browser, anna, boris;
const complaints = [];

before(async () => {
  mkdirSync(VECHE_SHOTS, { recursive: true });
  browser = await launch();
  anna = await open("anna");
  boris = await open("boris");
});

after(() => browser?.close());

/** Opens a page in its own browser context, connected as `user`. */
async function open(user, { by, without, becomes = "open", ...options } = {}) {
  const context = await browser.newContext({ viewport: DESKTOP, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.on("pageerror", (error) => complaints.push(`${user}: ${error}`));
  page.on("console", (line) => {
    // The browser itself reports each failed request; the tests cause some on purpose.
    const isNetwork = /Failed to load resource|WebSocket connection to/.test(line.text());
    if (line.type() === "error" && !isNetwork) complaints.push(`${user}: ${line.text()}`);
  });
  if (without) await page.route(without, (route) => route.fulfill({ status: 404 }));
  await page.goto(`${VECHE_URL}/?user=${encodeURIComponent(user)}${by ? `&by=${by}` : ""}`);
  await state(page, becomes);
  return page;
}

const state = (page, name) => page.waitForSelector(`body[data-state=${name}]`);
const bodies = (page) => page.locator(".push-body").allTextContents();

/** Waits until `page` shows `text` as its newest push. */
const shows = (page, text) =>
  page.waitForFunction((wanted) => document.querySelector(".push-body")?.textContent === wanted, text);

async function api(method, body) {
  const answer = await fetch(`${VECHE_API}/${method}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-API-Key": VECHE_KEY },
    body: JSON.stringify(body),
  });
  return answer.json();
}

/** Sends lines to the push port and resolves with the answer lines. */
function lines(...objects) {
  const [host, port] = VECHE_PUSH.split(":");
  return new Promise((done, fail) => {
    let text = "";
    const socket = connect(Number(port), host, () => socket.end(objects.map((each) => `${JSON.stringify(each)}\n`).join("")));
    socket.setTimeout(5_000, () => socket.destroy(new Error("the push port did not end the connection")));
    socket.on("data", (bytes) => (text += bytes));
    socket.on("error", fail);
    socket.on("close", () => done(text.split("\n").filter(Boolean).map((line) => JSON.parse(line))));
  });
}

/** Pushes with `send`, then checks that Anna's page alone shows it. */
async function onlyAnna(text, send) {
  const before = await bodies(boris);
  await send();
  await shows(anna, text);
  await boris.waitForTimeout(SILENCE_MS);
  assert.deepEqual(await bodies(boris), before, "Boris must not see pushes to Anna");
}

test("a push by HTTP reaches the addressed user alone", () =>
  onlyAnna("by HTTP", async () => {
    assert.deepEqual(await api("push", { user: "anna", data: "by HTTP" }), { result: { handed: 1 } });
  }));

test("a push by a line over TCP reaches the addressed user alone", () =>
  onlyAnna("by TCP", async () => {
    assert.deepEqual(await lines({ user: "anna", message: "by TCP", ack: true }), [{ result: { handed: 1 } }]);
  }));

test("a push by `veche push` reaches the addressed user alone", () =>
  onlyAnna("by veche", () => run(VECHE_BIN, ["push", "-c", VECHE_CONFIG, "--user", "anna", "by veche"])));

test("a push from the page reaches only the addressed user, and the page reports that", () =>
  onlyAnna("by the page", async () => {
    await boris.fill("#name", "anna");
    await boris.fill("#message", "by the page");
    await boris.click("#send");
    await boris.waitForFunction(() => /^Handed to 1 connection/.test(document.getElementById("result").textContent));
  }));

test("without a connected user the page reports that the message is lost", async () => {
  await boris.fill("#name", "nobody");
  await boris.click("#send");
  await boris.waitForFunction(() => /^Handed to 0 connections/.test(document.getElementById("result").textContent));
});

test("a wrong key is reported by the page", async () => {
  await boris.fill("#key", "wrong");
  await boris.click("#send");
  await boris.waitForFunction(() => /401/.test(document.getElementById("result").textContent));
  await boris.fill("#key", VECHE_KEY);
});

test("a channel reaches both, JSON is laid out, bytes show as hex", async () => {
  const json = JSON.stringify({ order: 42 }, null, 2);
  await api("publish", { channel: "news", data: { order: 42 } });
  await Promise.all([shows(anna, json), shows(boris, json)]);
  await api("push", { user: "anna", binary: "AEH/" });
  await shows(anna, `${"00 41 ff".padEnd(47)}  ·A·`);
  await api("push", { user: "anna", data: "<img src=x onerror=alert(1)>" });
  await shows(anna, "<img src=x onerror=alert(1)>");
});

test("two tabs of one user both show it", async () => {
  const second = await open("anna");
  assert.deepEqual(await api("push", { user: "anna", data: "twice" }), { result: { handed: 2 } });
  await Promise.all([shows(anna, "twice"), shows(second, "twice")]);
  await second.context().close();
});

test("a burst of a thousand arrives whole and in order, and the list stays bounded", async () => {
  const page = await open("burst");
  await lines(...Array.from({ length: 1_000 }, (_, index) => ({ user: "burst", message: `push ${index + 1}` })));
  await shows(page, "push 1000");
  assert.equal(await page.textContent("#fact-pushes"), "1,000");
  assert.deepEqual(await bodies(page), Array.from({ length: 200 }, (_, index) => `push ${1_000 - index}`));
  await page.context().close();
});

test("the keyboard alone is enough", async () => {
  await anna.focus("#message");
  await anna.fill("#message", "by keyboard");
  await anna.keyboard.press("Control+Enter");
  await shows(anna, "by keyboard");
  await anna.focus("#tab-curl");
  await anna.keyboard.press("ArrowLeft");
  assert.equal(await anna.getAttribute("#tab-shell", "aria-selected"), "true");
});

test("the lines to copy work unchanged", async () => {
  await anna.fill("#message", "it's a \"copy\" $HOME");
  await anna.click("#tab-curl");
  await run("sh", ["-c", await anna.innerText("#code")]);
  await shows(anna, "it's a \"copy\" $HOME");
  await anna.click("#tab-veche");
  const folder = VECHE_CONFIG.replace(/\/[^/]*$/, "");
  const line = (await anna.innerText("#code")).replace(/^veche /, `'${VECHE_BIN}' `);
  await anna.click("#clear");
  await run("sh", ["-c", line], { cwd: folder });
  await shows(anna, "it's a \"copy\" $HOME");
});

test("a user disconnected by the back end does not reconnect until the button is pressed", async () => {
  const page = await open("cut");
  await api("disconnect", { user: "cut" });
  await state(page, "ended");
  await page.click("#retry");
  await state(page, "open");
  await page.context().close();
});

const hasSdk = existsSync(new URL("../../web/vendor/centrifuge/centrifuge.js", import.meta.url));

test("with the centrifuge SDK a page receives the same pushes, and reconnects", { skip: !hasSdk && "no web/vendor/centrifuge" }, async () => {
  const page = await open("sdk & co", { by: "sdk" });
  assert.equal(await page.getAttribute("#by-sdk", "aria-current"), "true");
  assert.deepEqual(await api("push", { user: "sdk & co", data: "by the SDK" }), { result: { handed: 1 } });
  await shows(page, "by the SDK");
  await api("push", { user: "sdk & co", data: { order: 42 } });
  await shows(page, JSON.stringify({ order: 42 }, null, 2));
  await api("publish", { channel: "news", data: "to all" });
  await Promise.all([shows(page, "to all"), shows(anna, "to all")]);
  // Bytes come as base64: the page's client speaks JSON.
  await api("push", { user: "sdk & co", binary: "AEH/" });
  await shows(page, "AEH/");
  await api("push", { user: "sdk & co", data: "again" });
  await shows(page, "again");
  await page.click("#by-ws");
  await state(page, "open");
  assert.equal(await page.getAttribute("#by-ws", "aria-current"), "true");
  await api("push", { user: "sdk & co", data: "by a WebSocket again" });
  await shows(page, "by a WebSocket again");
  await page.context().close();
});

test("a binary without the SDK reports that", async () => {
  const page = await open("bare", { by: "sdk", without: "**/vendor/**", becomes: "ended" });
  assert.match(await page.textContent("#status-text"), /^The centrifuge SDK is not in this binary/);
  await page.context().close();
});

test("a reload closes no connection", async () => {
  await anna.evaluate(() => {
    window.wasLost = false;
    const watch = new MutationObserver(() => (window.wasLost ||= document.body.dataset.state !== "open"));
    watch.observe(document.body, { attributes: true });
  });
  await run(VECHE_BIN, ["reload", "-c", VECHE_CONFIG]);
  await onlyAnna("after the reload", () => api("push", { user: "anna", data: "after the reload" }));
  assert.equal(await anna.evaluate(() => window.wasLost), false);
});

test("the server process is killed: the page shows the loss and reconnects automatically", async () => {
  const { stdout } = await run("pgrep", ["-P", VECHE_PID]);
  const children = stdout.trim().split("\n").map(Number);
  assert.equal(children.length, 1, "the supervisor has one child, the server process");
  const lost = state(anna, "waiting");
  process.kill(children[0], "SIGKILL");
  await lost;
  await Promise.all([state(anna, "open"), state(boris, "open")]);
  await onlyAnna("after the kill", () => api("push", { user: "anna", data: "after the kill" }));
});

test("the server has stopped: the page reports it, and reconnects on a click once it runs again", { timeout: 60_000 }, async () => {
  const ended = new Promise((done) => {
    const watch = setInterval(() => {
      try {
        process.kill(Number(VECHE_PID), 0);
      } catch {
        clearInterval(watch);
        done();
      }
    }, 50);
  });
  process.kill(Number(VECHE_PID), "SIGTERM");
  await state(anna, "waiting");
  await anna.waitForFunction(() => /1001/.test(document.getElementById("status-text").textContent));
  await new Promise((done) => setTimeout(done, 500));
  try {
    process.kill(Number(VECHE_PID), "SIGTERM"); // the second one ends it at once
  } catch {
    // The server ended before the second signal.
  }
  await ended;
  await anna.waitForFunction(() => /Nothing answers/.test(document.getElementById("status-text").textContent), null, { timeout: 30_000 });
  await anna.screenshot({ path: `${VECHE_SHOTS}/gone.png` });

  const again = spawn(VECHE_BIN, ["serve", "-c", VECHE_CONFIG], { stdio: "ignore" });
  try {
    for (let tries = 0; tries < 100 && !(await fetch(VECHE_URL).then(() => true, () => false)); tries += 1) {
      await new Promise((done) => setTimeout(done, 100));
    }
    if (await anna.isVisible("#retry")) await anna.click("#retry");
    await state(anna, "open");
    await shots();
  } finally {
    const exit = new Promise((done) => again.once("exit", done));
    again.kill("SIGTERM");
    setTimeout(() => again.kill("SIGTERM"), 300);
    await exit;
  }
});

test("no page complained", () => assert.deepEqual(complaints, []));

/** Takes screenshots of typical content: on phone and desktop, light and dark. */
async function shots() {
  for (const [name, viewport] of Object.entries({ desktop: DESKTOP, phone: PHONE })) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await open("onfim27", { viewport, colorScheme });
      await api("push", { user: "onfim27", data: "Your parcel has left Novgorod" });
      await api("push", { user: "onfim27", data: { order: 42, state: "on its way" } });
      await api("publish", { channel: "news", data: "All to the square" });
      await page.click("#send");
      await page.waitForFunction(() => document.querySelectorAll(".push").length === 4);
      await page.waitForTimeout(1_500); // the bell comes to rest
      await page.screenshot({ path: `${VECHE_SHOTS}/${name}-${colorScheme}.png` });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${name} scrolls sideways by ${wide} px`);
      await page.context().close();
    }
  }
}
