// examples/chat, unchanged, in two Chromiums: Ann and Bob register and find each other, one accepts
// the other's invitation, and they talk and see what was delivered and read, who is typing and who
// is online. Ann's connection is cut, and nothing is lost. A user leaves a dialogue, which ends it
// for both users. A page of another site can't log a user out. run.sh passes the binary.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { tunnel } from "../conformance/centrifuge/server.mjs";
import { answers, end, freePort, launch } from "./ground.mjs";

const { VECHE_BIN, VECHE_SHOTS } = process.env;
const EXAMPLE = fileURLToPath(new URL("../../examples/chat", import.meta.url));
const PASSWORD = "correct horse";
const PHONE = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true };

const hasSdk = existsSync(join(EXAMPLE, "public/vendor/centrifuge.js"));
const skip = hasSdk ? false : "SKIPPED: no examples/chat/public/vendor (tests/setup/centrifuge_page.sh)";

const complaints = [];
const browsers = [];
let folder, server, site, way, ann, bob, pushPort;

before(async () => {
  mkdirSync(VECHE_SHOTS, { recursive: true });
  folder = mkdtempSync(join(tmpdir(), "veche-chat-"));
  cpSync(EXAMPLE, folder, { recursive: true, filter: (path) => !path.endsWith(".sock") });
  const port = await freePort();
  const config = join(folder, "veche.toml");
  const text = readFileSync(config, "utf8").replaceAll("127.0.0.1:8080", `127.0.0.1:${port}`);
  const push = `\n[[listen]]\naddress = "127.0.0.1:${(pushPort = await freePort())}"\nrole = "push"\n`;
  writeFileSync(config, text.replace('workers = "auto"', "workers = 3") + push);
  const env = { ...process.env, CHAT_SECRET: randomBytes(32).toString("hex") };
  server = spawn(VECHE_BIN, ["serve"], { cwd: folder, env, stdio: ["ignore", "ignore", "inherit"] });
  site = `http://127.0.0.1:${port}`;
  await answers(site);
  way = await tunnel(port); // Ann comes through it
  browsers.push(await launch(), await launch());
  ann = await open(browsers[0], `http://127.0.0.1:${way.port}`);
  bob = await open(browsers[1], site);
});

after(async () => {
  way?.close();
  for (const browser of browsers) await browser.close();
  await end(null, server, folder);
});

async function open(browser, address, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1180, height: 760 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (line) => {
    // The browser itself reports requests that fail; the tests cause some on purpose.
    const isNetwork = /Failed to load resource|WebSocket connection to|net::ERR/.test(line.text());
    if (line.type() === "error" && !isNetwork) complaints.push(line.text());
  });
  await page.goto(address);
  return page;
}

const isAt = (page, view) => page.waitForSelector(`body[data-view=${view}]`);
const becomes = (page, selector, text) =>
  page.waitForFunction(([where, words]) => document.querySelector(where)?.textContent === words, [selector, text]);

async function enter(page, name, { password = PASSWORD, how = "register" } = {}) {
  await isAt(page, "door");
  await page.fill("#name", name);
  await page.fill("#password", password);
  await page.click(`button[value=${how}]`);
}

async function talkTo(page, name) {
  await page.click(`#lists a[href="#${name}"]`);
  await becomes(page, "#other-name", name);
}

async function accept(page, name) {
  await page.click(`#invitations a[href="#${name}"]`);
  await becomes(page, "#asked-by", name);
  await page.click("#accept");
  await page.waitForSelector(`#talks a[href="#${name}"]`);
  assert.ok(await page.isHidden("#asked"));
}

async function say(page, text) {
  await page.fill("#text", text);
  await page.press("#text", "Enter");
}

/** Returns every chat bubble as "mine: text" or "theirs: text". */
const bubbles = (page) =>
  page.$$eval("#messages .mine, #messages .theirs", (all) =>
    all.map((each) => `${each.className}: ${each.querySelector("p").textContent}`),
  );

async function shows(page, expected, timeout = 30_000) {
  const are = (count) => document.querySelectorAll("#messages .mine, #messages .theirs").length >= count;
  await page
    .waitForFunction(are, expected.length, { timeout })
    .catch(() => {});
  assert.deepEqual(await bubbles(page), expected);
}

/** The flag of `veche push` for this text. */
const json = (data) => (data.startsWith("not") ? [] : ["--json"]);

/** Waits until the user's own last message has this state. */
const lastBecomes = (page, state) =>
  page.waitForFunction((wanted) => [...document.querySelectorAll("#messages .mine")].at(-1)?.dataset.state === wanted, state);

