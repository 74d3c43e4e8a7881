"""Redis servers started by the suite. Each keeps its port and its folder over restarts."""

import asyncio
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import tempfile

# Ports below the range from which the system assigns them, so that no connection takes the port of
# a server that is down.
PORTS = range(20_000, 32_000)
given = set()

RULES = {
    "aof": ["--appendonly", "yes", "--appendfsync", "always", "--save", ""],
    "everysec": ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""],
    "rdb": ["--appendonly", "no", "--save", "3600 1"],
    "none": ["--appendonly", "no", "--save", ""],
}


def port():
    """Returns a free port that was not returned before. It stays free while its server is down."""
    while True:
        number = random.choice(PORTS)
        if number in given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", number))
            except OSError:
                continue
        given.add(number)
        return number


class Redis:
    """A server that persists as `RULES[rule]` says."""

    def __init__(self, rule, *more):
        self.port = port()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="veche-faults-redis-"))
        self.arguments = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        self.arguments += ["--enable-debug-command", "yes", *RULES[rule], *more]
        self.process = None

    async def start(self):
        await self.launch(["redis-server", *self.arguments])

    async def launch(self, command):
        # Python ignores SIGXFSZ, and Redis inherits that: a file at its size limit is then an
        # error, like a full disk.
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, restore_signals=False, cwd=self.folder
            )
        for _ in range(400):
            if await self.ask("ping") == "PONG":
                return
            await asyncio.sleep(0.025)
        raise SystemExit("redis-server did not start:\n" + (self.folder / "log").read_text(errors="replace")[-2000:])

    async def ask(self, *command):
        """Runs a command with redis-cli; returns the output."""
        process = await asyncio.create_subprocess_exec(
            "redis-cli", "-p", str(self.port), *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        output, _ = await process.communicate()
        return output.decode(errors="replace").strip()

    async def do(self, *command, expected="OK"):
        answer = await self.ask(*command)
        if expected not in answer:
            raise SystemExit(f"redis: {' '.join(command)}: {answer}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def limit_files(self, bytes_max):
        """Limits the size of the files of Redis to `bytes_max`; None removes the limit."""
        limit = resource.RLIM_INFINITY if bytes_max is None else bytes_max
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def stop(self):
        if self.process and self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Sentinel(Redis):
    """A Sentinel that decides alone, because its quorum is 1."""

    def __init__(self, primary_port):
        super().__init__("none")
        self.config = self.folder / "sentinel.conf"
        self.config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n"
            f"sentinel monitor main 127.0.0.1 {primary_port} 1\nsentinel down-after-milliseconds main 1000\n"
            "sentinel failover-timeout main 10000\n"
        )

    async def start(self):
        await self.launch(["redis-server", str(self.config), "--sentinel"])


async def until(what, found, seconds=30.0):
    """Waits for a condition, which is a coroutine function or a function."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        answer = found()
        if asyncio.iscoroutine(answer):
            answer = await answer
        if answer:
            return answer
        if loop.time() > end:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        await asyncio.sleep(0.05)


def open_files(count):
    """Raises the limit of descriptors to its maximum. Returns whether more than `count` are permitted."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    return limit == resource.RLIM_INFINITY or limit > count
