// Centrifugo's public JavaScript client, unmodified, on a real server. VECHE_BIN is the server's
// program.

import assert from 'node:assert/strict';
import test, { after, before, describe } from 'node:test';

import { Centrifuge } from 'centrifuge';
import { Centrifuge as CentrifugeProtobuf } from 'centrifuge/build/protobuf';

import { EventSource } from './eventsource.mjs';
import { inSeconds, next, sleep, start, token, tunnel, until } from './server.mjs';

const CONFIG = `
[[route]]
path = "/connection/*"
handler = "centrifuge"

[[route]]
path = "/named/websocket"
handler = "centrifuge"
identity = "query:user"

[[route]]
path = "/tokens/websocket"
handler = "centrifuge"
identity = "jwt"

[[route]]
path = "/script/websocket"
handler = "centrifuge"
script = "app.lua"

[jwt]
secret_file = "secret"
leeway = "0s"

[[namespace]]
name = "chat"
history_size = 10
subscribe = "client"
publish = "subscriber"

[[namespace]]
name = "state"
history_size = 10
subscribe = "client"
publish = "subscriber"
delta = "fossil"
delta_publish = true

[[namespace]]
name = "orders"
history_size = 10
subscribe = "client"
tags_filter = true

[[namespace]]
name = "room"
subscribe = "client"
presence = true
join_leave = true
leave_delay = "off"

[[namespace]]
name = "plain"
subscribe = "client"
publish = "client"

[[namespace]]
name = "closed"
history_size = 10
subscribe = "token"

[[namespace]]
name = "#"
history_size = 10

[limits]
drain_time = "200ms"
`;

const APP = `
local veche = require "veche"
local on = {}
function on.connect(client, data) return { user = data.name, data = { hello = data.name } } end
on.rpc = {
  add = function(client, data)
    veche.sleep(0.01)
    return { data = { sum = data[1] + data[2], by = client.user } }
  end,
  refuse = function() error { error = { code = 1000, message = "not so" } } end,
  leave = function() return { disconnect = { code = 4501, reason = "enough" } } end,
}
function on.message(client, data) veche.push(client.user, { said = data }) end
return { centrifuge = on }
`;
const FILES = { 'app.lua': APP };

let server;
before(async () => {
  server = await start(CONFIG, FILES);
});
after(() => server?.stop());

const clients = [];
after(() => clients.forEach((client) => client.disconnect()));

const formats = {
  json: { Client: Centrifuge, wrap: (value) => value, unwrap: (data) => data },
  protobuf: {
    Client: CentrifugeProtobuf,
    wrap: (value) => new TextEncoder().encode(JSON.stringify(value)),
    unwrap: (data) => JSON.parse(new TextDecoder().decode(data)),
  },
};

