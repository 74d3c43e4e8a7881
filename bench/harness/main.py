"""The command line of bench/run: rounds of A B C A B C …, then the verdicts."""

import argparse
import subprocess
import sys

from harness import results, servers
from harness.loads import LoadError
from harness.scenarios import SCENARIOS
from harness.stats import Verdict

DRIVER_IDLE_MIN = 0.2


def main():
    arguments = _parse()
    if arguments.list:
        for scenario in SCENARIOS:
            print(f"{scenario.name:22} {scenario.what}")
        return 0
    chosen = [s for s in SCENARIOS if not arguments.scenario or any(s.name.startswith(n) for n in arguments.scenario)]
    if not chosen:
        print("no such scenario; bench/run --list", file=sys.stderr)
        return 2
    if not arguments.no_build:
        build()
    missed = 0
    for scenario in chosen:
        missed += _run(scenario, arguments)
    return 1 if missed else 0


def _parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the scenarios and end")
    parser.add_argument("--scenario", action="append", metavar="NAME", help="only those that begin so; may be repeated")
    parser.add_argument("--pairs", type=int, default=15, help="rounds (15 is what a verdict needs)")
    parser.add_argument("--quick", action="store_true", help="5 short rounds, nothing written: for a look while tuning")
    parser.add_argument("--no-build", action="store_true", help="take driver and peers as they are")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.pairs = min(arguments.pairs, 5)
    return arguments


def build():
    """Driver and peers, each with its own target folder; Go is optional."""
    for name, folder in (("driver", "driver"), ("hyper", "peers/hyper")):
        command = ["cargo", "build", "--release", "--quiet", "--locked", "--target-dir", servers.cargo_target(name)]
        subprocess.run(command, cwd=servers.BENCH / folder, check=True)
    go = ["go", "build", "-o", servers.cargo_target("fasthttp") / "fasthttp-peer", "."]
    try:
        subprocess.run(go, cwd=servers.BENCH / "peers" / "fasthttp", check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"fasthttp is absent: {error}", file=sys.stderr)


def _run(scenario, arguments):
    """One scenario, all rounds; the number of targets missed."""
    print(f"{scenario.name}: {scenario.what}", flush=True)
    environment = results.machine()
    subjects = [scenario.ours, *scenario.others]
    labels, present, notes = [], [], []
    for subject in subjects:
        server = subject.make()
        label = server.name + (f" {subject.label}" if subject.label else "")
        if not server.present:
            notes.append(f"{label}: absent")
            continue
        labels.append(label)
        present.append(subject)
    if not present or present[0] is not scenario.ours:
        print("  veche is absent: build it first (make build) or set VECHE_BIN")
        return 1
    try:
        more = scenario.prepare(arguments.quick) if scenario.prepare else {}
        rounds = {label: [] for label in labels}
        for turn in range(arguments.pairs if scenario.others else min(arguments.pairs, 3)):
            for label, subject in zip(labels, present):
                if subject.rounds is None or turn < subject.rounds:
                    rounds[label].append(subject.run(arguments.quick, **more))
    except (LoadError, RuntimeError) as error:
        print(f"  FAILED: {error}")
        return 1
    notes += [f"{name} = {value}" for name, value in more.items()]
    notes += _busy_driver(rounds)
    verdicts = _verdicts(scenario, labels, present, rounds)
    for label, values in rounds.items():
        ordered = sorted(run["value"] for run in values)
        print(f"  {label:20} {ordered[len(ordered) // 2]:12,.0f} {scenario.unit}")
    for label, verdict in verdicts:
        target = "" if verdict.target is None else f", target ≤ {verdict.target:g}"
        low, high = results.number(verdict.low), results.number(verdict.high)
        print(f"  {label}: {results.number(verdict.median)} [{low} – {high}]{target}: {verdict.word()}")
    for note in notes:
        print(f"  {note}")
    if not arguments.quick:
        print(f"  {results.write(scenario, rounds, verdicts, notes, environment).relative_to(servers.ROOT)}")
    return sum(verdict.met is False for _, verdict in verdicts)


def _verdicts(scenario, labels, present, rounds):
    ours = [run["value"] for run in rounds[labels[0]]]
    verdicts = []
    if scenario.target is not None:
        verdicts.append((labels[0], Verdict(ours, scenario.target)))
    for label, subject in list(zip(labels, present))[1:]:
        ratios = [mine / run["value"] for mine, run in zip(ours, rounds[label])]
        verdicts.append((f"ratio to {label}", Verdict(ratios, subject.target)))
    return verdicts


def _busy_driver(rounds):
    notes = []
    for label, runs in rounds.items():
        idle = sorted(run["driver_idle"] for run in runs if "driver_idle" in run)
        if idle and idle[len(idle) // 2] < DRIVER_IDLE_MIN:
            notes.append(
                f"{label}: the driver was only {idle[len(idle) // 2]:.0%} idle (median);"
                " CPU per message stands, a latency measured so is the driver's as much as the server's"
            )
    return notes
