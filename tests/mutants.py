#!/usr/bin/env python3
"""Measures how well the tests detect bugs: makes a sample of small changes to the code with cargo-mutants, and counts
how many of these mutants the tests catch. `make mutants` runs it.

    tests/mutants.py [--seed N] [--size N] [--minutes N] [CRATE…]

The sample depends only on the seed (1) and the code, and each crate has a fixed share of it. Mutants that do not change
the behaviour are listed in .cargo/mutants.toml and left out. The crates are divided among two parallel runs, each on
its own copy of the tree in target/mutants/, which also has the logs of each mutant. The exit status is 1 if a crate is
below its goal, and 2 if a crate could not be measured.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import filecmp
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
WORK = TARGET / "mutants"

# Number of parallel runs. A build of one crate keeps about one core busy.
LANES = 2

# Seconds that cargo-mutants has after SIGINT to restore the file that it has changed.
PATIENCE = 60


@dataclasses.dataclass(frozen=True)
class Suite:
    """Tests to run on a mutant: packages, and further arguments of cargo-mutants and of `cargo test`."""

    packages: tuple[str, ...]
    options: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Crate:
    """A crate, by its folder in crates/. `share` is its number of mutants in a sample of 300, and `goal` the percentage
    to catch. The suites run in order, each on the mutants that the earlier ones have missed. `cost` is the relative
    duration of one mutant; it only serves to divide the time among the crates."""

    name: str
    share: int
    goal: int
    suites: tuple[Suite, ...]
    cost: int = 1

    @property
    def package(self):
        return f"veche-{self.name}"


MODEL = Suite(("veche-mailbox",), ("--features=model",), ("--lib", "model_tests"))
SIMULATOR = Suite(("veche-sim",))
CRATES = (
    Crate("mailbox", 20, 95, (Suite(("veche-mailbox",)), MODEL)),
    Crate("jwt", 20, 95, (Suite(("veche-jwt",)),)),
    Crate("proto", 30, 95, (Suite(("veche-proto",)),)),
    Crate("archive", 30, 95, (Suite(("veche-archive",)),), cost=3),
    Crate("hub", 50, 95, (Suite(("veche-hub",)), SIMULATOR), cost=2),
    Crate("worker", 50, 95, (Suite(("veche-worker",)), SIMULATOR), cost=2),
    Crate("frontends", 100, 85, (Suite(("veche-frontends",)), SIMULATOR), cost=2),
)
FULL = sum(crate.share for crate in CRATES)

VERDICTS = {"CaughtMutant": "caught", "MissedMutant": "missed", "Timeout": "timeout", "Unviable": "unviable"}


class Impossible(Exception):
    """A reason for which nothing can be measured."""


def sample(names, size, seed):
    """Returns a sample of the names. A mutant's rank depends on the seed and its name without the line number, so a
    change of the code affects only the mutants of the changed code."""
    same, places = collections.Counter(), {}
    for name in names:
        stem = re.sub(r":\d+:\d+:", ":", name, count=1)
        same[stem] += 1
        places[name] = hashlib.sha256(f"{seed} {stem} {same[stem]}".encode()).digest()
    return sorted(sorted(names, key=places.__getitem__)[:size])


def pattern(name):
    """Returns a regular expression of Rust that matches only this name."""
    return "^" + re.sub(r"[\\.+*?()|\[\]{}^$]", r"\\\g<0>", name) + "$"


def verdicts(outcomes):
    """Returns the verdicts of cargo-mutants by the name of the mutant."""
    found = {}
    for outcome in outcomes:
        if isinstance(outcome["scenario"], dict):
            found[outcome["scenario"]["Mutant"]["name"]] = VERDICTS[outcome["summary"]]
    return found


def commands(crate, suite, names, output):
    """Returns the command line of cargo-mutants that runs a suite on the mutants `names`."""
    return [
        *("cargo", "mutants", "--in-place", "--iterate", "--shuffle", "--colors=never", f"--output={output}"),
        *("--cargo-arg=--locked", "--profile=mutants", "--minimum-test-timeout=20", "--timeout-multiplier=5"),
        f"--package={crate.package}",
        *(f"--test-package={package}" for package in suite.packages),
        *suite.options,
        *(f"--re={pattern(name)}" for name in names),
        *(("--", *suite.tests) if suite.tests else ()),
    ]


def unwanted(names, tree, call):
    """Returns the mutants that this command would run although no pattern matches them. There are some because
    cargo-mutants 27.1 ignores the patterns for mutants that delete fields."""
    listed = subprocess.run([*call[:2], "--list", *call[2:]], cwd=tree, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        raise Impossible(f"cargo mutants --list: {listed.stderr.strip()}")
    return sorted(set(listed.stdout.splitlines()) - set(names))


@dataclasses.dataclass
class Result:
    """The results of a crate's mutants."""

    crate: Crate
    size: int
    found: dict[str, str]

    def count(self, verdict):
        return sum(one == verdict for one in self.found.values())

    @property
    def percent(self):
        """The percentage of caught mutants among those that could be built; a mutant that hangs counts as caught.
        `None` if none could be built."""
        seen = self.count("caught") + self.count("timeout")
        all_ = seen + self.count("missed")
        return 100 * seen / all_ if all_ else None

    @property
    def is_good(self):
        return self.percent is not None and self.percent >= self.crate.goal

    @property
    def missed(self):
        return sorted(name for name, verdict in self.found.items() if verdict == "missed")


