"""The table of scenarios: the compared servers, the load and the target."""

import copy
from functools import partial

from harness import loads, servers, tester_cost


class Subject:
    """A server under one load. `rounds` limits the number of runs of servers that are included only for information."""

    def __init__(self, make, load, label=None, target=None, rounds=None, **options):
        self.make, self.load, self.options = make, load, options
        self.target, self.rounds, self.label = target, rounds, label

    @property
    def is_veche(self):
        return self.make().name.startswith("veche")

    def run(self, quick, **more):
        server = self.make()
        server.start()
        try:
            return self.load(server, quick, **self.options, **more)
        finally:
            server.stop()


OLD_SUFFIX = "-old-new"


class Scenario:
    """Compares `ours` with each of `others` in each round. `target` is the target for the figure of `ours` itself."""

    def __init__(self, name, what, unit, ours, others=(), target=None, prepare=None):
        self.name, self.what, self.unit, self.ours = name, what, unit, ours
        self.others, self.target, self.prepare = list(others), target, prepare
        self.compares_versions = False

    def against_version(self, binary):
        """Returns a scenario that compares this version with an older one under the same load."""
        old = copy.copy(self.ours)
        old.make, old.label = servers.with_veche(binary, self.ours.make), "(old)"
        scenario = Scenario(self.name + OLD_SUFFIX, f"{self.what}: new against old", self.unit, self.ours, [old], prepare=self.prepare)
        scenario.compares_versions = True
        return scenario

    def target_against(self, label, recorded):
        """Returns the current target for a row of an earlier result. A comparison that the scenario no longer has keeps
        the recorded target."""
        for subject in self.others:
            server = subject.make()
            if label == f"ratio to {server.name}" + (f" {subject.label}" if subject.label else ""):
                return subject.target
        return recorded if label.startswith("ratio to ") else self.target


def _half_capacity(quick):
    """Returns the message rate of the latency scenario: half of the capacity of one core, computed from the peer's CPU
    time per message."""
    for make in (servers.uwebsockets, servers.veche):
        if make().present:
            runs = [Subject(make, loads.echo, connections=240, size=20).run(quick)["value"] for _ in range(3)]
            return {"per_second": int(0.5e9 / sorted(runs)[1])}
    return {}


def _echo(connections, size, depth=1, target=0.97, ours=servers.veche, prefix=""):
    load = partial(Subject, load=loads.echo, connections=connections, size=size, depth=depth)
    flight = "one" if depth == 1 else depth
    name = f"{prefix}echo-{connections}-{size}" + (f"-depth{depth}" if depth > 1 else "")
    return Scenario(
        name,
        f"echo, {connections} connections, {size} B, {flight} in flight" + (f", {prefix[:-1]}" if prefix else ""),
        "ns of CPU per message",
        load(ours),
        [load(servers.uwebsockets, target=target)],
    )


def _tls_echo(connections, size, target=None):
    load = partial(Subject, load=loads.echo, connections=connections, size=size)
    return Scenario(
        f"tls-echo-{connections}-{size}",
        f"echo over TLS 1.3, {connections} connections, {size} B, one in flight",
        "ns of CPU per message",
        load(servers.veche_tls),
        [load(servers.uwebsockets_tls, target=target), load(servers.veche, rounds=5)],
    )


def _tls_lua_echo(size, target):
    load = partial(Subject, load=loads.echo, connections=400, size=size)
    return Scenario(
        f"tls-lua-echo-{size}",
        f"echo in Lua over TLS 1.3, 400 connections, {size} B, one in flight",
        "ns of CPU per message",
        load(servers.veche_lua_tls),
        [load(servers.nginx_lua_tls, target=target)],
    )


def _tls_handshakes(name, what, resume):
    load = partial(Subject, load=loads.handshakes, connections=8, resume=resume)
    return Scenario(
        name,
        f"{what}, TLS 1.3, X25519, ECDSA P-256, 8 clients at a time",
        "ns of CPU per handshake",
        load(servers.veche_tls),
        [load(servers.nginx_tls, target=1.0)],
    )


def _lua_echo(size, depth=1, target=1.05, target_nginx=None):
    load = partial(Subject, load=loads.echo, connections=240, size=size, depth=depth)
    flight = "one" if depth == 1 else depth
    name = f"lua-echo-{size}" + (f"-depth{depth}" if depth > 1 else "")
    return Scenario(
        name,
        f"echo in Lua, 240 connections, {size} B, {flight} in flight",
        "ns of CPU per message",
        load(servers.veche_lua),
        [
            load(servers.uwebsockets, target=target),
            load(servers.nginx_lua, target=target_nginx),
            load(servers.veche, rounds=5),
        ],
    )


def _http(name, what, load, informative, **options):
    subject = partial(Subject, load=load, **options)
    return Scenario(
        name,
        what,
        "ns of CPU per request",
        subject(servers.veche),
        [
            subject(servers.hyper, target=1.0),
            subject(servers.fasthttp, target=0.7),
            *(subject(make, rounds=5) for make in informative),
        ],
    )


def _storm(connections):
    load = partial(Subject, load=loads.storm, connections=connections)
    return Scenario(
        f"storm-{connections}",
        f"{connections} handshakes at once, one message and its answer on each",
        "ns of CPU per handshake",
        load(servers.veche),
        [load(servers.uwebsockets, target=1.0)],
    )


def _push(name, what, burst, target):
    return Scenario(
        name,
        what,
        "ns of CPU per push",
        Subject(servers.veche, loads.push, users=1000, burst=burst),
        [Subject(servers.send_alone, loads.push, users=1000, burst=1, target=target)],
    )


