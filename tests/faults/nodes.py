"""A node: a Veche server with the engine on Redis, which can be restarted on the same ports. Also calls of its API, and
the latency of its echoes."""

import asyncio
import json
import os
import pathlib
import signal
import time

import veche

from . import stores

CONFIG = """
[server]
workers = 1
io = "{io}"

[[listen]]
address = "127.0.0.1:{port}"

[[listen]]
address = "127.0.0.1:{internal_port}"
role = "internal"

[[route]]
path = "/echo"
handler = "echo"

[[route]]
path = "/connection/*"
handler = "centrifuge"

[[namespace]]
name = ""
subscribe = "client"
presence = true
history_size = 1000
history_ttl = "10m"

[engine]
type = "redis"
url = "URL"

[node]
name = "NAME"

[limits]
connections_per_address = "off"
handshakes_per_address = "off"
"""

# Time limit of a call in seconds. The node's own limit is shorter.
CALL_S = 20.0


class Node:
    def __init__(self, name, url):
        self.name = name
        config = CONFIG.replace("URL", url).replace("NAME", name)
        self.server = veche.Veche(config, ports=(stores.port(), stores.port()))
        self.port = self.server.port
        self.is_up = False
        self.idle = []
        self.logs = ""

    async def start(self):
        await asyncio.to_thread(self.server.__enter__)
        self.is_up = True

    def pids(self):
        """Returns the process ids of the supervisor and the server process."""
        supervisor = self.server.process.pid
        children = pathlib.Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        return [supervisor, *map(int, children)]

    def leave(self):
        self.is_up = False
        self.logs += self.log()
        for _, writer in self.idle:
            writer.transport.abort()
        self.idle.clear()

    def kill(self):
        """Kills both processes at once, as a failure of their machine would."""
        self.leave()
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        self.server.process.wait()

    def stop(self):
        self.leave()
        self.server.__exit__(None, None, None)

    def log(self):
        return self.server.log.read_text(errors="replace")

    def memory(self):
        """Returns the resident memory of the server process in bytes."""
        status = pathlib.Path(f"/proc/{self.pids()[1]}/status").read_text()
        return 1024 * int(status.partition("VmRSS:")[2].split()[0])

    async def call(self, method, body):
        """Makes a call of the API on a kept connection; returns the response. Raises OSError or TimeoutError."""
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.server.internal_port)
        try:
            async with asyncio.timeout(CALL_S):
                answer = await exchange(reader, writer, method, json.dumps(body).encode())
        except BaseException:
            writer.transport.abort()
            raise
        self.idle.append((reader, writer))
        return answer


async def exchange(reader, writer, method, body):
    head = f"POST /api/{method} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    try:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        data = await reader.readexactly(int(headers["content-length"]))
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("closed before the answer") from error
    status = int(lines[0].split()[1])
    if status != 200:
        raise ConnectionError(f"status {status}")
    return json.loads(data)


class Echo:
    """Measures round trips on a node's only worker. `took` has pairs of the time of sending and the duration in
    seconds."""

    EVERY_S = 0.05

    def __init__(self, node):
        self.node = node
        self.took = []

    async def run(self):
        """Measures until the node is killed."""
        try:
            await self.measure()
        except (OSError, asyncio.IncompleteReadError):
            if self.node.is_up:
                raise

    async def measure(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.node.port)
        writer.write(
            b"GET /echo HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        await reader.readuntil(b"\r\n\r\n")
        while True:
            sent = time.monotonic()
            writer.write(b"\x81\x84\0\0\0\0ping")
            await reader.readexactly(6)
            self.took.append((sent, time.monotonic() - sent))
            await asyncio.sleep(self.EVERY_S)

    def p99(self, begin, end):
        """Returns the 99th percentile of the round trips sent between two times, or None if there are none."""
        took = sorted(seconds for sent, seconds in self.took if begin <= sent < end)
        return took[int(len(took) * 0.99)] if took else None
