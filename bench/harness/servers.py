"""The servers under test: how each is started, pinned to the server's core, found in /proc and stopped.

Other servers come from the environment (PEER_…): without it a peer is absent, which is reported.
"""

import atexit
import functools
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import time

BENCH = pathlib.Path(__file__).resolve().parent.parent
ROOT = BENCH.parent
BODY = BENCH / "www" / "hello.txt"
SERVER_CORE = os.environ.get("BENCH_SERVER_CORE", "0")
DRIVER_CORE = os.environ.get("BENCH_DRIVER_CORE", "1")


def cargo_target(name):
    return pathlib.Path(os.environ.get("BENCH_TARGET_DIR", BENCH / "target")) / name


def veche_binary():
    if "VECHE_BIN" in os.environ:
        return os.environ["VECHE_BIN"]
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return str(target / "release" / "veche")


def tester_binary():
    """Returns the program whose `veche bench` generates the load for all servers."""
    return os.environ.get("BENCH_TESTER") or veche_binary()


def with_veche(binary, make):
    """Does the same as `make`, with another binary of Veche."""

    def made():
        before = os.environ.get("VECHE_BIN")
        os.environ["VECHE_BIN"] = binary
        try:
            return make()
        finally:
            if before is None:
                del os.environ["VECHE_BIN"]
            else:
                os.environ["VECHE_BIN"] = before

    return made


# Accepts any certificate, since the server's certificate is generated for the run.
ANYBODY = ssl.create_default_context()
ANYBODY.check_hostname = False
ANYBODY.verify_mode = ssl.CERT_NONE


class Server:
    """One server, whose `port` speaks HTTP and WebSocket. It is absent if its binary does not exist."""

    def __init__(self, name, port, command, binary, env=None, http=True, tls=False):
        self.name, self.port, self.command, self.env = name, port, command, env or {}
        self.binary, self.http, self.tls = binary, http, tls
        self.process = self.log = None

    @property
    def present(self):
        return bool(self.binary) and shutil.which(self.binary) is not None

    def start(self):
        self.log = tempfile.TemporaryFile()
        command = ["taskset", "-c", SERVER_CORE, *map(str, self.command)]
        env = os.environ | self.env
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, env=env)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self.process.poll() is None:
            if self._answers():
                return
            time.sleep(0.02)
        self.log.seek(0)
        tail = self.log.read()[-2000:].decode(errors="replace")
        self.stop()
        raise RuntimeError(f"{self.name} does not answer on port {self.port}:\n{tail}")

    def _answers(self):
        """Returns whether the server answers a request. An accepted connection is no proof, because a supervisor may
        hold the socket before a server process serves it."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as plain:
                if not self.http:
                    return True
                probe = ANYBODY.wrap_socket(plain) if self.tls else plain
                probe.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                return bool(probe.recv(1))
        except OSError:
            return False

    @property
    def pid(self):
        """The id of the process that serves: the only child of a supervisor or master, otherwise the process itself."""
        pid = self.process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else pid

    def cpu_ns(self):
        return cpu_ns(self.pid)

    def memory_bytes(self):
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no VmRSS")

    def stop(self):
        if self.process and self.process.poll() is None:
            # The measurement is over, so a server that still drains gets a second signal, and is
            # then killed.
            for _ in range(2):
                self.process.terminate()
                try:
                    self.process.wait(3)
                    break
                except subprocess.TimeoutExpired:
                    continue
            else:
                self.process.kill()
                self.process.wait()
        self.process = None


def cpu_ns(pid):
    """Returns the CPU time of all threads of a process in nanoseconds."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            pass  # a thread that ended meanwhile
    return total


def veche():
    binary = veche_binary()
    config = BENCH / "veche.toml"
    server = Server("veche", 9701, [binary, "serve", "-c", config], binary)
    server.publish = "tcp://127.0.0.1:9702"
    server.to_all, server.to_one = '{"channel":"news","message":"{data}"}', '{"user":"somebody-{i}","message":"{data}"}'
    return server


def veche_guarded():
    """Returns Veche with all limits and timeouts enabled."""
    binary = veche_binary()
    return Server("veche, guarded", 9701, [binary, "serve", "-c", BENCH / "guarded.toml"], binary)


def veche_lua():
    """Returns Veche with its handlers in Lua."""
    binary = veche_binary()
    config = BENCH / "lua" / "veche.toml"
    return Server("veche in Lua", 9701, [binary, "serve", "-c", config], binary)


