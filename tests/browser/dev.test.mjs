// `veche dev` on a copy of examples/rooms, in Chromium: the page shows errors with their location
// until they are fixed, and no client loses its connection meanwhile. run.sh passes the binary.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { answers, end, freePort, launch } from "./ground.mjs";

const { VECHE_BIN, VECHE_SHOTS } = process.env;
const EXAMPLE = fileURLToPath(new URL("../../examples/rooms", import.meta.url));

const complaints = [];
let folder, app, good, server, site, browser, anna;
const sockets = { opened: 0, closed: 0 }; // of Anna's chat

before(async () => {
  mkdirSync(VECHE_SHOTS, { recursive: true });
  folder = mkdtempSync(join(tmpdir(), "veche-dev-"));
  cpSync(EXAMPLE, folder, { recursive: true, filter: (path) => !path.endsWith(".sock") });
  app = join(folder, "app.lua");
  good = readFileSync(app, "utf8");
  const port = await freePort();
  const config = join(folder, "veche.toml");
  writeFileSync(config, readFileSync(config, "utf8").replaceAll("127.0.0.1:8080", `127.0.0.1:${port}`));
  server = spawn(VECHE_BIN, ["dev"], { cwd: folder, stdio: "ignore" });
  site = `http://127.0.0.1:${port}`;
  await answers(site);
  browser = await launch();
  anna = await open((page) =>
    page.on("websocket", (socket) => {
      if (!socket.url().includes("/chat/")) return;
      sockets.opened++;
      socket.on("close", () => sockets.closed++);
    }),
  );
  await anna.waitForSelector("body[data-state=open]");
  await anna.fill("#nick", "Anna");
  await anna.click("#enter");
  await shows("You are here as Anna.");
});

after(() => end(browser, server, folder));

async function open(look = () => {}, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1000, height: 640 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.on("pageerror", (error) => complaints.push(String(error)));
  look(page);
  await page.goto(`${site}/?room=tea`);
  return page;
}

const shows = (text) =>
  anna.waitForFunction((wanted) => document.querySelector("#lines li:last-child")?.innerText === wanted, text);

async function says(text) {
  await anna.fill("#text", text);
  await anna.press("#text", "Enter");
  await shows(`Anna\n${text}`);
}

const save = (from, to) => {
  assert.ok(good.includes(from), from);
  writeFileSync(app, good.replace(from, to));
};
const lineOf = (text, part) => text.slice(0, text.indexOf(part)).split("\n").length;
const panel = (page) => page.locator("veche-dev section");
const told = async (page, title) => {
  await panel(page).locator("h2", { hasText: title }).waitFor();
  return panel(page).innerText();
};

/** Checks that the panel lies within the page and is not cut off at its sides. */
async function fits(page) {
  const [box, view] = [await panel(page).boundingBox(), page.viewportSize()];
  assert.ok(box.x >= 0 && box.x + box.width <= view.width, JSON.stringify(box));
  assert.ok(box.y >= 0 && box.y + box.height <= view.height, JSON.stringify(box));
  const wide = await panel(page).evaluate((section) => section.scrollWidth - section.clientWidth);
  assert.ok(wide <= 0, `it scrolls sideways by ${wide} px`);
}

test("a syntax error: the page shows its location, and the old code continues", async () => {
  save("local on = {}", "local on = {\n-- not closed");
  const text = await told(anna, "Not reloaded");
  assert.match(text, /app\.lua:\d+: /, text);
  await fits(anna);
  await anna.screenshot({ path: `${VECHE_SHOTS}/dev-refused.png` });
  await says("the old code serves");
  writeFileSync(app, good);
  await panel(anna).waitFor({ state: "detached" });
  await says("mended");
});

test("a run-time error is shown with file, line and traceback, also on pages that did not cause it", async () => {
  const broken = good.replace(
    "local on = {}",
    'local function greet(name)\n  return "hello " .. name.first\nend\n\nlocal on = {}',
  );
  writeFileSync(app, broken.replace("function on.say(conn, message)", "function on.greet(conn) greet() end\n\nfunction on.say(conn, message)"));
  const line = lineOf(broken, "name.first");
  // A client on the page causes the error, repeatedly until the broken code is loaded.
  const fails = async (page) => {
    for (let tries = 0; tries < 100; tries++) {
      const isSeen = await page.evaluate((url) => new Promise((done) => {
        const socket = new WebSocket(url);
        socket.onopen = () => socket.send('{"type":"greet"}');
        socket.onclose = ({ code }) => done(code === 1011);
        setTimeout(() => { socket.close(); done(false); }, 300);
      }), `${site.replace("http", "ws")}/chat/tea`);
      if (isSeen) return;
    }
    throw new Error("the broken code did not run");
  };
  const phone = await open(undefined, { viewport: { width: 360, height: 740 } });
  await fails(phone);
  for (const [page, name] of [[anna, "desk"], [phone, "phone"]]) {
    const text = await told(page, "A script has failed");
    assert.ok(text.includes(`app.lua:${line}: `), text);
    assert.match(text, /attempt to index local 'name' \(a nil value\)/);
    assert.match(text, /stack traceback:/);
    assert.match(text, /app\.lua:\d+: in function/);
    await fits(page);
    await page.screenshot({ path: `${VECHE_SHOTS}/dev-error-${name}.png` });
  }
  await says("still here");
  writeFileSync(app, good);
  await panel(anna).waitFor({ state: "detached" });
  await panel(phone).waitFor({ state: "detached" });
  await says("mended again");
  await phone.context().close();
});

test("the error message can be closed", async () => {
  save("local on = {}", "local on = {");
  await told(anna, "Not reloaded");
  await anna.keyboard.press("Escape");
  await panel(anna).waitFor({ state: "detached" });
  writeFileSync(app, good);
  await says("done");
});

test("no client was disconnected meanwhile, and no page reported an error", () => {
  assert.deepEqual(sockets, { opened: 1, closed: 0 });
  assert.deepEqual(complaints, []);
});
