"""Reads the output of a step: the tests that passed, failed and were skipped, and the reasons of a failure."""

import re

# The exit status of a step that cannot run on this machine.
SKIPPED = 3


class Tally:
    """Tests that passed, failed and were skipped, and why they failed."""

    def __init__(self, passed=0, failed=0, skipped=0):
        self.passed, self.failed, self.skipped = passed, failed, skipped
        self.reasons = []

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.reasons += other.reasons

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def count(output, status):
    """Counts the tests in a step's output: `N passed` of cargo and of the suites here, `pass N` of node, `ok` of the
    examples. A step without such output counts as one test, and a failed step has at least one failure."""

    def total(pattern):
        return sum(int(number) for number in re.findall(pattern, output, re.MULTILINE))

    if status == SKIPPED:
        return Tally(skipped=1)
    # The "Ran N tests" of unittest includes failed tests.
    ran = total(r"^Ran (\d+) tests?") if status == 0 else 0
    passed = total(r"(\d+) passed") + ran + total(r"^(?:#|ℹ) pass (\d+)") + len(re.findall(r"^ok\s", output, re.MULTILINE))
    failed = total(r"(\d+) failed") + total(r"^(?:#|ℹ) fail (\d+)")
    # Rust's harness counts a test that skips itself as passed.
    by_themselves = min(len(re.findall(r"^SKIPPED test ", output, re.MULTILINE)), passed)
    passed -= by_themselves
    skipped = total(r"(\d+) ignored") + total(r"^(?:#|ℹ) skipped (\d+)") + by_themselves
    if status != 0:
        failed = max(failed, 1)
    return Tally(passed if passed or failed or by_themselves else 1, failed, skipped)


def reasons(name, output):
    """Picks the panics and errors from a failed step's output, for the last lines of the run."""
    said = re.findall(r"^(?:thread .* panicked at .*\n.*|error(?:\[|:).*|not ok .*|FAILED.*)", output, re.MULTILINE)
    return [f"{name}: {reason[:600]}" for reason in said[:5] or output.splitlines()[-1:]]


def remarks(output):
    """Returns the lines of a passed step to show in the summary: skipped parts and accepted deviations."""
    return [line for line in output.splitlines() if re.match("SKIPPED|accepted", line)]
