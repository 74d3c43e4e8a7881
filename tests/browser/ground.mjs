// Fixtures of the browser tests: a free port, a wait for the server, Chromium, and the cleanup.

import { rmSync } from "node:fs";
import { createServer } from "node:net";
import { chromium } from "playwright-core";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";

export function freePort() {
  return new Promise((done) => {
    const held = createServer().listen(0, "127.0.0.1", () => {
      const { port } = held.address();
      held.close(() => done(port));
    });
  });
}

/** Waits until `url` is answered with success. */
export async function answers(url) {
  for (let tries = 0; tries < 200; tries++) {
    if (await fetch(url).then((answer) => answer.ok, () => false)) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`no response from ${url}`);
}

/** Launches Chromium without its sandbox and background traffic; `args` are further switches. */
export function launch(...args) {
  return chromium.launch({
    executablePath: CHROMIUM,
    args: [
      "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync", ...args,
    ],
  });
}

/** Ends a browser and a server, and removes the server's folder. */
export async function end(browser, server, folder) {
  await browser?.close();
  const ended = new Promise((done) => server?.once("exit", done));
  server?.kill("SIGTERM");
  setTimeout(() => server?.kill("SIGTERM"), 300).unref(); // the second one ends it at once
  await ended;
  rmSync(folder, { recursive: true, force: true });
}
