"""The command line of bench/shootout: runs Veche and its peers in interleaved rounds under each load, and computes the
ratios."""

import argparse
import contextlib
import dataclasses
import datetime
import os
import pathlib
import resource
import subprocess
import sys

from harness import answers, peers, results, shootout_page, tester
from harness.loads import LoadError
from harness.measurement import CONTROL
from harness.stats import PAIRS_MAX, PAIRS_MIN, PAIRS_STEP, UNDECIDED, Control, Verdict

SCHEMA = 2
# The goal is that Veche's figure, divided by the peer's, is at most this number.
TARGET = 1.0
ATTEMPTS_MAX = 3


@dataclasses.dataclass(frozen=True)
class Span:
    """The time of one measurement and the warm-up before it."""

    measure_s: float
    warmup_s: float


@dataclasses.dataclass(frozen=True)
class Load:
    """One load. `run(server)` returns a dict whose `value` is compared; lower is better."""

    key: str
    title: str
    unit: str
    what: str
    run: object
    http: bool = False

    def asks(self, peer):
        return peer.http_timed if self.http else peer.websocket


def _loads(settings):
    span = Span(settings.seconds, settings.warmup)
    crowd, rate = settings.connections, settings.rate
    kind = "binary" if settings.binary else "text"

    def payload(size):
        return tester.payload(size, settings.binary)

    def echo(size, name):
        return Load(
            f"echo-{size}",
            f"echo {name}",
            "ns of CPU per message",
            f"closed loop, {crowd} connections, one {kind} message of {name} in flight on each",
            lambda server: tester.echo(server, crowd, payload(size), span),
        )

    return [
        Load(
            "storm",
            "storm",
            "ns of CPU per connection",
            f"{settings.storm:,} connections at once, one message and its answer on each; one failure is a failure",
            lambda server: tester.storm(server, settings.storm, payload(20)),
        ),
        echo(20, "20 B"),
        echo(128, "128 B"),
        echo(1024, "1 KiB"),
        echo(8192, "8 KiB"),
        Load(
            "p99",
            "p99 latency",
            "µs, p99",
            f"open loop, {rate:,} {kind} messages of 20 B a second over {crowd} connections, from the intended time of each send",
            lambda server: tester.rate(server, crowd, payload(20), rate, span),
        ),
        Load(
            "http",
            "HTTP",
            "ns of CPU per request",
            f"GET of a short body over {crowd} connections that are kept alive",
            lambda server: tester.http(server, crowd, span),
            http=True,
        ),
        Load(
            "memory",
            "idle memory",
            "bytes of resident memory per connection",
            f"{settings.idle:,} connections that do nothing",
            lambda server: tester.idle(server, settings.idle),
        ),
    ]


def main():
    settings = _parse()
    if settings.page:
        shootout_page.write_from(pathlib.Path(settings.page))
        return 0
    loads, everyone = _loads(settings), peers.all_peers()
    if settings.list:
        _list(loads, everyone)
        return 0
    for chosen, known in ((settings.load, loads), (settings.peer, everyone)):
        if unknown := set(chosen or ()) - {one.key for one in known}:
            print(f"no such thing: {', '.join(sorted(unknown))}; bench/shootout --list names all", file=sys.stderr)
            return 2
    loads = [load for load in loads if not settings.load or load.key in settings.load]
    everyone = [peer for peer in everyone if not settings.peer or peer.key in settings.peer]
    veche = peers.veche()
    if veche.absent:
        print(f"veche is absent: {veche.absent}", file=sys.stderr)
        return 1
    # Servers and tester inherit this limit; each opens thousands of connections.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    contest = Contest(loads, [veche, *everyone], settings)
    try:
        contest.admit()
        contest.run()
    except LoadError as error:
        print(f"veche failed: {error}", file=sys.stderr)
        return 1
    document = contest.document()
    print(shootout_page.text(document))
    if settings.out:
        page = shootout_page.write(document, pathlib.Path(settings.out))
        print(f"written: {page}")
    return 1 if contest.failures else 0