def nginx_lua():
    """The peer of the shootout: nginx with lua-resty-websocket, one worker."""
    start = str(BENCH / "peers" / "nginx-lua" / "start")
    directory = pathlib.Path(tempfile.mkdtemp(prefix="veche-bench-nginx-lua-"))
    directory.chmod(0o755)
    server = Server("nginx + Lua", 9761, [start, "9761", directory], start)
    if not pathlib.Path("/usr/share/lua/5.1/nginx/websocket/server.lua").exists():
        server.binary = None
    return server


def uwebsockets():
    """A C++ echo server: `BINARY PORT`, WebSocket echo without compression and a short body for GET."""
    binary = os.environ.get("PEER_UWEBSOCKETS_ECHO", "")
    return Server("uwebsockets", 9711, [binary, "9711"], binary)


@functools.cache
def certificate():
    """Creates an ECDSA P-256 certificate for this run, the same for all servers; returns its file and the file of its
    key."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="veche-bench-tls-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    names = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", names[0], "-keyout", names[1]]
    subprocess.run(command, check=True, capture_output=True)
    return names


def _over_tls(server, config):
    """Returns Veche with the same configuration, but with TLS on its first listener."""
    file, key = certificate()
    address = 'address = "127.0.0.1:9701"\n'
    text = config.read_text().replace(address, address + f'tls = {{ certificate = "{file}", key = "{key}" }}\n')
    # Relative paths are prefixed with the folder of the original configuration.
    text = re.sub(r'(root|script) = "', rf'\1 = "{config.parent}/', text)
    tls_config = file.parent / f"{config.parent.name}.toml"
    tls_config.write_text(text)
    server.name, server.tls = server.name + " over TLS", True
    server.command[-1] = tls_config
    return server


def veche_tls():
    return _over_tls(veche(), BENCH / "veche.toml")


def veche_lua_tls():
    return _over_tls(veche_lua(), BENCH / "lua" / "veche.toml")


def uwebsockets_tls():
    """The same echo server on OpenSSL: `BINARY PORT CERTIFICATE KEY`."""
    binary = os.environ.get("PEER_UWEBSOCKETS_TLS", "")
    return Server("uwebsockets over TLS", 9712, [binary, "9712", *certificate()], binary, tls=True)


def nginx_tls():
    return _nginx("nginx over TLS", 9742, *certificate())


def nginx_lua_tls():
    server = nginx_lua()
    server.name, server.tls, server.port = server.name + " over TLS", True, 9762
    server.command = [server.command[0], "9762", server.command[2], *certificate()]
    return server


def hyper():
    binary = str(cargo_target("hyper") / "release" / "veche-bench-hyper")
    return Server("hyper", 9721, [binary, "127.0.0.1:9721", BODY], binary)


def fasthttp():
    binary = str(cargo_target("fasthttp") / "fasthttp-peer")
    return Server("fasthttp", 9731, [binary, "127.0.0.1:9731", BODY], binary, env={"GOMAXPROCS": "1"})


def nginx():
    return _nginx("nginx", 9741)


def _nginx(name, port, certificate=None, key=None):
    directory = pathlib.Path(tempfile.mkdtemp(prefix="veche-bench-nginx-"))
    config = directory / "nginx.conf"
    body = BODY.read_text().rstrip()
    tls = f"ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3; " if certificate else ""
    config.write_text(
        "daemon off; worker_processes 1; pid nginx.pid; error_log stderr crit;\n"
        "events { worker_connections 20000; }\n"
        "http { access_log off; keepalive_requests 100000000; default_type text/plain;\n"
        f"  server {{ listen 127.0.0.1:{port} {'ssl ' if tls else ''}backlog=4096; {tls}\n"
        f"    location / {{ return 200 \"{body}\\n\"; }} }} }}\n"
    )
    directory.chmod(0o755)
    return Server(name, port, ["nginx", "-p", directory, "-c", config], "nginx", tls=bool(tls))


def uwebsockets_fanout():
    """`BINARY PORT`: clients of /fanout are subscribed to one topic, to which messages of /control are published."""
    binary = os.environ.get("PEER_UWEBSOCKETS_FANOUT", "")
    server = Server("uwebsockets", 9712, [binary, "9712"], binary)
    server.publish, server.to_all = "ws://127.0.0.1:9712/control", "{data}"
    return server


def send_alone():
    """A baseline for pushes and publications: a program that makes one `send` of a frame per delivery."""
    binary = str(cargo_target("send-alone") / "release" / "veche-bench-send-alone")
    server = Server("send alone", 9751, [binary, "127.0.0.1:9751", "127.0.0.1:9752"], binary, http=False)
    server.publish, server.to_all, server.to_one = "tcp://127.0.0.1:9752", "* {data}", "{i} {data}"
    return server
