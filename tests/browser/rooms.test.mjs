// examples/rooms, unchanged, in Chromium: two people in two browsers, their names, their messages,
// a server that dies.
// run.sh passes the binary.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { answers, end, freePort, launch } from "./ground.mjs";

const { VECHE_BIN, VECHE_SHOTS } = process.env;
const EXAMPLE = fileURLToPath(new URL("../../examples/rooms", import.meta.url));

const complaints = [];
let folder, server, site, browser, anna, boris;

before(async () => {
  mkdirSync(VECHE_SHOTS, { recursive: true });
  folder = mkdtempSync(join(tmpdir(), "veche-rooms-"));
  cpSync(EXAMPLE, folder, { recursive: true, filter: (path) => !path.endsWith(".sock") });
  const port = await freePort();
  const config = join(folder, "veche.toml");
  const text = readFileSync(config, "utf8").replaceAll("127.0.0.1:8080", `127.0.0.1:${port}`);
  writeFileSync(config, text.replace('workers = "auto"', "workers = 3"));
  server = spawn(VECHE_BIN, ["serve"], { cwd: folder, stdio: ["ignore", "ignore", "inherit"] });
  site = `http://127.0.0.1:${port}`;
  await answers(site);
  browser = await launch();
  anna = await open("tea");
  boris = await open("tea", { viewport: { width: 360, height: 740 }, colorScheme: "dark" });
});

after(() => end(browser, server, folder));

async function open(room, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1000, height: 640 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (line) => {
    // The browser itself reports a connection that fails; one test causes that on purpose.
    const isNetwork = /Failed to load resource|WebSocket connection to/.test(line.text());
    if (line.type() === "error" && !isNetwork) complaints.push(line.text());
  });
  await page.goto(`${site}/?room=${room}`);
  return page;
}

const state = (page, name) => page.waitForSelector(`body[data-state=${name}]`);
const people = (page, names) =>
  page.waitForFunction(
    (wanted) => [...document.querySelectorAll("#people li")].map((each) => each.textContent).join() === wanted,
    names.join(),
  );
const shows = (page, text) =>
  page.waitForFunction((wanted) => document.querySelector("#lines li:last-child")?.innerText === wanted, text);

const lastLine = (page) => page.locator("#lines li:last-child").innerText();

async function enter(page, nick) {
  await state(page, "open");
  await page.fill("#nick", nick);
  await page.click("#enter");
}

async function say(page, text) {
  await page.fill("#text", text);
  await page.press("#text", "Enter");
}

test("a bad name is refused in words, and the next one may be good", async () => {
  await enter(anna, "Admin");
  await anna.waitForFunction(() => document.getElementById("why").textContent === "'Admin' is reserved.");
  await anna.screenshot({ path: `${VECHE_SHOTS}/rooms-door.png` });
  await enter(anna, "x".repeat(21));
  await anna.waitForFunction(() => /at most 20/.test(document.getElementById("why").textContent));
  await enter(anna, "Anna");
  await shows(anna, "You are here as Anna.");
  await people(anna, ["Anna"]);
});

test("the newcomer sees who is here, and those here see the newcomer", async () => {
  await enter(boris, "Борис");
  await shows(anna, "Борис joined");
  await Promise.all([people(anna, ["Anna", "Борис"]), people(boris, ["Anna", "Борис"])]);
});

test("messages reach all members of the room unchanged, and no other client", async () => {
  const other = await open("coffee");
  await enter(other, "Vera");
  await people(other, ["Vera"]);
  await say(boris, "who is here?");
  await Promise.all([shows(anna, "Борис\nwho is here?"), shows(boris, "Борис\nwho is here?")]);
  await say(anna, "<img src=x onerror=alert(1)> вече 🔔");
  await Promise.all([anna, boris].map((page) => shows(page, "Anna\n<img src=x onerror=alert(1)> вече 🔔")));
  await shows(other, "You are here as Vera.");
  await other.context().close();
  await anna.screenshot({ path: `${VECHE_SHOTS}/rooms-light.png` });
  await boris.screenshot({ path: `${VECHE_SHOTS}/rooms-phone-dark.png` });
  const wide = await boris.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `it scrolls sideways by ${wide} px`);
});

test("the others see that a member leaves", async () => {
  const third = await open("tea");
  await enter(third, "Vera");
  await people(third, ["Anna", "Vera", "Борис"]);
  await third.context().close();
  await shows(anna, "Vera left");
  await people(boris, ["Anna", "Борис"]);
});

test("new code takes over while people talk", async () => {
  const script = join(folder, "app.lua");
  writeFileSync(script, readFileSync(script, "utf8").replace("text = text })", 'text = text .. "!" })'));
  execFileSync(VECHE_BIN, ["reload"], { cwd: folder });
  // The workers load the new code at different times.
  for (let tries = 0; tries < 100 && !(await lastLine(boris)).endsWith("!"); tries++) {
    await say(anna, "new");
    await boris.waitForTimeout(50);
  }
  await shows(boris, "Anna\nnew!");
  await people(anna, ["Anna", "Борис"]);
});

test("the server process is killed: both reconnect automatically, under their names", async () => {
  const children = execFileSync("pgrep", ["-P", String(server.pid)], { encoding: "utf8" }).trim().split("\n");
  assert.equal(children.length, 1, "the supervisor has one child, the server process");
  const lost = Promise.all([state(anna, "waiting"), state(boris, "waiting")]);
  process.kill(Number(children[0]), "SIGKILL");
  await lost;
  await Promise.all([people(anna, ["Anna", "Борис"]), people(boris, ["Anna", "Борис"])]);
  await say(boris, "still here");
  await shows(anna, "Борис\nstill here!");
});

test("an invalid room name is reported and not retried", async () => {
  const page = await open("no%20room");
  await page.waitForFunction(() => /letters/.test(document.getElementById("state").textContent));
  await page.context().close();
});

test("no page had an error", () => assert.deepEqual(complaints, []));
