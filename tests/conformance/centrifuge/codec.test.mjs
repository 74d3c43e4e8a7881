// The codec of Centrifugo's public JavaScript client and our codec: each reads what the other
// writes, in both encodings. CODEC is a program that runs our codec:
// crates/centrifuge/examples/centrifuge_codec.rs.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import test from 'node:test';

import { Centrifuge } from 'centrifuge';
import { Centrifuge as CentrifugeProtobuf } from 'centrifuge/build/protobuf';

const nowhere = 'ws://localhost/';
const codecs = { json: new Centrifuge(nowhere)._codec, protobuf: new CentrifugeProtobuf(nowhere)._codec };

// Returns our codec's answers to requests, one line each.
function ask(...requests) {
  const input = requests.map((request) => JSON.stringify(request) + '\n').join('');
  const done = spawnSync(process.env.CODEC, { input, encoding: 'utf8', maxBuffer: 1 << 26, timeout: 20_000 });
  assert.equal(done.status, 0, done.stderr);
  return done.stdout.trim().split('\n').map((line) => JSON.parse(line));
}

const base64 = (message) => Buffer.from(message).toString('base64');

// The form in which an SDK takes data: values for JSON, bytes for Protobuf.
const data = { json: (value) => value, protobuf: (value) => Buffer.from(JSON.stringify(value)) };

const connect = (data) => ({
  token: 'T',
  data: data({ d: [1, 'é'] }),
  subs: { a: { recover: true, offset: 9007199254740991, epoch: 'e' }, 'b"': {} },
  name: 'js',
  version: '5.8.0',
  headers: { authorization: 'A', x: '' },
  flag: 1,
  profile: 'p',
  dict: 'd',
});

const commands = (data) => [
  { id: 1, connect: connect(data) },
  {
    id: 2,
    subscribe: {
      channel: 'chat:1', token: 'ST', recover: true, offset: 6, epoch: 'ep', data: data({ x: 1 }), positioned: true,
      recoverable: true, join_leave: true, delta: 'fossil', flag: 3, type: 1, phase: 2, cursor: 'c', limit: 5,
      asc: true,
      tf: { op: 'and', nodes: [{ key: 'k', cmp: 'in', vals: ['v'] }] },
    },
  },
  { id: 3, unsubscribe: { channel: 'c' } },
  { id: 4, publish: { channel: 'c', data: data('text "quoted"\n'), type: 1, key: 'k' } },
  { id: 5, presence: { channel: 'c' } },
  { id: 6, presence_stats: { channel: 'c' } },
  { id: 7, history: { channel: 'c', limit: -1, since: { offset: 3, epoch: 'e' }, reverse: true } },
  { id: 8, history: { channel: 'c' } },
  { id: 9, rpc: { method: 'm', data: data(null) } },
  { send: { data: data({ s: 1 }) } },
  { id: 10, refresh: { token: 'T' } },
  { id: 4294967295, sub_refresh: { channel: 'c', token: 'T' } },
  { id: 12, ping: {} },
  {},
];

// All fields of each request, with their zero values.
const zeros = {
  connect: { token: '', data: null, subs: {}, name: '', version: '', headers: {}, flag: 0 },
  subscribe: {
    channel: '', token: '', recover: false, offset: 0, epoch: '', data: null, positioned: false, recoverable: false,
    join_leave: false, delta: '', flag: 0, type: 0, tf: null,
  },
  publish: { channel: '', data: null, type: 0 },
  history: { channel: '', limit: 0, since: null, reverse: false },
  rpc: { method: '', data: null },
  send: { data: null },
  sub_refresh: { channel: '', token: '', type: 0 },
};

// Returns what our codec must read from a command: without unknown fields, and with data as the
// text that was sent.
function expected(command) {
  const [name] = Object.keys(command).filter((key) => key !== 'id');
  return name === undefined ? {} : { id: command.id ?? 0, [name]: request(name, command[name]) };
}

function request(name, fields) {
  const known = { ...(zeros[name] ?? fields) };
  for (const key of Object.keys(known).filter((key) => key in fields)) {
    known[key] = key === 'data' ? JSON.stringify(fields.data) : fields[key];
  }
  // Whether the filter passes publications without `k`, and with `k` equal to `v`, `12` and an
  // empty text.
  if (name === 'subscribe' && known.tf) known.tf = [false, true, false, false];
  for (const [channel, sub] of Object.entries(known.subs ?? {})) {
    known.subs = { ...known.subs, [channel]: { recover: false, offset: 0, epoch: '', ...sub } };
  }
  return known;
}

