"""A TCP relay between a node and its engine that causes faults on demand."""

import asyncio
import os
import random

PIECE = 64 << 10
# Number of waiting pieces in one direction beyond which the relay stops reading.
HELD_MAX = 4096
# Range of the delay of each piece in each direction, in seconds, for the fault "delay".
DELAY_S = (0.15, 0.25)


class Relay:
    """Passes bytes on to `target`, a port of this machine. `fault` determines how:

    - `None`: as they come;
    - `"cut"`: connections are closed, and so are new ones;
    - `"stall"`: connections stay open, and nothing passes until the fault ends;
    - `"delay"`: each piece arrives 150 to 250 ms late, in order, in either direction;
    - `"half_open"`: bytes in both directions are read and dropped; a connection that has lost bytes is closed when the
      fault ends;
    - `"garbage"`: replies are replaced by random bytes of the same length;
    - `"truncate"`: a connection is closed in the middle of a reply.

    With `replica_lag` data from a primary to a replica is delayed by that many seconds."""

    def __init__(self, port, target, replica_lag=0.0):
        self.port, self.target, self.replica_lag = port, target, replica_lag
        self.fault = None
        self.changed = asyncio.Event()
        self.tasks = set()
        self.server = None

    async def start(self):
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", self.port)

    async def stop(self):
        self.server.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def set(self, fault):
        self.fault = fault
        self.changed.set()
        self.changed = asyncio.Event()

    async def accept(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        try:
            await self.join(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self.tasks.discard(asyncio.current_task())
            writer.transport.abort()

    async def join(self, reader, writer):
        if self.fault == "cut":
            return
        while self.fault in ("stall", "half_open"):
            await self.changed.wait()
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        link = Link(self)
        ways = [asyncio.create_task(link.up(reader, back)), asyncio.create_task(link.down(there, writer))]
        ways.append(asyncio.create_task(link.until_cut()))
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            back.transport.abort()


class Link:
    """Both directions of a connection."""

    def __init__(self, relay):
        self.relay = relay
        self.has_lost = False
        self.is_replica = False

    async def until_cut(self):
        """Returns when the connection has to be closed."""
        while self.relay.fault != "cut" and (self.relay.fault is not None or not self.has_lost):
            await self.relay.changed.wait()

    async def up(self, reader, writer):
        """Transfers bytes to the engine."""
        async with Late(self, writer) as late:
            while data := await reader.read(PIECE):
                self.is_replica |= b"PSYNC" in data
                await late.put(data, 0.0)

    async def down(self, reader, writer):
        """Transfers bytes from the engine."""
        async with Late(self, writer) as late:
            while data := await reader.read(PIECE):
                if self.relay.fault == "garbage":
                    data = os.urandom(len(data))
                elif self.relay.fault == "truncate":
                    writer.write(data[: len(data) // 2])
                    return
                await late.put(data, self.relay.replica_lag if self.is_replica else 0.0)

    async def pass_on(self, data, writer):
        while self.relay.fault == "stall":
            await self.relay.changed.wait()
        if self.relay.fault == "half_open":
            self.has_lost = True
            return
        writer.write(data)
        await writer.drain()


class Late:
    """Passes pieces on in order. Delayed pieces wait in a queue, so that the delays of successive pieces overlap
    instead of adding up."""

    def __init__(self, link, writer):
        self.link, self.writer = link, writer
        self.waiting = asyncio.Queue(HELD_MAX)
        self.due = 0.0

    async def __aenter__(self):
        self.sender = asyncio.create_task(self.send())
        return self

    async def __aexit__(self, *_):
        self.sender.cancel()

    async def put(self, data, lag):
        if self.link.relay.fault == "delay":
            lag += random.uniform(*DELAY_S)
        self.due = max(self.due, asyncio.get_running_loop().time() + lag)
        await self.waiting.put((self.due, data))

    async def send(self):
        while True:
            due, data = await self.waiting.get()
            if (rest := due - asyncio.get_running_loop().time()) > 0:
                await asyncio.sleep(rest)
            await self.link.pass_on(data, self.writer)
