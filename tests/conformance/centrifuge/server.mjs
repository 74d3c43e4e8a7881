// Starts and stops a Veche server for the tests, with a configuration in a temporary folder and on
// free ports.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const SECRET = 'the secret of these tests, which is long enough';

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Returns ports that were free when they were checked.
async function freePorts(count) {
  const servers = await Promise.all(
    Array.from({ length: count }, () => new Promise((done) => {
      const server = net.createServer();
      server.listen(0, '127.0.0.1', () => done(server));
    })),
  );
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((done) => server.close(done))));
  return ports;
}

// Starts a server with `config`, preceded by the listeners. In `config`, `{folder}` is replaced by
// the temporary folder.
export async function start(config, files = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'veche-centrifuge-'));
  const [port, internal] = await freePorts(2);
  const listen = `[server]\nworkers = ${process.env.WORKERS ?? 2}\n`
    + `[[listen]]\naddress = "127.0.0.1:${port}"\n`
    + `[[listen]]\naddress = "127.0.0.1:${internal}"\nrole = "internal"\n`;
  writeFileSync(join(folder, 'veche.toml'), listen + config.replaceAll('{folder}', folder));
  writeFileSync(join(folder, 'secret'), SECRET);
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  const log = openSync(join(folder, 'log'), 'w');
  const child = spawn(process.env.VECHE_BIN, ['serve', '-c', join(folder, 'veche.toml')], {
    stdio: ['ignore', log, log],
  });
  const ended = new Promise((done) => child.once('exit', done));
  const said = () => readFileSync(join(folder, 'log'), 'utf8');
  const api = async (method, body) => {
    const answer = await fetch(`http://127.0.0.1:${internal}/api/${method}`, {
      method: 'POST',
      body: JSON.stringify(body),
    });
    const text = await answer.text();
    assert.equal(answer.status, 200, text);
    return JSON.parse(text);
  };
  const server = {
    port,
    internal,
    url: `ws://127.0.0.1:${port}`,
    http: `http://127.0.0.1:${port}`,
    said,
    publish: (channel, data) => api('publish', { channel, data }),
    api,
    async stop() {
      child.kill();
      await Promise.race([ended, sleep(2000)]);
      child.kill();
      await Promise.race([ended, sleep(5000).then(() => child.kill('SIGKILL'))]);
      rmSync(folder, { recursive: true, force: true });
    },
  };
  for (let tries = 0; tries < 500; tries += 1) {
    if (child.exitCode !== null) throw new Error(`veche did not start:\n${said()}`);
    const health = await fetch(`http://127.0.0.1:${internal}/health`).catch(() => null);
    if (health?.status === 200) return server;
    await sleep(20);
  }
  await server.stop();
  throw new Error('veche did not start in time');
}

// Returns a token signed with the server's key.
export function token(claims) {
  const encode = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const message = `${encode({ alg: 'HS256', typ: 'JWT' })}.${encode(claims)}`;
  return `${message}.${createHmac('sha256', SECRET).update(message).digest('base64url')}`;
}

export const inSeconds = (seconds) => Math.floor(Date.now() / 1000) + seconds;

// Starts a relay between a client and the server. The relay's connections can be cut.
export async function tunnel(port) {
  const pairs = new Set();
  let isOpen = true;
  const between = net.createServer((near) => {
    if (!isOpen) return near.destroy();
    const far = net.connect(port, '127.0.0.1');
    const pair = { near, far };
    pairs.add(pair);
    const end = () => {
      near.destroy();
      far.destroy();
      pairs.delete(pair);
    };
    for (const socket of [near, far]) socket.on('error', end).on('close', end);
    near.pipe(far).pipe(near);
  });
  await new Promise((done) => between.listen(0, '127.0.0.1', done));
  return {
    port: between.address().port,
    cut() {
      isOpen = false;
      for (const { near, far } of pairs) {
        near.destroy();
        far.destroy();
      }
    },
    mend() {
      isOpen = true;
    },
    close() {
      this.cut();
      between.close();
    },
  };
}

// Waits for the next event; throws an error on a timeout.
export function next(emitter, event, ms = 10_000) {
  return new Promise((done, failed) => {
    const timer = setTimeout(() => failed(new Error(`no ${event} in ${ms} ms`)), ms);
    emitter.once(event, (context) => {
      clearTimeout(timer);
      done(context);
    });
  });
}

// Waits until `is` returns true; throws an error on a timeout.
export async function until(what, is, ms = 10_000) {
  const end = Date.now() + ms;
  while (!(await is())) {
    if (Date.now() > end) throw new Error(`not in ${ms} ms: ${what}`);
    await sleep(10);
  }
}
