#!/usr/bin/env python3
"""Tests the PHP SDK: PHPUnit on its sources and on the generated single file, PSR-12, whether the generated files are
up to date, and the manifest of Composer. The server is VECHE_BIN, by default the newest of target/*/veche.

Arguments are passed to PHPUnit: tests/php_sdk.py --filter Restart
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

SDK = pathlib.Path(__file__).resolve().parent.parent / "sdk" / "php"

CHECKS = [
    ("style", ["phpcs", "-q"]),
    ("veche.php", ["php", "build/single.php", "--check"]),
    ("reference", ["php", "build/reference.php", "--check"]),
    ("composer", ["composer", "validate", "--strict", "--no-interaction", "--quiet"]),
]


def run(command, environment=None):
    # Without COMPOSER_ALLOW_SUPERUSER, Composer warns if it runs as the superuser.
    environment = os.environ | {"COMPOSER_ALLOW_SUPERUSER": "1"} | (environment or {})
    return subprocess.run(command, cwd=SDK, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def number(name, output):
    found = re.search(rf"{name}: (\d+)", output)
    return int(found[1]) if found else 0


def phpunit(kind, words):
    """Runs all tests on the SDK as sources or as a single file. Returns whether they passed."""
    done = run(["phpunit", *words], {"VECHE_SDK": kind})
    if ok := re.search(r"^OK \((\d+) tests?", done.stdout, re.MULTILINE):
        passed, failed, skipped = int(ok[1]), 0, 0
    else:
        failed = sum(number(name, done.stdout) for name in ("Errors", "Failures", "Warnings", "Risky"))
        skipped = number("Skipped", done.stdout) + number("Incomplete", done.stdout)
        passed = max(number("Tests", done.stdout) - failed - skipped, 0)
    is_good = done.returncode == 0
    if not is_good:
        print(done.stdout)
        failed = max(failed, 1)
    print(f"phpunit, {kind}: {passed} passed, {failed} failed, {skipped} ignored", flush=True)
    return is_good


def check(name, command):
    done = run(command)
    if done.returncode == 0:
        print(f"ok      {name}", flush=True)
    else:
        print(f"{done.stdout}\n{name}: 1 failed", flush=True)
    return done.returncode == 0


def main():
    words = sys.argv[1:]
    results = [] if words else [check(*one) for one in CHECKS]
    # The tests run in parallel, since they mostly wait for servers that start, stop or are slow.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        results += pool.map(lambda kind: phpunit(kind, words), ("sources", "single"))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
