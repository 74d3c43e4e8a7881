#!/usr/bin/env python3
"""Fuzzes each target of fuzz/ for MINUTES of CPU time (10), as many at a time as there are cores, and reports the
executions. Inputs that reach new code are stored in fuzz/corpus.local/. A crash is stored in fuzz/artifacts/ and makes
the run fail.

    tests/fuzz.py [MINUTES] [TARGET…]
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FUZZ = pathlib.Path(__file__).resolve().parent.parent / "fuzz"
# cargo-fuzz needs unstable flags; this makes the pinned toolchain accept them.
ENVIRONMENT = os.environ | {"RUSTC_BOOTSTRAP": "1"}


def targets():
    return sorted(path.stem for path in (FUZZ / "fuzz_targets").glob("*.rs"))


def fuzz(target, minutes):
    """Fuzzes a target. Returns whether it passed, and the line to print."""
    own, committed = FUZZ / "corpus.local" / target, FUZZ / "corpus" / target
    own.mkdir(parents=True, exist_ok=True)
    corpora = [own] + ([committed] if committed.is_dir() else [])
    limits = ["-print_final_stats=1", "-rss_limit_mb=2048", "-timeout=60"]
    executions, cpu, failed = 0, 0.0, None
    # libFuzzer stops by wall-clock time, so on a busy machine it is run again until the CPU time is
    # used up.
    while failed is None and cpu < minutes * 60:
        seconds = max(1, round(minutes * 60 - cpu))
        command = ["cargo", "fuzz", "run", target, *map(str, corpora), "--", f"-max_total_time={seconds}", *limits]
        code, used, text = run(command)
        cpu += used
        executed = re.search(r"number_of_executed_units:\s*(\d+)", text)
        executions += int(executed[1]) if executed else 0
        if code != 0:
            failed = finding(text)
    line = f"{target}: {executions:,} executions in {cpu / 60:.1f} CPU-minutes"
    return (True, line) if failed is None else (False, f"FAILED {line}\n{failed}")


def run(command):
    """Runs a command. Returns the exit code, its CPU seconds, and its output."""
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, cwd=FUZZ.parent, env=ENVIRONMENT, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        return child.returncode, used.ru_utime + used.ru_stime, output.read().decode(errors="replace")


def finding(text):
    """Returns the essential part of a finding: the panic or the sanitizer's error, and how to reproduce it."""
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
    passed = failed = 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for good, line in pool.map(lambda target: fuzz(target, minutes), chosen):
            passed, failed = passed + good, failed + (not good)
            print(line, flush=True)
    print(f"fuzz: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
