#!/usr/bin/env python3
"""Makes the Debian package of a built binary, unpacks it into a temporary folder, and tests its scripts and its server.

Takes the binary from VECHE_BIN, or the newest of target/*/veche. Nothing is installed on this machine.
"""

import base64
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SKIPPED = 3
SOON_S = 30


def binary():
    if named := os.environ.get("VECHE_BIN"):
        return pathlib.Path(named)
    built = [path for path in TARGET.glob("*/veche") if path.is_file()]
    if not built:
        sys.exit(f"no veche under {TARGET}: cargo build first")
    return max(built, key=lambda path: path.stat().st_mtime)


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def ok(what):
    print(f"ok  {what}")


def check_contents(package, tree):
    listed = {line.split(None, 5)[5]: line.split(None, 2)[:2] for line in run("dpkg-deb", "-c", package).splitlines()}
    for path in [
        "./usr/bin/veche",
        "./lib/systemd/system/veche.service",
        "./etc/veche/veche.toml",
        "./usr/share/man/man1/veche.1.gz",
        "./usr/share/man/man1/veche-status.1.gz",
        "./usr/share/bash-completion/completions/veche",
        "./usr/share/zsh/vendor-completions/_veche",
        "./usr/share/fish/vendor_completions.d/veche.fish",
        "./usr/share/doc/veche/guide/operate.md",
        "./usr/share/doc/veche/reference/config.md",
        "./usr/share/doc/veche/grafana/veche.json",
        "./usr/share/doc/veche/prometheus/veche.rules.yml",
        "./usr/share/doc/veche/copyright",
    ]:
        assert path in listed, f"{path} is not in the package"
    assert all(owner == "root/root" for _, owner in listed.values()), "all belongs to root"
    assert listed["./usr/bin/veche"][0] == "-rwxr-xr-x", listed["./usr/bin/veche"]
    ok("the package has all parts, and they belong to root")
    program, symbols = tree / "usr/bin/veche", pathlib.Path(package).with_suffix(".debug")
    assert ".symtab" not in run("readelf", "-SW", program), "the binary is stripped"
    assert symbols.name in run("readelf", "--string-dump=.gnu_debuglink", program, errors="replace"), "it names the file of its symbols"
    assert "server::start" in run("nm", "--demangle", symbols), "the symbols are there"
    ok("the binary is stripped, and its symbols are beside the package")
    fields = run("dpkg-deb", "-f", package)
    version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    assert f"Version: {version}\n" in fields and "@" not in fields.replace("maintainers@", ""), fields
    assert (tree / "DEBIAN/conffiles").read_text() == "/etc/veche/veche.toml\n"
    for script in ["postinst", "prerm", "postrm"]:
        run("sh", "-n", tree / "DEBIAN" / script)
    run("md5sum", "--check", "--quiet", "DEBIAN/md5sums", cwd=tree)
    ok("its fields, scripts and sums are right")


def check_unit(tree):
    if not shutil.which("systemd-analyze"):
        return print("skipped: no systemd-analyze for the unit")
    unit = (tree / "lib/systemd/system/veche.service").read_text()
    moved = tree / "veche.service"
    moved.write_text(unit.replace("/usr/bin/veche", str(tree / "usr/bin/veche")))
    run("systemd-analyze", "verify", "--man=no", moved, timeout=60)
    ok("systemd takes the unit")
    drain_s = int(re.search(r'drain_time = "(\d+)s"', (tree / "etc/veche/veche.toml").read_text())[1])
    assert "StartLimitIntervalSec=0" in unit, unit
    ok("the unit is started again for as long as it takes")
    stop_s = int(re.search(r"TimeoutStopSec=(\d+)", unit)[1])
    assert stop_s > drain_s + 1, "systemd would kill it while it drains"
    ok("the unit waits for longer than a drain takes")
    assert int(re.search(r"FileDescriptorStoreMax=(\d+)", unit)[1]) >= 1024 and "pidfd_getfd" in unit, unit
    ok("the unit keeps the listening sockets over a restart")