def table(results):
    """Returns the lines of the report."""
    lines = [f"{'crate':10}{'caught':>8}{'missed':>8}{'timeout':>9}{'unviable':>10}{'percent':>9}{'goal':>6}"]
    for result in results:
        percent = "–" if result.percent is None else f"{result.percent:.1f}"
        counts = [result.count(verdict) for verdict in VERDICTS.values()]
        line = "{:10}{:8}{:8}{:9}{:10}{:>9}{:6}".format(result.crate.name, *counts, percent, result.crate.goal)
        lines.append(line if result.is_good else f"{line}  below" if result.percent is not None else f"{line}  not measured")
    for result in results:
        lines += [f"missed: {name}" for name in result.missed]
    return lines


def status(results):
    """Returns the exit code."""
    if any(result.percent is not None and not result.is_good for result in results):
        return 1
    return 0 if results and all(result.is_good for result in results) else 2


def lanes_of(crates, lanes=LANES):
    """Divides the crates among the lanes: the most expensive first, each to the lane with the least work so far."""
    divided = [[] for _ in range(lanes)]
    for crate in sorted(crates, key=lambda crate: -crate.share * crate.cost):
        min(divided, key=lambda lane: sum(one.share * one.cost for one in lane)).append(crate)
    return [sorted(lane, key=crates.index) for lane in divided if lane]


def part_of(seconds, crate, crates):
    """Returns a crate's part of the remaining time `seconds`, which is divided among this crate and all later ones in
    `crates`."""
    behind = crates[crates.index(crate) :]
    return seconds * crate.share * crate.cost / sum(one.share * one.cost for one in behind)


