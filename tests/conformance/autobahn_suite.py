#!/usr/bin/env python3
"""Autobahn's cases against Veche's echo route, or against a WebSocket client.

    autobahn_suite.py quick|fast|all [--io epoll|io_uring|delayed]      starts Veche itself
    autobahn_suite.py all --url ws://127.0.0.1:9001            against a server that runs already
    autobahn_suite.py all --client [COMMAND…]                  against a client, see Client below; ours without COMMAND

fast: sections 1 to 10, 301 cases, 20 s. quick: fast and a sample of sections 12 and 13, 361 cases, a minute. all: 517
cases, 7 minutes; sections 12 and 13 run in parallel with the others. Each result other than OK must be listed in
accepted.txt with a reason.
Exit status: 0 success, 1 a failure or a missing case, 2 the suite could not run, 3 no Autobahn (skipped).
"""

import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

import veche

HERE = pathlib.Path(__file__).resolve().parent
HOME = pathlib.Path(os.environ.get("VECHE_AUTOBAHN", pathlib.Path.home() / ".cache/veche/autobahn"))

PLAIN = [["1.*", "2.*", "3.*", "4.*", "5.*", "7.*", "10.*"], ["6.*"], ["9.*"]]
SAMPLE = [f"{section}.{case}" for section in [*(f"12.{n}" for n in range(1, 6)), *(f"13.{n}" for n in range(1, 8))] for case in (1, 2, 3, 4, 11)]
# Each list is run by its own process, because wstest uses one core and often waits; sections 12 and
# 13 take minutes.
SETS = {"fast": PLAIN, "quick": [*PLAIN, SAMPLE], "all": [*PLAIN, ["12.*"], ["13.*"]]}
COUNTS = {"fast": 301, "quick": 361, "all": 517}

# Cases 9.3.1 and 9.4.1 send 65,536 fragments, and cases 9.1.6 and 9.2.6 send messages of 16 MiB.
CONFIG = """
[server]
workers = 1
io = "{io}"
log = "warn"

[[listen]]
address = "127.0.0.1:{port}"

[[route]]
path = "/echo"
handler = "echo"
compression = true
message_bytes_max = "32MiB"
fragments_max = 70000

[limits]
outbox_bytes = "64MiB"
"""


def main():
    arguments = parse()
    setup = subprocess.run([HERE / "setup.sh"], stdout=subprocess.DEVNULL)
    if setup.returncode == 3:
        print(f"SKIPPED: Autobahn {arguments.set}, {COUNTS[arguments.set]} cases: no CPython 2.7")
        return 3
    if setup.returncode != 0:
        return 2
    out = arguments.out or pathlib.Path(tempfile.mkdtemp(prefix="veche-autobahn-"))
    if arguments.client is not None:
        return Client(arguments.client or [our_client()], out).run(arguments.set)
    if arguments.url:
        return against(arguments.url, arguments.set, out, "server")
    with veche.Veche(CONFIG.replace("{io}", arguments.io)) as server:
        status = against(f"ws://127.0.0.1:{server.port}/echo", arguments.set, out, f"io {arguments.io}")
        if server.panicked():
            print(f"veche panicked:\n{server.log_tail()}")
            status = 1
    return status


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--io", default=os.environ.get("VECHE_TEST_IO", "epoll"), help="the back end that Veche runs on")
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--out", type=pathlib.Path, help="folder for the reports (default: a new one under /tmp)")
    parser.add_argument("--client", nargs=argparse.REMAINDER, help="command of a client to test (default: ours)")
    return parser.parse_args()


def against(url, name, out, label):
    """Runs the processes of a set in parallel against a server, and evaluates their reports together."""
    started = time.monotonic()
    runs = []
    for number, cases in enumerate(SETS[name]):
        folder = out / str(number)
        spec = {"servers": [{"agent": "server", "url": url}], "exclude-cases": []}
        runs.append((folder, wstest("fuzzingclient", folder, spec | {"cases": cases})))
    for folder, process in runs:
        try:
            process.wait(1800)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return judge([folder for folder, _ in runs], COUNTS[name], f"Autobahn {name}, {label}", started)


