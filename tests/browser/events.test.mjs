// A page with a plain EventSource, in Chromium: publications that it misses while disconnected
// arrive once and in order after the browser has reconnected on its own. run.sh passes the binary.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { answers, end, freePort, launch } from "./ground.mjs";

const { VECHE_BIN } = process.env;
const KEY = "a-key-of-sixteen-characters";

let folder, server, site, api, browser, page;
const complaints = [];

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "veche-events-"));
  const [port, internal] = [await freePort(), await freePort()];
  mkdirSync(join(folder, "page"));
  writeFileSync(join(folder, "page", "index.html"), "<!doctype html><title>Events</title>");
  writeFileSync(join(folder, "veche.toml"), `
    [server]
    workers = 2
    [[listen]]
    address = "127.0.0.1:${port}"
    [[listen]]
    address = "127.0.0.1:${internal}"
    role = "internal"
    [api]
    keys = ["${KEY}"]
    [[namespace]]
    name = "chat"
    history_size = 100
    subscribe = "client"
    [[namespace]]
    name = "#"
    history_size = 100
    [[route]]
    path = "/connection/*"
    handler = "centrifuge"
    identity = "query:user"
    [[route]]
    path = "/*"
    handler = "static"
    root = "page"
  `);
  server = spawn(VECHE_BIN, ["serve"], { cwd: folder, stdio: ["ignore", "ignore", "inherit"] });
  site = `http://127.0.0.1:${port}`;
  api = `http://127.0.0.1:${internal}/api`;
  await answers(`http://127.0.0.1:${internal}/health`);
  browser = await launch();
  page = await (await browser.newContext()).newPage();
  page.setDefaultTimeout(15_000);
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.goto(site);
});

after(() => end(browser, server, folder));

async function call(method, body) {
  const answer = await fetch(`${api}/${method}`, {
    method: "POST",
    headers: { "X-API-Key": KEY },
    body: JSON.stringify(body),
  });
  const { result, error } = await answer.json();
  assert.equal(error, undefined);
  return result;
}

const publish = (channel, data) => call("publish", { channel, data });

/** Returns all messages that the page has received, parsed as JSON. */
const heard = () => page.evaluate(() => window.heard);
const hears = (count) => page.waitForFunction((wanted) => window.heard.length >= wanted, count);
const connects = (count) =>
  page.waitForFunction((wanted) => window.heard.filter((push) => push.connect).length >= wanted, count);

test("a browser that was disconnected recovers everything that it missed", async () => {
  await publish("chat:1", "before it came");
  await page.evaluate(() => {
    window.heard = [];
    const connect = encodeURIComponent(JSON.stringify({ subs: { "chat:1": {}, "chat:2": {} } }));
    window.source = new EventSource(`/connection/uni_sse?user=ann&cf_connect=${connect}`);
    window.source.onmessage = (event) => window.heard.push(JSON.parse(event.data));
  });
  await connects(1);
  const [{ connect }] = await heard();
  assert.deepEqual(Object.keys(connect.subs).sort(), ["#ann", "chat:1", "chat:2"]);
  const expected = [];
  for (let cut = 1; cut <= 2; cut++) {
    await publish("chat:1", `live ${cut}`);
    expected.push(["chat:1", `live ${cut}`]);
    await hears(cut + expected.length);
    await call("disconnect", { user: "ann", disconnect: { code: 4000, reason: "try again" } });
    await page.waitForFunction(() => window.source.readyState === EventSource.CONNECTING);
    // The browser waits before it reconnects, so these publications are missed.
    for (const [channel, data] of [["chat:1", "a"], ["chat:2", "b"], ["#ann", "c"], ["chat:1", "d"]]) {
      await publish(channel, `${data} ${cut}`);
    }
    await connects(cut + 1);
    // The publications are recovered channel by channel, in the order of each channel.
    expected.push(["#ann", `c ${cut}`], ["chat:1", `a ${cut}`], ["chat:1", `d ${cut}`], ["chat:2", `b ${cut}`]);
    await page.waitForFunction((wanted) => window.heard.filter((push) => push.pub).length >= wanted, expected.length);
  }
  const all = await heard();
  const publications = all.filter((push) => push.pub).map((push) => [push.channel, push.pub.data]);
  assert.deepEqual(publications, expected);
  const returns = all.filter((push) => push.connect).slice(1);
  assert.equal(returns.length, 2);
  for (const { connect } of returns) {
    assert.ok(Object.values(connect.subs).every((sub) => sub.recovered), JSON.stringify(connect.subs));
  }
  // The page was also told why it was disconnected.
  const ends = all.filter((push) => push.disconnect);
  assert.deepEqual(ends[0].disconnect, { code: 4000, reason: "try again" });
});

test("the page reported no error", () => assert.deepEqual(complaints, []));
