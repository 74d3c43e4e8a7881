#!/usr/bin/env python3
"""Starts the workers of examples/workers and an application on the PHP SDK as processes, and acts as the server in the
runtime protocol: hello, the vectors as a whole and in pieces, failures, long frames, and the end.

If an interpreter is not installed, its worker is skipped, which is reported.
"""

import json
import os
import pathlib
import random
import shutil
import socket
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PHP_APP = """
require $argv[1];
$app = Veche\\App::create(16);
$app->open(function (Veche\\Connection $conn) {
    $user = $conn->request->query('user');
    if ($user !== null) { $conn->identify($user); }
});
$app->message(fn (Veche\\Connection $conn, string $data, bool $isBinary) =>
    $isBinary ? $conn->sendBinary($data) : $conn->send($data));
$app->request(fn (Veche\\Request $request) =>
    Veche\\Response::json(['path' => $request->path, 'bytes' => strlen($request->body)]));
$app->run();
"""
WORKERS = {
    "python": ["python3", str(ROOT / "examples/workers/python/worker.py")],
    "node": ["node", str(ROOT / "examples/workers/node/worker.mjs")],
    "php": ["php", "-r", PHP_APP, str(ROOT / "sdk/php/veche.php")],
}
WAIT_S = 10
LONGEST = 16 << 20


def vectors(name):
    lines = (ROOT / f"crates/runtime/vectors/{name}.jsonl").read_text().splitlines()
    return {vector["name"]: vector for vector in map(json.loads, lines)}


def wire(head, payload=b""):
    head = json.dumps(head).encode()
    return struct.pack("<II", len(head), len(payload)) + head + payload


