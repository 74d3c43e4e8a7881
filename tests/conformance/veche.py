"""A Veche server for a test: with a configuration in a temporary folder and on free ports, started and stopped around a
`with` block."""

import ctypes
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def binary():
    """Returns $VECHE_BIN, or the newest of the builds in the target folder."""
    if "VECHE_BIN" in os.environ:
        return os.environ["VECHE_BIN"]
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [path for path in (target / profile / "veche" for profile in ("release", "debug")) if path.exists()]
    if not built:
        raise SystemExit("no veche binary: make build, or set VECHE_BIN=/path/to/veche")
    return str(max(built, key=lambda path: path.stat().st_mtime))


def free_port(address="127.0.0.1"):
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def why_no_uring():
    """Returns the reason why io_uring is not available on this machine, or None if it is."""
    setup = 425
    libc = ctypes.CDLL(None, use_errno=True)
    ring = libc.syscall(setup, 4, ctypes.create_string_buffer(120))
    if ring < 0:
        return f"no io_uring here: {os.strerror(ctypes.get_errno())}"
    os.close(ring)
    return None


class Veche:
    """A server, used as `with Veche(config) as server:`. `config` is TOML, in which `{port}`, `{internal_port}`,
    `{folder}` and `{io}` (the value of $VECHE_TEST_IO) are replaced. `ports` are the two ports, for servers that are
    restarted: otherwise, while a server is down, another process may take its port."""

    def __init__(self, config, files=None, ports=None):
        self.port, self.internal_port = ports or (free_port(), free_port())
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="veche-conformance-"))
        for name, content in (files or {}).items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.config = self.folder / "veche.toml"
        self.io = os.environ.get("VECHE_TEST_IO", "epoll")
        for name in ("port", "internal_port", "folder", "io"):
            config = config.replace("{" + name + "}", str(getattr(self, name)))
        self.config.write_text(config)
        self.log = self.folder / "log"
        self.process = None

    def __enter__(self):
        with self.log.open("wb") as log:
            command = [binary(), "serve", "-c", str(self.config)]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                time.sleep(0.02)
        self.__exit__(None, None, None)
        raise SystemExit("veche did not start:\n" + self.log_tail())

    def __exit__(self, *_):
        if self.process.poll() is None:
            # A second SIGTERM makes the server stop without waiting for clients.
            self.process.terminate()
            try:
                self.process.wait(2)
            except subprocess.TimeoutExpired:
                self.process.terminate()
                try:
                    self.process.wait(5)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()
        if not os.environ.get("KEEP"):
            # The end of the log is kept for the message about a failed start.
            self._tail = self.log_tail()
            shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self):
        if not self.log.exists():
            return getattr(self, "_tail", "")
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def panicked(self):
        return "panicked at" in self.log.read_text(errors="replace")
