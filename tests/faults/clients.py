"""Subscribers that recover, and publishers that repeat unacknowledged publications."""

import asyncio
import json
import random
import struct
import time

from .ledger import Account

HANDSHAKE = (
    b"GET /connection/websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
# Unsubscribe codes from this one on make the client subscribe again.
RESUBSCRIBE = 2500


class Connection(asyncio.Protocol):
    """A WebSocket connection that decodes received bytes into messages of Centrifugo's JSON protocol."""

    def __init__(self, subscriber):
        self.subscriber = subscriber
        self.buffer = b""
        self.is_upgraded = False
        self.why = "closed without a close frame"

    def connection_made(self, transport):
        self.transport = transport
        transport.write(HANDSHAKE)

    def connection_lost(self, error):
        self.subscriber.ended(self, self.why)

    def send(self, *commands):
        payload = "\n".join(json.dumps(command) for command in commands).encode()
        length = len(payload)
        head = bytes([0x81, 0x80 | length]) if length < 126 else struct.pack("!BBH", 0x81, 0xFE, length)
        self.transport.write(head + bytes(4) + payload)  # a mask of zeros changes nothing

    def data_received(self, data):
        self.buffer += data
        if not self.is_upgraded:
            head, found, rest = self.buffer.partition(b"\r\n\r\n")
            if not found:
                return
            if b" 101 " not in head.split(b"\r\n")[0]:
                self.why = f"refused: {head[:80]!r}"
                self.transport.abort()
                return
            self.is_upgraded, self.buffer = True, rest
            self.subscriber.upgraded(self)
        while len(self.buffer) >= 2:
            start, length = 2, self.buffer[1]
            if length == 126:
                start, length = 4, int.from_bytes(self.buffer[2:4], "big")
            elif length == 127:
                start, length = 10, int.from_bytes(self.buffer[2:10], "big")
            if len(self.buffer) < start + length:
                return
            opcode, payload = self.buffer[0] & 15, self.buffer[start : start + length]
            self.buffer = self.buffer[start + length :]
            if opcode == 8:
                self.why = f"close {int.from_bytes(payload[:2], 'big')} {payload[2:].decode(errors='replace')}"
                self.transport.abort()
                return
            for line in payload.split(b"\n") if opcode == 1 else ():
                message = json.loads(line)
                if message:
                    self.subscriber.take(self, message)
                else:
                    self.send({})


class Subscriber:
    """A client with one channel. When its connection ends, it reconnects to another node and recovers."""

    def __init__(self, world, number):
        self.world, self.node = world, number % len(world.nodes)
        self.channel = world.channels[number % len(world.channels)]
        self.account = Account(world.ledger, f"client {number}", self.channel)
        self.connection = None
        self.is_subscribed = False
        self.had_position = False
        self.is_away = False
        self.id = 1
        self.lost_at = None
        self.back_after = []
        self.ends = []

    async def connect(self):
        while not self.world.is_over:
            node = self.world.nodes[self.node]
            try:
                await asyncio.get_running_loop().create_connection(lambda: Connection(self), "127.0.0.1", node.port)
                return
            except OSError:
                await asyncio.sleep(random.uniform(0.05, 0.2))
                self.node = (self.node + 1) % len(self.world.nodes)

    def upgraded(self, connection):
        self.connection = connection
        connection.send({"id": 1, "connect": {}}, self.subscription())

    def subscription(self):
        self.id += 1
        account = self.account
        self.had_position = account.epoch is not None
        position = {"recover": True, "offset": account.offset, "epoch": account.epoch} if self.had_position else {}
        return {"id": self.id, "subscribe": {"channel": self.channel, "recoverable": True, **position}}

    def subscribe_later(self, connection):
        def subscribe():
            if self.connection is connection and not self.is_subscribed:
                connection.send(self.subscription())

        asyncio.get_running_loop().call_later(random.uniform(0.1, 0.6), subscribe)

    def take(self, connection, message):
        if "error" in message:
            if message.get("id") == 1:
                connection.why = f"connect: {message}"
                connection.transport.abort()
            else:
                self.subscribe_later(connection)
        elif "subscribe" in message:
            self.subscribed(message["subscribe"])
        elif push := message.get("push"):
            if pub := push.get("pub"):
                self.account.receive(pub["offset"], pub["data"]["n"])
            elif unsubscribed := push.get("unsubscribe"):
                self.is_subscribed = False
                self.world.unsubscribed[unsubscribed.get("code")] += 1
                if unsubscribed.get("code", 0) >= RESUBSCRIBE:
                    self.subscribe_later(connection)
            elif closed := push.get("disconnect"):
                connection.why = f"disconnect {closed}"

    def subscribed(self, reply):
        account = self.account
        self.is_subscribed = True
        if self.lost_at is not None:
            self.back_after.append(time.monotonic() - self.lost_at)
            self.lost_at = None
        if not self.had_position:
            account.begin(reply["epoch"], reply.get("offset", 0))
        elif not reply.get("recovered"):
            account.notified += 1
            account.begin(reply["epoch"], reply.get("offset", 0))
        elif reply["epoch"] != account.epoch:
            account.ledger.note("reused", f"{account.name}: recovered {account.epoch} as {reply['epoch']}")
        for pub in reply.get("publications", ()):
            if self.had_position and reply.get("recovered"):
                account.receive(pub["offset"], pub["data"]["n"])

    def ended(self, connection, why):
        self.connection, self.is_subscribed = None, False
        if self.world.is_over or self.is_away:
            return
        self.lost_at = self.lost_at or time.monotonic()
        if self.world.nodes[self.node].is_up:
            self.ends.append(why)
        self.node = (self.node + 1) % len(self.world.nodes)
        self.world.begin(self.connect())

    def leave(self):
        """Ends the connection until `come_back` is called."""
        self.is_away = True
        self.connection.transport.abort()

    def come_back(self):
        self.is_away = False
        self.world.begin(self.connect())


async def publish(world, channel, every, number):
    """Publishes increasing numbers until the world is silent. Each is repeated with the same key, through the nodes in
    turn, until it is acknowledged."""
    attempts, turn, n = world.attempts, number, 0
    await asyncio.sleep(random.uniform(0, every))
    while not world.is_silent:
        n += 1
        body = {"channel": channel, "data": {"n": n}, "idempotency_key": f"{channel}/{n}"}
        while True:
            node = world.nodes[turn % len(world.nodes)]
            turn += 1
            began = time.monotonic()
            error = await attempt(node, body)
            if node.is_up:
                attempts.longest = max(attempts.longest, time.monotonic() - began)
            if error is None:
                break
            attempts.errors[error] += 1
            await asyncio.sleep(0.1)
        world.ledger.acknowledged[channel] = n
        await asyncio.sleep(every)


async def attempt(node, body):
    """Makes one attempt to publish. Returns the error, or None."""
    if not node.is_up:
        return "node is down"
    try:
        answer = await node.call("publish", body)
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return str(error)
    return None if "result" in answer else f"{answer['error']['code']} {answer['error']['message']}"
