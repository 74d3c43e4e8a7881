"""A server on a free port and with a temporary folder, for standalone scripts.

The servers of scenarios, at known ports, are in servers.py.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request

from harness import servers

# An absolute path, since the server may run in another folder.
VECHE = os.path.abspath(shutil.which(servers.veche_binary()) or servers.veche_binary())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Running:
    """A server, optionally pinned to a core, and run under another account if root starts it. At the end of the `with`
    block the server is stopped and its folder removed."""

    # Maximum number of seconds until the server answers.
    start_max = 30

    def __init__(self, core=None, account=None):
        self.folder, self.port = pathlib.Path(tempfile.mkdtemp(prefix="veche-bench-")), free_port()
        self.child, self.prefix = None, []
        if core is not None:
            self.prefix += ["taskset", "-c", core]
        if account and os.getuid() == 0:
            self.prefix += ["setpriv", "--reuid", account, "--regid", account, "--init-groups"]
            shutil.chown(self.folder, account)
            self.folder.chmod(0o755)

    def start(self, *command, **environment):
        """Starts the server and waits until it answers."""
        began = time.monotonic()
        with (self.folder / "log").open("wb") as log:
            self.child = subprocess.Popen(
                [*self.prefix, *command], stdout=log, stderr=log, cwd=self.folder, env=os.environ | environment)
        while self.child.poll() is None and time.monotonic() - began < self.start_max:
            if self.answers():
                self.start_s = time.monotonic() - began
                return self
            time.sleep(0.05)
        said = (self.folder / "log").read_text(errors="replace")[-2000:]
        self.stop()
        raise SystemExit(f"{command[0]} does not start:\n{said}")

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        except OSError:
            return False

    def get(self, path, port=None, seconds_max=3600):
        """Makes a GET request. Returns the body of the response."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port or self.port}{path}", timeout=seconds_max) as answer:
            return answer.read().decode()

    def pids(self):
        """Returns the ids of the process and its children. A supervisor has one child, the server process."""
        pid = self.child.pid
        return [pid, *map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    @property
    def pid(self):
        """The id of the process that serves: the first child of a supervisor, otherwise the process itself."""
        return self.pids()[:2][-1]

    def memory(self, name="VmRSS"):
        """Returns the resident memory of the process that serves, in bytes."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return 1024 * int(status.split(name + ":")[1].split()[0])

    def cpu_ns(self):
        """Returns the CPU time of all processes in nanoseconds."""
        return sum(map(servers.cpu_ns, self.pids()))

    def stop(self):
        if self.child:
            self.child.terminate()
            try:
                self.child.wait(30)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def redis(core=None, account=None):
    server = Running(core, account)
    return server.start("redis-server", "--bind", "127.0.0.1", "--port", str(server.port), "--save", "")
