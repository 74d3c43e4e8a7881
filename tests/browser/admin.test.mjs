// The admin page against a real server with clients: the key, the charts, a channel, a user, the keyboard, a server that
// stops and restarts. run.sh passes the binary and the folder of screenshots.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { answers, end, freePort, launch } from "./ground.mjs";

const { VECHE_BIN, VECHE_SHOTS } = process.env;
const KEY = "the-operator's-own-key";
const API_KEY = "the-back-end's-own-key";
const HOSTILE = "room:<img src=x onerror=alert(1)>";
/** Two tables, one of them with a malicious name. */
const TABLES = `
local veche = require "veche"
local columns = { name = "string", mark = "u8?" }
local users = veche.table("users", { key = "id:u32", columns = columns, indexes = { by_mark = { "mark" } }, bytes_max = 1048576 })
veche.table(${JSON.stringify(HOSTILE)}, { key = "id:u32", columns = columns })
return { request = function()
  for id = 1, 1234 do users:upsert { id = id, name = "user " .. id } end
  return "done"
end }
`;
const PAGE_BYTES_MAX = 200_000;
const DESKTOP = { width: 1440, height: 900 };
const PHONE = { width: 390, height: 844 };

let folder, config, server, site, internal, browser, page, clients;
const complaints = [];

before(async () => {
  mkdirSync(VECHE_SHOTS, { recursive: true });
  folder = mkdtempSync(join(tmpdir(), "veche-admin-"));
  const [port, inside] = [await freePort(), await freePort()];
  config = `
    [server]
    workers = 2
    [limits]
    drain_time = "100ms"
    ping_interval = "21s"
    [[listen]]
    address = "127.0.0.1:${port}"
    [[listen]]
    address = "127.0.0.1:${inside}"
    role = "internal"
    [api]
    keys = ["${API_KEY}"]
    [admin]
    keys = ["${KEY}"]
    [[namespace]]
    name = "chat"
    history_size = 100
    history_ttl = "1h"
    presence = true
    [[route]]
    path = "/ws"
    handler = "push"
    identity = "query:user"
    channels = ["*"]
    [[route]]
    path = "/tables"
    handler = "lua"
    script = "tables.lua"
    [[route]]
    path = "/echo"
    handler = "echo"
    [[route]]
    path = "/*"
    handler = "static"
    root = "builtin:demo"
  `;
  writeFileSync(join(folder, "tables.lua"), TABLES);
  configure(config);
  serve();
  site = `http://127.0.0.1:${port}`;
  internal = `http://127.0.0.1:${inside}`;
  await answers(`${internal}/health`);
  browser = await launch();
  clients = await (await browser.newContext()).newPage();
  await clients.goto(`${site}/icon.svg`);
  await clients.evaluate(() => (globalThis.sockets = {}));
  page = await open();
});

after(() => end(browser, server, folder));

const configure = (text) => writeFileSync(join(folder, "veche.toml"), text);

function serve() {
  server = spawn(VECHE_BIN, ["serve"], { cwd: folder, stdio: "ignore" });
}

async function open(options = {}) {
  const context = await browser.newContext({ viewport: DESKTOP, colorScheme: "light", ...options });
  const opened = await context.newPage();
  opened.setDefaultTimeout(15_000);
  opened.on("pageerror", (error) => complaints.push(String(error)));
  opened.on("dialog", (dialog) => complaints.push(`a dialog: ${dialog.message()}`));
  opened.on("console", (line) => {
    // The browser itself reports failed requests; the tests cause some on purpose.
    if (line.type() === "error" && !/Failed to load resource/.test(line.text())) complaints.push(line.text());
  });
  return opened;
}

/** Opens a user's WebSocket; `sockets[name]` records its messages and its close code. */
const client = (name, user, ...channels) =>
  clients.evaluate(([name, user, channels]) => new Promise((done, fail) => {
    const query = new URLSearchParams([["user", user], ...channels.map((channel) => ["channel", channel])]);
    const socket = new WebSocket(`ws://${location.host}/ws?${query}`);
    const about = (globalThis.sockets[name] = { socket, heard: [], code: 0 });
    socket.onmessage = (event) => about.heard.push(event.data);
    socket.onclose = (event) => (about.code = event.code);
    socket.onopen = done;
    socket.onerror = () => fail(new Error(`${name} is not let in`));
  }), [name, user, channels]);