class Worker:
    """A worker process and the server's end of its socket."""

    def __init__(self, command):
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(WAIT_S)
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" 3<&{theirs.fileno()}', "sh", *command],
            pass_fds=[theirs.fileno()],
            env=os.environ | {"VECHE_FD": "3"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        theirs.close()
        self.reader = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        self.reader.close()
        self.socket.close()

    def read(self):
        """Returns the next frame, or None at the end of the stream."""
        prefix = self.reader.read(8)
        if prefix == b"":
            return None
        head, payload = struct.unpack("<II", prefix)
        assert 0 < head <= 1 << 20 and payload <= LONGEST, f"no frame: {prefix}"
        return json.loads(self.reader.read(head)), self.reader.read(payload)

    def write(self, data):
        self.socket.sendall(data)

    def greet(self):
        head, payload = self.read()
        assert head["type"] == "hello" and 1 in head["versions"] and payload == b"", head
        assert {"open", "message", "request"} <= set(head["events"]), head
        assert head.get("concurrency", 1) >= 1, head
        self.write(bytes.fromhex(vectors("hello")["welcome"]["wire"]))
        return head

    def ends(self):
        """Waits for the end of the process, and returns its exit status and its output."""
        output, _ = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, output.decode(errors="replace")


def payload_of(vector):
    return bytes.fromhex(vector["payload_hex"]) if "payload_hex" in vector else vector["payload"].encode()


def check_answer(vector, head, payload):
    """Checks that an answer is the one that an echo application gives to the vector's event."""
    event = vector["head"]
    assert (head["type"], head["id"]) == ("answer", event["id"]), head
    assert "failed" not in head, head["failed"]
    if event["event"] == "message":
        [effect] = head["effects"]
        kind = effect.pop("data_kind", "text")
        assert (kind, effect) == (event["data_kind"], {"effect": "send", "data": 0}), head
        assert payload == payload_of(vector), payload
    elif event["event"] == "open":
        assert not head.get("effects") and head.get("reply", {}) == {}, head
    else:
        reply = head["reply"]
        assert reply.get("status", 200) == 200 and ["Content-Type", "application/json"] in reply["headers"], head
        body = {"path": event["request"]["path"], "bytes": len(payload_of(vector))}
        assert reply["body"] == 0 and json.loads(payload) == body, payload


def answers_vectors(command):
    rand = random.Random(7)
    events = [v for v in vectors("events").values() if v["head"].get("event") in ("open", "message", "request")]
    assert len(events) >= 7
    stream = b"".join(bytes.fromhex(vector["wire"]) for vector in events)
    byte_by_byte = [stream[i : i + 1] for i in range(len(stream))]
    at_random, start = [], 0
    while start < len(stream):
        end = start + rand.randint(1, 200)
        at_random.append(stream[start:end])
        start = end
    for parts in ([stream], byte_by_byte, at_random):
        with Worker(command) as worker:
            worker.greet()
            for part in parts:
                worker.write(part)
            left = {vector["head"]["id"]: vector for vector in events}
            while left:
                head, payload = worker.read()
                check_answer(left.pop(head["id"]), head, payload)


def names_the_user(command):
    request = {"method": "GET", "path": "/", "query": "room=1&user=ann%20b", "remote": "127.0.0.1"}
    with Worker(command) as worker:
        worker.greet()
        worker.write(wire({"type": "event", "id": 5, "event": "open", "connection": "0.3.1", "request": request}))
        head, _ = worker.read()
        assert head["reply"] == {"user": "ann b"}, head


def passes_over_what_is_new(command):
    with Worker(command) as worker:
        worker.greet()
        worker.write(bytes.fromhex(vectors("events")["cancel an event"]["wire"]))
        event = {"type": "event", "id": 5, "event": "message", "connection": "0.3.1", "data_kind": "text", "data": 0}
        worker.write(wire(event | {"weather": {"sky": ["blue"]}}, b"x"))
        head, payload = worker.read()
        assert (head["id"], payload) == (5, b"x"), head


def says_why_it_failed(command):
    """Sends an invalid `open` event without a request: the handler must fail, and the worker must continue."""
    with Worker(command) as worker:
        worker.greet()
        worker.write(wire({"type": "event", "id": 5, "event": "open", "connection": "0.3.1"}))
        head, _ = worker.read()
        assert head["id"] == 5 and "worker" in head["failed"] or ".php" in head["failed"], head
        vector = vectors("events")["message"]
        worker.write(bytes.fromhex(vector["wire"]))
        check_answer(vector | {"head": vector["head"]}, *worker.read())


def takes_the_longest_payload(command):
    data = random.Random(1).randbytes(LONGEST)
    event = {"type": "event", "id": 5, "event": "message", "connection": "0.3.1", "data_kind": "binary", "data": 0}
    with Worker(command) as worker:
        worker.greet()
        worker.write(wire(event, data))
        head, payload = worker.read()
        assert head["id"] == 5 and payload == data


def ends_with_the_stream(command):
    for part in (b"", bytes.fromhex(vectors("events")["message"]["wire"])[:-3]):
        with Worker(command) as worker:
            worker.greet()
            worker.write(part)
            worker.socket.shutdown(socket.SHUT_WR)
            assert worker.read() is None
            assert worker.ends()[0] == 0


def ends_at_an_unknown_type(command):
    with Worker(command) as worker:
        worker.greet()
        worker.write(wire({"type": "wave", "id": 1}))
        assert worker.read() is None
        status, output = worker.ends()
        assert status != 0 and "wave" in output, output


def says_that_it_is_refused(command):
    with Worker(command) as worker:
        worker.read()
        worker.write(bytes.fromhex(vectors("hello")["refuse"]["wire"]))
        assert worker.read() is None
        status, output = worker.ends()
        assert status != 0 and "no version in common" in output, output


CHECKS = [
    answers_vectors,
    names_the_user,
    passes_over_what_is_new,
    says_why_it_failed,
    takes_the_longest_payload,
    ends_with_the_stream,
    ends_at_an_unknown_type,
    says_that_it_is_refused,
]


def main():
    passed = failed = skipped = 0
    for name, command in WORKERS.items():
        if shutil.which(command[0]) is None:
            print(f"skipped {name}: {command[0]} is not installed", flush=True)
            skipped += len(CHECKS)
            continue
        for check in CHECKS:
            started = time.monotonic()
            try:
                check(command)
            except (AssertionError, OSError, subprocess.TimeoutExpired, TypeError, ValueError) as error:
                print(f"FAILED  {name}: {check.__name__}: {type(error).__name__}: {str(error)[:500]}", flush=True)
                failed += 1
            else:
                print(f"ok      {name}: {check.__name__} ({time.monotonic() - started:.2f} s)", flush=True)
                passed += 1
    print(f"workers: {passed} passed, {failed} failed, {skipped} ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