for (const [format, { Client, wrap, unwrap }] of Object.entries(formats)) {
  const open = (path, options = {}, port = server.port) => {
    const fast = { minReconnectDelay: 10, maxReconnectDelay: 100, timeout: 2000 };
    const client = new Client(`ws://127.0.0.1:${port}${path}`, { ...fast, ...options });
    clients.push(client);
    return client;
  };
  const connected = async (path, options, port) => {
    const client = open(path, options, port);
    const event = next(client, 'connected');
    client.connect();
    return [client, await event];
  };
  const subscribed = async (client, channel, options) => {
    const subscription = client.newSubscription(channel, options);
    const event = next(subscription, 'subscribed');
    subscription.subscribe();
    return [subscription, await event];
  };

  describe(format, () => {
    test('a script decides, answers methods and receives messages', async () => {
      const data = wrap({ name: `ann-${format}` });
      const [ann, context] = await connected('/script/websocket', { data });
      assert.deepEqual(unwrap(context.data), { hello: `ann-${format}` });
      const sums = await Promise.all([[1, 2], [3, 4]].map((pair) => ann.rpc('add', wrap(pair))));
      const expected = [3, 7].map((sum) => ({ sum, by: `ann-${format}` }));
      assert.deepEqual(sums.map((reply) => unwrap(reply.data)), expected);
      await assert.rejects(ann.rpc('refuse', wrap(1)), { code: 1000, message: 'not so' });
      await assert.rejects(ann.rpc('unknown', wrap(1)), { code: 104 });
      const heard = next(ann, 'publication');
      await ann.send(wrap({ n: 1 }));
      assert.deepEqual(unwrap((await heard).data), { said: { n: 1 } });
      const gone = next(ann, 'disconnected');
      ann.rpc('leave', wrap(1)).catch(() => {});
      assert.equal((await gone).code, 4501);
    });

    test('a client connects, subscribes, publishes and receives', async () => {
      const [ann, context] = await connected('/named/websocket?user=ann');
      assert.match(context.client, /^[0-9a-f]{8}-[0-9a-f]{4}-4/);
      const [bob] = await connected('/connection/websocket');
      const channel = `chat:${format}`;
      const [subscription, joined] = await subscribed(ann, channel);
      assert.deepEqual([joined.recoverable, joined.positioned, joined.wasRecovering], [true, true, false]);
      const [hears] = await subscribed(bob, channel);
      const heard = [next(subscription, 'publication'), next(hears, 'publication')];
      await subscription.publish(wrap({ text: 'hello' }));
      for (const publication of await Promise.all(heard)) {
        assert.deepEqual(unwrap(publication.data), { text: 'hello' });
        assert.equal(publication.offset, 1);
        assert.deepEqual([publication.info.user, publication.info.client], ['ann', context.client]);
      }
      // The client receives a publication of the back end.
      const told = next(hears, 'publication');
      await server.publish(channel, ['from', 'behind']);
      const publication = await told;
      assert.deepEqual([unwrap(publication.data), publication.offset, publication.info], [['from', 'behind'], 2, undefined]);
      // The history contains the position of the stream.
      const history = await hears.history({ limit: 10 });
      assert.deepEqual(history.publications.map(({ data }) => unwrap(data)), [{ text: 'hello' }, ['from', 'behind']]);
      assert.deepEqual(history.publications.map(({ offset }) => offset), [1, 2]);
      const { offset, epoch } = history;
      assert.equal(offset, 2);
      const latest = await hears.history({ limit: 1, reverse: true });
      assert.deepEqual(latest.publications.map(({ offset }) => offset), [2]);
      const rest = await hears.history({ limit: -1, since: { offset: 1, epoch } });
      assert.deepEqual(rest.publications.map(({ offset }) => offset), [2]);
      await assert.rejects(hears.history({ since: { offset: 1, epoch: 'other' } }), { code: 112 });
      // After unsubscribing, the client receives no publications.
      hears.on('publication', () => assert.fail('unsubscribed'));
      hears.unsubscribe();
      const last = next(subscription, 'publication');
      await server.publish(channel, 3);
      assert.equal(unwrap((await last).data), 3);
      await assert.rejects(bob.history(channel, { limit: 1 }), { code: 103 });
    });

    test('publications missed during a disconnect are recovered once and in order', async () => {
      const way = await tunnel(server.port);
      try {
        const channel = `chat:tunnel-${format}`;
        const [client] = await connected('/named/websocket?user=eve', {}, way.port);
        const [subscription] = await subscribed(client, channel);
        const heard = [];
        subscription.on('publication', ({ data }) => heard.push(unwrap(data)));
        await server.publish(channel, 1);
        await until('the first', () => heard.length === 1);
        const own = [];
        client.on('publication', ({ channel, data }) => own.push([channel, unwrap(data)]));
        const gone = next(client, 'connecting');
        way.cut();
        await gone;
        for (const number of [2, 3, 4]) await server.publish(channel, number);
        await server.api('push', { user: 'eve', data: ['yours'] });
        const back = next(subscription, 'subscribed');
        way.mend();
        const context = await back;
        assert.deepEqual([context.wasRecovering, context.recovered], [true, true]);
        await server.publish(channel, 5);
        await until('all of them', () => heard.length === 5);
        assert.deepEqual(heard, [1, 2, 3, 4, 5]);
        // The client recovers the missed publication of the user's personal channel, to which the
        // server subscribes it.
        assert.deepEqual(own, [['#eve', ['yours']]]);
        // More publications are missed than the history keeps.
        const gap = next(client, 'connecting');
        way.cut();
        await gap;
        for (let number = 0; number < 11; number += 1) await server.publish(channel, 'lost');
        const again = next(subscription, 'subscribed');
        way.mend();
        const lost = await again;
        assert.deepEqual([lost.wasRecovering, lost.recovered], [true, false]);
        client.disconnect();
      } finally {
        way.close();
      }
    });

    test('subscribers with deltas receive deltas, also in a recovery', async () => {
      const way = await tunnel(server.port);
      try {
        const channel = `state:${format}`;
        const state = (number) => ({ number, text: 'the same “each time”, ünd 😀 längs enough to be worth it', even: number % 2 === 0 });
        const [client] = await connected('/named/websocket?user=ann', {}, way.port);
        const [subscription] = await subscribed(client, channel, { delta: 'fossil' });
        const [other] = await connected('/connection/websocket');
        const [plain] = await subscribed(other, channel);
        const [heard, whole] = [[], []];
        subscription.on('publication', ({ data, offset }) => heard.push([offset, unwrap(data)]));
        plain.on('publication', ({ data, offset }) => whole.push([offset, unwrap(data)]));
        for (const number of [1, 2, 3]) await server.publish(channel, state(number));
        await subscription.publish(wrap(state(4)));
        await until('four', () => heard.length === 4 && whole.length === 4);
        assert.deepEqual(
          [subscription.deltaStats().numFullPayloads, subscription.deltaStats().numDeltaPayloads],
          [1, 3],
        );
        // A recovery consists of one full publication and deltas. Later publications are deltas too.
        const gone = next(client, 'connecting');
        way.cut();
        await gone;
        for (const number of [5, 6, 7]) await server.publish(channel, state(number));
        const back = next(subscription, 'subscribed');
        way.mend();
        assert.deepEqual((await back).recovered, true);
        await server.publish(channel, state(8));
        await until('eight', () => heard.length === 8);
        assert.deepEqual(
          [subscription.deltaStats().numFullPayloads, subscription.deltaStats().numDeltaPayloads],
          [2, 6],
        );
        // Publishes a text, a state that is not stored in the history, and two more states.
        await server.publish(channel, 'a text');
        await server.api('publish', { channel, data: state(9), skip_history: true });
        await server.publish(channel, state(10));
        await server.publish(channel, state(11));
        await until('all', () => heard.length === 12 && whole.length === 12);
        assert.deepEqual(heard, whole);
        assert.equal(subscription.deltaStats().numDeltaPayloads, 7);
        client.disconnect();
      } finally {
        way.close();
      }
    });

    test('a tag filter applies to publications, also in a recovery', async () => {
      const way = await tunnel(server.port);
      try {
        const channel = `orders:${format}`;
        const [client] = await connected('/named/websocket?user=ann', {}, way.port);
        const tagsFilter = {
          op: 'or',
          nodes: [
            { key: 'side', cmp: 'eq', val: 'sell' },
            { op: 'and', nodes: [{ key: 'price', cmp: 'gte', val: '99.5' }, { key: 'side', cmp: 'in', vals: ['buy', 'swap'] }] },
          ],
        };
        const [subscription] = await subscribed(client, channel, { tagsFilter });
        const heard = [];
        subscription.on('publication', ({ data }) => heard.push(unwrap(data)));
        const publish = (data, tags) => server.api('publish', { channel, data, tags });
        await publish(1, { side: 'sell' });
        await publish(2, { side: 'buy', price: '99' });
        await publish(3, { side: 'buy', price: '100' });
        await publish(4, {});
        await publish(5, { side: 'sell', price: '1' });
        await until('three', () => heard.length === 3);
        const gone = next(client, 'connecting');
        way.cut();
        await gone;
        await publish(6, { side: 'buy' });
        await publish(7, { side: 'swap', price: '99.50' });
        const back = next(subscription, 'subscribed');
        way.mend();
        assert.equal((await back).recovered, true);
        await publish(8, { side: 'lend' });
        await publish(9, { side: 'sell' });
        await until('five', () => heard.length === 5);
        assert.deepEqual(heard, [1, 3, 5, 7, 9]);
        const refused = client.newSubscription(`chat:filter-${format}`, { tagsFilter });
        const ended = next(refused, 'unsubscribed');
        refused.subscribe();
        assert.equal((await ended).code, 107);
        client.disconnect();
      } finally {
        way.close();
      }
    });

    test('a user receives pushes', async () => {
      const user = `own-${format}`;
      const client = open(`/named/websocket?user=${user}`);
      const joined = next(client, 'subscribed');
      const heard = next(client, 'publication');
      client.connect();
      assert.equal((await joined).channel, `#${user}`);
      const pushed = await server.api('push', { user, data: { n: 1 } });
      assert.equal(pushed.handed ?? pushed.result?.handed, 1, JSON.stringify(pushed));
      const publication = await heard;
      assert.deepEqual([publication.channel, unwrap(publication.data)], [`#${user}`, { n: 1 }]);
      // The back end closes all connections of the user permanently.
      const ended = next(client, 'disconnected');
      await server.api('disconnect', { user });
      assert.equal((await ended).code, 3503);
    });

    test('presence, joins and leaves', async () => {
      const [ann] = await connected('/named/websocket?user=ann');
      const [bob, { client }] = await connected('/named/websocket?user=bob');
      const channel = `room:${format}`;
      const [room] = await subscribed(ann, channel, { joinLeave: true });
      const events = [];
      room.on('join', ({ info }) => events.push(['join', info.user]));
      room.on('leave', ({ info }) => events.push(['leave', info.user]));
      const [visit] = await subscribed(bob, channel);
      await until('the join event of bob', () => events.some(([kind, user]) => kind === 'join' && user === 'bob'));
      const { clients } = await visit.presence();
      assert.deepEqual(Object.values(clients).map(({ user }) => user).sort(), ['ann', 'bob']);
      assert.equal(clients[client].user, 'bob');
      assert.deepEqual(await room.presenceStats(), { numClients: 2, numUsers: 2 });
      visit.unsubscribe();
      await until('his leave', () => events.some(([kind, user]) => kind === 'leave' && user === 'bob'));
    });

    test('the back end subscribes and unsubscribes', async () => {
      const user = `led-${format}`;
      const [client] = await connected(`/named/websocket?user=${user}`);
      const channel = `closed:led-${format}`;
      const joined = next(client, 'subscribed');
      await server.api('subscribe', { user, channel });
      assert.equal((await joined).channel, channel);
      const heard = next(client, 'publication');
      await server.publish(channel, [1]);
      assert.deepEqual(unwrap((await heard).data), [1]);
      const left = next(client, 'unsubscribed');
      await server.api('unsubscribe', { user, channel });
      assert.equal((await left).channel, channel);
    });

    test('errors have their codes', async () => {
      const [client] = await connected('/named/websocket?user=ann');
      const refused = async (channel, options) => {
        const subscription = client.newSubscription(channel, options);
        const event = next(subscription, 'unsubscribed');
        subscription.subscribe();
        const { code } = await event;
        client.removeSubscription(subscription);
        return code;
      };
      assert.equal(await refused('nowhere:1'), 103);
      assert.equal(await refused('unlisted'), 103);
      assert.equal(await refused('closed:1'), 103);
      assert.equal(await refused('chat:$1'), 103);
      assert.equal(await refused('chat:1#bob'), 103);
      assert.equal(await refused('#bob'), 103);
      assert.equal(await refused('a\nb'), 102);
      const [mine] = await subscribed(client, 'chat:1#bob,ann');
      assert.equal(mine.state, 'subscribed');
      await assert.rejects(client.publish('chat:elsewhere', wrap(1)), { code: 103 });
      await client.publish('plain:1', wrap(1));
      await assert.rejects(client.rpc('method', wrap(1)), { code: 108 });
      const [plain] = await subscribed(client, 'plain:1');
      await assert.rejects(plain.history({ limit: 1 }), { code: 108 });
      const channels = [];
      for (let number = 0; number < 126; number += 1) {
        channels.push(subscribed(client, `plain:many-${number}`));
        if (channels.length === 125) break;
      }
      await Promise.all(channels);
      // With the user's personal channel, the client has 128 channels, which is the maximum.
      assert.equal(await refused('plain:one-too-many'), 106);
    });

    test('tokens name the user and the expiry', async () => {
      let asked = 0;
      const getToken = async () => {
        asked += 1;
        return token({ sub: 'tom', exp: inSeconds(2), info: { name: 'Tom' }, channels: [`chat:given-${format}`] });
      };
      const client = open('/tokens/websocket', { getToken });
      const given = [];
      client.on('subscribed', ({ channel }) => given.push(channel));
      const connected = next(client, 'connected');
      let lost = 0;
      client.on('connecting', ({ code }) => { lost += code === 0 ? 0 : 1; });
      client.connect();
      await connected;
      await until('what the token gives', () => given.length === 2);
      assert.deepEqual(given.sort(), ['#tom', `chat:given-${format}`]);
      const heard = next(client, 'publication');
      await client.publish(`chat:given-${format}`, wrap('mine'));
      const publication = await heard;
      assert.deepEqual(unwrap(publication.info.connInfo), { name: 'Tom' });
      // The SDK renews the token, and the connection stays open.
      await until('another token', () => asked >= 3);
      assert.equal(lost, 0);
      client.disconnect();

      const refused = async (options) => {
        const client = open('/tokens/websocket', options);
        const ended = next(client, 'disconnected');
        client.connect();
        return (await ended).code;
      };
      assert.equal(await refused({ token: 'no token' }), 3500);
      assert.equal(await refused({ token: token({ sub: 'tom', exp: inSeconds(60), channel: 'closed:1' }) }), 3500);
      assert.equal(await refused({}), 101);
      // An expired token makes the client request another one.
      const late = open('/tokens/websocket', {
        token: token({ sub: 'tom', exp: inSeconds(-60) }),
        getToken: async () => token({ sub: 'tom', exp: inSeconds(60) }),
      });
      const there = next(late, 'connected');
      late.connect();
      await there;
    });

    test('subscriptions by token', async () => {
      const pass = token({ sub: 'tom', exp: inSeconds(600) });
      const [client] = await connected('/tokens/websocket', { token: pass });
      let asked = 0;
      const channel = `closed:${format}`;
      const getToken = async () => {
        asked += 1;
        return token({ sub: 'tom', channel, exp: inSeconds(2), info: { role: 'guest' } });
      };
      const [subscription] = await subscribed(client, channel, { getToken });
      let lost = 0;
      subscription.on('subscribing', () => { lost += 1; });
      await until('another token', () => asked >= 3);
      assert.equal(lost, 0);
      const refused = async (claims) => {
        const other = client.newSubscription(`closed:other-${format}`, { token: token(claims) });
        const ended = next(other, 'unsubscribed');
        other.subscribe();
        const { code } = await ended;
        client.removeSubscription(other);
        return code;
      };
      const other = `closed:other-${format}`;
      const exp = inSeconds(60);
      assert.equal(await refused({ sub: 'tom', channel, exp }), 103);
      assert.equal(await refused({ sub: 'ann', channel: other, exp }), 103);
      assert.equal(await refused({ sub: 'tom', exp }), 103);
      const priv = `chat:$${format}`;
      const [secret] = await subscribed(client, priv, { token: token({ sub: 'tom', channel: priv, exp }) });
      const heard = next(secret, 'publication');
      await secret.publish(wrap('psst'));
      assert.equal(unwrap((await heard).data), 'psst');
    });

    for (const transport of format === 'json' ? ['http_stream', 'sse'] : ['http_stream']) {
      test(`the same without a WebSocket: ${transport}`, async () => {
        const way = await tunnel(server.port);
        try {
          const http = `http://127.0.0.1:${way.port}/connection`;
          const client = new Client([{ transport, endpoint: `${http}/${transport}` }], {
            emulationEndpoint: `${http}/emulation`,
            eventsource: EventSource,
            minReconnectDelay: 10,
            maxReconnectDelay: 100,
            timeout: 2000,
          });
          clients.push(client);
          const channel = `chat:${transport}-${format}`;
          const subscription = client.newSubscription(channel);
          const heard = [];
          subscription.on('publication', ({ data }) => heard.push(unwrap(data)));
          const joined = next(subscription, 'subscribed');
          subscription.subscribe();
          client.connect();
          await joined;
          assert.equal(client._transport.name(), transport);
          for (let number = 1; number <= 3; number += 1) await subscription.publish(wrap([number]));
          await until('three', () => heard.length === 3);
          const history = await subscription.history({ limit: 2, reverse: true });
          assert.deepEqual(history.publications.map(({ offset }) => offset), [3, 2]);
          const gone = next(client, 'connecting');
          way.cut();
          await gone;
          await server.publish(channel, [4]);
          const back = next(subscription, 'subscribed');
          way.mend();
          assert.equal((await back).recovered, true);
          await server.publish(channel, [5]);
          await until('all of them', () => heard.length === 5);
          assert.deepEqual(heard.flat(), [1, 2, 3, 4, 5]);
          client.disconnect();
        } finally {
          way.close();
        }
      });
    }

    test('the server restarts, and clients reconnect', async () => {
      const other = await start(CONFIG, FILES);
      const [client] = await connected('/connection/websocket', {}, other.port);
      const gone = next(client, 'connecting');
      await other.stop();
      assert.equal((await gone).code, 3001);
      client.disconnect();
    });
  });
}

test('binary data reach a client of JSON as base64', async () => {
  const url = `${server.url}/connection/websocket`;
  const [plain, binary] = [new Centrifuge(url), new CentrifugeProtobuf(url)];
  clients.push(plain, binary);
  const subscriptions = [plain, binary].map((client) => {
    const subscription = client.newSubscription('plain:binary');
    subscription.subscribe();
    client.connect();
    return subscription;
  });
  await Promise.all(subscriptions.map((subscription) => next(subscription, 'subscribed')));
  const [inJson, heard] = subscriptions.map((subscription) => next(subscription, 'publication'));
  await binary.publish('plain:binary', new Uint8Array([0, 255]));
  assert.deepEqual([...(await heard).data], [0, 255]);
  assert.equal((await inJson).data, 'AP8=');
});
