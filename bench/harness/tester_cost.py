"""Measures the cost of load generators: their CPU time per message against the same server, the echo of uWebSockets."""

import json
import os
import re
import shutil
import subprocess

from harness import servers
from harness.loads import LoadError, _output, _pinned


def ours(server, quick, connections, size):
    seconds = 2 if quick else 4
    command = [servers.veche_binary(), "bench", "echo", f"ws://127.0.0.1:{server.port}/"]
    command += ["--connections", connections, "--size", size, "--duration", f"{seconds}s", "--binary", "--json"]
    report = json.loads(_output(command))
    return {"value": report["generator"]["cpu_us_per_message"] * 1000, "per_second": report["messages"]["per_second"]}


def uwebsockets(server, quick, connections, size):
    """Runs uWebSockets' benchmarks/load_test, which prints its messages per second every four seconds."""
    command = _pinned(["stdbuf", "-oL", load_test(), connections, "127.0.0.1", server.port, 0, 0, size])
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        _rate(running)
        before = servers.cpu_ns(running.pid)
        per_second = _rate(running)
        cpu_ns = servers.cpu_ns(running.pid) - before
    finally:
        running.kill()
        running.wait()
    return {"value": cpu_ns / (4 * per_second), "per_second": per_second}


def _rate(running):
    for line in running.stdout:
        if found := re.match(r"Msg/sec: ([\d.]+)", line):
            return float(found[1])
    raise LoadError("load_test ended before it printed a rate")


def load_test():
    return os.environ.get("PEER_UWEBSOCKETS_LOAD", "")


class UnderLoadTest(servers.Server):
    """The server under load; it is absent if the other load generator is absent."""

    def __init__(self):
        server = servers.uwebsockets()
        super().__init__(server.name, server.port, server.command, server.binary)

    @property
    def present(self):
        return super().present and shutil.which(load_test() or "absent") is not None