for (const encoding of ['json', 'protobuf']) {
  const codec = codecs[encoding];

  test(`${encoding}: we read the commands that the client writes`, () => {
    assert.equal(codec.name(), encoding);
    const message = codec.encodeCommands(commands(data[encoding]));
    const [read] = ask({ read: base64(message), encoding, as: 'commands' });
    assert.deepEqual(read, commands(data.json).map(expected));
  });

  test(`${encoding}: we read the envelope in which the client posts commands`, () => {
    const sent = codec.encodeCommands(commands(data[encoding]).slice(1, 3));
    const envelope = { session: 'S', node: 'N', data: sent };
    const body = encoding === 'json' ? JSON.stringify(envelope) : codec.encodeEmulationRequest(envelope);
    const [read] = ask({ read: base64(body), encoding, as: 'emulation' });
    assert.deepEqual(read, { session: 'S', node: 'N', commands: commands(data.json).slice(1, 3).map(expected) });
  });

  test(`${encoding}: truncated input is rejected`, () => {
    const message = Buffer.from(codec.encodeCommands([{ id: 1, connect: connect(data[encoding]) }]));
    const requests = Array.from(message.slice(1), (_, end) => {
      return { read: base64(message.subarray(0, end + 1)), encoding, as: 'commands' };
    });
    for (const answer of ask(...requests)) assert.ok('error' in answer, JSON.stringify(answer));
  });
}

test('we read what a client of a unidirectional transport begins with', () => {
  const sent = Buffer.from(JSON.stringify(connect(data.json)));
  const [read] = ask({ read: base64(sent), encoding: 'json', as: 'connect' });
  assert.deepEqual(read, request('connect', connect(data.json)));
});

const info = { user: '42', client: 'c-1', conn_info: { n: 1 } };
const publications = [
  {
    data: { a: 'с\n' }, info, offset: 9007199254740991, tags: { a: '1', b: '' }, time: 1700000000000,
    channel: 'news:eu',
  },
  { data: [...Array(500).fill('0123456789 привет'), 0] },
];
const subscribed = {
  expires: true, ttl: 60, recoverable: true, epoch: 'ep', publications, recovered: true, offset: 6, positioned: true,
  data: [], was_recovering: true, delta: true,
};
const connected = {
  client: 'c-1', version: '0.1', expires: true, ttl: 3600, data: { d: 1 }, subs: { a: subscribed, '': {} }, ping: 25,
  pong: true, session: 's', node: 'n', time: 1700000000000,
};
const reply = (result) => [{ id: 7, ...result }];
const push = (body) => [{ push: { channel: 'chat:1', ...body } }];
const samples = {
  error: reply({ error: { code: 111, message: 'too many requests', temporary: true } }),
  connect: reply({ connect: connected }),
  subscribe: reply({ subscribe: subscribed }),
  unsubscribe: reply({ unsubscribe: {} }),
  publish: reply({ publish: {} }),
  presence: reply({ presence: { presence: { 'c-0': { user: '', client: '' }, 'c-1': info } } }),
  presence_stats: reply({ presence_stats: { num_clients: 3, num_users: 2 } }),
  history: reply({ history: { publications, epoch: 'e', offset: 6 } }),
  ping: reply({ ping: {} }),
  rpc: reply({ rpc: { data: null } }),
  refresh: reply({ refresh: { client: 'c-1', version: '0.1', expires: true, ttl: 60 } }),
  sub_refresh: reply({ sub_refresh: { expires: true, ttl: 60 } }),
  'push pub': push({ pub: publications[0] }),
  'push text': push({ pub: { data: 'say "hi"\n\u2028' } }),
  'push join': push({ join: { info } }),
  'push leave': push({ leave: { info } }),
  'push unsubscribe': push({ unsubscribe: { code: 2500, reason: 'insufficient state' } }),
  'push subscribe': push({ subscribe: { recoverable: true, epoch: 'e', offset: 9, positioned: true, data: 1 } }),
  'push message': push({ message: { data: { m: 1 } } }),
  'push connect': push({ connect: connected }),
  'push disconnect': push({ disconnect: { code: 3500, reason: 'invalid token' } }),
  'push refresh': push({ refresh: { expires: true, ttl: 60 } }),
  batch: [{ id: 1, publish: {} }, { id: 2, publish: {} }, { id: 3, publish: {} }, {}],
};
const written = ask({ write: true })[0];