def copy_tree(tree):
    """Updates a copy of the tree. Unchanged files keep their modification times, so that little is rebuilt."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=False
    )
    if listed.returncode != 0:
        raise Impossible("this is no clone of the repository: " + listed.stderr.decode().strip())
    wanted = {name for name in os.fsdecode(listed.stdout).split("\0") if name and os.path.lexists(ROOT / name)}
    for folder, _, files in os.walk(tree):
        for file in files:
            path = pathlib.Path(folder, file)
            if str(path.relative_to(tree)) not in wanted:
                path.unlink()
    for name in sorted(wanted):
        source, copy = ROOT / name, tree / name
        if copy.is_symlink() or not copy.exists() or not filecmp.cmp(source, copy, shallow=False):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.unlink(missing_ok=True)
            shutil.copy(source, copy, follow_symlinks=False)


def mutants_of(crate, tree):
    """Returns the names of all mutants of a crate except those that .cargo/mutants.toml excludes."""
    command = ["cargo", "mutants", "--list", "--json", f"--package={crate.package}"]
    listed = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        raise Impossible(f"cargo mutants --list: {listed.stderr.strip()}")
    return [mutant["name"] for mutant in json.loads(listed.stdout)]


def environment(seed, build):
    """Returns environment variables with which random tests use the same values each time and store no failures for the
    next mutant."""
    return os.environ | {
        "CARGO_TARGET_DIR": str(build),
        "CARGO_PROFILE_DEV_DEBUG": "0",
        "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "true",
        "PROPTEST_RNG_SEED": str(seed),
        "RUST_BACKTRACE": "0",
    }


def run(crate, suite, names, seed, until, lane):
    """Runs a suite on mutants. Returns the results of those that were finished before the time limit."""
    output = WORK / crate.name / str(crate.suites.index(suite) + 1)
    shutil.rmtree(output, ignore_errors=True)
    # With --iterate, mutants that an earlier run has caught are left out.
    (output / "mutants.out").mkdir(parents=True)
    call = commands(crate, suite, names, output)
    (output / "mutants.out" / "caught.txt").write_text("".join(f"{name}\n" for name in unwanted(names, lane / "tree", call)))
    log = output / "log"
    with log.open("w") as out:
        child = subprocess.Popen(
            call,
            cwd=lane / "tree",
            env=environment(seed, lane / "build"),
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = child.wait(timeout=max(0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
                child.wait(timeout=PATIENCE)
    # Exit code 0: all mutants were caught; 2: some were missed; 3: some timed out. `None`:
    # cargo-mutants was stopped at the time limit.
    if code not in (0, 2, 3, None):
        raise Impossible("\n".join([f"cargo mutants ended with {code}:", *log.read_text().splitlines()[-30:], f"all of it: {log}"]))
    outcomes = output / "mutants.out" / "outcomes.json"
    return verdicts(json.loads(outcomes.read_text())["outcomes"]) if outcomes.exists() else {}


def measure(crate, size, seed, until, lane):
    """Runs a crate's suites in order, each on the mutants that the earlier ones have missed."""
    chosen = sample(mutants_of(crate, lane / "tree"), size, seed)
    result = Result(crate, len(chosen), {})
    left = chosen
    for suite in crate.suites:
        if not left or time.monotonic() >= until:
            break
        started = time.monotonic()
        found = run(crate, suite, left, seed, until, lane)
        result.found |= {name: verdict for name, verdict in found.items() if verdict != "unviable" or name not in result.found}
        took = time.monotonic() - started
        what = " ".join([*suite.packages, *suite.options])
        print(f"{crate.name}: {len(found)} of {len(left)} mutants by the tests of {what}, {took / 60:.1f} min", flush=True)
        left = result.missed
    return result


def measure_lane(crates, lane, size, seed, end):
    """Measures crates one after the other in the folder of their lane, until the time `end`."""
    tree = lane / "tree"
    tree.mkdir(parents=True, exist_ok=True)
    copy_tree(tree)
    results = []
    for crate in crates:
        now = time.monotonic()
        until = now + part_of(end - now, crate, crates)
        results.append(measure(crate, max(1, round(crate.share * size / FULL)), seed, until, lane))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="another sample")
    parser.add_argument("--size", type=int, default=FULL, help="mutants in the sample of all crates")
    parser.add_argument("--minutes", type=float, default=60, help="the time limit; results until then are reported")
    parser.add_argument("crates", nargs="*", metavar="CRATE", help="these crates only: " + " ".join(crate.name for crate in CRATES))
    asked = parser.parse_args()
    if unknown := set(asked.crates) - {crate.name for crate in CRATES}:
        parser.error(f"no such crate: {' '.join(sorted(unknown))}")
    end = time.monotonic() + asked.minutes * 60
    crates = []
    for crate in CRATES:
        if asked.crates and crate.name not in asked.crates:
            continue
        if not (ROOT / "crates" / crate.name).is_dir():
            print(f"{crate.name}: there is no such crate, left out")
            continue
        crates.append(crate)
    lanes = lanes_of(crates)
    try:
        with concurrent.futures.ThreadPoolExecutor(LANES) as pool:
            measured = [
                pool.submit(measure_lane, lane, WORK / f"lane-{number}", asked.size, asked.seed, end) for number, lane in enumerate(lanes)
            ]
            results = [result for lane in measured for result in lane.result()]
    except Impossible as reason:
        print(reason, file=sys.stderr)
        return 2
    results.sort(key=lambda result: CRATES.index(result.crate))
    print("\n".join(table(results)))
    done, all_ = sum(len(result.found) for result in results), sum(result.size for result in results)
    print(f"{done} of {all_} mutants of sample {asked.seed}" + ("" if done == all_ else f": {asked.minutes:g} minutes were over"))
    return status(results)


if __name__ == "__main__":
    sys.exit(main())
