"""Clients of Centrifugo's protocol in one thread: they connect, send their commands, and read until each has its
replies. Messages are not parsed; occurrences of the expected bytes are counted.
"""

import contextlib
import selectors
import socket
import struct
import threading
import time

HANDSHAKE = (
    b"GET /connection/websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
# A ping in a separate frame, or at the end of a frame with other messages.
PINGS = (b"\x81\x02{}", b"\n{}")
PONG = b"\x81\x82\x00\x00\x00\x00{}"
# Maximum number of concurrent handshakes.
OPENING_MAX = 256


def frame(payload):
    length = len(payload)
    if length < 126:
        head = bytes([0x81, 0x80 | length])
    elif length < 1 << 16:
        head = struct.pack("!BBH", 0x81, 0xFE, length)
    else:
        head = struct.pack("!BBQ", 0x81, 0xFF, length)
    # Masking with zeros leaves the payload unchanged.
    return head + bytes(4) + payload


class Client:
    def __init__(self, frames, due):
        self.frames, self.due = frames, dict(due)
        self.received = bytearray()
        self.outgoing = bytearray(HANDSHAKE)
        self.is_open = False
        self.socket = socket.socket()
        self.socket.setblocking(False)

    @property
    def is_done(self):
        return self.is_open and all(count <= 0 for count in self.due.values())

    def read(self, size=1 << 18):
        """Reads the bytes that have arrived; returns whether there were any."""
        try:
            data = self.socket.recv(size)
        except BlockingIOError:
            return False
        if not data:
            raise ConnectionError(f"the server ended the connection after {bytes(self.received[-300:])!r}")
        begin = len(self.received)
        self.received += data
        for mark in self.due:
            self.due[mark] -= self._count(mark, begin)
        if any(self._count(ping, begin) for ping in PINGS):
            self.outgoing += PONG
        if not self.is_open and b"\r\n\r\n" in self.received:
            head, _, rest = self.received.partition(b"\r\n\r\n")
            if b" 101 " not in head.split(b"\r\n")[0]:
                raise ConnectionError(f"refused: {bytes(head)!r}")
            self.is_open, self.received = True, rest
            self.outgoing += b"".join(self.frames)
        return True

    def _count(self, mark, begin):
        """Returns the number of occurrences of `mark` that end in the data received from `begin` on."""
        return self.received.count(mark, max(begin - len(mark) + 1, 0))

    def write(self):
        if self.outgoing:
            with contextlib.suppress(BlockingIOError):
                del self.outgoing[: self.socket.send(self.outgoing)]


class Crowd:
    """Clients that stay connected. `commands(i)` returns the frames of client i; `due` lists what each must receive, as
    pairs of bytes and a count."""

    def __init__(self, port, count, commands, due, seconds_max=120):
        self.clients = [Client([frame(one) for one in commands(number)], due) for number in range(count)]
        self.selector = selectors.DefaultSelector()
        self.is_over = False
        self.error = None
        try:
            self._serve(port, time.monotonic() + seconds_max)
        except BaseException:
            self.close()
            raise
        self.pinging = threading.Thread(target=self._answer_pings, daemon=True)
        self.pinging.start()

    def _serve(self, port, deadline):
        waiting, done, opening = list(reversed(self.clients)), 0, 0
        while done < len(self.clients):
            while waiting and opening < OPENING_MAX:
                client = waiting.pop()
                client.socket.connect_ex(("127.0.0.1", port))
                self.selector.register(client.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, client)
                opening += 1
            if time.monotonic() > deadline:
                late = next(one for one in self.clients if not one.is_done)
                raise TimeoutError(f"{done} of {len(self.clients)} have their answers; one has {bytes(late.received[-500:])!r}")
            for key, events in self.selector.select(1):
                client = key.data
                was_open, was_done = client.is_open, client.is_done
                if events & selectors.EVENT_READ:
                    client.read()
                client.write()
                opening -= client.is_open and not was_open
                if events & selectors.EVENT_WRITE and not client.outgoing:
                    self.selector.modify(client.socket, selectors.EVENT_READ, client)
                elif client.outgoing and not events & selectors.EVENT_WRITE:
                    self.selector.modify(client.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, client)
                done += client.is_done and not was_done
        self.ended = time.monotonic()

    def _answer_pings(self):
        """Answers pings until the crowd is closed."""
        while not self.is_over:
            for key, _ in self.selector.select(0.1):
                try:
                    key.data.read()
                    key.data.write()
                except (OSError, ConnectionError) as error:
                    self.error = error
                    self.selector.unregister(key.data.socket)

    def count(self, mark):
        return sum(client.received.count(mark) for client in self.clients)

    def close(self):
        self.is_over = True
        if thread := getattr(self, "pinging", None):
            thread.join()
        for client in self.clients:
            client.socket.close()
        self.selector.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        if self.error:
            raise self.error