const heard = (name, text) => clients.waitForFunction(([name, text]) => globalThis.sockets[name].heard.includes(text), [name, text]);
const ended = (name) => clients.waitForFunction((name) => globalThis.sockets[name].code, name).then((code) => code.jsonValue());

async function api(method, body) {
  const answer = await fetch(`${internal}/api/${method}`, { method: "POST", headers: { "X-API-Key": API_KEY }, body: JSON.stringify(body) });
  return (await answer.json()).result;
}

const has = (selector, text, on = page) =>
  on.waitForFunction(([selector, text]) => document.querySelector(selector)?.textContent.includes(text), [selector, text]);

async function unlock(on, key = KEY) {
  await on.fill("#key", key);
  await on.press("#key", "Enter");
}

const go = async (view) => {
  await page.evaluate((view) => (location.hash = view), view);
  await page.waitForSelector(`#view-${view.split("/")[0]}:not([hidden])`);
};

test("without a key only the form is shown, and a wrong key is reported", async () => {
  let bytes = 0;
  const loaded = [];
  page.on("response", (answer) => loaded.push(answer.body().then((body) => (bytes += body.length), () => {})));
  await page.goto(`${internal}/admin/`);
  await page.waitForSelector("#view-login:not([hidden])");
  assert.equal(await page.isVisible("#nav"), false);
  await unlock(page, "a-key-of-somebody-else");
  await has("#login-said", "does not accept");
  await unlock(page, API_KEY);
  await has("#login-said", "does not accept");
  await unlock(page);
  await page.waitForSelector("body[data-state=live]");
  await page.waitForSelector(".chart canvas");
  await Promise.all(loaded);
  assert.ok(bytes < PAGE_BYTES_MAX, `${bytes} bytes`);
  assert.doesNotMatch(page.url(), /key/, "it is never in an address");
});

test("the charts draw what happens, for all workers and for each", async () => {
  await client("anna", "anna", "chat:tea", "news");
  await client("boris", "boris", "chat:tea", HOSTILE);
  await client("boris again", "boris", "news");
  // A client that sends messages, so that the charts have data.
  await clients.evaluate(() => {
    const socket = new WebSocket(`ws://${location.host}/echo`);
    socket.onopen = () => setInterval(() => { for (let i = 0; i < 5 + 4 * Math.sin(Date.now() / 900); i += 1) socket.send("x".repeat(100)); }, 20);
  });
  await page.waitForFunction(() => document.querySelector("#tiles dd").textContent >= 5);
  assert.equal(await page.locator(".chart canvas").count(), 8);
  await drawn("Connections");
  await drawn("Messages");
  await drawn("Latency of the loop");
  assert.equal(await page.locator("#workers tbody tr").count(), 2);
  await page.check("#by-worker");
  assert.equal(await page.locator("[data-chart=Memory] li").count(), 2);
  await drawn("Connections");
  await page.uncheck("#by-worker");
});

/** Waits until a chart has a line in the colour of one of its series, not only axes. */
const drawn = (title) =>
  page.waitForFunction((title) => {
    const canvas = document.querySelector(`[data-chart="${title}"] canvas`);
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim().match(/\w\w/g).map((part) => parseInt(part, 16));
    const wanted = [colour("--c0"), colour("--c1")];
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let found = 0;
    for (let at = 0; at < data.length; at += 4) {
      if (data[at + 3] > 200 && wanted.some((line) => line.every((value, part) => Math.abs(data[at + part] - value) < 24))) found += 1;
    }
    return found > 8;
  }, title);

