#!/usr/bin/env python3
"""Opens connections and ends them in every bad way, for SECONDS (60). Afterwards the server must have no more
descriptors than before and at most GROWTH_BYTES_MAX more memory, it must not have refused a connection, and a
connection that was open all the time must still get its echoes."""

import os
import pathlib
import random
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "conformance"))

import veche  # noqa: E402

THREADS = 4
GROWTH_BYTES_MAX = 8 << 20

CONFIG = """
[server]
workers = 2
io = "{io}"
log = "error"

[[listen]]
address = "127.0.0.1:{port}"

[[route]]
path = "/echo"
handler = "echo"
compression = true

[[route]]
path = "/push"
handler = "push"
identity = "query:user"
channels = ["news"]

[limits]
connections_per_address = 10000
ping_interval = "10m"  # the witness is silent all along and answers no pings
"""

KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
UPGRADE = b"Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" + KEY + b"\r\n"
CLOSE = bytes([0x88, 0x82, 0, 0, 0, 0]) + struct.pack(">H", 1000)


def frame(data, opcode=1):
    return bytes([0x80 | opcode, 0x80 | len(data), 0, 0, 0, 0]) + data


def upgraded(port, target):
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(b"GET " + target + b" HTTP/1.1\r\n" + UPGRADE)
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(4096)
        if not piece:
            raise ConnectionError("closed in the handshake")
        head += piece
    if not head.startswith(b"HTTP/1.1 101"):
        raise ConnectionError(head.split(b"\r\n")[0].decode())
    return connection


def exactly(connection, count):
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("closed before its answer")
        data += piece
    return data


# Each function takes a connection (upgraded or not) and ends it in a different way.
def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def politely(connection):
    connection.sendall(CLOSE)
    exactly(connection, 4)
    connection.close()


def after_an_echo(connection):
    connection.sendall(frame(b"hello"))
    exactly(connection, 7)
    connection.close()


def in_a_frame(connection):
    connection.sendall(bytes([0x82, 0xFE, 0x7F, 0xFF]) + b"key." + b"x" * 1000)
    connection.close()


def in_a_message(connection):
    connection.sendall(bytes([0x01, 0x80 | 5, 0, 0, 0, 0]) + b"hello")
    reset(connection)


def with_a_fault(connection):
    connection.sendall(b"\xff\xff\xff\xff")
    connection.recv(100)
    connection.close()


def half_closed(connection):
    connection.sendall(frame(b"x") * 20)
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(4096):
        pass
    connection.close()


ENDINGS = [reset, politely, after_an_echo, in_a_frame, in_a_message, with_a_fault, half_closed]
TARGETS = [b"/push?user=u%d" % number for number in range(50)] + [b"/push?user=a&channel=news"]


def one(port, dice):
    kind = dice.random()
    if kind < 0.1:
        connection = socket.create_connection(("127.0.0.1", port), timeout=10)
        connection.sendall(b"GET /echo HT"[: dice.randrange(12)])
        dice.choice([reset, socket.socket.close])(connection)
    elif kind < 0.3:
        dice.choice([reset, politely, in_a_frame, with_a_fault])(upgraded(port, dice.choice(TARGETS)))
    else:
        dice.choice(ENDINGS)(upgraded(port, b"/echo"))


def churn(port, seed, end, done, problems):
    dice = random.Random(seed)
    while time.monotonic() < end and len(problems) < 10:
        try:
            one(port, dice)
            done[0] += 1
        except OSError as error:
            problems.append(f"after {done[0]} connections: {error}")


def server_pid(supervisor):
    children = pathlib.Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return int(children[0]) if children else supervisor


def state(pid):
    """Returns the number of descriptors and the bytes of resident memory of a process."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    memory = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))
    return len(os.listdir(f"/proc/{pid}/fd")), memory


def settled(pid, descriptors):
    """Waits until at most `descriptors` are open, for up to 15 s because the last connections may still be closing;
    then returns `state`."""
    end = time.monotonic() + 15
    while state(pid)[0] > descriptors and time.monotonic() < end:
        time.sleep(0.2)
    return state(pid)


def rounds(port, seconds, problems):
    end = time.monotonic() + seconds
    counts = [[0] for _ in range(THREADS)]
    arguments = [(port, seed, end, counts[seed], problems) for seed in range(THREADS)]
    threads = [threading.Thread(target=churn, args=values) for values in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(1)
    return sum(count[0] for count in counts)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    problems = []
    with veche.Veche(CONFIG) as server:
        witness = upgraded(server.port, b"/echo")
        rounds(server.port, min(seconds / 4, 10), problems)  # fills caches and pools
        pid = server_pid(server.process.pid)
        descriptors, memory = state(pid)
        total = rounds(server.port, seconds, problems)
        if server_pid(server.process.pid) != pid:
            problems.append("the server process was replaced\n" + server.log_tail())
        else:
            descriptors_after, memory_after = settled(pid, descriptors)
            if descriptors_after > descriptors:
                problems.append(f"{descriptors} descriptors before, {descriptors_after} after")
            if memory_after > memory + GROWTH_BYTES_MAX:
                problems.append(f"{memory} bytes resident before, {memory_after} after")
        try:
            witness.sendall(frame(b"still there"))
            if exactly(witness, 13) != b"\x81\x0bstill there":
                problems.append("the witness got another answer")
        except OSError as error:
            problems.append(f"the witness: {error}")
    for problem in problems:
        print(f"FAILED {problem}")
    print(f"churn: {total:,} connections; {0 if problems else 1} passed, {1 if problems else 0} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
