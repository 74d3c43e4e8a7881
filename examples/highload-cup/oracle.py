#!/usr/bin/env python3
"""oracle.py FOLDER: sends the requests in FOLDER/requests to a running server and checks every answer.

The server has loaded the data of the same folder. The oracle computes the expected answers itself (model.py). It checks
the status, Content-Length, Content-Type and Connection of each answer, and the content of its body: fields, types,
order, and means to the last of five decimals. After each write it reads the entities concerned on another connection,
to see the change, or that there is none.

With --sample N it only reads: about N users, locations and visits of data of any size. The exit code is 1 if an answer
was wrong.
"""

import argparse
import decimal
import json
import pathlib
import random
import re
import sys
import time

import data
from asks import Asks
from client import Connection
from model import same

MISTAKES_MAX = 10


class Oracle:
    def __init__(self, model, port, connections, closing, rng):
        self.model, self.port, self.closing, self.rng = model, port, closing, rng
        self.connections = [Connection(port) for _ in range(connections)]
        self.answers, self.mistakes = 0, []

    # ------------------------------------------------------------------------------------------------ asking

    def read(self, requests):
        """Sends reads. Each connection gets some requests at once, and has to answer them in order."""
        requests = list(requests)
        while requests:
            sent = []
            for at in range(len(self.connections)):
                for _ in range(self.rng.choice((1, 1, 1, 3))):
                    if requests and not self.connections[at].is_closing:
                        request = requests.pop()
                        self.send(at, request)
                        sent.append((at, request, self.model.answer(*request)))
            for at, request, expected in sent:
                self.check(at, request, expected)

    def write(self, requests):
        """Sends writes. Independent ones are sent at once, each on another connection."""
        waiting, held = [], set()
        for request in requests:
            keys = set(self.keys(request))
            if len(waiting) == len(self.connections) or keys & held:
                self.write_together(waiting)
                waiting, held = [], set()
            waiting.append(request)
            held |= keys
        self.write_together(waiting)

    def write_together(self, requests):
        witnesses, expected = [], []
        for at, request in enumerate(requests):
            self.send(at, request)
            witnesses += self.witnesses(request)  # of the state before the write
            expected.append(self.model.answer(*request))
            witnesses += self.witnesses(request)  # and of the state after it
        for at, request in enumerate(requests):
            self.check(at, request, expected[at])
        self.connections.append(self.connections.pop(0))
        self.read([("GET", target, None) for target in dict.fromkeys(witnesses)])

    def keys(self, request):
        """The entities that a write changes or refers to. Writes with a common key are not sent at the same time."""
        _, target, body = request
        value, path = self.model.body(body) or {}, target.partition("?")[0]
        yield path if not path.endswith("/new") else path[:-3] + str(value.get("id"))
        for name in ("email", "user", "location"):
            if name in value:
                yield f"/{name}s/{value[name]}"
        if found := re.fullmatch(r"/users/(\d+)", path):
            yield "/emails/" + self.model.rows["users"].get(int(found[1]), {}).get("email", "")

    def witnesses(self, request):
        """The targets of reads whose answers show whether a write was executed completely."""
        _, target, body = request
        value = self.model.body(body) or {}
        found = re.fullmatch("/(users|locations|visits)/([0-9]+|new)", target.partition("?")[0])
        if not found:
            return
        kind, number = found[1], value.get("id") if found[2] == "new" else int(found[2])
        yield f"/{kind}/{number}"
        if kind == "visits":
            for row in (value, self.model.rows[kind].get(number, {}) if type(number) is int else {}):
                yield f"/users/{row.get('user')}/visits"
                yield f"/locations/{row.get('location')}/avg"
        elif kind == "locations" and type(number) is int and self.model.of_location[number]:
            visit = min(self.model.of_location[number])
            yield f"/users/{self.model.rows['visits'][visit]['user']}/visits"
        elif kind == "users" and type(number) is int and self.model.of_user[number]:
            visit = min(self.model.of_user[number])
            yield f"/locations/{self.model.rows['visits'][visit]['location']}/avg?gender=m&fromAge=40"

    def sweep(self):
        """Reads all entities, and ids beyond the last ones."""
        targets = []
        for kind, rows in self.model.rows.items():
            tail = {"users": "/visits", "locations": "/avg"}.get(kind)
            for number in [*rows, *range(max(rows) + 1, max(rows) + 20)]:
                targets += [f"/{kind}/{number}"] + ([f"/{kind}/{number}{tail}"] if tail else [])
        self.rng.shuffle(targets)
        self.read(("GET", target, None) for target in targets)

    def send(self, at, request):
        self.connections[at].send(*request, closing=self.rng.random() < self.closing)

    # ------------------------------------------------------------------------------------------------ checking

    def check(self, at, request, expected):
        connection = self.connections[at]
        if not connection.asked:
            return  # the request was lost with its connection, which was counted as a mistake
        self.answers += 1
        answer = None
        try:
            answer = connection.receive()
            wrong = self.judge(answer, expected)
        except (OSError, ValueError) as error:
            wrong = f"{type(error).__name__}: {error}"
        if answer is None or connection.is_over:
            connection.close()
            self.connections[at] = Connection(self.port)
        if wrong:
            got = f"{answer.status} {answer.headers} {answer.body[:2000]!r}" if answer else "nothing that can be read"
            self.mistakes.append(f"{' '.join(str(part) for part in request)}\n  {wrong}\n  expected {expected}\n  got {got}")
            if len(self.mistakes) == MISTAKES_MAX:
                raise SystemExit(self.report())

    def judge(self, answer, expected):
        """A description of the fault of an answer; None if it is correct."""
        status, value = expected
        if answer.status != status:
            return f"status {answer.status} instead of {status}"
        connection = answer.headers.get("connection", "keep-alive").lower()
        if connection != ("close" if answer.is_last else "keep-alive"):
            return f"Connection: {connection}"
        if value is None:
            return None
        if not answer.headers.get("content-type", "").startswith("application/json"):
            return "not application/json"
        return None if same(value, parsed(answer.body)) else "another value"

    def finish(self):
        for connection in self.connections:
            if left := connection.left():
                self.mistakes.append(f"a connection has {left[:200]!r} left without a request")
            connection.close()
        print(self.report(), file=sys.stderr if self.mistakes else sys.stdout)
        return 1 if self.mistakes else 0

    def report(self):
        count = f"{self.answers} answers, {len(self.mistakes)} wrong"
        return "\n".join([*self.mistakes, count])