test("a channel is found, its history is shown, and a publication from the page reaches its clients", async () => {
  await api("publish", { channel: "chat:tea", data: { from: "anna", text: "is it ready?" } });
  await page.click("#nav a[href='#channels']");
  await page.waitForFunction(() => document.querySelectorAll("#channels-list tbody tr").length === 3);
  await page.fill("#channels-list input", "tea");
  await page.waitForFunction(() => document.querySelectorAll("#channels-list tbody tr").length <= 2);
  await page.click("#channels-list tbody a >> text='chat:tea'");
  await has("#channel .history", "is it ready?");
  await has("#channel", "2 subscribers, 2 members");
  await page.waitForFunction(() => {
    const cells = document.querySelectorAll("#channel [aria-label='Presence'] td");
    const there = [...cells].map((cell) => cell.textContent);
    return ["anna", "boris"].every((name) => there.includes(name));
  });
  await page.fill("#channel textarea", '{"from":"the operator","text":"yes"}');
  await page.press("#channel textarea", "Control+Enter");
  await has("#channel .said", "Handed to 2 connections, at offset 2.");
  await Promise.all(["anna", "boris"].map((name) => heard(name, '{"from":"the operator","text":"yes"}')));
  await has("#channel .history tbody tr", "the operator");
  await page.fill("#channel textarea", "<b>no JSON</b>");
  await page.press("#channel textarea", "Control+Enter");
  await heard("anna", "<b>no JSON</b>");
  await has("#channel .history tbody tr", "<b>no JSON</b>");
});

// The presence is simulated, because members need a client protocol that this server may not support. Names of
// members are untrusted text.
test("members are listed, and data of clients is shown as text", async () => {
  const nasty = "<script>alert(2)</script>";
  const presence = { [nasty]: { user: nasty, client: nasty, conn_info: { name: nasty } } };
  await page.route("**/api/presence", (route) => route.fulfill({ json: { result: { presence } } }));
  await has("#channel [aria-label='Presence'] td", nasty);
  await page.unroute("**/api/presence");
  await page.fill("#channels-list input", "");
  await page.click(`#channels-list tbody a >> text=${HOSTILE}`);
  await has("#channel h2", HOSTILE);
  await has("#channel", "has no history");
  assert.equal(await page.locator("main img, main script, main b:not(.chart b)").count(), 0);
});

test("a user is found and gets a push, and disconnecting ends all connections of the user", async () => {
  await page.click("#nav a[href='#users']");
  await page.waitForFunction(() => document.querySelectorAll("#users-list tbody tr").length === 2);
  await page.fill("#users-list input", "bor");
  await page.click("#users-list tbody a >> text='boris'");
  await has("#user", "Connected, by 2 connections.");
  await page.fill("#user textarea", "your time is up");
  await page.click("#user .sender button");
  await heard("boris again", "your time is up");
  await page.click("#user .danger");
  await page.waitForTimeout(200);
  assert.deepEqual(await clients.evaluate(() => [globalThis.sockets.boris.code, globalThis.sockets["boris again"].code]), [0, 0], "asked once more first");
  await page.click("#user .danger");
  assert.deepEqual([await ended("boris"), await ended("boris again")], [3503, 3503]);
  await has("#user .bar .said", "2 connections ended");
  await has("#user", "Not connected; last seen");
  assert.equal(await clients.evaluate(() => globalThis.sockets.anna.code), 0);
  await page.fill("#users-list input", "nobody");
  await page.click("#users-list tbody a >> text=Show “nobody”");
  await has("#user", "not seen since the server process started");
});

test("a blocked user is disconnected and refused until unblocked", async () => {
  await client("carl", "carl");
  await page.goto(`${internal}/admin/#users/carl`);
  await has("#user", "Connected, by 1 connection.");
  await page.click("#user .bar button >> text='Block'");
  await page.click("#user .bar button >> text=Press again to block");
  assert.equal(await ended("carl"), 3507);
  await has("#user .bar .said", "1 connection ended");
  await has("#user", "Blocked: new connections are rejected.");
  await assert.rejects(client("carl again", "carl"), /is not let in/);
  await page.screenshot({ path: `${VECHE_SHOTS}/admin-blocked.png` });
  await page.click("#user .bar button >> text=Unblock");
  await has("#user .bar .said", "Unblocked.");
  await client("carl at last", "carl");
  await clients.evaluate(() => globalThis.sockets["carl at last"].socket.close());
});

