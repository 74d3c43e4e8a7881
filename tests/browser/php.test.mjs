// Tests the templates `php` and `php-chat` of `veche new` under `veche dev`, in Chromium: the PHP handler echoes
// messages, and two chat users register, log in and log out. run.sh passes the binary.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { answers, end, freePort, launch } from "./ground.mjs";

const { VECHE_BIN, VECHE_SHOTS } = process.env;
const PASSWORD = "correct horse";

const complaints = [];
const started = []; // [server, folder]
let browser, ann, bob, chat;

/** Creates a folder from a template and serves it. Returns the address of its site. */
async function serve(template) {
  const parent = mkdtempSync(join(tmpdir(), "veche-php-"));
  execFileSync(VECHE_BIN, ["new", "site", "--template", template], { cwd: parent });
  const folder = join(parent, "site");
  const config = join(folder, "veche.toml");
  const port = await freePort();
  writeFileSync(config, readFileSync(config, "utf8").replaceAll("127.0.0.1:8080", `127.0.0.1:${port}`));
  started.push([spawn(VECHE_BIN, ["dev"], { cwd: folder, stdio: ["ignore", "ignore", "inherit"] }), parent]);
  await answers(`http://127.0.0.1:${port}`);
  return `http://127.0.0.1:${port}`;
}

before(async () => {
  mkdirSync(VECHE_SHOTS, { recursive: true });
  browser = await launch();
});

after(async () => {
  await browser?.close();
  for (const [server, folder] of started) await end(undefined, server, folder);
});

async function open(site, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1000, height: 640 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (line) => {
    // The browser itself logs the status 401 for a visitor without a login, and 403 for a wrong password.
    const isStatus = /Failed to load resource/.test(line.text());
    if (line.type() === "error" && !isStatus) complaints.push(line.text());
  });
  await page.goto(site);
  return page;
}

const state = (page, name) => page.waitForSelector(`body[data-state=${name}]`);
const why = (page, text) =>
  page.waitForFunction((wanted) => document.getElementById("why").textContent === wanted, text);
const people = (page, names) =>
  page.waitForFunction(
    (wanted) => [...document.querySelectorAll("#people li")].map((each) => each.textContent).join() === wanted,
    names.join(),
  );
const shows = (page, text) =>
  page.waitForFunction((wanted) => document.querySelector("#lines li:last-child")?.innerText === wanted, text);

async function submit(page, button, name, password = PASSWORD) {
  await page.fill("#name", name);
  await page.fill("#password", password);
  await page.click(button);
}

async function say(page, text) {
  await page.fill("#text", text);
  await page.press("#text", "Enter");
}

test("the echo shows what the handler in PHP sends back", async () => {
  const page = await open(await serve("php"));
  await page.waitForSelector("#send:enabled");
  for (const text of ["hello", "<img src=x onerror=alert(1)> вече 🔔"]) {
    await page.fill("#text", text);
    await page.press("#text", "Enter");
    const first = (wanted) => document.querySelector("#lines li")?.innerText === `← ${wanted}`;
    await page.waitForFunction(first, text);
  }
  await page.screenshot({ path: `${VECHE_SHOTS}/php-echo.png` });
  await page.context().close();
});

test("a visitor registers; a bad password and a taken name are refused in words", async () => {
  chat = await serve("php-chat");
  ann = await open(chat);
  await state(ann, "closed");
  await submit(ann, "#register", "ann", "short");
  await why(ann, "A password has 8 to 72 bytes.");
  await ann.screenshot({ path: `${VECHE_SHOTS}/php-chat-door.png` });
  await submit(ann, "#register", "ann");
  await state(ann, "open");
  await people(ann, ["ann"]);
  bob = await open(chat, { viewport: { width: 360, height: 740 }, colorScheme: "dark" });
  await state(bob, "closed");
  await submit(bob, "#register", "ann");
  await why(bob, "That name is taken.");
  await submit(bob, "#login", "ann", "wrong horse");
  await why(bob, "Wrong name or password.");
});

test("both clients see a message, and so does one that connects later", async () => {
  await say(ann, "is anybody here?");
  await shows(ann, "ann\nis anybody here?");
  await submit(bob, "#register", "Борис");
  await shows(bob, "ann\nis anybody here?");
  await shows(ann, "Борис joined");
  await Promise.all([ann, bob].map((page) => people(page, ["ann", "Борис"])));
  await say(bob, "<img src=x onerror=alert(1)> вече 🔔");
  await Promise.all([ann, bob].map((page) => shows(page, "Борис\n<img src=x onerror=alert(1)> вече 🔔")));
  await ann.screenshot({ path: `${VECHE_SHOTS}/php-chat-light.png` });
  await bob.screenshot({ path: `${VECHE_SHOTS}/php-chat-phone-dark.png` });
  const wide = await bob.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `it scrolls sideways by ${wide} px`);
});

test("a login outlives the page, and ends with the logout", async () => {
  await bob.reload();
  await state(bob, "open");
  await shows(bob, "Борис\n<img src=x onerror=alert(1)> вече 🔔");
  await bob.click("#logout");
  await state(bob, "closed");
  await people(ann, ["ann"]);
  await bob.reload();
  await state(bob, "closed");
  await submit(bob, "#login", "Борис");
  await state(bob, "open");
  await people(ann, ["ann", "Борис"]);
});

test("the server process is killed: both reconnect automatically", async () => {
  const [server] = started.at(-1);
  const children = execFileSync("pgrep", ["-P", String(server.pid), "-f", "server-process"], { encoding: "utf8" }).trim();
  const lost = Promise.all([state(ann, "waiting"), state(bob, "waiting")]);
  process.kill(Number(children), "SIGKILL");
  await lost;
  await Promise.all([ann, bob].map((page) => state(page, "open")));
  await Promise.all([ann, bob].map((page) => people(page, ["ann", "Борис"])));
  await say(bob, "still here");
  await shows(ann, "Борис\nstill here");
});

test("no page had an error", () => assert.deepEqual(complaints, []));
