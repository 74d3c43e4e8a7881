#!/usr/bin/env python3
"""Three nodes on one Redis, publishers that wait for acknowledgements and subscribers with recovery, under one fault after
the other: a row for each, with the publications lost, doubled and out of order, and how many clients learnt that they could
not recover. Fails where a row breaks what docs/guide/cluster.md promises.

    tests/cluster/run.py              all faults, 1,000 subscribers
    tests/cluster/run.py today        the fault of the day, 150 subscribers, shorter
    tests/cluster/run.py [--short] NAME...
"""

import argparse
import asyncio
import datetime
import pathlib
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from faults import FAULTS  # noqa: E402
from ledger import Crowd  # noqa: E402
from machines import Cluster  # noqa: E402

# Growth of one server process under a fault.
GROWTH_BYTES_MAX = 64 << 20
# Lines of the log about one fault, of each node.
LINES_MAX = 6
# An echo that takes longer was held up.
ECHO_S_MAX = 1.0
HEAD = f"{'fault':<22} {'published':>9} {'delivered':>9} {'lost':>5} {'doubled':>7} {'order':>5} {'reused':>6} {'told':>5} "
HEAD += f"{'cut off':>7} {'retries':>7} {'longest':>8} {'echo p99':>15}"


class Echo(threading.Thread):
    """Echoes on a node, one after the other, with the time that each took."""

    FRAME = b"\x81\x84" + bytes(4) + b"ping"
    REQUEST = (
        b"GET /echo HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.took, self.is_over, self.error = port, [], False, None

    def run(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
                connection.sendall(self.REQUEST)
                head = b""
                while b"\r\n\r\n" not in head:
                    head += connection.recv(4096)
                while not self.is_over:
                    began = time.monotonic()
                    connection.sendall(self.FRAME)
                    if len(connection.recv(100)) == 0:
                        raise OSError("closed")
                    self.took.append(time.monotonic() - began)
                    time.sleep(0.01)
        except OSError as error:
            self.error = error

    def p99(self, since):
        took = sorted(self.took[since:])
        return took[len(took) * 99 // 100] if took else float("inf")


class Run:
    """One fault on a cluster of its own."""

    def __init__(self, fault, subscribers, is_short):
        self.fault, self.subscribers, self.is_short = fault, subscribers, is_short
        # Other steps run beside the short one.
        self.reconnect_s = 10 if is_short else 3
        self.broken, self.notes = [], []
        self.cluster = self.crowd = None

    def seconds(self, seconds):
        """How long a fault lasts."""
        return min(seconds, 12) if self.is_short else seconds

    @property
    def redis(self):
        return self.cluster.redis

    def relay(self, node, fault, number=0):
        self.cluster.relay.set(node, fault, number)

    def require(self, words, is_true):
        if not is_true:
            self.broken.append(words)

    def note(self, words):
        self.notes.append(words)

    async def measure(self):
        fault = self.fault
        with Cluster(*fault.options, sentinel=fault.has_sentinel) as cluster:
            self.cluster = cluster
            self.crowd = crowd = Crowd(cluster.nodes, self.subscribers, 1.0 if not self.is_short else 0.5)
            echo = Echo(cluster.nodes[-1].port)
            try:
                await crowd.start()
                await asyncio.sleep(2)
                await crowd.settle(30)
                crowd.ledger.reset()
                echo.start()
                await asyncio.sleep(3)
                before, resident = len(echo.took), [node.resident() for node in cluster.nodes]
                lines = [len(node.warnings()) for node in cluster.nodes]
                await fault.breaks(self)
                await asyncio.sleep(2)
                await crowd.settle(60)
                self.judge(echo, before, resident, lines)
            finally:
                echo.is_over = True
                await crowd.stop()
        return self.row(echo, before)

    def judge(self, echo, before, resident, lines):
        counts, fault = self.crowd.ledger.counts, self.fault
        for kind in ("lost", "doubled", "reordered", "reused"):
            self.require(f"{getattr(counts, kind)} {kind}", not getattr(counts, kind))
        self.require(f"{counts.told} told that they could not recover", fault.tells is not False or not counts.told)
        self.require("none was told that it could not recover", fault.tells is not True or counts.told)
        self.require(f"{counts.disconnected} disconnected", fault.disconnects or not counts.disconnected)
        if not fault.disconnects:
            self.require(f"{counts.unanswered} publications got no answer", not counts.unanswered)
        self.require(f"the echo: {echo.error}", echo.error is None)
        self.require(f"echo p99 {echo.p99(before):.3f} s", echo.p99(before) < ECHO_S_MAX)
        for node, was, said in zip(self.cluster.nodes, resident, lines):
            grown = node.resident() - was
            self.require(f"node {node.number} grew by {grown >> 20} MiB", was == 0 or fault.disconnects or grown < GROWTH_BYTES_MAX)
            fresh = node.warnings()[said:]
            self.require(f"node {node.number} logged {len(fresh)} lines: {fresh[:8]}", len(fresh) <= LINES_MAX)
            self.require(f"node {node.number} panicked", not any("panicked" in line for line in fresh))

    def row(self, echo, before):
        counts = self.crowd.ledger.counts
        was = sorted(echo.took[:before])
        was = was[len(was) * 99 // 100] if was else 0.0
        row = f"{self.fault.name:<22} {counts.published:>9,} {counts.delivered:>9,} {counts.lost:>5} {counts.doubled:>7} "
        row += f"{counts.reordered:>5} {counts.reused:>6} {counts.told:>5} {counts.disconnected:>7} {counts.attempts_failed:>7} "
        row += f"{counts.longest_s:>6.1f} s {was * 1e3:>5.1f}→{echo.p99(before) * 1e3:.1f} ms"
        return "  ".join([row, *self.notes])


def chosen(names):
    """The faults with these names, and whether the run is a short one."""
    if names == ["today"]:
        return [FAULTS[datetime.date.today().toordinal() % len(FAULTS)]], True
    unknown = set(names) - {fault.name for fault in FAULTS}
    if unknown:
        raise SystemExit(f"no faults: {unknown}; there are {[fault.name for fault in FAULTS]}")
    return [fault for fault in FAULTS if not names or fault.name in names], False


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("names", nargs="*")
    arguments.add_argument("--short", action="store_true")
    given = arguments.parse_args()
    faults, is_short = chosen(given.names)
    is_short |= given.short
    failed = 0
    print(HEAD, flush=True)
    for fault in faults:
        run = Run(fault, 150 if is_short else 1000, is_short)
        print(asyncio.run(run.measure()), flush=True)
        failed += bool(run.broken)
        if run.broken:
            for words in run.broken + run.crowd.ledger.faults[:8]:
                print(f"  FAILED {fault.name}: {words}", flush=True)
    print(f"cluster: {len(faults) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
