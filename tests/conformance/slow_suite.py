#!/usr/bin/env python3
"""Tests the default limits with slowhttptest's three attacks (-H slow heads, -B slow bodies, -X slow reading). The
server must stay available, as measured by the probes of slowhttptest and of this suite.

    slow_suite.py [MODE…]     H, B, X; all by default
"""

import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import veche
from exchange import Exchange, Malformed

CONNECTIONS = 500
SECONDS = 20
PROBE_SECONDS = 3

# A minimal configuration: limits are the defaults.
CONFIG = """
[server]
io = "{io}"
log = "warn"

[[listen]]
address = "127.0.0.1:{port}"

[[listen]]
address = "127.0.0.1:{internal_port}"
role = "internal"

[[route]]
path = "/*"
handler = "static"
root = "{folder}/www"
"""

# Options of slowhttptest for each of its modes: how slowly it sends or reads.
MODES = {
    "H": ["-i", "2", "-x", "24"],
    "B": ["-i", "2", "-x", "24", "-s", "100000"],
    "X": ["-w", "10", "-y", "200", "-n", "2", "-z", "32", "-k", "10"],
}


class Probe(threading.Thread):
    """Requests a small file repeatedly on new connections, and records the failures in `problems`."""

    def __init__(self, port):
        super().__init__()
        self.port, self.over, self.problems, self.answers = port, threading.Event(), [], 0

    def run(self):
        while not self.over.wait(0.1):
            try:
                with Exchange(self.port, timeout_s=PROBE_SECONDS) as exchange:
                    exchange.send(b"GET /small.txt HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    response = exchange.response()
                if response is None or response.status != 200:
                    self.problems.append(f"a probe got {response and response.status}")
                self.answers += 1
            except (Malformed, OSError) as error:
                self.problems.append(f"a probe: {error!r}")


def attack(mode, server):
    """Attacks the server in one mode. Returns a line to print, and the errors."""
    # Slow bodies are sent to the API, which waits for request bodies.
    port, path = (server.internal_port, "api/push") if mode == "B" else (server.port, "large.bin")
    probe = Probe(server.port)
    probe.start()
    with tempfile.TemporaryDirectory() as folder:
        command = ["slowhttptest", f"-{mode}", "-u", f"http://127.0.0.1:{port}/{path}"]
        command += ["-c", str(CONNECTIONS), "-r", "200", "-l", str(SECONDS), "-p", str(PROBE_SECONDS)]
        command += ["-g", "-o", f"{folder}/out", *MODES[mode]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS * 6, cwd=folder)
        rows = open(f"{folder}/out.csv").read().splitlines()
    probe.over.set()
    probe.join()
    # Columns: seconds, closed, pending, connected, service available.
    samples = [[int(field) for field in row.split(",")] for row in rows if re.match(r"[\d,]+$", row)]
    problems = probe.problems[:3]
    if not samples or max(sample[3] for sample in samples) < CONNECTIONS / 4:
        problems.append(f"slowhttptest did not connect:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    away = [sample[0] for sample in samples if sample[4] == 0]
    if away:
        problems.append(f"slowhttptest found it unavailable after {away} s")
    if probe.answers < SECONDS / 2:
        problems.append(f"{probe.answers} probes were answered")
    connected = max((sample[3] for sample in samples), default=0)
    left = samples[-1][3] if samples else 0
    return f"slow -{mode}: {connected} connections, {left} left; {probe.answers} probes answered", problems


def main():
    modes = sys.argv[1:] or list(MODES)
    if not shutil.which("slowhttptest"):
        print("SKIPPED: slowhttptest is not installed (tests/setup/packages.sh full)")
        return 3
    passed = failed = 0
    started = time.monotonic()
    for mode in modes:
        files = {"www/small.txt": b"small\n", "www/large.bin": b"x" * (1 << 20)}
        with veche.Veche(CONFIG, files) as server:
            line, problems = attack(mode, server)
            if server.panicked():
                problems.append(server.log_tail())
        print(line)
        for problem in problems:
            print(f"FAILED -{mode}: {problem}")
        passed, failed = passed + (not problems), failed + bool(problems)
    print(f"slowhttptest: {passed} passed, {failed} failed in {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
