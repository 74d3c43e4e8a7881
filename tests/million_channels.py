#!/usr/bin/env python3
"""Creates a million channels on one server: 8,000 Centrifuge clients have 125 channels of their own each. Prints the
memory that a channel with its one subscription takes, publishes to some thousands of channels, and checks the
receivers.

Fails if a channel and its subscription together take more than 200 + 100 bytes plus two copies of the channel's name,
one in the client's session and one in the hub. The first argument replaces the number of clients."""

import json
import pathlib
import random
import resource
import selectors
import socket
import struct
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "conformance"))

import veche  # noqa: E402

CLIENTS = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000
EACH = 125
PUBLISHED = 4_000
AT_A_TIME = 200
# Maximum memory in bytes per channel, without names: 200 for the channel, 100 for its subscription.
# NAMES is the number of places that store a channel's name: the hub and the session.
BYTES_MAX = 200 + 100
NAMES = 2

CONFIG = """
[server]
workers = 2
log = "warn"
[[listen]]
address = "127.0.0.1:{port}"
[[listen]]
address = "127.0.0.1:{internal_port}"
role = "internal"
[[route]]
path = "/connection/websocket"
handler = "centrifuge"
[[namespace]]
name = "room"
subscribe = "client"
[limits]
connections = 19000
connections_per_address = "off"
handshakes_per_address = "off"
ping_interval = "1h"
"""


def name(client, number):
    return f"room:{client:04x}-{number:02x}"


def frame(text):
    data = text.encode()
    length = len(data)
    head = bytes([0x81, 0x80 | length]) if length < 126 else struct.pack("!BBH", 0x81, 0xFE, length)
    return head + bytes(4) + data  # a mask of zeros changes nothing


class Client:
    def __init__(self, number, port):
        self.number, self.buffer, self.replies, self.pushed = number, b"", 0, []
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(
            b"GET /connection/websocket HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" + frame('{"id":1,"connect":{}}')
        )
        self.is_open = False

    def subscribe(self):
        commands = [{"id": 2 + number, "subscribe": {"channel": name(self.number, number)}} for number in range(EACH)]
        self.socket.sendall(frame("\n".join(json.dumps(command) for command in commands)))

    def take(self):
        data = self.socket.recv(65536)
        if not data:
            raise SystemExit(f"client {self.number} was disconnected")
        self.buffer += data
        if not self.is_open:
            head, found, rest = self.buffer.partition(b"\r\n\r\n")
            if not found:
                return
            if b" 101 " not in head:
                raise SystemExit(f"client {self.number} was refused: {head!r}")
            self.is_open, self.buffer = True, rest
        while len(self.buffer) >= 2:
            start, length = 2, self.buffer[1]
            if length == 126:
                start, length = 4, int.from_bytes(self.buffer[2:4], "big")
            elif length == 127:
                start, length = 10, int.from_bytes(self.buffer[2:10], "big")
            if len(self.buffer) < start + length:
                return
            payload, self.buffer = self.buffer[start : start + length], self.buffer[start + length :]
            for line in payload.split(b"\n"):
                message = json.loads(line)
                if "push" in message:
                    self.pushed.append((message["push"]["channel"], message["push"]["pub"]["data"]))
                elif "id" in message:
                    if "error" in message:
                        raise SystemExit(f"client {self.number}: {message}")
                    self.replies += 1


class Crowd:
    def __init__(self, port):
        self.port, self.clients, self.selector = port, [], selectors.DefaultSelector()

    def until(self, what, is_done, seconds=120):
        deadline = time.monotonic() + seconds
        while not is_done():
            if time.monotonic() > deadline:
                raise SystemExit(f"not within {seconds} s: {what}")
            for key, _ in self.selector.select(1):
                key.data.take()

    def each(self, begin, replies):
        """Calls `begin` for all clients, AT_A_TIME at a time, and waits until each of these clients has `replies`
        replies."""
        for first in range(0, CLIENTS, AT_A_TIME):
            some = [begin(number) for number in range(first, min(first + AT_A_TIME, CLIENTS))]
            self.until("replies", lambda some=some: all(client.replies == replies for client in some))

    def connect(self, number):
        client = Client(number, self.port)
        self.clients.append(client)
        self.selector.register(client.socket, selectors.EVENT_READ, client)
        return client

    def subscribe(self, number):
        self.clients[number].subscribe()
        return self.clients[number]


def resident_bytes(server):
    """Returns the resident memory of the server process, the supervisor's only child, in bytes."""
    pid = server.process.pid
    child = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
    for line in pathlib.Path(f"/proc/{child}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("no VmRSS")


def call(server, method, body):
    url = f"http://127.0.0.1:{server.internal_port}/api/{method}"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        answer = json.load(response)
    if "error" in answer:
        raise SystemExit(f"{method}: {answer}")
    return answer


def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CLIENTS + 1000:
        print(f"skipped: {CLIENTS} clients need as many descriptors, and a process may have {hard}")
        sys.exit(77)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with veche.Veche(CONFIG) as server:
        crowd = Crowd(server.port)
        crowd.each(crowd.connect, 1)
        # The front end frees the buffers of handshakes within two seconds.
        time.sleep(3)
        connected = resident_bytes(server)
        began = time.monotonic()
        crowd.each(crowd.subscribe, 1 + EACH)
        lasted = time.monotonic() - began
        time.sleep(3)
        subscribed = resident_bytes(server)
        channels = CLIENTS * EACH
        each = (subscribed - connected) / channels
        length = len(name(0, 0))
        print(f"{channels:,} channels, {lasted:.0f} s; each with its subscription takes {each:.0f} B, {length} of them its name")

        seed = random.randrange(1 << 32)
        chosen = random.Random(seed).sample(range(channels), min(PUBLISHED, channels))
        for first in range(0, len(chosen), 500):
            some = chosen[first : first + 500]
            commands = [{"publish": {"channel": name(at // EACH, at % EACH), "data": at}} for at in some]
            call(server, "batch", {"commands": commands})
        expected = [[] for _ in range(CLIENTS)]
        for at in chosen:
            expected[at // EACH].append((name(at // EACH, at % EACH), at))
        crowd.until("publications", lambda: sum(len(client.pushed) for client in crowd.clients) >= len(chosen), 30)
        wrong = [client.number for client in crowd.clients if sorted(client.pushed) != sorted(expected[client.number])]
        if wrong or server.panicked():
            raise SystemExit(f"seed {seed}: clients {wrong[:5]} have got something else\n{server.log_tail()}")
        print(f"{len(chosen):,} publications reached only their subscribers")
        most = BYTES_MAX + NAMES * length
        if each > most:
            raise SystemExit(f"a channel with its subscription takes more than {most} B")
        print("2 passed")


main()