def _fanout(subscribers, burst, target):
    load = partial(Subject, load=loads.fanout, subscribers=subscribers, burst=burst)
    return Scenario(
        f"fanout-{subscribers}" + (f"-burst{burst}" if burst > 1 else ""),
        f"publications of 128 B to {subscribers:,} subscribers, " + ("each alone" if burst == 1 else f"{burst} at once"),
        "ns of CPU per delivery",
        load(servers.veche),
        [load(servers.uwebsockets_fanout, target=target), load(servers.send_alone, rounds=5)],
    )


def _memory(name, path, target, ours=servers.veche, peer=None):
    load = partial(Subject, load=loads.idle, connections=10_000)
    return Scenario(
        name,
        f"memory of an idle connection on {path}, 10,000 of them" + (", TLS" if ours is servers.veche_tls else ""),
        "bytes of RSS grown per connection",
        load(ours, path=path),
        [load(peer, path="/", rounds=3)] if peer else [],
        target=target,
    )


# uWebSockets rejects HTTP/1.0, the version that ab uses.
_WITH_WRK = [servers.uwebsockets, servers.nginx]

SCENARIOS = [
    *(_echo(connections, size) for connections in (240, 400) for size in (20, 1024, 8192)),
    _echo(240, 20, depth=8, target=0.92),
    *(_echo(240, size, target=1.0, ours=servers.veche_guarded, prefix="guarded-") for size in (20, 1024, 8192)),
    Scenario(
        "p99",
        "echo p99 at half of capacity, 240 connections, 20 B, open loop",
        "µs, p99",
        Subject(servers.veche, loads.rate, connections=240, size=20),
        [Subject(servers.uwebsockets, loads.rate, connections=240, size=20, target=1.1)],
        prepare=_half_capacity,
    ),
    _http("http-wrk1", "wrk -t1 -c1000", loads.wrk, _WITH_WRK, threads=1, connections=1000),
    _http("http-wrk10", "wrk -t10 -c1000", loads.wrk, _WITH_WRK, threads=10, connections=1000),
    _http("http-ab", "ab -c 10 -k", loads.ab, [servers.nginx], concurrency=10),
    _lua_echo(20, target_nginx=0.85),
    _lua_echo(1024, target_nginx=0.6),
    _lua_echo(20, depth=8, target=1.15),
    Scenario(
        "lapps",
        "LAppS's benchmark: services in Lua echo 1,024 B over 400 client connections",
        "ns of CPU of the echo server per echo",
        Subject(servers.veche_lua, load=loads.lapps, connections=400),
        [Subject(servers.nginx_lua, load=loads.lapps, connections=400, target=0.6)],
    ),
    Scenario(
        "lua-http",
        "a short body from Lua, wrk -t1 -c1000",
        "ns of CPU per request",
        Subject(servers.veche_lua, load=loads.wrk, threads=1, connections=1000),
        [Subject(servers.fasthttp, load=loads.wrk, threads=1, connections=1000, target=0.8)],
    ),
    _storm(10_000),
    _storm(19_500),
    _push("push-single", "pushes to 1,000 users in turn", burst=1, target=1.25),
    _push("push-burst", "pushes to 1,000 users in bursts of 16", burst=16, target=0.15),
    *(_fanout(subscribers, burst, target) for subscribers in (1000, 5000) for burst, target in ((1, 0.85), (16, 0.9))),
    Scenario(
        "fanout-last",
        "a publication of 128 B until it is at 99 % of 5,000 subscribers",
        "µs, p99 of deliveries",
        Subject(servers.veche, loads.fanout, subscribers=5000, burst=1, p99=True),
        [
            Subject(servers.send_alone, loads.fanout, subscribers=5000, burst=1, p99=True, target=1.2),
            Subject(servers.uwebsockets_fanout, loads.fanout, subscribers=5000, burst=1, p99=True, rounds=5),
        ],
    ),
    Scenario(
        "fanout-echo",
        "p99 of an echo on the worker that publishes to 5,000 subscribers, by the time of one turn's 512 deliveries",
        "turns",
        Subject(servers.veche, loads.echo_beside_fanout, subscribers=5000),
        target=1.0,
    ),
    _memory("memory-echo", "/echo", target=256, peer=servers.uwebsockets),
    _memory("memory-push", "/push", target=400),
    _memory("memory-tls", "/push", target=14 * 1024, ours=servers.veche_tls, peer=servers.uwebsockets_tls),
    _tls_echo(240, 1024, target=0.75),
    _tls_echo(400, 1024, target=0.75),
    _tls_lua_echo(128, target=0.6),
    _tls_lua_echo(1024, target=0.6),
    _tls_handshakes("tls-full", "full handshakes", resume=False),
    _tls_handshakes("tls-resumed", "handshakes that go on from a ticket", resume=True),
    Scenario(
        "many",
        "echo, 240 connections in flight, 14,760 idle ones beside them against 760",
        "ns of CPU per message",
        Subject(servers.veche, loads.echo, label="15,000", connections=240, size=20, idle=14_760),
        [
            Subject(servers.veche, loads.echo, label="1,000", connections=240, size=20, idle=760, target=1.15),
            Subject(servers.uwebsockets, loads.echo, label="15,000", connections=240, size=20, idle=14_760, rounds=5),
        ],
    ),
    Scenario(
        "tester",
        "what the tester costs: echo, 240 connections, 20 B, one in flight",
        "ns of the tester's CPU per message",
        Subject(servers.uwebsockets, tester_cost.ours, label="under veche bench", connections=240, size=20),
        [
            Subject(
                tester_cost.UnderLoadTest,
                tester_cost.uwebsockets,
                label="under uWebSockets' load_test",
                connections=240,
                size=20,
                target=1.0,
            )
        ],
    ),
]
