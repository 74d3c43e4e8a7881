"""Checks that a peer's responses are correct before anything is timed: WebSocket echoes and an HTTP body.

The checks use a separate small client, so that they do not share faults with the peers or the tester.
"""

import base64
import hashlib
import os
import socket
import struct
import time

BODY = b"Hello, world!"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING = 0, 1, 2, 8, 9
_BYTES_MAX = 1 << 20


class WrongAnswer(Exception):
    """The server's deviation from the expected answer."""


def check(server, patience_s=5.0):
    """Checks everything that the server claims to support. A build from outside that does not support HTTP is reported."""
    if server.websocket:
        _patiently(lambda: check_websocket(server.port, server.echo_path), patience_s)
    if server.http_path:
        try:
            server.http_body, kept = _patiently(lambda: check_http(server.port, server.http_path), patience_s if not server.websocket else 0)
        except (WrongAnswer, OSError):
            if not server.http_unknown:
                raise
            server.http_path, server.http_timed = None, False
            return
        if server.http_timed and not kept:
            if not server.http_unknown:
                raise WrongAnswer("HTTP connections are not kept alive")
            server.http_timed = False


def _patiently(ask, patience_s):
    """Retries until the time limit, because a master process may open the socket before a worker serves it."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return ask()
        except (OSError, WrongAnswer):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def check_http(port, path):
    """Makes a GET request twice on one connection. Returns the body, and whether the server kept the connection open
    for the second request."""
    body = None
    with _Stream(port) as stream:
        for turn in range(2):
            try:
                stream.send(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
                status, headers = stream.head()
            except (WrongAnswer, OSError):
                if turn == 0:
                    raise
                return body, False
            if status != 200:
                raise WrongAnswer(f"GET {path}: status {status}")
            if "content-length" not in headers:
                raise WrongAnswer(f"GET {path}: no Content-Length")
            body = stream.take(int(headers["content-length"]))
            if body.rstrip(b"\n") != BODY:
                raise WrongAnswer(f"GET {path}: body {body[:40]!r}")
            if headers.get("connection", "").lower() == "close":
                return body, False
    return body, True


def check_websocket(port, path):
    """Echoes text, binary data with each form of the length, and fragmented messages; then the connection is reset."""
    with _Stream(port) as stream:
        _shake_hands(stream, port, path)
        text = "Вече: здравствуй, 世界 🎉".encode()
        binary = bytes(range(256))
        _expect(stream, "text", _TEXT, [text])
        _expect(stream, "binary", _BINARY, [binary[:125]])
        _expect(stream, "binary of 8 KiB", _BINARY, [binary * 32])
        _expect(stream, "binary of 65,536 bytes", _BINARY, [binary * 256])
        # A fragment may end within a character.
        _expect(stream, "fragmented text", _TEXT, [text[:1], text[1:7], text[7:]])
        _expect(stream, "fragmented binary", _BINARY, [binary * 5, b"", binary])
        _expect(stream, "text afterwards", _TEXT, [b"after"])


def _shake_hands(stream, port, path):
    key = base64.b64encode(os.urandom(16))
    stream.send(
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key.decode()}\r\n\r\n".encode()
    )
    status, headers = stream.head()
    if status != 101:
        raise WrongAnswer(f"handshake: status {status}")
    due = base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()
    if headers.get("sec-websocket-accept") != due:
        raise WrongAnswer("handshake: wrong Sec-WebSocket-Accept")
    if "sec-websocket-extensions" in headers:
        raise WrongAnswer("handshake: an extension that was not requested")


def _expect(stream, what, kind, parts):
    for index, part in enumerate(parts):
        opcode = kind if index == 0 else _CONTINUATION
        stream.send(_masked(opcode, part, last=index == len(parts) - 1))
    answer_kind, answer = _message(stream, what)
    if answer_kind != kind:
        raise WrongAnswer(f"{what}: echoed as another kind of message")
    if answer != b"".join(parts):
        raise WrongAnswer(f"{what}: echoed with other content")


def _masked(opcode, data, last):
    length = len(data)
    if length < 126:
        announced = struct.pack("!B", 0x80 | length)
    elif length < 65536:
        announced = struct.pack("!BH", 0x80 | 126, length)
    else:
        announced = struct.pack("!BQ", 0x80 | 127, length)
    mask = os.urandom(4)
    stream = int.from_bytes((mask * (length // 4 + 1))[:length], "big") ^ int.from_bytes(data, "big")
    return bytes([(0x80 if last else 0) | opcode]) + announced + mask + stream.to_bytes(length, "big")


def _message(stream, what):
    kind, collected = None, b""
    while True:
        first, second = stream.take(2)
        opcode, length = first & 0x0F, second
        if first & 0x70 or second & 0x80:
            raise WrongAnswer(f"{what}: a frame that a server must not send")
        if length == 126:
            (length,) = struct.unpack("!H", stream.take(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", stream.take(8))
        if length > _BYTES_MAX:
            raise WrongAnswer(f"{what}: a frame of {length} bytes")
        data = stream.take(length)
        if opcode == _PING:
            continue
        if opcode == _CLOSE:
            raise WrongAnswer(f"{what}: closed with {data!r}")
        if (opcode == _CONTINUATION) != (kind is not None) or opcode > _BINARY:
            raise WrongAnswer(f"{what}: opcode {opcode} out of place")
        kind = kind or opcode
        collected += data
        if first & 0x80:
            return kind, collected


class _Stream:
    """A connection with a buffer. It ends with a reset, so that no socket stays in TIME_WAIT."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def _more(self):
        data = self.socket.recv(65536)
        if not data:
            raise WrongAnswer("the server closed the connection")
        self.buffer += data

    def take(self, count):
        while len(self.buffer) < count:
            self._more()
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def head(self):
        while b"\r\n\r\n" not in self.buffer:
            if len(self.buffer) > 16384:
                raise WrongAnswer("an endless response head")
            self._more()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        return int(first.split()[1]), {name.lower(): value.strip() for name, value in fields.items()}
