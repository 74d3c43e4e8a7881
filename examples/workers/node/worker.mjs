// A worker in Node without a library: it echoes messages. The protocol is described in
// docs/reference/runtime-protocol.md.

import { Socket } from 'node:net';

const PREFIX = 8; // the lengths of a frame's head and payload
const veche = new Socket({ fd: 3, readable: true, writable: true });

function write(head, payload = Buffer.alloc(0)) {
  const bytes = Buffer.from(JSON.stringify(head));
  const prefix = Buffer.alloc(PREFIX);
  prefix.writeUInt32LE(bytes.length, 0);
  prefix.writeUInt32LE(payload.length, 4);
  veche.write(Buffer.concat([prefix, bytes, payload]));
}

// Each handler takes an event's head and payload, and returns the head and payload of its answer. A
// handler may be asynchronous.
const handlers = {
  async open(event) {
    const user = new URLSearchParams(event.request.query ?? '').get('user');
    return [user === null ? {} : { reply: { user } }];
  },
  async message(event, data) {
    return [{ effects: [{ effect: 'send', data_kind: event.data_kind, data: 0 }] }, data];
  },
  async request(event, data) {
    const body = Buffer.from(JSON.stringify({ path: event.request.path, bytes: data.length }));
    return [{ reply: { headers: [['Content-Type', 'application/json']], body: 0 } }, body];
  },
};

async function take(head, payload) {
  if (head.type === 'event') {
    const answer = await handlers[head.event](head, payload).catch((error) => [{ failed: error.stack }]);
    write({ type: 'answer', id: head.id, ...answer[0] }, answer[1]);
  } else if (head.type !== 'welcome' && head.type !== 'cancel') {
    console.error('not welcome, or a frame of an unknown type:', head);
    process.exit(1);
  }
}

let chunks = []; // received bytes of an incomplete frame
let needed = PREFIX;
veche.on('data', (chunk) => {
  chunks.push(chunk);
  if (chunks.reduce((sum, one) => sum + one.length, 0) < needed) return;
  let bytes = Buffer.concat(chunks);
  const lengths = () => [bytes.readUInt32LE(0), bytes.readUInt32LE(4)];
  while ((needed = PREFIX + (bytes.length < PREFIX ? 0 : lengths()[0] + lengths()[1])) <= bytes.length) {
    const end = PREFIX + lengths()[0];
    take(JSON.parse(bytes.subarray(PREFIX, end)), bytes.subarray(end, needed));
    bytes = bytes.subarray(needed);
  }
  chunks = [bytes];
});
veche.on('error', () => process.exit(1));
write({ type: 'hello', versions: [1], sdk: 'node', events: Object.keys(handlers), concurrency: 64 });