function decoded(name, encoding) {
  const message = written[name][encoding];
  return codecs[encoding].decodeReplies(encoding === 'json' ? message : Buffer.from(message, 'base64'));
}

// Converts a decoded Protobuf message to plain values.
function plain(value) {
  if (value instanceof Uint8Array) {
    const text = Buffer.from(value).toString();
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }
  if (typeof value?.toNumber === 'function') return value.toNumber();
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, value]) => [key, plain(value)]));
}

// Removes the values that Protobuf does not encode: zeros, and empty lists and maps.
function withoutZeros(value, key) {
  if (key === 'data' || value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map((value) => withoutZeros(value));
  const isList = (key) => ['publications', 'subs', 'tags', 'state', 'items'].includes(key);
  const isNothing = (key, value) => {
    if (key === 'data') return false;
    return value === '' || value === 0 || value === false || (isList(key) && Object.keys(value).length === 0);
  };
  const entries = Object.entries(value).filter(([key, value]) => !isNothing(key, value));
  return Object.fromEntries(entries.map(([key, value]) => [key, withoutZeros(value, key)]));
}

test('all samples are looked at', () => {
  const deltas = ['push patch', 'push whole', 'push whole text'];
  assert.deepEqual(Object.keys(written).sort(), [...Object.keys(samples), ...deltas].sort());
});

for (const [name, sample] of Object.entries(samples)) {
  test(`json: the client reads our ${name}`, () => assert.deepEqual(decoded(name, 'json'), sample));

  test(`protobuf: the client reads our ${name}`, () => {
    assert.deepEqual(withoutZeros(plain(decoded(name, 'protobuf'))), withoutZeros(sample));
  });
}

for (const [encoding, text] of [['json', (data) => data], ['protobuf', (data) => Buffer.from(data).toString()]]) {
  test(`${encoding}: the client applies our deltas`, () => {
    const applied = (name, before) => {
      const [{ push }] = decoded(name, encoding);
      return codecs[encoding].applyDeltaIfNeeded(push.pub, before);
    };
    const value = (data) => (encoding === 'json' ? data : JSON.parse(text(data)));
    const whole = applied('push whole');
    assert.deepEqual(value(whole.newData), { a: 'b\\' });
    const patched = applied('push patch', whole.newPrevValue);
    assert.ok(patched.isDelta);
    assert.deepEqual(value(patched.newData), { a: 2 });
    assert.equal(text(applied('push whole text').newData), 'say "hi"\n');
  });
}

// A random number generator that returns the same numbers in each run.
function random(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

test('the client applies our deltas correctly between any data', () => {
  const pick = random(7);
  const letters = Array.from('abcäöü€😀😁 {}":,0123456789');
  const text = (length) => Array.from({ length }, () => letters[pick(letters.length)]).join('');
  // Returns a text with parts removed, replaced and moved.
  const changed = (old) => {
    const parts = Array.from(old);
    for (let count = pick(5); count >= 0; count -= 1) {
      const at = pick(parts.length + 1);
      const taken = parts.splice(at, pick(60));
      const put = [[], Array.from(text(pick(30))), taken.reverse()][pick(3)];
      parts.splice(pick(parts.length + 1), 0, ...put);
    }
    return parts.join('');
  };
  const pairs = Array.from({ length: 500 }, () => {
    const old = text(pick(800));
    return [JSON.stringify(old), JSON.stringify(changed(old))];
  });
  const deltas = ask(...pairs.map((pair) => ({ delta: pair.map(base64) })));
  let applied = 0;
  pairs.forEach(([old, fresh], number) => {
    if (deltas[number] === null) return;
    applied += 1;
    const delta = Buffer.from(deltas[number], 'base64');
    assert.ok(delta.length < Buffer.byteLength(fresh));
    // In JSON a delta is a string, so it has to be valid text.
    const json = codecs.json.applyDeltaIfNeeded({ delta: true, data: new TextDecoder('utf-8', { fatal: true }).decode(delta) }, Buffer.from(old));
    assert.equal(json.newData, JSON.parse(fresh));
    const protobuf = codecs.protobuf.applyDeltaIfNeeded({ delta: true, data: new Uint8Array(delta) }, new Uint8Array(Buffer.from(old)));
    assert.equal(Buffer.from(protobuf.newData).toString(), fresh);
  });
  assert.ok(applied > 250, `${applied} deltas of 500`);
});
