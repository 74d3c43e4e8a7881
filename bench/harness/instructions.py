"""The command `bench/instructions`: builds, counts instructions under Callgrind, and compares the counts.

gungraun counts the code paths of single turns (bench/counts). The echo through the whole process is counted here:
Callgrind counts only between two commands, so that the start of the process is not included.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import tomllib

from harness import counts
from harness.counts import Baseline, Machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE = ROOT / "bench" / "instructions.toml"
RUNNER_VERSION = "0.20.0"
# The exit code that tests/run reads as "can't run here".
SKIPPED = 3

# `veche-counts` and `veche` are built with the same package selection, so that shared packages are built once.
PACKAGES = ["--profile", "counts", "--locked", "--package", "veche-counts", "--package", "veche"]
OPTIONS = ["--output-format=json", "--callgrind-args=--cache-sim=no"]
PROCESS = "process_echo_20"
ECHOES = 1000
WARM_UP = 200
CONFIG = """
[server]
workers = 1
io = "epoll"
control = "{folder}/control.sock"

[[listen]]
address = "127.0.0.1:{port}"

[[route]]
path = "/echo"
handler = "echo"
"""


class Stopped(Exception):
    """Ends the run with a reason of one line."""


def why_no_valgrind():
    """Returns the reason why Valgrind can't be used on this machine, or None."""
    missing = [name for name in ("valgrind", "callgrind_control") if shutil.which(name) is None]
    return f"{', '.join(missing)} not installed: make setup-instructions" if missing else None


def why_no_runner():
    """Returns the reason why gungraun can't be used on this machine, or None."""
    if shutil.which("gungraun-runner") is None:
        return "gungraun-runner not installed: make setup-instructions"
    said = subprocess.run(["gungraun-runner", "--version"], capture_output=True, text=True).stdout
    if RUNNER_VERSION not in said:
        return f"gungraun-runner {RUNNER_VERSION} is needed, here is {said.strip()}: make setup-instructions"
    return None


def machine():
    """Returns the properties of this machine that counts depend on."""

    def said(*command):
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    rustc = said("rustc", "--version").removeprefix("rustc ")
    libc = " ".join(platform.libc_ver())
    valgrind = said("valgrind", "--version").removeprefix("valgrind-")
    return Machine(cpu[1] if cpu else platform.machine(), rustc, libc, valgrind)


def baseline():
    """Returns the counts in the file, or None if there is no file."""
    return Baseline.of(tomllib.loads(FILE.read_text())) if FILE.exists() else None


def why_not_judged(here):
    """Returns the reason why counts of this machine can't be compared with those in the file, or None."""
    before = baseline()
    if before and (differences := here.differences(before.machine)):
        return f"nothing is judged, the file is of another machine ({'; '.join(differences)})"
    return None