def _parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name peers and loads and end")
    parser.add_argument("--peer", action="append", metavar="NAME", help="only this one beside Veche; may be repeated")
    parser.add_argument("--load", action="append", metavar="NAME", help="only this load; may be repeated")
    parser.add_argument("--rounds", type=int, default=PAIRS_MIN, help="rounds to begin with; a verdict needs 15 (15)")
    parser.add_argument("--rounds-max", type=int, default=PAIRS_MAX, help="rounds taken where a verdict is undecided (60)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a measurement (1)")
    parser.add_argument("--warmup", type=float, default=1.0, help="seconds before it, also for compilers at run time (1)")
    parser.add_argument("--connections", type=int, default=240, help="of echo, p99 and http (240)")
    parser.add_argument("--binary", action="store_true", help="send binary messages; servers must check text's UTF-8")
    parser.add_argument("--rate", type=int, default=5000, help="messages a second of p99 (5000)")
    parser.add_argument("--storm", type=int, default=5000, help="connections of the storm (5000)")
    parser.add_argument("--idle", type=int, default=5000, help="connections of idle memory (5000)")
    parser.add_argument("--short", action="store_true", help="one round of everything, small: does it work at all")
    parser.add_argument("--no-build", action="store_true", help="take peers and tester as they are")
    parser.add_argument("--out", metavar="FOLDER", help="where page, JSON and picture go (bench/results; none if --short)")
    parser.add_argument("--page", metavar="JSON", help="only make page and picture again from the JSON of a run")
    settings = parser.parse_args()
    if settings.short:
        settings.rounds, settings.rounds_max, settings.seconds, settings.warmup = 1, 1, 0.3, 0.1
        settings.storm, settings.idle, settings.rate = 500, 500, 1000
    elif not settings.out:
        settings.out = results.RESULTS
    if settings.rounds < 1:
        parser.error("--rounds: at least 1")
    return settings


def _list(loads, everyone):
    for load in loads:
        print(f"{load.key:20} {load.what}")
    print()
    for peer in everyone:
        print(f"{peer.key:20} {peer.what}" + (f" (absent: {peer.absent})" if peer.absent else ""))


