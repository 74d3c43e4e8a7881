#!/usr/bin/env python3
"""highload_cup.py [SIZE]: runs the Highload Cup example on the real server and checks it with the example's oracle.

The data and the requests are generated; the data is loaded from a folder and from an archive, and queried with one
worker and with two. Then bugs are put into the application, one at a time, and the oracle has to detect each. SIZE
multiplies the data and is 1 by default; the runs with bugs use the smallest size.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "conformance"))
import veche

EXAMPLE = veche.ROOT / "examples" / "highload-cup"
# Mistakes that contest participants made, each as a file, a text in the file, and the text that replaces it.
BROKEN = [
    ("queries.lua", "columns = USER_COLUMNS, above = from,", "columns = USER_COLUMNS, from = from,"),
    ("queries.lua", "far < distance", "far <= distance"),
    ("queries.lua", "birth_date < before", "birth_date <= before"),
    ("queries.lua", "200000 * sum + count", "200000 * sum"),
    ("queries.lua", "columns = PLACE_COLUMNS, above = from, below = to", "columns = PLACE_COLUMNS, above = from"),
    ("born.lua", "floor(year / 4)", "0"),
    ("changes.lua", "row.id ~= nil or ", ""),
    ("changes.lua", "row.mark <= MARK_MAX", "row.mark <= 255"),
    ("changes.lua", "tables.users:has(row.user)", "row.user > 0"),
    ("tables.lua", '{ "user", "visited_at" }', '{ "user" }'),
    ("tables.lua", '"string(100)"', '"string(200)"'),
    ("tables.lua", 'indexes = { by_email = { "email", unique = true } }', "indexes = {}"),
    ("app.lua", "return 404, \"\" end\n  local status", "return 400, \"\" end\n  local status"),
]


def generate(folder, users, locations, visits, *more):
    sizes = ["--users", users, "--locations", locations, "--visits", visits, *more]
    command = [sys.executable, EXAMPLE / "generate.py", folder, *sizes]
    subprocess.run([str(word) for word in command], check=True)


class Running:
    """A server that run.sh starts with a copy of the example."""

    def __init__(self, example, data, workers):
        self.port = veche.free_port("0.0.0.0")  # where run.sh listens
        self.log = example / "log"
        self.environment = os.environ | {
            "PORT": str(self.port), "DATA": str(data), "VECHE": veche.binary(), "WORKERS": str(workers), "TMPDIR": str(example),
        }  # fmt: skip
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [example / "run.sh"], env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _ in range(2):  # the second signal makes the server stop without waiting for clients
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(3)
                return
            except subprocess.TimeoutExpired:
                pass
        self.process.kill()
        self.process.wait()

    def ask(self, data, *more):
        command = [sys.executable, EXAMPLE / "oracle.py", data, "--port", self.port, "--wait", 120, *more]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def must_pass(example, data, workers, *more):
    with Running(example, data, workers) as server:
        started = time.monotonic()
        status, said = server.ask(data, *more)
        if status or "panicked at" in server.log.read_text(errors="replace"):
            raise SystemExit(f"{said}\n{''.join(server.log.read_text(errors='replace').splitlines(True)[-20:])}\nFAILED with {workers} workers")
        print(f"ok      {said.splitlines()[-1]}, {workers} workers, {data.name}, {time.monotonic() - started:.1f} s", flush=True)


def must_fail(example, data, file, right, wrong):
    original = (example / file).read_text()
    if right not in original:
        raise SystemExit(f"FAILED: there is no {right!r} in {file}")
    (example / file).write_text(original.replace(right, wrong))
    with Running(example, data, 1) as server:
        status, said = server.ask(data)
        if status != 1 or " wrong" not in said.splitlines()[-1]:
            raise SystemExit(f"FAILED: the oracle did not see {wrong!r} in {file}: {status}, {said}")
    (example / file).write_text(original)
    print(f"ok      the oracle sees {wrong!r}", flush=True)


def main():
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    folder = pathlib.Path(tempfile.mkdtemp(prefix="veche-cup-"))
    try:
        example = folder / "example"
        shutil.copytree(EXAMPLE, example, ignore=shutil.ignore_patterns("__pycache__", "data"))
        plain, zipped, small = folder / "plain", folder / "zipped", folder / "small"
        generate(plain, 400 * size, 300 * size, 4000 * size, "--per-file", 700 * size, "--requests", 1500 * size)
        # The timestamp is a 29th of February.
        generate(zipped, 400, 300, 4000, "--per-file", 700, "--requests", 1500, "--zip", "--seed", 2, "--now", 1582979696)
        generate(small, 60, 40, 700, "--requests", 700, "--seed", 3)
        must_pass(example, plain, 1)
        must_pass(example, plain, 2)
        must_pass(example, zipped, 2)
        if size > 1:
            must_pass(example, plain, 2, "--sample", 500)
        for broken in BROKEN:
            must_fail(example, small, *broken)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
