"""Opens a WebSocket as a user, prints "open", then each message as one line of JSON.

    python3 listen_once.py http://127.0.0.1:8080 tester01

Implements only the parts of RFC 6455 that a test needs, with the standard library, so that it shares no code with the
server.
"""

import base64
import json
import os
import socket
import sys
from urllib.parse import quote, urlsplit

PING, PONG, CLOSE = 0x9, 0xA, 0x8


def connect(origin, user):
    address = urlsplit(origin)
    stream = socket.create_connection((address.hostname, address.port), timeout=10)
    stream.sendall(
        f"GET /ws?user={quote(user, safe='')} HTTP/1.1\r\n"
        f"Host: {address.netloc}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n\r\n".encode()
    )
    reader = stream.makefile("rb")
    status = reader.readline().decode()
    if " 101 " not in status:
        sys.exit(f"not upgraded: {status}")
    while reader.readline() not in (b"\r\n", b""):
        pass
    return stream, reader


def frames(reader):
    """Yields the opcode and payload of each frame. Every message of the demo is a single frame."""
    while head := reader.read(2):
        size = head[1] & 0x7F
        if size == 126:
            size = int.from_bytes(reader.read(2), "big")
        elif size == 127:
            size = int.from_bytes(reader.read(8), "big")
        yield head[0] & 0x0F, reader.read(size)


def main():
    stream, reader = connect(*sys.argv[1:3])
    print("open", flush=True)
    for opcode, payload in frames(reader):
        if opcode == PING:
            # A mask of zeros is well-formed. RFC 6455, section 5.3, requires an unpredictable one,
            # which a test does not need.
            stream.sendall(bytes([0x80 | PONG, 0x80 | len(payload)]) + bytes(4) + payload)
        elif opcode == CLOSE:
            return
        elif opcode != PONG:
            print(json.dumps(payload.decode() if opcode == 1 else payload.hex()), flush=True)


main()
