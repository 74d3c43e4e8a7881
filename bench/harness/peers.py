"""The registry of peers: the folders under bench/peers/, each with a peer.toml, and the externally built peers of
outside.toml.

This module finds, builds, starts and stops peers; `answers` checks their responses, and `tester` measures them.
"""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
import tomllib

from harness import servers

FOLDER = servers.BENCH / "peers"
PORT_FIRST = 9801
BUILD_SECONDS_MAX = 1800


class Peer(servers.Server):
    """A server to compare: Veche or another one. `absent` is the reason why it can't run, or None."""

    def __init__(self, key, name, port, command, **about):
        # `answers` checks later whether the server supports HTTP; until then an accepted connection
        # shows that it runs.
        super().__init__(name, port, command, command[0], env=about.get("env"), http=False)
        self.key, self.what = key, about.get("what", "")
        self.websocket = about.get("websocket", True)
        self.http_path, self.http_timed = about.get("http"), about.get("http_timed", "http" in about)
        # The body of the response to the first check (`answers.py`). The server may have appended a newline.
        self.http_body = None
        self.http_unknown = about.get("http_unknown", False)
        self.echo_path = about.get("echo_path", "/")
        self.build_script, self.folder, self.out = about.get("build"), about.get("folder"), about.get("out")
        self.version_sources = about.get("versions", [])
        self.absent = about.get("absent")

    def build(self):
        """Builds the peer, or marks it absent with the last line of the build's output."""
        if self.absent or not self.build_script:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        # Without GOTOOLCHAIN, Debian's Go ignores the toolchain version in go.mod.
        env = os.environ | {"OUT": str(self.out), "GOTOOLCHAIN": os.environ.get("GOTOOLCHAIN", "auto")}
        try:
            done = subprocess.run(
                ["sh", "-ec", self.build_script],
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=BUILD_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired:
            self.absent = "its build takes too long"
            return
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()
            self.absent = f"it does not build: {said[-1]}"

    def versions(self):
        """Returns the versions from lock files and the output of tools, such as {"ws": "8.23.0", …}."""
        return {source["of"]: self._version(source) for source in self.version_sources}

    def _version(self, source):
        if "text" in source:
            return source["text"]
        if "file" in source:
            text = (self.folder / source["file"]).read_text()
        else:
            command = _filled(source["command"], self)
            try:
                text = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=10).stdout
            except OSError:
                return "?"
        found = re.search(source.get("pattern", r"(\S+)"), text)
        return found[1] if found else "?"

    def start(self):
        """Does the same as `Server.start`, but fails if another process already listens on the port."""
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                raise RuntimeError(f"{self.name}: port {self.port} is in use")
        super().start()

    @property
    def pid(self):
        """The id of the process that was started; measurements include its children."""
        return self.process.pid

    def cpu_ns(self):
        return sum(_of_process(servers.cpu_ns, pid) for pid in self.tree())

    def memory_bytes(self):
        return sum(_of_process(_resident_bytes, pid) for pid in self.tree())

    def tree(self):
        found, open_ends = [], [self.pid]
        while open_ends:
            pid = open_ends.pop()
            found.append(pid)
            open_ends += _children(pid)
        return found

    def stop(self):
        """Ends the process with all its children, including those that a master process leaves behind."""
        children = self.tree()[1:] if self.process and self.process.poll() is None else []
        marks = {pid: _started(pid) for pid in children}
        super().stop()
        deadline = time.monotonic() + 2
        while children := [pid for pid in children if marks[pid] and _started(pid) == marks[pid]]:
            late = time.monotonic() > deadline
            for pid in children:
                try:
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
                except ProcessLookupError:
                    pass
            time.sleep(0.05)


def veche():
    binary = servers.veche_binary()
    return Peer(
        "veche",
        "Veche",
        9701,
        [binary, "serve", "-c", str(servers.BENCH / "veche.toml")],
        what="release build, one worker, bench/veche.toml",
        http="/hello.txt",
        echo_path="/echo",
        folder=servers.BENCH,
        versions=[{"of": "veche", "command": [binary, "--version"], "pattern": r"(\d\S*)"}],
        absent=None if shutil.which(binary) else "no release build (make build)",
    )


def all_peers():
    """Returns all peers of the registry, present or not, in the order of their folders; externally built peers come
    last."""
    described = [(path.parent, tomllib.loads(path.read_text())) for path in sorted(FOLDER.glob("*/peer.toml"))]
    peers = [_from_folder(folder, about, PORT_FIRST + i) for i, (folder, about) in enumerate(described)]
    outside = tomllib.loads((FOLDER / "outside.toml").read_text())["peer"]
    return peers + [_from_outside(about, PORT_FIRST + len(peers) + i) for i, about in enumerate(outside)]


def _from_folder(folder, about, port):
    known = {"name", "what", "needs", "build", "start", "env", "websocket", "http", "http_timed", "versions"}
    if unknown := about.keys() - known:
        raise ValueError(f"{folder.name}/peer.toml: unknown {', '.join(sorted(unknown))}")
    missing = [need for need in about.get("needs", []) if not _is_here(need)]
    out = servers.cargo_target(folder.name).absolute()
    keep = {key: about[key] for key in known - {"name", "needs", "start"} if key in about}
    absent = f"missing: {', '.join(missing)}" if missing else None
    peer = Peer(folder.name, about["name"], port, about["start"], folder=folder, out=out, absent=absent, **keep)
    peer.command = _filled(peer.command, peer)
    peer.binary = peer.command[0]
    return peer


def _from_outside(about, port):
    variable = about["variable"]
    binary = os.environ.get(variable, "")
    if not binary:
        absent = f"{variable} is not set"
    else:
        absent = None if shutil.which(binary) else f"{variable} names no executable"
    version = os.environ.get(f"{variable}_VERSION", "?")
    return Peer(
        variable.removeprefix("PEER_").lower(),
        about["name"],
        port,
        [binary, str(port)],
        what=f"a build from outside, by {variable}",
        http="/",
        http_unknown=True,
        versions=[{"of": about["name"], "text": version}],
        absent=absent,
    )


def _filled(command, peer):
    places = {"port": peer.port, "out": peer.out, "folder": peer.folder, "body": servers.BODY}
    # Not `format`, because the arguments of dpkg-query contain braces.
    return [re.sub(r"\{(port|out|folder|body)\}", lambda found: str(places[found[1]]), part) for part in command]


def _is_here(need):
    return pathlib.Path(need).exists() if need.startswith("/") else shutil.which(need) is not None


def _children(pid):
    found = []
    try:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        pass  # it ended meanwhile
    return found


def _started(pid):
    """Returns the start time of a process, which distinguishes it from a later process with the same id; None if it has
    ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


def _resident_bytes(pid):
    found = re.search(r"^VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _of_process(measure, pid):
    try:
        return measure(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0  # a child that ended meanwhile