def parsed(body):
    """Parses JSON. Duplicate names are errors, and numbers with a fraction are exact."""

    def once(pairs):
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a name comes twice")
        return dict(pairs)

    def no(constant):
        raise ValueError(f"{constant} is no JSON")

    return json.loads(body.decode(), parse_float=decimal.Decimal, object_pairs_hook=once, parse_constant=no)


class Samples(Asks):
    """Reads of the sampled entities."""

    def __init__(self, sizes, rng, ids):
        super().__init__(sizes, rng)
        self.ids = ids

    def an_id(self, kind):
        return self.one_of(self.ids[kind])


def wait(port, seconds):
    """Waits until the server has loaded its data; it answers 503 until then."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection = Connection(port)
            connection.send("GET", "/users/1", None, closing=True)
            status = connection.receive().status
            connection.close()
            if status != 503:
                return
            words = "it is still loading"
        except OSError as error:
            words = str(error)
        if time.monotonic() > deadline:
            raise SystemExit(f"no server after {seconds} s: {words}")
        time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--closing", type=float, default=0.03, help="share of requests with Connection: close")
    parser.add_argument("--wait", type=float, default=60, metavar="SECONDS", help="until the server has loaded its data")
    parser.add_argument("--sample", type=int, metavar="N", help="only read, about N entities of each kind")
    parser.add_argument("--seed", type=int, default=1, help="of the sample and the distribution of requests")
    chosen = parser.parse_args()
    rng = random.Random(chosen.seed)
    if chosen.sample:
        model, ids, last = data.sample(chosen.folder, rng, chosen.sample)
        sizes = argparse.Namespace(now=model.now, **last)
        asks = Samples(sizes, rng, ids)
        wait(chosen.port, chosen.wait)
        oracle = Oracle(model, chosen.port, chosen.connections, chosen.closing, rng)
        oracle.read(asks.get() for _ in range(10 * chosen.sample))
        return oracle.finish()
    model = data.whole(chosen.folder)
    wait(chosen.port, chosen.wait)
    oracle = Oracle(model, chosen.port, chosen.connections, chosen.closing, rng)
    for number, ask in enumerate((oracle.read, oracle.write, oracle.read), 1):
        lines = (chosen.folder / "requests" / f"phase_{number}.ndjson").read_text().split("\n")
        ask(json.loads(line) for line in lines if line)
        print(f"phase {number}: {oracle.answers} answers so far", flush=True)
    oracle.sweep()
    return oracle.finish()


if __name__ == "__main__":
    sys.exit(main())