class Contest:
    """The servers, the rounds and the results. The first of `everyone` is Veche."""

    def __init__(self, loads, everyone, settings):
        self.loads, self.everyone, self.settings = loads, everyone, settings
        self.veche = everyone[0]
        self.rounds = {load.key: {} for load in loads}
        self.failures = {}
        self.environment = results.machine() | {"command": " ".join(["bench/shootout", *sys.argv[1:]])}

    def admit(self):
        """Builds all servers, then checks their answers; a server that fails is absent, which is reported."""
        for peer in self.everyone:
            if not self.settings.no_build:
                _say(f"building {peer.name}")
                peer.build()
            if not peer.absent and not peer.present:
                peer.absent = "not built"
            if peer.absent:
                print(f"{peer.name}: absent ({peer.absent})", flush=True)
                continue
            try:
                with _running(peer):
                    pass
                print(f"{peer.name}: answers right", flush=True)
            except (RuntimeError, OSError, answers.WrongAnswer) as error:
                peer.absent = f"it does not answer right: {_one_line(error)}"
                self.failures[("admission", peer.key)] = _one_line(error)
                print(f"{peer.name}: {peer.absent}", flush=True)
                if peer is self.veche:
                    raise LoadError(peer.absent) from error

    def run(self):
        """Runs all loads on all servers, then more rounds of undecided ones."""
        for turn in range(self.settings.rounds):
            for load in self.loads:
                self._round(turn, load, [peer for peer in self.everyone if self._takes_part(load, peer)])
        for load in self.loads:
            turn = self.settings.rounds
            while (peers := self._undecided(load)) and turn + PAIRS_STEP <= self.settings.rounds_max:
                for turn in range(turn, turn + PAIRS_STEP):
                    self._round(turn, load, [self.veche, *peers])
                turn += 1

    def _takes_part(self, load, peer):
        return not peer.absent and load.asks(peer) and (load.key, peer.key) not in self.failures

    def _undecided(self, load):
        if not self._takes_part(load, self.veche):
            return []
        peers = (peer for peer in self.everyone[1:] if self._takes_part(load, peer))
        return [peer for peer in peers if (verdict := self._verdict(load, peer.key)) and verdict.verdict == UNDECIDED]

    def _round(self, turn, load, peers):
        """Runs each server once, Veche first and last (the A/A control); every other round is run backwards."""
        _say(f"round {turn + 1}: {load.title}")
        order = [(peer.key, peer) for peer in peers]
        if peers and peers[0] is self.veche:
            order.append((CONTROL, self.veche))
        for key, peer in order if turn % 2 == 0 else reversed(order):
            if self._takes_part(load, peer):
                self._measure(load, peer, key, turn)

    def _measure(self, load, peer, key, turn):
        try:
            found = _once_measured(load, peer)
        except (LoadError, RuntimeError, OSError, answers.WrongAnswer, subprocess.TimeoutExpired) as error:
            if peer is self.veche:
                raise LoadError(f"{load.title}: {error}") from error
            self.failures[(load.key, peer.key)] = _one_line(error)
            self.rounds[load.key].pop(peer.key, None)
            print(f"{load.title}: {peer.name} failed: {_one_line(error)}", flush=True)
            return
        self.rounds[load.key].setdefault(key, []).append(found | {"round": turn})

    def document(self):
        """All results, as the JSON file stores them."""
        settings = self.settings
        return {
            "schema": SCHEMA,
            "machine": self.environment | {"load_average_after": os.getloadavg()[0]},
            "ended": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "tester": tester.version(),
            "rounds_run": settings.rounds,
            "loads": [{key: getattr(load, key) for key in ("key", "title", "unit", "what")} for load in self.loads],
            "peers": [_described(peer) for peer in self.everyone],
            "ratios": {load.key: self._ratios(load) for load in self.loads},
            "controls": {load.key: list(control.values) for load in self.loads if (control := self._control(load))},
            "failures": [{"load": load, "peer": peer, "reason": why} for (load, peer), why in self.failures.items()],
            "rounds": self.rounds,
        }

    def _ratios(self, load):
        """Returns the ratio of each peer's value to Veche's in the same round. Above 1, the peer needs more than
        Veche."""
        ratios = {}
        for key in self.rounds[load.key]:
            if key != CONTROL and (verdict := self._verdict(load, key)):
                values = [1 / value for value in verdict.values]
                ratios[key] = {
                    "median": 1 / verdict.median,
                    "low": 1 / verdict.high,
                    "high": 1 / verdict.low,
                    "verdict": verdict.word(),
                    "values": values,
                }
        return ratios

    def _verdict(self, load, key):
        """The verdict on the ratio of Veche's value to the peer's; `None` if no round has a figure of both."""
        values = self._of_same_rounds(load, self.veche.key, key)
        return Verdict(values, TARGET, self._control(load)) if values else None

    def _control(self, load):
        values = self._of_same_rounds(load, CONTROL, self.veche.key)
        return Control(tuple(values)) if values else None

    def _of_same_rounds(self, load, key, other):
        found = self.rounds[load.key]
        others = {run["round"]: run["value"] for run in found.get(other, [])}
        # The memory growth is 0 if the connections fit into memory that the process already had;
        # such runs have no ratio.
        return [
            run["value"] / others[run["round"]]
            for run in found.get(key, [])
            if run["value"] > 0 and others.get(run["round"], 0) > 0
        ]


def _once_measured(load, peer):
    """Measures a freshly started server. A run that yields no figure is repeated; a failed run is not."""
    for attempt in range(ATTEMPTS_MAX):
        try:
            with _running(peer):
                return load.run(peer)
        except tester.Unmeasured:
            if attempt == ATTEMPTS_MAX - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _described(peer):
    about = {"key": peer.key, "name": peer.name, "what": peer.what}
    return about | ({"absent": peer.absent} if peer.absent else {"versions": peer.versions()})


@contextlib.contextmanager
def _running(peer):
    """A freshly started server that has passed the checks; it is stopped at the end."""
    peer.start()
    try:
        answers.check(peer)
        yield
    finally:
        peer.stop()


def _one_line(error):
    return " ".join(str(error).split())[:200]


def _say(what):
    """Prints progress on the terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{what}", end="\r", file=sys.stderr, flush=True)