const unread = (page, name) => page.textContent(`#lists a[href="#${name}"] .unread`);

/** Simulates a change to another window: in Chromium each page always reports that it has the focus. */
const look = (page, isThere) =>
  page.evaluate((there) => {
    document.hasFocus = () => there;
    dispatchEvent(new Event(there ? "focus" : "blur"));
  }, isThere);

test("a refused registration or login gives the reason", { skip }, async () => {
  await enter(ann, "ann", { how: "login" });
  await becomes(ann, "#door-fault", "The name or the password is wrong.");
  await enter(ann, "ann,bob");
  await ann.waitForFunction(() => /begins with a letter/.test(document.getElementById("door-fault").textContent));
  await enter(ann, "ann", { password: "short" });
  await becomes(ann, "#door-fault", "A password has 8 to 200 characters.");
  await ann.screenshot({ path: `${VECHE_SHOTS}/chat-door.png` });
});

test("two register, and each sees the other", { skip }, async () => {
  await enter(ann, "Ann");
  await isAt(ann, "chat");
  await ann.waitForSelector("#nobody:not([hidden])");
  await enter(bob, "bob");
  await isAt(bob, "chat");
  await ann.waitForSelector('#people a[href="#bob"] .avatar[data-online]');
  await bob.waitForSelector('#people a[href="#ann"] .avatar[data-online]');
  await enter(await open(browsers[1], site), "Bob");
  const third = browsers[1].contexts().at(-1).pages()[0];
  await becomes(third, "#door-fault", "'bob' is taken.");
  await third.context().close();
});

test("publications of another shape are skipped", { skip }, async () => {
  for (const to of [["--user", "bob"], ["--channel", "people:all"]])
    for (const data of ["not JSON", "null", "{}", "[1]"])
      execFileSync(VECHE_BIN, ["push", "--address", `127.0.0.1:${pushPort}`, ...to, ...json(data), data]);
  const registered = ["--channel", "people:all", "--json", '{"registered":"carol"}'];
  execFileSync(VECHE_BIN, ["push", "--address", `127.0.0.1:${pushPort}`, ...registered]);
  await bob.waitForSelector('#people a[href="#carol"]');
  await isAt(bob, "chat");
});

test("messages arrive unchanged in both directions, and are unread while the page is hidden", { skip }, async () => {
  await talkTo(ann, "bob");
  await say(ann, "Are you there?");
  await ann.waitForSelector("#invited:not([hidden])");
  await bob.waitForSelector('#invitations a[href="#ann"]');
  await talkTo(bob, "ann");
  await shows(bob, ["theirs: Are you there?"]);
  await bob.screenshot({ path: `${VECHE_SHOTS}/chat-invitation.png` });
  // Before Bob accepts, Ann does not learn that he has seen the invitation.
  await lastBecomes(ann, "sent");
  await accept(bob, "ann");
  await lastBecomes(ann, "read");
  assert.ok(await ann.isHidden("#invited"));
  await bob.evaluate(() => (location.hash = ""));
  await say(ann, "Hello?");
  await bob.waitForFunction(() => document.querySelector('#talks a[href="#ann"] .unread').textContent === "1");
  assert.equal(await bob.title(), "(1) Chat");
  await lastBecomes(ann, "delivered");
  await talkTo(bob, "ann");
  await lastBecomes(ann, "read");
  assert.equal(await unread(bob, "ann"), "");
  await say(bob, "<img src=x onerror=alert(1)> вече 🔔");
  await Promise.all([
    shows(ann, ["mine: Are you there?", "mine: Hello?", "theirs: <img src=x onerror=alert(1)> вече 🔔"]),
    shows(bob, ["theirs: Are you there?", "theirs: Hello?", "mine: <img src=x onerror=alert(1)> вече 🔔"]),
  ]);
  await lastBecomes(bob, "read");
});

test("a hidden page has received the message, and marks it as read later", { skip }, async () => {
  await look(bob, false);
  await say(ann, "Look here.");
  await lastBecomes(ann, "delivered");
  assert.equal(await unread(bob, "ann"), "1");
  await look(bob, true);
  await lastBecomes(ann, "read");
});

test("typing is shown, and ends with the message", { skip }, async () => {
  const before = await bubbles(ann);
  await bob.focus("#text");
  await bob.keyboard.type("I am wri");
  await becomes(ann, "#other-state", "typing…");
  await ann.screenshot({ path: `${VECHE_SHOTS}/chat-typing.png` });
  await bob.keyboard.type("ting");
  await bob.keyboard.press("Enter");
  await shows(ann, [...before, "theirs: I am writing"]);
  await becomes(ann, "#other-state", "online");
});

