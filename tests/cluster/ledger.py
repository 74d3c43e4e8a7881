"""Publishers and subscribers of a cluster, and the ledger of what each subscriber was sent.

A channel has one publisher, which numbers its publications and publishes the next one once the previous one is
acknowledged. So a subscriber has to receive these numbers in order, each once, without a hole. A hole is allowed only
where the client has learnt that it could not recover; a number may come again, or an offset stand for another
publication, only in another epoch."""

import asyncio
import base64
import json
import os
import time
from dataclasses import dataclass

CHANNELS = 10
ATTEMPT_S = 15
RETRY_S = 0.1
# From here on a code of an unsubscription asks for another subscription.
RESUBSCRIBE = 2500
# From here to 3999, and from 4500 to 4999, codes of closed connections ask for none.
FINAL = ((3500, 4000), (4500, 5000))


@dataclass
class Counts:
    """What is counted during one fault."""

    published: int = 0
    attempts_failed: int = 0
    unanswered: int = 0
    longest_s: float = 0.0
    delivered: int = 0
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    reused: int = 0
    told: int = 0
    disconnected: int = 0
    longest_return_s: float = 0.0


class Ledger:
    """What all publishers and subscribers have in common."""

    def __init__(self, nodes, period):
        self.nodes, self.period = nodes, period
        self.counts = Counts()
        # The number that stands at each position, whichever client has seen it.
        self.positions = {}
        self.is_over, self.is_paused = False, False
        self.faults = []

    def reset(self):
        self.counts = Counts()
        self.faults = []

    def fault(self, kind, words):
        setattr(self.counts, kind, getattr(self.counts, kind) + 1)
        if len(self.faults) < 20:
            self.faults.append(f"{kind}: {words}")


class Publisher:
    """Publishes to one channel, one after the other, on one node after the other."""

    def __init__(self, ledger, channel):
        self.ledger, self.channel = ledger, channel
        self.number, self.is_busy, self.turn = 0, False, hash(channel) % len(ledger.nodes)

    async def run(self):
        ledger = self.ledger
        while not ledger.is_over:
            if ledger.is_paused:
                self.is_busy = False
                await asyncio.sleep(0.02)
                continue
            self.is_busy = True
            await self.publish()
            await asyncio.sleep(ledger.period)

    async def publish(self):
        """Publishes the next number until that is acknowledged."""
        number = self.number + 1
        order = {"channel": self.channel, "data": number, "idempotency_key": f"{self.channel}-{number}"}
        counts = self.ledger.counts
        while not self.ledger.is_over:
            self.turn = (self.turn + 1) % len(self.ledger.nodes)
            began = time.monotonic()
            try:
                answer = await asyncio.wait_for(call(self.ledger.nodes[self.turn], "publish", order), ATTEMPT_S)
                is_done = "result" in answer
            except asyncio.TimeoutError:
                counts.unanswered += 1
                is_done = False
            except (OSError, ValueError, asyncio.IncompleteReadError):
                is_done = False
            counts.longest_s = max(counts.longest_s, time.monotonic() - began)
            if is_done:
                self.number = number
                counts.published += 1
                return
            counts.attempts_failed += 1
            await asyncio.sleep(RETRY_S)