def cargo(root, target, *arguments):
    environment = os.environ | {"CARGO_TARGET_DIR": str(target), "GUNGRAUN_COLOR": "never"}
    done = subprocess.run(["cargo", *arguments], cwd=root, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise Stopped(f"cargo {' '.join(arguments)} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def build(root, target):
    """Builds the counted paths and the server of a work tree. Returns the path of the server's binary."""
    output = cargo(root, target, "build", *PACKAGES, "--bench", "paths", "--bin", "veche", "--message-format=json")
    for line in output.splitlines():
        artifact = json.loads(line)
        if artifact.get("executable") and artifact["target"]["name"] == "veche" and artifact["target"]["kind"] == ["bin"]:
            return artifact["executable"]
    raise Stopped("the build has made no server")


def count_paths(root, target, only):
    """Returns the instructions per operation of each path that gungraun counts."""
    operations = counts.operations((root / "bench" / "counts" / "src" / "lib.rs").read_text())
    home = target / "gungraun"
    shutil.rmtree(home, ignore_errors=True)
    pattern = [f"*{only}*"] if only else []
    output = cargo(root, target, "bench", *PACKAGES, "--bench", "paths", "--", *OPTIONS, f"--home={home}", *pattern)
    counted = {}
    for line in output.splitlines():
        if line.startswith("{"):
            summary = json.loads(line)
            counted[summary["id"]] = total(summary)
    return {name: round(counted[name] / count) for name, count in operations.items() if name in counted}


def total(summary):
    """Returns the number of instructions in a summary of gungraun."""
    return summary["profiles"][0]["data"]["total"]["metrics"]["Ir"]["values"]["new"]


def count_process(server):
    """Returns the instructions of all threads of the server process for one echo, with one message in flight."""
    with tempfile.TemporaryDirectory(prefix="veche-instructions-") as folder:
        folder = pathlib.Path(folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        (folder / "veche.toml").write_text(CONFIG.format(folder=folder, port=port))
        out = folder / "callgrind.out"
        log = (folder / "log").open("w")
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--vgdb-poll=100000000"]
        command = [*valgrind, server, "serve", "--unsupervised", "--config", str(folder / "veche.toml")]
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            client = open_websocket(port, process)
            echo(client, WARM_UP)
            control("--zero", process.pid)
            echo(client, ECHOES)
            control("--dump", process.pid)
            client.close()
        except (OSError, Stopped) as error:
            raise Stopped(f"the server under Valgrind: {error}\n{(folder / 'log').read_text()[-2000:]}") from error
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        (dump,) = folder.glob("callgrind.out.1")
        instructions = re.search(r"^(?:summary|totals): (\d+)", dump.read_text(), re.MULTILINE)
        return {PROCESS: round(int(instructions[1]) / ECHOES)}


def control(order, pid):
    done = subprocess.run(["callgrind_control", order, str(pid)], capture_output=True, text=True, timeout=60)
    if done.returncode != 0 or "OK" not in done.stdout:
        raise Stopped(f"callgrind_control {order}: {done.stdout}{done.stderr}")


def open_websocket(port, process):
    deadline = time.monotonic() + 60
    while True:
        try:
            client = socket.create_connection(("127.0.0.1", port), 30)
            break
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    client.sendall(
        b"GET /echo HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += receive(client, 1)
    if not answer.startswith(b"HTTP/1.1 101 "):
        raise Stopped(f"no WebSocket: {answer[:200]}")
    return client


def echo(client, count):
    message = b"x" * 20
    frame = struct.pack("!BB4s", 0x81, 0x80 | len(message), bytes(4)) + message
    expected = struct.pack("!BB", 0x81, len(message)) + message
    for _ in range(count):
        client.sendall(frame)
        if receive(client, len(expected)) != expected:
            raise Stopped("the response is not an echo")


def receive(client, count):
    received = b""
    while len(received) < count:
        piece = client.recv(count - len(received))
        if not piece:
            raise Stopped("the server has closed the connection")
        received += piece
    return received


def count(root, target, only):
    """Counts all paths of a work tree."""
    server = build(root, target)
    counted = count_paths(root, target, only)
    if not only or only in PROCESS:
        counted |= count_process(server)
    if not counted:
        raise Stopped(f"no path has {only} in its name")
    return counted


def against(commit, only):
    """Counts the paths of another commit in a separate work tree."""
    name = subprocess.run(["git", "rev-parse", "--verify", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True, text=True)
    if name.returncode != 0:
        raise Stopped(f"no commit {commit}")
    commit = name.stdout.strip()
    target = target_folder() / "instructions"
    tree = target / "tree"
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "remove", "--force", str(tree)], capture_output=True)
    subprocess.run([*git, "prune"], check=True)
    subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
    try:
        if not (tree / "bench" / "counts").exists():
            raise Stopped(f"commit {commit[:9]} has no bench/counts: it is older than the counts")
        return count(tree, target, only)
    finally:
        subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def target_folder():
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()


def show(old, new, old_name):
    """Prints both counts of each path, and the sum."""
    number = "{:,}".format
    lines = [("path", old_name, "now", "change")]
    for change in counts.changes(old, new):
        cells = [number(value) if value is not None else "-" for value in (change.old, change.new)]
        lines.append((change.path, *cells, f"{change.growth:+.2%}" if change.growth is not None else "-"))
    both = [path for path in new if path in old]
    sums = [sum(side[path] for path in both) for side in (old, new)]
    if both:
        lines.append(("sum", *map(number, sums), f"{sums[1] / sums[0] - 1:+.2%}"))
    print(counts.table(lines))


def parse():
    parser = argparse.ArgumentParser(prog="bench/instructions", description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="COMMIT", help="compare with another commit, counted here and now")
    parser.add_argument("--update", action="store_true", help="write the counts to bench/instructions.toml")
    parser.add_argument("--reason", help="why they change; needed by --update")
    parser.add_argument("--only", metavar="TEXT", help="paths with this in their names")
    parser.add_argument("--repeat", metavar="N", type=int, default=1, help="count N times and show how far the runs differ")
    parser.add_argument("--build", action="store_true", help="only build the counted programs")
    parser.add_argument("--if-judged", action="store_true", help="do nothing where the file is of another machine")
    parser.add_argument("--is-judged", action="store_true", help="only report whether the file is of this machine")
    parser.add_argument("--json", action="store_true", help="print the counts as one JSON object and compare nothing")
    arguments = parser.parse_args()
    if arguments.update and (not arguments.reason or arguments.only or arguments.against):
        parser.error("--update takes a --reason, and all paths")
    return arguments


def main():
    arguments = parse()
    reason = why_no_valgrind()
    if arguments.if_judged or arguments.is_judged:
        reason = reason or why_not_judged(machine())
    if not arguments.is_judged:
        reason = reason or why_no_runner()
    if reason:
        print(f"SKIPPED: {reason}")
        return SKIPPED
    if arguments.is_judged:
        return 0
    try:
        return run(arguments)
    except Stopped as stopped:
        print(f"bench/instructions: {stopped}", file=sys.stderr)
        return 1


def run(arguments):
    if arguments.build:
        build(ROOT, target_folder())
        return 0
    here = machine()
    old = against(arguments.against, arguments.only) if arguments.against else None
    runs = [count(ROOT, target_folder(), arguments.only) for _ in range(arguments.repeat)]
    new = runs[0]
    if arguments.json:
        print(json.dumps(new))
        return 0
    if arguments.repeat > 1:
        shown = counts.spread(runs)
        print(counts.table([("path", "spread"), *((path, f"{share:.3%}") for path, share in shown.items())]))
        print(f"{arguments.repeat} runs; the widest spread is {max(shown.values()):.3%}")
    if old is not None:
        show(old, new, arguments.against[:12])
        grown = [change.path for change in counts.changes(old, new) if change.is_too_much]
        print(f"more than {counts.PATH_GROWTH_MAX} %: {', '.join(grown) or 'none'}")
        return 1 if grown else 0
    before = baseline() or Baseline(here, "", {}, {})
    if arguments.update:
        show(before.counts, new, "before")
        FILE.write_text(before.renewed(here, arguments.reason, new).to_toml())
        print(f"{FILE.relative_to(ROOT)} is written: {arguments.reason}")
        return 0
    known = {path: value for path, value in before.counts.items() if path in new or not arguments.only}
    show(known, new, "file")
    if reason := why_not_judged(here):
        print(f"SKIPPED: {reason}")
        return SKIPPED
    problems = counts.problems(Baseline(here, before.reason, known, before.first), new)
    for problem in problems:
        print(f"FAILED: {problem}")
    if problems:
        print("If that is meant: bench/instructions --update --reason TEXT, in the same commit")
    return 1 if problems else 0
