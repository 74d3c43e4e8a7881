#!/usr/bin/env python3
"""Fuzzes each target of fuzz/ for MINUTES of CPU time (10), as many at a time as there are cores, and reports the
executions. What libFuzzer finds worth keeping goes to fuzz/corpus.local/; a crash goes to fuzz/artifacts/ and fails.

    tests/fuzz.py [MINUTES] [TARGET…]
"""

import concurrent.futures
import os
import pathlib
import re
import resource
import subprocess
import sys
import time

FUZZ = pathlib.Path(__file__).resolve().parent.parent / "fuzz"
# cargo-fuzz needs unstable flags; this lets the pinned toolchain take them.
ENVIRONMENT = os.environ | {"RUSTC_BOOTSTRAP": "1"}


def targets():
    return sorted(path.stem for path in (FUZZ / "fuzz_targets").glob("*.rs"))


def fuzz(target, minutes):
    """(passed, line to print)"""
    own, committed = FUZZ / "corpus.local" / target, FUZZ / "corpus" / target
    own.mkdir(parents=True, exist_ok=True)
    corpora = [own] + ([committed] if committed.is_dir() else [])
    limits = [f"-max_total_time={int(minutes * 60)}", "-print_final_stats=1", "-rss_limit_mb=2048", "-timeout=10"]
    command = ["cargo", "fuzz", "run", target, *map(str, corpora), "--", *limits]
    started = time.monotonic()
    done = subprocess.run(command, cwd=FUZZ.parent, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode(errors="replace")
    executions = re.search(r"number_of_executed_units:\s*(\d+)", text)
    minutes_taken = (time.monotonic() - started) / 60
    line = f"{target}: {int(executions[1]) if executions else 0:,} executions in {minutes_taken:.1f} minutes"
    if done.returncode != 0:
        return False, f"FAILED {line}\n{finding(text)}"
    return True, line


def finding(text):
    """What a person needs of a finding: the panic or the sanitizer's word, and how to see it again."""
    lines = text.splitlines()
    starts = [n for n, line in enumerate(lines) if "panicked at" in line or "ERROR: " in line]
    shown = [line for n in starts[:2] for line in lines[n : n + 4]]
    again = re.search(r"cargo fuzz run \S+ \S*artifacts/\S+", text)
    return "\n".join("    " + line[:400] for line in [*shown, f"RUSTC_BOOTSTRAP=1 {again[0]}" if again else lines[-1]])


def main():
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    chosen = sys.argv[2:] or targets()
    build = subprocess.run(["cargo", "fuzz", "build"], cwd=FUZZ.parent, env=ENVIRONMENT, capture_output=True, text=True)
    if build.returncode != 0:
        print(build.stderr[-3000:])
        return 1
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    passed = failed = 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for good, line in pool.map(lambda target: fuzz(target, minutes), chosen):
            passed, failed = passed + good, failed + (not good)
            print(line, flush=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 60
    print(f"fuzz: {passed} passed, {failed} failed, {cpu:.1f} CPU-minutes in all")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