async def call(node, method, body):
    """Calls the API of a node. Returns the answer's JSON."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.internal)
    try:
        data = json.dumps(body).encode()
        head = f"POST /api/{method} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        answer = await reader.read()
        return json.loads(answer.partition(b"\r\n\r\n")[2])
    finally:
        writer.transport.abort()


class Ended(Exception):
    """A connection is over."""


class Subscriber:
    """A client of the Centrifuge protocol with one recoverable subscription. It goes to the next node when its connection
    ends."""

    def __init__(self, ledger, number):
        self.ledger, self.turn = ledger, number
        self.name, self.channel = f"user{number}", f"ledger{number % CHANNELS}"
        # The position, as an SDK has it, and the number of the latest publication.
        self.epoch, self.offset, self.latest = None, 0, None
        # It has learnt that publications are missing.
        self.is_told = False
        self.is_subscribed, self.ended_at, self.node = False, None, None
        self.writer, self.commands = None, 1

    async def run(self):
        while not self.ledger.is_over:
            try:
                await self.connect()
                while True:
                    self.take(await self.read())
            except (OSError, EOFError, Ended, ValueError, asyncio.TimeoutError) as error:
                self.end(error)
            self.turn += 1
            await asyncio.sleep(0.05)

    def end(self, error):
        if self.writer:
            self.writer.transport.abort()
            self.writer = None
        if self.ledger.is_over:
            return
        if self.is_subscribed:
            self.ledger.counts.disconnected += 1
            self.ended_at = time.monotonic()
            if len(self.ledger.faults) < 20:
                self.ledger.faults.append(f"disconnected: {self.name} from node {self.node.number}: {error!r}")
        self.is_subscribed = False

    async def connect(self):
        self.node = self.ledger.nodes[self.turn % len(self.ledger.nodes)]
        connection = asyncio.open_connection("127.0.0.1", self.node.port)
        self.reader, self.writer = await asyncio.wait_for(connection, 5)
        key = base64.b64encode(os.urandom(16)).decode()
        self.writer.write(
            (
                "GET /connection/websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
            ).encode()
        )
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 10)
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise Ended(head.split(b"\r\n")[0].decode())
        self.send({"id": 1, "connect": {"name": self.name}})
        self.subscribe()

    def subscribe(self):
        self.commands += 1
        request = {"channel": self.channel, "recoverable": True, "positioned": True}
        if self.epoch is not None:
            request |= {"recover": True, "epoch": self.epoch, "offset": self.offset}
        self.send({"id": self.commands, "subscribe": request})

    def send(self, command):
        data = json.dumps(command).encode()
        if self.writer:
            length = bytes([0x80 | len(data)]) if len(data) < 126 else bytes([0xFE]) + len(data).to_bytes(2, "big")
            self.writer.write(b"\x81" + length + bytes(4) + data)

    async def read(self):
        """The replies and pushes of the next frame."""
        head = await self.reader.readexactly(2)
        length = head[1] & 0x7F
        if length >= 126:
            length = int.from_bytes(await self.reader.readexactly(2 if length == 126 else 8), "big")
        data = await self.reader.readexactly(length)
        if head[0] & 0x0F == 8:
            raise Ended(f"closed {int.from_bytes(data[:2], 'big')} {data[2:].decode(errors='replace')}")
        if head[0] & 0x0F == 9:
            self.writer.write(b"\x8a" + bytes([0x80 | length]) + bytes(4) + data)
        return data.splitlines() if head[0] & 0x0F == 1 else []

    def take(self, lines):
        for line in lines:
            said = json.loads(line)
            if not said:
                self.send({})
            elif "push" in said:
                self.push(said["push"])
            elif "subscribe" in said:
                self.subscribed(said["subscribe"])
            elif "error" in said:
                # Temporary, such as an engine out of reach: an SDK tries again, and so does this one.
                asyncio.get_running_loop().call_later(0.2, self.subscribe)

    def push(self, push):
        if "pub" in push:
            self.publication(push["pub"])
        elif "unsubscribe" in push:
            code = push["unsubscribe"].get("code", 0)
            if code < RESUBSCRIBE:
                raise Ended(f"unsubscribed {code}")
            self.subscribe()
        elif "disconnect" in push:
            raise Ended(f"disconnected {push['disconnect']}")

    def subscribed(self, reply):
        if self.epoch is not None and not reply.get("recovered"):
            self.is_told = True
            self.ledger.counts.told += 1
        self.epoch = reply.get("epoch", "")
        self.is_subscribed = True
        if self.ended_at is not None:
            counts = self.ledger.counts
            counts.longest_return_s = max(counts.longest_return_s, time.monotonic() - self.ended_at)
            self.ended_at = None
        for publication in reply.get("publications", []):
            self.publication(publication)
        self.offset = reply.get("offset", 0)

    def publication(self, publication):
        number, ledger = publication["data"], self.ledger
        self.offset = publication.get("offset", self.offset)
        ledger.counts.delivered += 1
        place = (self.channel, self.epoch, self.offset)
        if ledger.positions.setdefault(place, number) != number:
            ledger.fault("reused", f"{place} is {number} to {self.name}, and was {ledger.positions[place]}")
        latest, is_told = self.latest, self.is_told
        self.latest, self.is_told = number, False
        if latest is None or is_told or number == latest + 1:
            return
        words = f"{self.name} on {self.channel} got {number} behind {latest}"
        if number > latest:
            ledger.fault("lost", words)
        else:
            ledger.fault("doubled" if number == latest else "reordered", words)


class Crowd:
    """All publishers and subscribers."""

    def __init__(self, nodes, subscribers, period):
        self.ledger = Ledger(nodes, period)
        self.publishers = [Publisher(self.ledger, f"ledger{number}") for number in range(CHANNELS)]
        self.subscribers = [Subscriber(self.ledger, number) for number in range(subscribers)]
        self.tasks = []

    async def start(self):
        self.ledger.is_paused = True
        for subscriber in self.subscribers:
            self.tasks.append(asyncio.ensure_future(subscriber.run()))
            await asyncio.sleep(0.005)
        await self.wait("all subscriptions", lambda: all(each.is_subscribed for each in self.subscribers), 120)
        self.tasks += [asyncio.ensure_future(publisher.run()) for publisher in self.publishers]
        self.ledger.is_paused = False

    async def wait(self, what, condition, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            failed = next((task for task in self.tasks if task.done() and not task.cancelled() and task.exception()), None)
            if failed:
                raise failed.exception()
            if condition():
                return True
            await asyncio.sleep(0.05)
        self.ledger.faults.insert(0, f"not within {seconds} s: {what}")
        return False

    async def settle(self, seconds):
        """Waits until each publication is acknowledged and received. Returns how many subscribers lack the latest one."""
        ledger = self.ledger
        ledger.is_paused = True
        await self.wait("acknowledgements", lambda: not any(each.is_busy for each in self.publishers), seconds)
        # The last one of each channel shows that nothing is missing before it.
        for publisher in self.publishers:
            await asyncio.wait_for(publisher.publish(), seconds)
        latest = {publisher.channel: publisher.number for publisher in self.publishers}

        def lack():
            return [each for each in self.subscribers if each.latest != latest[each.channel] or not each.is_subscribed]

        await self.wait("the latest publication", lambda: not lack(), seconds)
        left = lack()
        for each in left:
            ledger.fault("lost", f"{each.name} has {each.latest} of {each.channel}, and the latest is {latest[each.channel]}")
        ledger.is_paused = False
        return len(left)

    async def stop(self):
        self.ledger.is_over = True
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
