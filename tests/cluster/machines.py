"""The processes of a cluster on loopback ports: Redis, Sentinel, the relay in front of Redis, and nodes."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "conformance"))

import veche  # noqa: E402

NODES = 3
START_S = 60
CONFIG = """
[server]
workers = 1
log = "info"

[[listen]]
address = "127.0.0.1:{public}"
hosts = ["*"]

[[listen]]
address = "127.0.0.1:{internal}"
role = "internal"

[[route]]
path = "/connection/*"
handler = "centrifuge"

[[route]]
path = "/echo"
handler = "echo"

[[namespace]]
name = ""
subscribe = "client"
history_size = 10000
history_ttl = "10m"
presence = true

[engine]
type = "redis"
url = "{url}"

[node]
name = "node{number}"

[limits]
connections_per_address = 100000
"""


def until(what, condition, seconds=START_S):
    """Waits for a condition; `SystemExit` if it never holds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            if condition():
                return
        time.sleep(0.05)
    raise SystemExit(f"not within {seconds} s: {what}")


def listens(port):
    socket.create_connection(("127.0.0.1", port), timeout=1).close()
    return True


def children(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def resident(pid):
    """The bytes of resident memory of a process; 0 without one."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:")), 0)


class Redis:
    """A redis-server, or a Sentinel, with a folder of its own."""

    def __init__(self, folder, *options, sentinel=None, port=None):
        self.port, self.folder = port or veche.free_port(), folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.options, self.sentinel, self.process = options, sentinel, None
        if sentinel:
            (folder / "sentinel.conf").write_text(f"port {self.port}\nbind 127.0.0.1\ndir {folder}\n{sentinel}\n")
        self.start()

    def start(self):
        command = ["redis-server"]
        if self.sentinel:
            command += [str(self.folder / "sentinel.conf"), "--sentinel"]
        else:
            command += ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
            command += ["--enable-debug-command", "yes", "--enable-protected-configs", "yes", *self.options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until("redis-server", lambda: self.call("PING") == "PONG")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def call(self, *words):
        """What redis-cli prints."""
        command = ["redis-cli", "-p", str(self.port), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()


class Relay:
    """The process of relay.py: one port per node."""

    def __init__(self, target):
        self.ports = [veche.free_port() for _ in range(NODES)]
        command = [sys.executable, str(HERE / "relay.py"), str(target), *map(str, self.ports)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def set(self, node, fault, number=0):
        self.process.stdin.write(f"{self.ports[node]} {fault} {number}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def set_all(self, fault, number=0):
        for node in range(NODES):
            self.set(node, fault, number)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Node:
    """A `veche serve` that may be killed and started again on its ports."""

    def __init__(self, folder, number, url):
        self.folder, self.number = folder, number
        self.port, self.internal = veche.free_port(), veche.free_port()
        folder.mkdir(parents=True)
        config = CONFIG
        for name, value in (("public", self.port), ("internal", self.internal), ("url", url), ("number", number)):
            config = config.replace("{" + name + "}", str(value))
        (folder / "veche.toml").write_text(config)
        self.log, self.process = folder / "log", None
        self.start()

    def start(self):
        command = [veche.binary(), "serve", "-c", str(self.folder / "veche.toml")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        until(f"node {self.number}", lambda: listens(self.port) and listens(self.internal))

    def kill(self):
        """Kills the supervisor and the server process at once."""
        for pid in [self.process.pid, *children(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def resident(self):
        return sum(resident(pid) for pid in children(self.process.pid))

    def warnings(self):
        """The lines of the log about faults."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if any(level in line for level in ("WARN", "ERROR", "panicked"))]


class Cluster:
    """Redis, the relay and three nodes; `with Cluster(...) as cluster:`."""

    def __init__(self, *options, sentinel=False):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="veche-cluster-"))
        self.options, self.has_sentinel = options, sentinel
        self.redis = self.relay = self.replica = self.sentinel = self.lag = None
        self.nodes = []

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def begin(self):
        self.redis = Redis(self.folder / "redis", *self.options)
        if self.has_sentinel:
            self.begin_sentinel()
            urls = [f"redis+sentinel://127.0.0.1:{self.sentinel.port}/main"] * NODES
        else:
            self.relay = Relay(self.redis.port)
            urls = [f"redis://127.0.0.1:{port}" for port in self.relay.ports]
        for number, url in enumerate(urls):
            self.nodes.append(Node(self.folder / f"node{number}", number, url))

    def begin_sentinel(self):
        """A replica that is 100 ms behind, and a Sentinel that promotes it."""
        self.lag = Relay(self.redis.port)
        self.replica = Redis(self.folder / "replica", "--replicaof", "127.0.0.1", str(self.lag.ports[0]), "--save", "")
        monitor = f"sentinel monitor main 127.0.0.1 {self.redis.port} 1\n"
        monitor += "sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 60000\n"
        self.sentinel = Redis(self.folder / "sentinel", sentinel=monitor)
        until("a replica", lambda: "master_link_status:up" in self.replica.call("INFO", "replication"))
        until("Sentinel's replica", lambda: str(self.replica.port) in self.sentinel.call("SENTINEL", "replicas", "main"))
        self.lag.set(0, "delay", 0.1)

    def __exit__(self, *_):
        for node in self.nodes:
            node.kill()
        for relay in (self.relay, self.lag):
            if relay:
                relay.close()
        for server in (self.sentinel, self.replica, self.redis):
            if server:
                server.kill()
        if os.environ.get("KEEP"):
            print(f"kept: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