def our_client():
    """Builds the client in client/, which uses the codec of veche-proto on a plain socket; returns its path."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", veche.ROOT / "target")) / "conformance-client"
    command = ["cargo", "build", "--quiet", "--locked", "--target-dir", target]
    subprocess.run(command, cwd=HERE / "client", check=True)
    return target / "debug" / "veche-conformance-client"


class Client:
    """A client under test. COMMAND gets WS_PORT and AGENT in its environment. It must request `/getCaseCount`, echo on
    `/runCase?case=N&agent=AGENT` for each N from 1, and then open `/updateReports?agent=AGENT`."""

    def __init__(self, command, out):
        self.command, self.out, self.port = command, out, veche.free_port()

    def run(self, name):
        started = time.monotonic()
        spec = {"url": f"ws://127.0.0.1:{self.port}", "exclude-cases": []}
        cases = [case for part in SETS[name] for case in part]
        server = wstest("fuzzingserver", self.out, spec | {"cases": cases}, loopback=True)
        try:
            self._await(server)
            environment = os.environ | {"WS_PORT": str(self.port), "AGENT": "veche"}
            done = subprocess.run(self.command, env=environment, timeout=1800)
            if done.returncode != 0:
                print(f"the client ended with {done.returncode}")
        finally:
            server.terminate()
            server.wait()
        return judge([self.out], COUNTS[name], f"Autobahn {name}, client", started)

    def _await(self, server):
        for _ in range(300):
            if server.poll() is None:
                try:
                    return socket.create_connection(("127.0.0.1", self.port)).close()
                except OSError:
                    time.sleep(0.1)


def wstest(mode, folder, spec, loopback=False):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("index.*"):
        old.unlink()
    path = folder / "spec.json"
    path.write_text(json.dumps(spec | {"outdir": str(folder), "exclude-agent-cases": {}}))
    # When wstest is a server, it listens on every address unless told otherwise.
    program = [HOME / "bin/python", HERE / "loopback.py"] if loopback else [HOME / "bin/wstest"]
    command = [*program, "-m", mode, "-s", path] + (["--webport", "0"] if loopback else [])
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def accepted():
    """Returns the accepted deviations from accepted.txt: a dict from the case to its verdict and reason."""
    found = {}
    for line in (HERE / "accepted.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            case, verdict, reason = line.split(maxsplit=2)
            found[case] = (verdict, reason)
    return found


def judge(folders, expected, label, started):
    allowed = accepted()
    passed, excused, problems, seen = 0, [], [], 0
    for folder in folders:
        try:
            results = json.loads((folder / "index.json").read_text())
        except OSError:
            problems.append(f"no results in {folder}: " + (folder / "log").read_text()[-500:])
            continue
        for cases in results.values():
            seen += len(cases)
            for case, result in cases.items():
                verdicts = {result["behavior"], result["behaviorClose"]}
                if verdicts == {"OK"}:
                    passed += 1
                elif case in allowed and verdicts <= {"OK", allowed[case][0]}:
                    excused.append(f"{case} {allowed[case][0]}: {allowed[case][1]}")
                else:
                    worst = sorted(verdicts - {"OK"})
                    problems.append(f"{case} {', '.join(worst)}, close code {result['remoteCloseCode']}")
    if seen < expected:
        problems.append(f"{expected - seen} of {expected} cases gave no result")
    for line in sorted(problems, key=case_order)[:50]:
        print(f"FAILED {line}")
    for line in sorted(excused, key=case_order):
        print(f"accepted {line}")
    seconds = time.monotonic() - started
    print(f"{label}: {passed} passed, {len(problems)} failed, {len(excused)} accepted in {seconds:.0f} s")
    if problems:
        print(f"reports: {', '.join(str(folder / 'index.html') for folder in folders)}")
    return 1 if problems else 0


def case_order(line):
    return [int(part) for part in re.findall(r"\d+", line.split()[0])] if "." in line.split()[0] else []


if __name__ == "__main__":
    sys.exit(main())
