#!/usr/bin/env python3
"""Runs examples/chat with USERS (10,000) connected users, each in a dialogue with one other user and in "people:all",
while two more users talk. No message of the two may be lost, duplicated or out of order, even if one of them is
disconnected for a while. The crowd is silent first, then publishes RATE times a second and counts its messages too. No
client of the crowd may lose its connection.

Prints the resident memory of the server process per user, and the ratio of the response times with and without the
crowd. These are figures of one run, which mean little if other programs use the cores."""

import base64
import hashlib
import hmac
import json
import multiprocessing
import os
import pathlib
import resource
import secrets
import selectors
import socket
import statistics
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "conformance"))

import veche  # noqa: E402

EXAMPLE = veche.ROOT / "examples" / "chat"
SECRET = secrets.token_hex(32)
RATE = 200
ROUNDS = 500  # questions with an answer in each phase
MISSED = 100  # messages published while Bob is disconnected
OPENING_MAX = 200  # handshakes at a time
LAST_WORDS_S = 10  # maximum time until the whole crowd has received the last publications


def token(user):
    """Returns a token like that of /api/token. Registering all users would only add ten thousand password hashes."""

    def encode(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    now = int(time.time())
    claims = {"sub": user, "iat": now, "exp": now + 600}
    message = ".".join(encode(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return message + "." + encode(hmac.new(SECRET.encode(), message.encode(), hashlib.sha256).digest())


def dialog(*users):
    return "dialog:#" + ",".join(sorted(users))


class Client:
    """A user's connection. It decodes received bytes into messages."""

    def __init__(self, user, port):
        self.user, self.port = user, port
        self.buffer = b""
        self.is_upgraded = False
        self.id = 0
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(
            f"GET /connection/websocket HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )

    def send(self, *commands):
        """Sends commands without waiting for their replies; returns the id of the last command."""
        lines = []
        for command in commands:
            if command:
                self.id += 1
                command = {"id": self.id, **command}
            lines.append(json.dumps(command))
        payload = "\n".join(lines).encode()
        length = len(payload)
        head = bytes([0x81, 0x80 | length]) if length < 126 else struct.pack("!BBH", 0x81, 0xFE, length)
        self.socket.sendall(head + bytes(4) + payload)  # a mask of zeros changes nothing
        return self.id

    def enter(self, *subscriptions):
        self.send({"connect": {"token": token(self.user)}}, *({"subscribe": each} for each in subscriptions))

    def take(self, data):
        """Takes received bytes, answers pings, and returns the complete messages. Raises ConnectionError if the
        connection has ended."""
        if not data:
            raise ConnectionError(f"{self.user} was disconnected")
        self.buffer += data
        if not self.is_upgraded:
            head, found, rest = self.buffer.partition(b"\r\n\r\n")
            if not found:
                return []
            if b" 101 " not in head.split(b"\r\n")[0]:
                raise ConnectionError(f"{self.user} was refused: {head!r}")
            self.is_upgraded, self.buffer = True, rest
        messages = []
        while len(self.buffer) >= 2:
            start, length = 2, self.buffer[1]
            if length == 126:
                start, length = 4, int.from_bytes(self.buffer[2:4], "big")
            elif length == 127:
                start, length = 10, int.from_bytes(self.buffer[2:10], "big")
            if len(self.buffer) < start + length:
                break
            opcode, payload = self.buffer[0] & 15, self.buffer[start : start + length]
            self.buffer = self.buffer[start + length :]
            if opcode == 8:
                raise ConnectionError(f"{self.user} was closed: {payload!r}")
            for line in payload.split(b"\n") if opcode == 1 else ():
                message = json.loads(line)
                if message:
                    messages.append(message)
                else:
                    self.send({})
        return messages

    def listen(self):
        """Yields messages as they arrive, until the generator is closed."""
        self.socket.settimeout(10)
        while True:
            yield from self.take(self.socket.recv(65536))


def publication(message, channel):
    push = message.get("push", {})
    return push.get("pub") if push.get("channel") == channel else None


# ---------------------------------------------------------------------------------------------------- the crowd


class Crowd:
    """The users with numbers below `count`, in pairs. Runs in a separate process, which receives "talk" and then "end"
    from `pipe`."""

    def __init__(self, port, count, pipe):
        self.port, self.count, self.pipe = port, count, pipe
        self.selector = selectors.DefaultSelector()
        self.clients, self.heard = [], [0] * count
        self.said = [0] * (count // 2)
        self.ready, self.opening, self.wrong = 0, 0, []
        self.is_talking, self.turn, self.due = False, 0, 0.0

    def name(self, number):
        return f"user{number}"

    def channel(self, number):
        return dialog(self.name(number & ~1), self.name(number | 1))

    def run(self):
        self.selector.register(self.pipe, selectors.EVENT_READ, None)
        is_reported, ends = False, None
        while True:
            while len(self.clients) < self.count and self.opening < OPENING_MAX:
                self.open(len(self.clients))
            if (self.ready == self.count or self.wrong) and not is_reported:
                self.pipe.send(self.wrong[:5] or "ready")
                is_reported = True
            wait = max(0.0, self.due - time.monotonic()) if self.is_talking else 1.0
            for key, _ in self.selector.select(wait):
                if key.data is not None:
                    self.hear(key.data)
                else:
                    self.is_talking, self.due = self.pipe.recv() == "talk", time.monotonic()
                    ends = None if self.is_talking else time.monotonic() + LAST_WORDS_S
            if ends and (sum(self.heard) == 2 * sum(self.said) or time.monotonic() > ends):
                return self.pipe.send(self.tally())
            while self.is_talking and time.monotonic() >= self.due:
                self.say()

    def open(self, number):
        client = Client(self.name(number), self.port)
        client.socket.setblocking(False)
        self.clients.append(client)
        self.opening += 1
        self.selector.register(client.socket, selectors.EVENT_READ, number)

    def hear(self, number):
        client = self.clients[number]
        was_upgraded = client.is_upgraded
        try:
            messages = client.take(client.socket.recv(65536))
        except OSError as error:
            self.wrong.append(str(error))
            self.selector.unregister(client.socket)
            return
        if client.is_upgraded and not was_upgraded:
            client.enter({"channel": self.channel(number), "join_leave": True}, {"channel": "people:all"})
        for message in messages:
            if "error" in message:
                self.wrong.append(f"{client.user}: {message}")
            elif message.get("id") == 3:  # the second subscription
                self.ready += 1
                self.opening -= 1
            elif pub := publication(message, self.channel(number)):
                self.heard[number] += 1
                if not pub["offset"] == pub["data"]["n"] == self.heard[number]:
                    self.wrong.append(f"{client.user}: number {self.heard[number]} is {pub}")

    def say(self):
        self.due += 1 / RATE
        self.turn = (self.turn + 7919) % len(self.said)  # spreads the publications over the dialogues
        self.said[self.turn] += 1
        number = self.turn * 2
        self.clients[number].send({"publish": {"channel": self.channel(number), "data": {"n": self.said[self.turn]}}})

    def tally(self):
        for number, heard in enumerate(self.heard):
            if heard != self.said[number // 2]:
                self.wrong.append(f"{self.name(number)} heard {heard} of {self.said[number // 2]}")
        return {"said": sum(self.said), "heard": sum(self.heard), "wrong": self.wrong}


def crowd(port, count, pipe):
    Crowd(port, count, pipe).run()


# ---------------------------------------------------------------------------------------------------- the two


class Talker:
    """Ann or Bob: publishes numbers and checks that each publication arrives once and in order."""

    def __init__(self, user, port, since=None):
        self.channel, self.last, self.epoch = dialog("ann", "bob"), 0, None
        self.client = Client(user, port)
        self.messages = self.client.listen()
        while not self.client.is_upgraded:
            self.client.take(self.client.socket.recv(65536))
        recover = {"recover": True, "offset": since.last, "epoch": since.epoch} if since else {}
        self.client.enter({"channel": self.channel, **recover})
        reply = next(message["subscribe"] for message in self.messages if "subscribe" in message)
        self.epoch, self.last = reply["epoch"], since.last if since else reply.get("offset", 0)
        self.missed = reply.get("publications", [])
        if since and not reply.get("recovered"):
            raise SystemExit(f"{user} has not recovered: {reply}")

    def say(self, n):
        self.client.send({"publish": {"channel": self.channel, "data": {"n": n}}})

    def hear(self):
        """Returns the next publication, which must have the next offset."""
        found = next(filter(None, (publication(message, self.channel) for message in self.messages)))
        return self.check(found)

    def check(self, found):
        self.last += 1
        if found["offset"] != self.last:
            raise SystemExit(f"{self.client.user} hears offset {found['offset']} instead of {self.last}")
        return found["data"]["n"], found["info"]["user"]


def expect(got, wanted):
    if got != wanted:
        raise SystemExit(f"heard {got} instead of {wanted}")


def talk(ann, bob):
    """Ann asks and Bob answers, ROUNDS times. Returns the durations of the rounds in seconds."""
    took = []
    for n in range(ROUNDS):
        started = time.perf_counter()
        ann.say(n)
        expect(bob.hear(), (n, "ann"))
        bob.say(-n)
        expect(ann.hear(), (n, "ann"))
        expect(ann.hear(), (-n, "bob"))
        took.append(time.perf_counter() - started)
        expect(bob.hear(), (-n, "bob"))
    return took


def through_a_tunnel(ann, bob, port):
    """Disconnects Bob while Ann publishes MISSED messages; Bob then reconnects and recovers them."""
    bob.client.socket.close()
    for n in range(MISSED):
        ann.say(n)
    for n in range(MISSED):
        expect(ann.hear(), (n, "ann"))
    back = Talker("bob", port, since=bob)
    for n, found in enumerate(back.missed):
        expect(back.check(found), (n, "ann"))
    expect(len(back.missed), MISSED)
    return back


# ---------------------------------------------------------------------------------------------------- the run


def memory_of(server):
    """Returns the resident memory of the server process in bytes."""
    supervisor = server.process.pid
    child = pathlib.Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()[0]
    status = pathlib.Path(f"/proc/{child}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def example():
    """Returns the example's configuration with another port and without the limit of message rates, and the example's
    files."""
    config = (EXAMPLE / "veche.toml").read_text()
    assert "127.0.0.1:8080" in config and 'message_rate = "600/m"' in config
    config = config.replace('message_rate = "600/m"', 'message_rate = "off"')
    names = [path for path in EXAMPLE.rglob("*") if path.is_file() and path.suffix != ".toml"]
    files = {str(path.relative_to(EXAMPLE)): path.read_bytes() for path in names}
    return config.replace("127.0.0.1:8080", "127.0.0.1:{port}"), files


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if limit < count + 500:
        print(f"SKIPPED: {limit} descriptors are too few for {count} users")
        return 3
    os.environ["CHAT_SECRET"] = SECRET
    config, files = example()
    took = {}
    with veche.Veche(config, files) as server:
        ann, bob = Talker("ann", server.port), Talker("bob", server.port)
        talk(ann, bob)  # warm
        took["alone"] = talk(ann, bob)
        before = memory_of(server)
        pipe, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=crowd, args=(server.port, count, theirs), daemon=True)
        started = time.monotonic()
        process.start()
        theirs.close()
        if not pipe.poll(90):
            raise SystemExit(f"the {count} users did not connect within 90 s")
        if (told := pipe.recv()) != "ready":
            raise SystemExit(f"the {count} users did not connect: {told}")
        connected_s = time.monotonic() - started
        per_user = (memory_of(server) - before) / count
        took["silent"] = talk(ann, bob)
        bob = through_a_tunnel(ann, bob, server.port)
        pipe.send("talk")
        took["talking"] = talk(ann, bob)
        bob = through_a_tunnel(ann, bob, server.port)
        time.sleep(2)
        pipe.send("end")
        tally = pipe.recv()
        process.join(10)
        if server.panicked():
            raise SystemExit(server.log_tail())
    if tally["wrong"] or tally["said"] < RATE or tally["heard"] != 2 * tally["said"]:
        raise SystemExit(f"the crowd: {len(tally['wrong'])} faults, {tally['said']} said, {tally['heard']} heard: {tally['wrong'][:5]}")
    alone = statistics.median(took["alone"])
    print(f"{count} users in {connected_s:.1f} s, {per_user:.0f} B of the server's memory each")
    for phase in ("silent", "talking"):
        ratios = [statistics.quantiles(took[phase], n=100)[at] / statistics.quantiles(took["alone"], n=100)[at] for at in (49, 98)]
        print(f"question and answer, crowd {phase}: median {ratios[0]:.2f}, 99th percentile {ratios[1]:.2f} times those alone")
    print(f"alone: median {alone * 1e6:.0f} µs")
    print(f"the crowd said {tally['said']}, each heard by both; the two {6 * ROUNDS + 2 * ROUNDS}, and {2 * MISSED} in tunnels: all once, in order")
    print("3 passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