test("nine thousand channels are shown in pages, and a list that is too long is reported", async () => {
  const users = Array.from({ length: 105 }, (_, at) => `u${at}`);
  await Promise.all(users.map((user) => client(user, user)));
  const many = async (from, to) => {
    for (let at = from; at < to; at += 1) {
      const commands = Array.from({ length: 100 }, (_, channel) => ({ subscribe: { user: users[at], channel: `c${at}:${channel}` } }));
      await api("batch", { commands });
    }
  };
  await many(0, 90);
  await go("channels");
  await page.fill("#channels-list input", "c");
  await has("#channels-list", "Show “c”");
  await has("#channels-list .small", "1 to 100 shown");
  assert.match(await page.textContent("#channels-list .small"), /^9,00\d channels/);
  assert.equal(await page.locator("#channels-list tbody a").count(), 101, "a page, and the name itself");
  await page.click("#channels-list button >> text=Next");
  await has("#channels-list .small", "101 to 200 shown");
  await many(90, 105);
  await page.click("#channels-list button >> text=Refresh");
  await has("#channels-list", "More than 10,000 match: type a part of the name.");
  await page.fill("#channels-list input", "c104:9");
  await has("#channels-list .small", "11 channels");
  await clients.evaluate(() => { for (const [name, { socket }] of Object.entries(globalThis.sockets)) if (name.startsWith("u")) socket.close(); });
});

test("tables: what they take, as a whole and by column and index", async () => {
  await go("tables");
  await has("#tables-note", "2 tables");
  await has("#tables", HOSTILE);
  assert.equal((await fetch(`${site}/tables`)).status, 200);
  await has("#tables", "1,234");
  await page.click("#tables a >> text=users");
  await has("#table h2", "users");
  await has("#table", "id (key)u32");
  await has("#table", "marku8?");
  await has("#table", "by_markmark");
  await has("#table p.small", "at most 1 MiB, rows do not expire");
  const share = await page.textContent("#tables tr:has-text('users') td:nth-child(4)");
  assert.match(share, /^[\d.]+ %$/);
  await go("tables/nothing");
  await has("#table", "No table is named “nothing”.");
});

test("the slow log, the configuration and the log", async () => {
  await go("slow");
  await has("#slow-clients", "slow consumers");
  await has("#slow-work", "Turns of workers");
  await go("config");
  await has("#config", "ping_interval");
  await page.fill("#config-find", "limits");
  await page.check("#config-set");
  assert.equal(await page.locator("#config tr").count(), 2);
  assert.match(await page.textContent("#config"), /ping_interval"21s"line 6/);
  await page.fill("#config-find", "keys");
  const keys = await page.textContent("#config");
  assert.ok(keys.includes("****") && !keys.includes(KEY) && !keys.includes(API_KEY), keys);
  await go("log");
  await has("#log", "workers are up");
  await has("#log", "wrong key for the admin page");
  await page.selectOption("#log-level", "2");
  assert.doesNotMatch(await page.textContent("#log"), /workers are up/);
  await page.selectOption("#log-level", "0");
  await page.fill("#log-find", "workers are");
  assert.equal(await page.locator("#log li").count(), 1);
  await page.fill("#log-find", "");
});

