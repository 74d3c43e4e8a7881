// The peer `ws` on Node's own HTTP server: one process, one thread, an echo at any path and a short body for GET.
// Usage: node server.js PORT
'use strict';

const http = require('node:http');
const { WebSocketServer } = require('ws');

const BODY = Buffer.from('Hello, world!\n');
const HEADERS = { 'Content-Type': 'text/plain; charset=utf-8', 'Content-Length': BODY.length };

const server = http.createServer((request, response) => {
  response.writeHead(200, HEADERS);
  response.end(BODY);
});

const sockets = new WebSocketServer({ server, perMessageDeflate: false });
sockets.on('connection', (socket) => {
  // At the end of a run, the load generator resets connections, so errors are ignored.
  socket.on('error', () => {});
  socket.on('message', (data, binary) => socket.send(data, { binary }));
});

server.listen({ port: Number(process.argv[2]), host: '127.0.0.1', backlog: 4096 });
