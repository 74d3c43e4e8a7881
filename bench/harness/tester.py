"""Runs `veche bench`, which generates all loads: its command line, its report, its idle connections, and the loads of
the shootout. Each load runs against a started server and returns a dict with `value`.

The loads of bench/run are in loads.py.
"""

import contextlib
import json
import pathlib
import signal
import subprocess
import time

from harness import servers

SECONDS_MAX = 180
# A server is idle if it uses less than the share REST_SHARE_MAX of a core during this many seconds.
REST_SECONDS = 0.3
REST_SHARE_MAX = 0.01
REST_SECONDS_MAX = 20
# Memory counts as settled after this time without a fall by more than UNSETTLED_BYTES.
SETTLED_SECONDS = 3
SETTLED_SECONDS_MAX = 60
UNSETTLED_BYTES = 64 << 10


class LoadError(Exception):
    """The load did not run as required: failed connections, wrong answers, requests without keep-alive."""


class Unmeasured(LoadError):
    """There was no error, but no figure either, for example because other processes used the core all the time."""


def version():
    done = subprocess.run([servers.tester_binary(), "--version"], capture_output=True, text=True)
    return f"{done.stdout.strip()}, veche bench"


def payload(size, binary):
    """Returns the options for messages of `size` bytes, as text or binary, for the loads `storm`, `echo` and `rate`."""
    return ["--size", size, *(["--binary"] if binary else [])]


def storm(server, connections, payload):
    # All connections are opened at once, limited only by the kernel's accept queue.
    options = ["--connections", connections, "--opening", connections, "--timeout", "60s", *payload]
    before = server.cpu_ns()
    report = bench(server, "storm", server.echo_path, options)
    _wait_for_rest(server)
    value = (server.cpu_ns() - before) / connections
    return figures(report, value, per_second=connections / report["connections"]["all_open_s"])


def echo(server, connections, payload, span):
    report = bench(server, "echo", server.echo_path, ["--connections", connections, *payload, *_span(span)])
    return figures(report, cpu_ns_per_message(report))


def rate(server, connections, payload, per_second, span):
    options = ["--connections", connections, *payload, "--rate", per_second, *_span(span)]
    report = bench(server, "echo", server.echo_path, options)
    # A slow server only shows in the latency percentiles, but unanswered messages are an error.
    if unanswered := report["messages"]["unanswered"]:
        raise LoadError(f"{unanswered} messages without an answer")
    return figures(report, percentile_us(report, "p99"))


def http(server, connections, span):
    options = ["--connections", connections, "--expect", server.http_body.decode(), *_span(span)]
    report = bench(server, "http", server.http_path, options)
    return figures(report, cpu_ns_per_message(report))


def idle(server, connections):
    """Measures the resident memory in bytes that an idle connection adds."""
    return idle_memory(server, connections, server.echo_path)


def idle_memory(server, connections, path, load="storm", options=()):
    """Does the same as `idle` for connections to a path; `load` and `options` are those of `crowd`."""
    # A single connection is opened first, so that the measurement does not count one-time setup.
    with crowd(server, 1, path, load, options):
        pass
    before = _settled_memory_bytes(server)
    with crowd(server, connections, path, load, options):
        after = _settled_memory_bytes(server)
    return {"before_bytes": before, "after_bytes": after, "value": (after - before) / connections}


@contextlib.contextmanager
def crowd(server, connections, path, load="storm", options=()):
    """Opens connections, and keeps them open until the `with` block ends.

    With the load "storm" each connection has sent one message. `options` of another load must make it last for
    SECONDS_MAX.
    """
    options = options or ["--hold", f"{SECONDS_MAX}s", "--timeout", "60s"]
    already = established(server.port)
    command = _command(server, load, path, ["--connections", connections, *options])
    holding = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + SECONDS_MAX / 2
        while established(server.port) - already < connections and holding.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        yield
        held = established(server.port) - already
    finally:
        # The signal makes the tester close the connections and print its report.
        holding.send_signal(signal.SIGINT)
        try:
            out, said = holding.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            holding.kill()
            out, said = holding.communicate()
    _report(out, said)
    if held < connections:
        raise LoadError(f"only {held} of {connections} idle connections stayed")


def cpu_ns_per_message(report):
    # The tester's report omits figures that it did not measure.
    if "cpu_us_per_message" not in report["server"]:
        raise Unmeasured("no answer in the measured time")
    return report["server"]["cpu_us_per_message"] * 1e3


def percentile_us(report, name):
    if "latency_us" not in report:
        raise Unmeasured("no answer in the measured time")
    return report["latency_us"][name]


def _wait_for_rest(server):
    deadline = time.monotonic() + REST_SECONDS_MAX
    while time.monotonic() < deadline:
        before = server.cpu_ns()
        time.sleep(REST_SECONDS)
        if server.cpu_ns() - before < REST_SECONDS * REST_SHARE_MAX * 1e9:
            return
    raise LoadError("does not come to rest")


def _settled_memory_bytes(server):
    """Returns the resident memory once the server is idle and has returned no memory to the kernel for SETTLED_SECONDS."""
    _wait_for_rest(server)
    deadline = time.monotonic() + SETTLED_SECONDS_MAX
    memory, since = server.memory_bytes(), time.monotonic()
    while time.monotonic() - since < SETTLED_SECONDS:
        if time.monotonic() > deadline:
            raise LoadError("its memory does not settle")
        time.sleep(REST_SECONDS)
        before, memory = memory, server.memory_bytes()
        if memory < before - UNSETTLED_BYTES:
            since = time.monotonic()
    return memory


def established(port):
    """Returns the number of established connections of a port on the server's side, according to the kernel."""
    ours = f"{port:04X}"
    rows = (line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(row[3] == "01" and row[1].endswith(f":{ours}") for row in rows)


def figures(report, value, per_second=None):
    generator = report["generator"]
    return {
        "value": value,
        "per_second": per_second or report["messages"]["per_second"],
        "tester_bound": generator["bottleneck"],
        "tester_idle": 1 - generator["cpu"],
    }


def bench(server, load, path, options):
    """Runs a load. Returns its report; raises LoadError if there were errors."""
    command = _command(server, load, path, options)
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
    return _report(done.stdout, done.stderr)


def beside(server, load, path, options, niceness):
    """Starts a load that runs in parallel with another one, and does not wait for it. Returns a function that waits and
    returns the report."""
    command = ["nice", "-n", str(niceness), *_command(server, load, path, options)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return lambda: _report(*running.communicate(timeout=SECONDS_MAX))


def _command(server, load, path, options):
    scheme = "http" if load == "http" else "ws"
    over_tls = getattr(server, "tls", False)
    url = f"{scheme}{'s' if over_tls else ''}://127.0.0.1:{server.port}{path}"
    command = [servers.tester_binary(), "bench", load, url, "--pid", server.pid, "--json", *options]
    command += ["--insecure"] if over_tls else []
    return ["taskset", "-c", servers.DRIVER_CORE, *map(str, command)]


def _report(out, said):
    """Checks that a run had no errors; returns its report."""
    try:
        report = json.loads(out)
    except ValueError:
        raise LoadError((said.strip() or "the tester printed nothing").splitlines()[-1]) from None
    found = report["connections"]
    errors = {cause: count for cause, count in report["errors"].items() if count and cause != "examples"}
    if errors or found["failed"] or found["disconnected"]:
        raise LoadError(f"{found['failed']} failed, {found['disconnected']} disconnected, errors: {errors}")
    return report


def _span(span):
    return ["--duration", f"{round(span.measure_s * 1e3)}ms", "--warmup", f"{round(span.warmup_s * 1e3)}ms"]