test("the keyboard reaches all that can be done, and shows where it is", async () => {
  for (const view of ["overview", "channels/chat:tea", "users/anna", "config", "log"]) {
    await go(view);
    await page.waitForTimeout(300);
    const wanted = await page.evaluate(() => {
      const all = [...document.querySelectorAll("a[href], button, input, select, textarea, [tabindex='0']")];
      const seen = all.filter((element) => element.checkVisibility() && !element.disabled && !(element.type === "radio" && !element.checked));
      seen.forEach((element, at) => (element.dataset.walk = String(at)));
      document.activeElement.blur();
      return seen.length;
    });
    const reached = new Set();
    for (let steps = 0; steps < wanted + 4; steps += 1) {
      await page.keyboard.press("Tab");
      const here = await page.evaluate(() => {
        const element = document.activeElement;
        const { outlineStyle, outlineWidth } = getComputedStyle(element);
        return { walk: element.dataset.walk, name: element.outerHTML.slice(0, 80), isMarked: outlineStyle !== "none" && parseFloat(outlineWidth) >= 2 };
      });
      if (here.walk === undefined) continue;
      assert.ok(here.isMarked, `${view}: no sign of the focus on ${here.name}`);
      reached.add(here.walk);
    }
    assert.equal(reached.size, wanted, `${view}: of ${wanted} controls ${reached.size} were reached`);
  }
  await go("channels");
  await page.locator("body").press("/");
  await page.keyboard.type("tea");
  await has("#channels-list tbody tr", "chat:tea");
  await page.keyboard.press("Tab"); // Refresh
  for (let steps = 0; steps < 3; steps += 1) await page.keyboard.press("Tab"); // past the heads, to the first row
  await page.keyboard.press("Enter");
  await has("#channel h2", "chat:tea");
});

test("pages of other origins can do nothing with it", async () => {
  const said = await clients.evaluate(async ([url, key]) => {
    const send = (headers) => fetch(`${url}/admin/api/figures`, { method: "POST", headers }).then((answer) => answer.status, () => "refused");
    const simple = await fetch(`${url}/admin/api/figures`, { method: "POST", mode: "no-cors" }).then((answer) => answer.type);
    return [await send({ "X-API-Key": key }), await send({}), simple];
  }, [internal, KEY]);
  assert.deepEqual(said, ["refused", "refused", "opaque"]);
  const framed = await clients.evaluate((url) => new Promise((done) => {
    const frame = document.createElementNS("http://www.w3.org/1999/xhtml", "iframe");
    frame.src = `${url}/admin/`;
    frame.onload = () => { try { done(frame.contentDocument === null ? "closed" : "open"); } catch { done("closed"); } };
    document.documentElement.append(frame);
  }), internal);
  assert.equal(framed, "closed");
  assert.equal((await fetch(`${site}/admin/`)).status, 404);
});

test("charts have a role, and a name with what they show now", async () => {
  await go("overview");
  const chart = page.getByRole("img", { name: /^Connections: open \d+, WebSockets \d+$/ });
  await chart.waitFor();
  assert.equal(await page.locator(".charts").getByRole("img").count(), 8);
  const count = async () => Number((await chart.getAttribute("aria-label")).match(/WebSockets (\d+)/)[1]);
  const before = await count();
  await client("one more", "one more");
  await page.getByRole("img", { name: new RegExp(`^Connections: open \\d+, WebSockets ${before + 1}$`) }).waitFor();
  await page.check("#by-worker");
  await page.getByRole("img", { name: /^Memory, histories and apps: worker 0 [\d.]+ \w+, worker 1 / }).waitFor();
  await page.uncheck("#by-worker");
});

