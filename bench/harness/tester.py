"""The loads of the shootout by `veche bench`: each is one run against one started server, a dict with `value`.

What the shootout knows of the tester's command line and of its report is here and nowhere else.
"""

import json
import pathlib
import signal
import subprocess
import time

from harness import servers
from harness.loads import LoadError

SECONDS_MAX = 180
# A server is at rest when it takes less than a hundredth of a core for so long.
REST_SECONDS = 0.3
REST_SHARE_MAX = 0.01
REST_SECONDS_MAX = 20


class Unmeasured(LoadError):
    """Nothing went wrong, but there is no figure either: somebody else had the core all the time."""


def version():
    done = subprocess.run([servers.veche_binary(), "--version"], capture_output=True, text=True)
    return f"{done.stdout.strip()}, veche bench"


def payload(size, binary):
    """Messages of so many bytes, text if not binary: what `storm`, `echo` and `rate` are to send."""
    return ["--size", size, *(["--binary"] if binary else [])]


def storm(server, connections, payload):
    before = server.cpu_ns()
    # All at once: as many handshakes are open as the kernel's queue takes.
    report = _bench(server, "storm", ["--connections", connections, "--opening", connections, "--timeout", "60s", *payload])
    _wait_for_rest(server)
    value = (server.cpu_ns() - before) / connections
    return _figures(report, value, per_second=connections / report["connections"]["all_open_s"])


def echo(server, connections, payload, span):
    report = _bench(server, "echo", ["--connections", connections, *payload, *_span(span)])
    return _figures(report, _cpu_ns_per_message(report))


def rate(server, connections, payload, per_second, span):
    options = ["--connections", connections, *payload, "--rate", per_second, *_span(span)]
    report = _bench(server, "echo", options)
    # Who cannot keep up shows it in the percentile, unless answers do not come at all.
    if unanswered := report["messages"]["unanswered"]:
        raise LoadError(f"{unanswered} messages without an answer")
    if "latency_us" not in report:
        raise Unmeasured("no answer in the measured time")
    return _figures(report, report["latency_us"]["p99"])


def http(server, connections, span):
    options = ["--connections", connections, "--expect", server.http_body.decode(), *_span(span)]
    report = _bench(server, "http", options)
    return _figures(report, _cpu_ns_per_message(report))


def idle(server, connections):
    """Bytes of resident memory that a connection adds while it does nothing."""
    # One before, so that what is set up once is not charged to the crowd.
    _bench(server, "storm", ["--connections", 1])
    _wait_for_rest(server)
    before = server.memory_bytes()
    options = ["--connections", connections, "--hold", f"{SECONDS_MAX}s", "--timeout", "60s"]
    command = _command(server, "storm", options)
    crowd = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + SECONDS_MAX / 2
        while _established(server.port) < connections and crowd.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        _wait_for_rest(server)
        after = server.memory_bytes()
        held = _established(server.port)
    finally:
        # It lets go of the crowd and reports.
        crowd.send_signal(signal.SIGINT)
        try:
            out, said = crowd.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            crowd.kill()
            out, said = crowd.communicate()
    _report(out, said)
    if held < connections:
        raise LoadError(f"only {held} of {connections} idle connections stayed")
    return {"value": (after - before) / connections}


def _cpu_ns_per_message(report):
    # The tester leaves out what it could not measure.
    if "cpu_us_per_message" not in report["server"]:
        raise Unmeasured("no answer in the measured time")
    return report["server"]["cpu_us_per_message"] * 1e3


def _wait_for_rest(server):
    deadline = time.monotonic() + REST_SECONDS_MAX
    while time.monotonic() < deadline:
        before = server.cpu_ns()
        time.sleep(REST_SECONDS)
        if server.cpu_ns() - before < REST_SECONDS * REST_SHARE_MAX * 1e9:
            return
    raise LoadError("does not come to rest")


def _established(port):
    """How many connections to a port of 127.0.0.1 are open, as the server's side of the kernel sees it."""
    ours = f"{port:04X}"
    rows = (line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(row[3] == "01" and row[1].endswith(f":{ours}") for row in rows)


def _figures(report, value, per_second=None):
    bound = report["generator"]["bottleneck"]
    return {"value": value, "per_second": per_second or report["messages"]["per_second"], "tester_bound": bound}


def _command(server, question, options):
    scheme, path = ("http", server.http_path) if question == "http" else ("ws", server.echo_path)
    url = f"{scheme}://127.0.0.1:{server.port}{path}"
    command = [servers.veche_binary(), "bench", question, url, "--pid", server.pid, "--json", *options]
    return ["taskset", "-c", servers.DRIVER_CORE, *map(str, command)]


def _bench(server, question, options):
    done = subprocess.run(_command(server, question, options), capture_output=True, text=True, timeout=SECONDS_MAX)
    return _report(done.stdout, done.stderr)


def _report(out, said):
    """The report of a run in which nothing went wrong."""
    try:
        report = json.loads(out)
    except ValueError:
        raise LoadError((said.strip() or "the tester said nothing").splitlines()[-1]) from None
    found = report["connections"]
    errors = {cause: count for cause, count in report["errors"].items() if count and cause != "examples"}
    if errors or found["failed"] or found["disconnected"]:
        raise LoadError(f"{found['failed']} failed, {found['disconnected']} disconnected, errors: {errors}")
    return report


def _span(span):
    return ["--duration", f"{round(span.measure_s * 1e3)}ms", "--warmup", f"{round(span.warmup_s * 1e3)}ms"]