test("without a network for a while: nothing is lost or duplicated, and all is in order, on both sides", { skip }, async () => {
  const before = await bubbles(ann);
  way.cut();
  await ann.waitForSelector("body[data-offline]");
  const said = [1, 2, 3, 4, 5];
  for (const number of said) {
    await say(bob, `while you were away ${number}`);
    await say(ann, `from the tunnel ${number}`);
  }
  await lastBecomes(ann, "waiting");
  await ann.screenshot({ path: `${VECHE_SHOTS}/chat-tunnel.png` });
  await bob.waitForSelector("#other-state:not([data-live])"); // Ann has left
  assert.equal((await bubbles(ann)).length, before.length + 5);
  way.mend();
  await ann.waitForSelector("body:not([data-offline])", { timeout: 30_000 });
  const theirs = said.map((number) => `theirs: while you were away ${number}`);
  await shows(ann, [...before, ...theirs, ...said.map((number) => `mine: from the tunnel ${number}`)]);
  await lastBecomes(ann, "read");
  await lastBecomes(bob, "read");
  const swapped = (line) => line.replace(/^(mine|theirs)/, (side) => (side === "mine" ? "theirs" : "mine"));
  assert.deepEqual((await bubbles(bob)).map(swapped), await bubbles(ann));
});

test("repeated losses of the network during a burst", { skip }, async () => {
  const before = await bubbles(bob);
  for (let number = 0; number < 40; number += 1) {
    await say(ann, `burst ${number}`);
    if (number % 10 === 5) {
      way.cut();
      setTimeout(() => way.mend(), 200);
    }
  }
  const burst = Array.from({ length: 40 }, (_, number) => `theirs: burst ${number}`);
  await shows(bob, [...before, ...burst], 60_000);
  await lastBecomes(ann, "read");
  assert.equal((await bubbles(ann)).length, before.length + 40);
});

test("a reloaded page shows all messages and their marks", { skip }, async () => {
  const before = await bubbles(bob);
  await bob.reload();
  await becomes(bob, "#other-name", "ann");
  await shows(bob, before);
  await lastBecomes(bob, "read");
});

test("the sender can't be forged, and dialogues of other users can't be entered", { skip }, async () => {
  // Eve uses the SDK directly, with her own token.
  const eve = await open(browsers[1], site);
  await enter(eve, "eve");
  await isAt(eve, "chat");
  const codes = await eve.evaluate(async () => {
    const { token } = await (await fetch("api/token")).json();
    const client = new Centrifuge(`ws://${location.host}/connection/websocket`, { token });
    client.connect();
    await client.ready();
    const refused = async (channel) => {
      const subscription = client.newSubscription(channel);
      const code = new Promise((done) => subscription.on("unsubscribed", ({ code }) => done(code)));
      subscription.subscribe();
      return code;
    };
    const codes = [await refused("dialog:#ann,bob"), await refused("typing:#ann,bob"), await refused("#ann")];
    for (const channel of ["dialog:#ann,bob", "people:all", "#ann"]) {
      codes.push(await client.publish(channel, { said: { id: "1", text: "I am Bob" } }).catch(({ code }) => code));
    }
    // In her own dialogue Eve may write any text; the server names her as the author.
    const own = client.newSubscription("dialog:#ann,eve");
    own.subscribe();
    await own.ready();
    const heard = new Promise((done) => own.on("publication", ({ info }) => done(info.user)));
    const forged = { said: { id: "1", text: "I am Bob", by: "bob" }, info: { user: "bob" }, user: "bob" };
    await own.publish(forged);
    await own.publish(forged); // as after a tunnel that has swallowed the answer: it is shown once
    // Invalid data must not break the page of the other user.
    for (const data of [null, 7, "text", [], { said: 1 }, { said: { id: {}, text: [] } }, { read: 1e9 }, { delivered: "x" }]) {
      await own.publish(data);
    }
    client.disconnect();
    return [...codes, await heard];
  });
  assert.deepEqual(codes, [103, 103, 103, 103, 103, 103, "eve"]);
  await ann.evaluate(() => (location.hash = "#eve"));
  await becomes(ann, "#other-name", "eve");
  await shows(ann, ["theirs: I am Bob"]);
  await ann.evaluate(() => (location.hash = "#bob"));
  await becomes(ann, "#other-name", "bob");
  await eve.context().close();
});

