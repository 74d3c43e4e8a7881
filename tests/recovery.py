#!/usr/bin/env python3
"""Tests recovery with 1,000 subscribers. Each is disconnected every 2 s on average and recovers from its position,
while a back end publishes. The server process is killed in the middle of each of MINUTES (1). No publication may be
lost, duplicated or out of order, and no recovery may fail because history is missing. The ledger is that of `veche
bench broadcast`."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "conformance"))

import veche  # noqa: E402

RECEIVERS = 1000
CUTS = RECEIVERS / 2  # per second
RATE = 20
# Minimum share of cuts that must lead to a reconnect for a meaningful run. Cuts of connections that
# are reconnecting have no effect, so the share is lower on a busy machine.
RETURNS_MIN = 0.5
# Minimum share of the connected subscribers that have to notice the death of the process.
ENDED_MIN = 0.5

CONFIG = """
[server]
workers = 2
io = "{io}"
log = "warn"

[[listen]]
address = "127.0.0.1:{port}"

[[listen]]
address = "127.0.0.1:{internal_port}"
role = "internal"

[[route]]
path = "/ws"
handler = "push"
identity = "query:user"
channels = ["news"]
positions = true

[[namespace]]
name = ""
history_size = 100000
history_ttl = "24h"

[history]
path = "{folder}/history"

[limits]
connections_per_address = 100000
"""


def server_pid(supervisor):
    """Returns the id of the server process; None after its end until the next one is started."""
    children = pathlib.Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return int(children[0]) if children else None


def kill(supervisor):
    """Kills the server process. Returns the seconds until another one was started, or None if none was."""
    old = server_pid(supervisor)
    if old is None:
        return None
    os.kill(old, signal.SIGKILL)
    killed = time.monotonic()
    while time.monotonic() < killed + 30:
        if server_pid(supervisor) not in (old, None):
            return time.monotonic() - killed
        time.sleep(0.01)
    return None


def kills(supervisor, minutes, over, took):
    """Kills the server process in the middle of each minute, until `over` is set."""
    started = time.monotonic()
    for minute in range(minutes):
        if over.wait(max(0.0, started + 60 * minute + 30 - time.monotonic())):
            return
        took.append(kill(supervisor))


def bench(server, minutes):
    command = [veche.binary(), "bench", "broadcast"]
    command += [f"ws://127.0.0.1:{server.port}/ws?user=bench{{i}}&channel=news", "--recover", "--chaos", str(CUTS)]
    command += ["--connections", str(RECEIVERS), "--publish", f"http://127.0.0.1:{server.internal_port}/api/publish"]
    command += ["--body", '{"channel":"news","data":"{data}"}', "--rate", str(RATE), "--size", "128"]
    # The long timeout allows for a slow machine.
    command += ["--duration", f"{minutes * 60}s", "--timeout", "60s", "--json"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        return json.loads(done.stdout), done
    except ValueError:
        raise SystemExit(f"veche bench: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")


def judge(report, done, took, minutes):
    """Yields the errors of the run."""
    ledger = report["ledger"]
    recovery = ledger["recovery"]
    for fault in ("lost", "away", "duplicated", "reordered", "corrupted"):
        if ledger[fault]:
            yield f"{ledger[fault]} {fault}; the receivers that fared worst: {ledger.get('worst', [])}"
    if recovery["refused"]:
        yield f"{recovery['refused']} of the reconnected subscribers had lost history"
    if done.returncode != 0:
        yield f"exit code {done.returncode}: {done.stderr.strip()}\n{report['errors']}"
    if len(took) != minutes or None in took:
        yield f"{minutes} kills were due, and the server process was replaced after these: {took}"
    if recovery["ended"] < ENDED_MIN * RECEIVERS * minutes:
        yield f"only {recovery['ended']} connections ended by {minutes} kills"
    planned = CUTS * 60 * minutes
    if recovery["returned"] < RETURNS_MIN * planned:
        yield f"only {recovery['returned']} returns, of {planned:.0f} cuts"
    # Every publication is sent, however late; those in flight when the process was killed may have
    # no answer.
    due = RATE * 60 * minutes
    if ledger["published"] + recovery["unanswered"] < due:
        yield f"{ledger['published']} publications, {due} were due"
    if recovery["unanswered"] > due / 10:
        yield f"{recovery['unanswered']} of {due} publications without an answer"
    if ledger["expected"] != ledger["published"] * RECEIVERS:
        yield f"{ledger['expected']} deliveries of {ledger['published']} publications"


def main():
    minutes = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    with veche.Veche(CONFIG) as server:
        over, took = threading.Event(), []
        killer = threading.Thread(target=kills, args=(server.process.pid, minutes, over, took))
        killer.start()
        try:
            report, done = bench(server, minutes)
        finally:
            over.set()
            killer.join()
        problems = list(judge(report, done, took, minutes))
        if server.panicked():
            problems.append("the server panicked")
        if problems:
            problems.append(server.log_tail())
    ledger, recovery = report["ledger"], report["ledger"]["recovery"]
    for problem in problems:
        print(f"FAILED {problem}")
    gaps = ", ".join("never" if seconds is None else f"{seconds:.2f} s" for seconds in took)
    print(
        f"recovery: {ledger['published']:,} publications, {ledger['delivered']:,} deliveries, "
        f"{recovery['returned']:,} returns; {len(took)} kills, another process after {gaps}; "
        f"{recovery['ended']:,} connections ended, {recovery['unanswered']} publications without an answer; "
        f"{0 if problems else 1} passed, {1 if problems else 0} failed"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
