"""The loads of bench/run. Each function runs a load against a started server and returns a dict with at least `value`,
the figure that the scenario compares."""

import re
import subprocess
import tempfile
import time

from harness import servers, tester
from harness.tester import LoadError

# Deliveries per second to all subscribers together. The rate is low enough that no publication waits for the previous
# one.
DELIVERIES_PER_SECOND = 50_000
# Deliveries per second if publications come in bursts, which a server can send in one write.
DELIVERIES_IN_BURSTS_PER_SECOND = 200_000
PUSHES_PER_SECOND = 50_000


def _pinned(command):
    return ["taskset", "-c", servers.DRIVER_CORE, *map(str, command)]


def _output(command, timeout_s=180):
    done = subprocess.run(_pinned(command), capture_output=True, text=True, timeout=timeout_s)
    if done.returncode != 0:
        raise LoadError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _interval(quick, seconds=1.2):
    warmup, measured = (0.2, seconds / 2) if quick else (0.3, seconds)
    return ["--warmup", f"{round(warmup * 1000)}ms", "--duration", f"{round(measured * 1000)}ms"]


def echo(server, quick, connections, size, depth=1, idle=0):
    """Echoes messages while `idle` further connections are open."""
    options = ["--connections", connections, "--size", size, "--inflight", depth, "--binary", *_interval(quick)]
    if not idle:
        report = tester.bench(server, "echo", "/echo", options)
    else:
        with tester.crowd(server, idle, "/echo"):
            report = tester.bench(server, "echo", "/echo", options)
    return tester.figures(report, tester.cpu_ns_per_message(report))


def rate(server, quick, connections, size, per_second):
    options = ["--connections", connections, "--size", size, "--rate", per_second, "--binary", *_interval(quick)]
    report = tester.bench(server, "echo", "/echo", options)
    return tester.figures(report, tester.percentile_us(report, "p99"))


def storm(server, quick, connections):
    server.echo_path = "/echo"
    return tester.storm(server, connections, tester.payload(20, binary=True))


def handshakes(server, quick, connections, resume):
    """Makes TLS handshakes. Each connection makes one request for a small file, whose cost is small compared with the
    handshake."""
    options = ["--connections", connections, "--header", "Connection: close", *_interval(quick)]
    options += [] if resume else ["--full-handshakes"]
    report = tester.bench(server, "http", "/hello.txt", options)
    return tester.figures(report, tester.cpu_ns_per_message(report))


def push(server, quick, users, burst):
    options = ["--connections", users, "--rate", PUSHES_PER_SECOND, "--burst", burst, "--size", 64, *_interval(quick)]
    report = tester.bench(server, "push", _PUSH, [*options, "--publish", server.publish, "--body", server.to_one])
    return tester.figures(report, tester.cpu_ns_per_message(report))


def fanout(server, quick, subscribers, burst, p99=False):
    """Publishes to one channel with many subscribers. The value is the CPU time of a delivery, or with `p99` the 99th
    percentile of the delivery time."""
    report = tester.bench(server, "broadcast", _FANOUT, _fanout(server, quick, subscribers, burst))
    return tester.figures(report, tester.percentile_us(report, "p99") if p99 else tester.cpu_ns_per_message(report))


def echo_beside_fanout(server, quick, subscribers):
    """Measures the latency of an echo during a fan-out to many subscribers, relative to the average duration of a
    turn's 512 deliveries."""
    seconds = 3
    options = _fanout(server, quick, subscribers, 1, seconds)
    publishing = tester.beside(server, "broadcast", _FANOUT, options, niceness=0)
    while tester.established(server.port) < subscribers:
        time.sleep(0.05)
    # The echo load gets a higher priority than the publisher, which runs on the same core.
    echoing = ["--connections", 1, "--think", "1ms", "--warmup", "300ms", "--duration", "1s"]
    echoes = tester.beside(server, "echo", "/echo", echoing, niceness=-15)()
    deliveries = publishing()
    turn_us = 512 * tester.cpu_ns_per_message(deliveries) / 1e3
    echo_us = tester.percentile_us(echoes, "p99")
    return {"turn_us": turn_us, "echo_p99_us": echo_us, "value": echo_us / turn_us}


_PUSH = "/push?user=somebody-{i}"
# `number` is the subscriber's number, by which the server "send alone" identifies receivers.
_FANOUT = "/fanout?channel=news&number={i}"