test("invitations are declined and withdrawn, dialogues are left, and either user may invite again", { skip }, async () => {
  const dan = await open(browsers[0], site);
  const eda = await open(browsers[1], site);
  await enter(dan, "dan");
  await isAt(dan, "chat");
  await enter(eda, "eda");
  await isAt(eda, "chat");
  const isGone = async (page, name) => {
    await page.waitForFunction((href) => !document.querySelector(`:is(#talks, #invitations) a[href="${href}"]`), `#${name}`);
    await page.waitForSelector(`#people a[href="#${name}"]`);
  };
  // Taken back.
  await talkTo(dan, "eda");
  await say(dan, "Good day.");
  await eda.waitForSelector('#invitations a[href="#dan"]');
  await becomes(dan, "#leave", "Take back");
  await dan.click("#leave");
  await Promise.all([isGone(dan, "eda"), isGone(eda, "dan")]);
  // After Eda has declined, the page reports that Dan can't invite her again.
  await talkTo(dan, "eda");
  await say(dan, "Good day again.");
  await eda.click('#invitations a[href="#dan"]');
  await eda.click("#decline");
  await Promise.all([isGone(dan, "eda"), isGone(eda, "dan")]);
  await dan.waitForFunction(() => /is over/.test(document.getElementById("fault").textContent));
  await say(dan, "Please.");
  await dan.waitForFunction(() => /eda does not want/.test(document.getElementById("fault").textContent));
  // Eda may still invite Dan. He accepts by answering; then he leaves.
  await talkTo(eda, "dan");
  await say(eda, "Now I have time.");
  await dan.waitForSelector('#invitations a[href="#eda"]');
  await dan.waitForSelector("#asked:not([hidden])");
  await say(dan, "So have I.");
  await eda.waitForSelector('#talks a[href="#dan"]');
  await lastBecomes(eda, "read");
  assert.ok(await dan.isHidden("#asked"));
  await becomes(dan, "#leave", "Leave");
  await dan.click("#leave");
  await Promise.all([isGone(dan, "eda"), isGone(eda, "dan")]);
  await eda.waitForFunction(() => /is over/.test(document.getElementById("fault").textContent));
  await eda.screenshot({ path: `${VECHE_SHOTS}/chat-over.png` });
  await dan.reload();
  await isAt(dan, "chat");
  await dan.waitForSelector('#people a[href="#eda"]');
  assert.equal(await dan.$('#talks a[href="#eda"]'), null);
  await dan.context().close();
  await eda.context().close();
});

test("a page of another site can't log a user out", { skip }, async () => {
  const page = await bob.context().newPage();
  const body = `<form method="post" action="${site}/api/logout"></form><script>document.forms[0].submit()</script>`;
  await page.route("http://evil.example/**", (route) => route.fulfill({ contentType: "text/html", body }));
  const answered = page.waitForResponse(`${site}/api/logout`);
  await page.goto("http://evil.example/", { waitUntil: "commit" });
  const answer = await answered;
  assert.equal(answer.status(), 403);
  assert.equal(await answer.headerValue("set-cookie"), null);
  await page.close();
  assert.equal(await bob.evaluate(async () => (await fetch("api/token")).status), 200);
});

test("a user that leaves is shown as offline, and returns to the session", { skip }, async () => {
  await bob.goto("about:blank");
  await ann.waitForFunction(() => /^last seen/.test(document.getElementById("other-state").textContent));
  await say(ann, "Good night.");
  await lastBecomes(ann, "sent");
  await bob.goto(site);
  await isAt(bob, "chat");
  await ann.waitForSelector("#other-state[data-live]");
  await lastBecomes(ann, "delivered");
  await bob.waitForFunction(() => document.querySelector('#talks a[href="#ann"] .unread').textContent === "1");
});

test("the chat works where WebSockets are blocked", { skip }, async () => {
  const narrow = createServer((near) => {
    near.once("data", (first) => {
      if (/^upgrade: *websocket/im.test(first)) return near.destroy();
      const far = connect(new URL(site).port, "127.0.0.1", () => far.write(first));
      near.on("error", () => far.destroy()).on("close", () => far.destroy());
      far.on("error", () => near.destroy());
      near.pipe(far).pipe(near);
    });
  });
  await new Promise((done) => narrow.listen(0, "127.0.0.1", done));
  const page = await open(browsers[1], `http://127.0.0.1:${narrow.address().port}`);
  await enter(page, "marena");
  await isAt(page, "chat");
  await page.waitForSelector("body:not([data-offline])");
  await page.evaluate(() => (location.hash = "#ann"));
  await say(page, "By another way.");
  await lastBecomes(page, "sent");
  await accept(ann, "marena");
  await lastBecomes(page, "read");
  await say(ann, "It leads here.");
  await shows(page, ["mine: By another way.", "theirs: It leads here."]);
  await ann.evaluate(() => (location.hash = "#bob"));
  await becomes(ann, "#other-name", "bob");
  await page.context().close();
  narrow.close();
});