test("on a phone nothing is cut off, values can be read, and every tab is in reach", async () => {
  const phone = await open({ viewport: PHONE, hasTouch: true });
  await phone.goto(`${internal}/admin/`);
  await unlock(phone);
  await phone.waitForSelector("body[data-state=live]");
  const views = await phone.locator("#nav a").evaluateAll((links) => links.map((link) => link.hash.slice(1)));
  assert.equal(views.length, 8);
  for (const view of views) {
    const tab = phone.locator(`#nav a[href='#${view}']`);
    // Without scrolling.
    const { x, y, width, height } = await tab.boundingBox();
    assert.ok(x >= 0 && x + width <= PHONE.width && height >= 28, `${view}: ${x} to ${x + width}, ${height} high`);
    await phone.touchscreen.tap(x + width / 2, y + height / 2);
    await phone.waitForSelector(`#view-${view}:not([hidden])`);
    await phone.waitForTimeout(300);
    const wide = await phone.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${view} scrolls sideways by ${wide} px`);
  }
  await phone.tap("#nav a[href='#config']");
  await phone.waitForSelector("#view-config:not([hidden])");
  await has("#config", "ping_interval", phone);
  const cells = phone.locator("#config td.mono");
  const widths = await cells.evaluateAll((all) => all.map((cell) => cell.getBoundingClientRect().width));
  assert.ok(widths.length > 50 && Math.min(...widths) >= 200, `values are ${Math.min(...widths)} px wide`);
  // A short value is on one line.
  const control = await phone.locator("#config tr:has-text('ping_interval') td.mono").evaluate((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return range.getClientRects().length;
  });
  assert.equal(control, 1);
  await phone.tap("#nav a[href='#slow']");
  const slow = await phone.locator("#slow-clients td:first-child").evaluateAll((all) => all.map((cell) => cell.getBoundingClientRect().width));
  assert.ok(Math.min(...slow) >= 180, `a slow entry is ${Math.min(...slow)} px wide`);
  await phone.context().close();
});

test("pictures, light and dark, large and small", { timeout: 120_000 }, async () => {
  const rooms = ["chat:tea", "chat:bread", "orders:north", "orders:south", "news"];
  await Promise.all(Array.from({ length: 60 }, (_, at) => client(`guest ${at}`, `guest${at % 45}`, rooms[at % 5], rooms[at % 3])));
  const talk = setInterval(() => {
    const channel = rooms[Math.floor(Math.random() ** 2 * 5)];
    api("publish", { channel, data: { order: Math.floor(Math.random() * 1e4), state: "on its way" } }).catch(() => {});
  }, 40);
  try {
    const phone = await open({ viewport: PHONE });
    await phone.goto(`${internal}/admin/`);
    await unlock(phone);
    await go("overview");
    await page.waitForTimeout(10_000);
    for (const [name, on] of Object.entries({ desktop: page, phone })) {
      for (const colorScheme of ["light", "dark"]) {
        await on.emulateMedia({ colorScheme });
        for (const view of ["overview", "channels/chat:tea", "users/guest1", "slow", "tables/users", "nodes", "config", "log"]) {
          await on.evaluate((view) => (location.hash = view), view);
          await on.waitForSelector(`#view-${view.split("/")[0]}:not([hidden])`);
          await on.waitForTimeout(600);
          if (view === "overview") assert.match(await on.evaluate(() => getComputedStyle(document.body).backgroundColor), colorScheme === "dark" ? /rgb\(12,/ : /rgb\(238,/);
          await on.screenshot({ path: `${VECHE_SHOTS}/admin-${view.split("/")[0]}-${name}-${colorScheme}.png` });
          const wide = await on.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert.ok(wide <= 0, `${view} on a ${name} scrolls sideways by ${wide} px`);
        }
      }
      await on.emulateMedia({ colorScheme: "light" });
    }
    // The lines are redrawn in dark colours.
    await page.emulateMedia({ colorScheme: "dark" });
    await go("overview");
    await drawn("Fan-out");
    await phone.context().close();
  } finally {
    clearInterval(talk);
  }
});

test("the server process is killed: the page reports it and continues with the new one", async () => {
  await go("overview");
  const child = execFileSync("pgrep", ["-P", String(server.pid)], { encoding: "utf8" }).trim();
  process.kill(Number(child), "SIGKILL");
  await has("#banner", "Another server process answers");
  await page.waitForSelector("body[data-state=live]");
});

test("the server stops and restarts", { timeout: 60_000 }, async () => {
  const exit = new Promise((done) => server.once("exit", done));
  server.kill("SIGTERM");
  await page.waitForSelector("body[data-state=lost]");
  await has("#banner", "The server has not answered since");
  await page.screenshot({ path: `${VECHE_SHOTS}/admin-lost.png` });
  server.kill("SIGTERM");
  await exit;
  serve();
  await page.waitForSelector("body[data-state=live]");
  await go("log");
  await has("#log", "workers are up");
});

test("removing the key closes the page", async () => {
  configure(config.replace(KEY, "another-key-of-the-operator"));
  execFileSync(VECHE_BIN, ["reload"], { cwd: folder, stdio: "ignore" });
  await page.waitForSelector("#view-login:not([hidden])");
  await has("#login-said", "does not accept");
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
});

test("no page complained", () => assert.deepEqual(complaints, []));