def _fanout(server, quick, subscribers, burst, seconds=1.2):
    per_second = DELIVERIES_PER_SECOND if burst == 1 else DELIVERIES_IN_BURSTS_PER_SECOND
    options = ["--connections", subscribers, "--rate", per_second // subscribers, "--burst", burst, "--size", 128]
    return [*options, "--publish", server.publish, "--body", server.to_all, *_interval(quick, seconds)]


def idle(server, quick, connections, path):
    """Measures the resident memory in bytes that an idle connection adds."""
    if path != "/push":
        return tester.idle_memory(server, connections, path)
    # This route does not echo, so the idle connections wait for pushes, and only one push is sent.
    options = ["--rate", 0.001, "--warmup", "0s", "--duration", f"{tester.SECONDS_MAX}s", "--timeout", "60s"]
    options += ["--publish", server.publish, "--body", server.to_one]
    return tester.idle_memory(server, connections, _PUSH, "push", options)


def wrk(server, quick, threads, connections):
    seconds = 1 if quick else 2
    url = f"http://127.0.0.1:{server.port}/hello.txt"
    before = server.cpu_ns()
    text = _output(["wrk", f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", url])
    cpu = server.cpu_ns() - before
    requests = int(re.search(r"(\d+) requests in", text)[1])
    if re.search(r"Non-2xx|Socket errors", text) or not requests:
        raise LoadError(f"{server.name}: {text}")
    per_second = float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])
    return {"requests": requests, "requests_per_second": per_second, "value": cpu / requests}


def ab(server, quick, concurrency):
    count = 20_000 if quick else 100_000
    url = f"http://127.0.0.1:{server.port}/hello.txt"
    before = server.cpu_ns()
    text = _output(["ab", "-q", "-c", concurrency, "-k", "-n", count, url])
    cpu = server.cpu_ns() - before

    def field(name):
        found = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
        return int(found[1]) if found else 0

    kept = field("Keep-Alive requests")
    if field("Complete requests") != count or field("Failed requests") or field("Non-2xx responses"):
        raise LoadError(f"{server.name}: {text}")
    if kept != count and server.name == "veche":
        raise LoadError(f"veche: only {kept} of {count} requests kept alive")
    per_second = float(re.search(r"Requests per second:\s+([\d.]+)", text)[1])
    return {"requests": count, "kept_alive": kept, "requests_per_second": per_second, "value": cpu / count}


def lapps(server, quick, connections):
    """Runs the clients of examples/lapps-benchmark, which are services in Lua, on the tester's core."""
    example = servers.ROOT / "examples" / "lapps-benchmark"
    text = (example / "clients.toml").read_text()
    text = text.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}").replace('"clients.lua"', f'"{example}/clients.lua"')
    text = re.sub(r"connections = \d+", f"connections = {connections // 4}", text)
    text = re.sub(r"seconds = \d+", f"seconds = {1 if quick else 3}", text)
    with tempfile.TemporaryDirectory(prefix="veche-bench-lapps-") as folder:
        config = f"{folder}/clients.toml"
        with open(config, "w") as file:
            file.write(text)
        command = _pinned([servers.veche_binary(), "serve", "-c", config])
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            samples = _samples(process, server, 1 if quick else 3)
        finally:
            process.terminate()
            process.communicate(timeout=30)
    # The first quarter of the samples is warm-up and is not measured.
    first, last = samples[len(samples) // 4], samples[-1]
    echoes, seconds, cpu = (last[i] - first[i] for i in range(3))
    return {"echoes": echoes, "echoes_per_second": echoes / seconds, "value": cpu / echoes}


def _samples(process, server, seconds):
    """Returns samples (echoes, seconds, CPU time of the server in ns), one for each line that the service logs, until
    `seconds` are covered."""
    samples, said = [], []
    for line in process.stdout:
        said.append(line)
        told = re.search(r"(\d+) echoes of \d+ B in ([\d.]+) s: \d+/s, (\d+) wrong", line)
        if told and int(told[3]):
            raise LoadError(f"{server.name}: {line}")
        if "ERROR" in line:
            raise LoadError(f"{server.name}: {line}")
        if told:
            samples.append((int(told[1]), float(told[2]), server.cpu_ns()))
            if samples[-1][1] >= seconds:
                return samples
    raise LoadError(f"{server.name}: the clients have ended: {''.join(said[-5:])}")