test("the keyboard alone is enough", { skip }, async () => {
  await bob.keyboard.press("Control+k");
  await bob.keyboard.type("an");
  await bob.keyboard.press("ArrowDown");
  await bob.keyboard.press("Enter");
  await becomes(bob, "#other-name", "ann");
  await bob.keyboard.type("two");
  await bob.keyboard.press("Shift+Enter");
  await bob.keyboard.type("lines");
  await bob.keyboard.press("Enter");
  await ann.waitForFunction(() => document.querySelector("#messages li:last-child p").textContent === "two\nlines");
  await bob.keyboard.press("Escape");
  await bob.waitForSelector("body:not([data-open])");
  assert.equal(await bob.evaluate(() => document.activeElement.id), "search");
});

test("phone and desktop, light and dark", { skip }, async () => {
  const crowd = await open(browsers[1], site);
  for (const [name, text] of [["vera", "The parcel is here."], ["mikula", "Tomorrow then?"], ["onfim", "I drew a horse."]]) {
    await enter(crowd, name);
    await isAt(crowd, "chat");
    await talkTo(crowd, "ann");
    await say(crowd, text);
    await look(ann, false);
    await accept(ann, name);
    await lastBecomes(crowd, "delivered");
    await ann.evaluate(() => (location.hash = "#bob"));
    await becomes(ann, "#other-name", "bob");
    await look(ann, true);
    if (name !== "onfim") await crowd.click("#logout");
  }
  await talkTo(ann, "onfim");
  const lines = ["A horse? With how many fingers?", "Three on each hand, as always.", "Then it is yours for sure.\nShow it to me at the market.", "At noon, by the bell."];
  for (const [number, line] of lines.entries()) {
    const [from, to] = number % 2 ? [crowd, ann] : [ann, crowd];
    await say(from, line);
    await lastBecomes(from, "read");
    await to.waitForTimeout(50);
  }
  await ann.click("#logout");
  const kinds = { "desktop-light": {}, "desktop-dark": { colorScheme: "dark" }, "phone-light": PHONE, "phone-dark": { ...PHONE, colorScheme: "dark" } };
  for (const [kind, options] of Object.entries(kinds)) {
    const page = await open(browsers[0], site, options);
    await enter(page, "ann", { how: "login" });
    await isAt(page, "chat");
    await page.waitForFunction(() => document.querySelectorAll("#talks .unread:not(:empty)").length >= 2);
    const slide = () => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    await page.screenshot({ path: `${VECHE_SHOTS}/chat-list-${kind}.png` });
    assert.ok((await slide()) <= 0, `the list on ${kind} scrolls sideways`);
    await talkTo(page, "onfim");
    await shows(page, ["I drew a horse.", ...lines].map((line, number) => `${number % 2 ? "mine" : "theirs"}: ${line}`));
    await page.waitForTimeout(500); // the bubbles come to rest
    await page.screenshot({ path: `${VECHE_SHOTS}/chat-${kind}.png` });
    assert.ok((await slide()) <= 0, `the dialogue on ${kind} scrolls sideways`);
    await page.context().close();
  }
  await crowd.context().close();
});

test("the server process is killed: it has lost all users, and the page shows the login form", { skip }, async () => {
  await isAt(ann, "door");
  await enter(ann, "ann", { how: "login" });
  await isAt(ann, "chat");
  const children = execFileSync("pgrep", ["-P", String(server.pid)], { encoding: "utf8" }).trim().split("\n");
  assert.equal(children.length, 1, "the supervisor has one child, the server process");
  process.kill(Number(children[0]), "SIGKILL");
  await isAt(ann, "door");
  await enter(ann, "ann");
  await isAt(ann, "chat");
});

test("a page without the SDK explains how to install it", async () => {
  const context = await browsers[0].newContext();
  const page = await context.newPage();
  await page.route("**/vendor/centrifuge.js", (route) => route.fulfill({ status: 404 }));
  await page.goto(site);
  await page.waitForFunction(() => /centrifuge_page/.test(document.getElementById("door-fault").textContent));
  await context.close();
});

test("no page had an error", () => assert.deepEqual(complaints, []));