def check_install(tree):
    """Runs the scripts of the package on the unpacked tree. Commands that would change the users of this machine are
    only recorded."""
    shims, said = tree / "shims", tree / "said"
    shims.mkdir()
    for name in ["getent", "useradd", "chown", "systemctl"]:
        (shims / name).write_text(f'#!/bin/sh\necho {name} "$@" >> "{said}"\n')
        (shims / name).chmod(0o755)
    environment = {**os.environ, "DPKG_ROOT": str(tree), "PATH": f"{shims}:{os.environ['PATH']}"}
    key = tree / "etc/veche/api.key"

    def script(name, word, umask=0o022):
        run("sh", tree / "DEBIAN" / name, word, env=environment, umask=umask)

    def mode(path):
        return oct(path.stat().st_mode & 0o7777)

    assert not key.exists(), "the package must not contain a key"
    script("postinst", "configure", umask=0)
    first = key.read_text()
    assert re.fullmatch(r"[\w-]{43}\n", first), "a key of 256 bits"
    assert (mode(key), mode(key.parent)) == ("0o640", "0o750"), (mode(key), mode(key.parent))
    assert re.search(r"^chown root:veche .*/api\.key", said.read_text(), re.MULTILINE), said.read_text()
    assert {path.name for path in key.parent.iterdir()} == {"veche.toml", "api.key"}, "nothing is left beside it"
    script("postinst", "configure")
    assert key.read_text() == first, "an upgrade keeps the key"
    script("postrm", "purge")
    assert not key.exists(), "a purge leaves no key"
    script("postinst", "configure")
    assert key.read_text() != first, "each machine has a key of its own"
    ok("an installation makes a key of its own, for root and the group veche")


def status_of_call(address, headers=""):
    """Makes a call of the API. Returns the HTTP status."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=SOON_S) as client:
        client.sendall(f"GET /api/info HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
        return int(client.makefile("rb").readline().split()[1])


def echo(address):
    """Sends a message over a WebSocket. Returns whether the server echoes it."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=SOON_S) as client:
        key = base64.b64encode(os.urandom(16)).decode()
        client.sendall(
            f"GET /echo HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        stream = client.makefile("rb")
        assert b" 101 " in stream.readline()
        while stream.readline() != b"\r\n":
            pass
        mask, text = b"abcd", b"hello"
        client.sendall(b"\x81" + bytes([0x80 | len(text)]) + mask + bytes(c ^ mask[i % 4] for i, c in enumerate(text)))
        assert stream.read(2 + len(text)) == b"\x81\x05hello"


def check_server(tree):
    """Starts the packaged binary with the packaged configuration, on free ports."""
    veche, config = tree / "usr/bin/veche", tree / "etc/veche/veche.toml"
    for folder in ["run/veche", "var/log/veche"]:
        (tree / folder).mkdir(parents=True)
    text = config.read_text()
    for path in ["/run/veche", "/var/log/veche", "/etc/veche"]:
        assert f'"{path}/' in text, f"{path} is not in the configuration"
        text = text.replace(f'"{path}/', f'"{tree}{path}/')
    config.write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:0", text))
    checked = subprocess.run([veche, "check", "-c", config], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    warnings = checked.stderr.splitlines()
    assert all("accepts any user name that the client sends" in line for line in warnings), checked.stderr
    ok("the packaged configuration is good")
    log = open(tree / "log", "w")
    server = subprocess.Popen([veche, "serve", "-c", config], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + SOON_S
        while True:
            asked = subprocess.run([veche, "status", "--json", "-c", config], capture_output=True, text=True)
            if asked.returncode == 0 and (status := json.loads(asked.stdout))["state"] == "ready":
                break
            assert server.poll() is None and time.monotonic() < deadline, (tree / "log").read_text()
            time.sleep(0.05)
        echo(next(one["address"] for one in status["listeners"] if one["role"] == "public"))
        ok("the packaged server echoes")
        internal = next(one["address"] for one in status["listeners"] if one["role"] == "internal")
        key = (tree / "etc/veche/api.key").read_text().strip()
        assert status_of_call(internal) == 401, "a call without a key"
        assert status_of_call(internal, f"X-API-Key: {key}\r\n") == 200, "a call with the key"
        ok("its API asks for the key")
        run(veche, "stop", "-c", config)
        assert server.wait(SOON_S) == 0
        line = (tree / "var/log/veche/access.log").read_text()
        assert '"GET /echo HTTP/1.1" 101' in line, line
        ok("it stops, and has written its access log")
    finally:
        server.kill()
        server.wait()
        log.close()


def main():
    if not shutil.which("dpkg-deb"):
        print("no dpkg-deb: no package can be made here")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="veche-package-") as folder:
        folder = pathlib.Path(folder)
        package = run(ROOT / "packaging/package.sh", binary(), folder / "out").strip()
        tree = folder / "tree"
        run("dpkg-deb", "-R", package, tree)
        check_contents(package, tree)
        check_unit(tree)
        check_install(tree)
        check_server(tree)
    return 0


if __name__ == "__main__":
    sys.exit(main())
