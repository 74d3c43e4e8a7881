"""One run of one load against one started server: a dict with at least `value`, what the scenario compares."""

import json
import re
import subprocess
import tempfile
import time

from harness import servers


# Between the last handshake and a look at memory: by then the allocator has given back what handshakes took meanwhile.
IDLE_SECONDS = 3.0


class LoadError(Exception):
    """The load did not go as it must: failed connections, wrong answers, requests not kept alive."""


def _pinned(command):
    return ["taskset", "-c", servers.DRIVER_CORE, *map(str, command)]


def _output(command, timeout_s=180):
    done = subprocess.run(_pinned(command), capture_output=True, text=True, timeout=timeout_s)
    if done.returncode != 0:
        raise LoadError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _driver(server, mode, path, options):
    command = [servers.driver(), mode, "--address", f"127.0.0.1:{server.port}", "--path", path, "--pid", server.pid]
    command += ["--tls"] if server.tls else []
    return json.loads(_output(command + options))


def _interval(quick):
    return ["--warmup-ms", 200, "--measure-ms", 500] if quick else ["--warmup-ms", 300, "--measure-ms", 1200]


def echo(server, quick, connections, size, depth=1, active=None):
    options = ["-c", connections, "--size", size, "--depth", depth, *_interval(quick)]
    if active:
        options += ["--active", active]
    report = _driver(server, "echo", "/echo", options)
    return report | {"value": report["cpu_ns_per_message"]}


def rate(server, quick, connections, size, per_second):
    options = ["-c", connections, "--size", size, "--rate", per_second, *_interval(quick)]
    report = _driver(server, "rate", "/echo", options)
    return report | {"value": report["p99_us"]}


def storm(server, quick, connections):
    report = _driver(server, "storm", "/echo", ["-c", connections, "--opening", 0])
    if report["failed"]:
        raise LoadError(f"{server.name}: {report['failed']} of {connections} failed: {report['failures']}")
    return report | {"value": report["cpu_ns_per_handshake"]}


def shakes(server, quick, connections, resume):
    """TLS handshakes and nothing else."""
    options = ["-c", connections, *_interval(quick), *(["--resume"] if resume else [])]
    report = _driver(server, "shakes", "/", options)
    return report | {"value": report["cpu_ns_per_handshake"]}


def push(server, quick, users, burst, control="lines"):
    to = f"127.0.0.1:{server.extra_push}"
    options = ["-c", users, "--push", to, "--control", control, "--burst", burst, *_interval(quick)]
    report = _driver(server, "push", "/push", options)
    return report | {"value": report["cpu_ns_per_message"]}


def fanout(server, quick, subscribers, burst, control="lines", path="/fanout?channel=news", value="cpu_ns_per_delivery"):
    """One channel, many subscribers; `last_us` is from a request to the last subscriber's last byte."""
    to = f"127.0.0.1:{server.extra_push}"
    options = ["-c", subscribers, "--publish", to, "--control", control, "--burst", burst, *_interval(quick)]
    report = _driver(server, "fanout", path, options)
    return report | {"value": report[value]}


def echo_beside_fanout(server, quick, subscribers):
    """How long an echo waits while publications go to many, and how long a turn's 512 deliveries take on average."""
    to = f"127.0.0.1:{server.extra_push}"
    options = ["-c", subscribers, "--publish", to, "--echo", "/echo", *_interval(quick)]
    report = _driver(server, "fanout", "/fanout?channel=news", options)
    turn_us = 512 * report["cpu_ns_per_delivery"] / 1e3
    return report | {"turn_us": turn_us, "value": report["echo_p99_us"] / turn_us}


def idle(server, quick, connections, path, user_bytes):
    """Bytes of resident memory that a connection adds while it does nothing."""
    command = [servers.driver(), "idle", "--address", f"127.0.0.1:{server.port}", "--path", path]
    command += ["--tls"] if server.tls else []
    command += ["-c", connections, "--user-bytes", user_bytes]
    # One connection before, so that what is set up once is not charged to the crowd.
    before = _hold(command[:-4] + ["-c", 1, "--user-bytes", user_bytes], server)
    after = _hold(command, server)
    return {"before_bytes": before, "after_bytes": after, "value": (after - before) / connections}


def _hold(command, server):
    process = subprocess.Popen(_pinned(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if process.stdout.readline().strip() != "open":
        raise LoadError("the idle crowd did not open")
    time.sleep(IDLE_SECONDS)
    memory = server.memory_bytes()
    output, _ = process.communicate("", timeout=60)
    if json.loads(output)["closed_meanwhile"]:
        raise LoadError("idle connections were closed")
    time.sleep(0.3)
    return memory


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
    """The clients of examples/lapps-benchmark: services in Lua, on the driver's core."""
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
    # What was set up is not measured: the first samples are warm-up.
    first, last = samples[len(samples) // 4], samples[-1]
    echoes, seconds, cpu = (last[i] - first[i] for i in range(3))
    return {"echoes": echoes, "echoes_per_second": echoes / seconds, "value": cpu / echoes}


def _samples(process, server, seconds):
    """(echoes, seconds, the server's CPU) as the service tells them, until it has told of so many seconds."""
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
