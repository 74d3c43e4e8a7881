"""The command line of bench/run: interleaved rounds until each verdict is decided, then the report."""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
from functools import partial

from harness import results, servers
from harness.loads import LoadError
from harness.measurement import Measurement
from harness.scenarios import SCENARIOS
from harness.stats import MISSED, PAIRS_MAX, PAIRS_MIN, PAIRS_STEP

TESTER_IDLE_MIN = 0.2


def main():
    arguments = _parse()
    if arguments.list:
        for scenario in SCENARIOS:
            print(f"{scenario.name:22} {scenario.what}")
        return 0
    if arguments.judge:
        return _judge(arguments.judge)
    chosen = [s for s in SCENARIOS if not arguments.scenario or any(s.name.startswith(n) for n in arguments.scenario)]
    if not chosen:
        print("no such scenario; bench/run --list", file=sys.stderr)
        return 2
    if arguments.old:
        chosen = [s.against_version(arguments.old) for s in chosen if s.ours.is_veche]
        if not chosen:
            print("--old: none of these scenarios measures Veche", file=sys.stderr)
            return 2
    if not arguments.no_build:
        build()
    return 1 if sum(_run(scenario, arguments) for scenario in chosen) else 0


def _parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="list the scenarios and exit")
    parser.add_argument("--scenario", action="append", metavar="NAME", help="only scenarios that begin with NAME; repeatable")
    parser.add_argument("--pairs", type=int, default=PAIRS_MIN, help="rounds to begin with; a verdict needs 15 (15)")
    parser.add_argument("--pairs-max", type=int, default=PAIRS_MAX, help="rounds taken while a verdict is undecided (60)")
    parser.add_argument("--old", metavar="BINARY", help="compare with an older Veche instead of the peers: slower or not")
    parser.add_argument("--quick", action="store_true", help="5 short rounds, nothing written and no verdict: while tuning")
    parser.add_argument("--no-build", action="store_true", help="use the peers as they are")
    parser.add_argument("--judge", nargs="*", metavar="JSON", help="judge results again by today's rules and targets (all)")
    arguments = parser.parse_args()
    if arguments.judge == []:
        arguments.judge = sorted(results.RESULTS.glob("*.json"))
    if arguments.old and not shutil.which(arguments.old):
        parser.error(f"--old: {arguments.old} is not a program")
    if arguments.quick:
        arguments.pairs = arguments.pairs_max = min(arguments.pairs, 5)
    arguments.pairs_max = max(arguments.pairs, arguments.pairs_max)
    return arguments


def _judge(files):
    """Rewrites pages, verdicts and the index from the values that earlier runs recorded."""
    for file in map(pathlib.Path, files):
        document = json.loads(file.read_text())
        if "verdicts" in document:
            results.judge(document, file)
    print(results.write_index().relative_to(servers.ROOT))
    return 0


def build():
    """Builds the peers, each with its own target folder; Go is optional."""
    for name in ("send-alone", "hyper"):
        command = ["cargo", "build", "--release", "--quiet", "--locked", "--target-dir", servers.cargo_target(name)]
        subprocess.run(command, cwd=servers.BENCH / "peers" / name, check=True)
    go = ["go", "build", "-o", servers.cargo_target("fasthttp") / "fasthttp-peer", "."]
    try:
        subprocess.run(go, cwd=servers.BENCH / "peers" / "fasthttp", check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"fasthttp is absent: {error}", file=sys.stderr)


def _run(scenario, arguments):
    """Runs one scenario; returns 1 when a target is missed or the scenario fails."""
    print(f"{scenario.name}: {scenario.what}", flush=True)
    environment = results.machine()
    present, notes = {}, []
    for subject in [scenario.ours, *scenario.others]:
        server = subject.make()
        label = server.name + (f" {subject.label}" if subject.label else "")
        if server.present:
            present[label] = subject
        else:
            notes.append(f"{label}: absent")
    if scenario.ours not in present.values():
        print("  veche is absent: build it first (make build) or set VECHE_BIN")
        return 1
    try:
        more = scenario.prepare(arguments.quick) if scenario.prepare else {}
        measurement = Measurement(scenario, present, partial(_measure, quick=arguments.quick, more=more))
        measurement.take(arguments.pairs)
        while measurement.undecided and measurement.pairs + PAIRS_STEP <= arguments.pairs_max:
            print(f"  undecided after {measurement.pairs} pairs, taking {PAIRS_STEP} more", flush=True)
            measurement.take(PAIRS_STEP)
    except (LoadError, RuntimeError) as error:
        print(f"  FAILED: {error}")
        return 1
    rounds, verdicts = measurement.rounds, measurement.verdicts()
    notes += [f"{name} = {value}" for name, value in more.items()]
    notes += _busy_tester(rounds)
    for label, values in rounds.items():
        ordered = sorted(run["value"] for run in values)
        print(f"  {label:20} {ordered[len(ordered) // 2]:12,.0f} {scenario.unit}")
    for label, verdict in verdicts:
        target = "" if verdict.target is None else f", target ≤ {verdict.target:g}"
        low, high = results.number(verdict.low), results.number(verdict.high)
        print(f"  {label}: {results.number(verdict.median)} [{low} – {high}]{target}: {verdict.word()}")
    for note in [str(measurement.control), *notes]:
        print(f"  {note}")
    if not arguments.quick:
        print(f"  {results.write(scenario, measurement, notes, environment).relative_to(servers.ROOT)}")
        results.write_index()
    return int(any(verdict.verdict == MISSED for _, verdict in verdicts))


def _measure(subject, quick, more):
    return subject.run(quick, **more)


def _busy_tester(rounds):
    notes = []
    for label, runs in rounds.items():
        idle = sorted(run["tester_idle"] for run in runs if "tester_idle" in run)
        if idle and idle[len(idle) // 2] < TESTER_IDLE_MIN:
            notes.append(
                f"{label}: the tester was only {idle[len(idle) // 2]:.0%} idle (median);"
                " CPU per message stands, a latency measured so is the tester's as much as the server's"
            )
    return notes
