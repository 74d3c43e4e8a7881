#!/usr/bin/env python3
"""Three nodes on one Redis under faults. Publishers wait for acknowledgements and repeat a publication with the same
idempotency key; subscribers recover, on another node if their node is gone. A ledger counts for each fault the
publications that were lost, duplicated or out of order, the clients that were notified of a loss, and those that were
disconnected.

`cluster.py` tests one fault, a different one each day; `cluster.py full` tests all faults with 1,000 subscribers.
`cluster.py WORD` and `cluster.py full WORD` test the faults whose names contain the word."""

import asyncio
import datetime
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "conformance"))

from faults import stores  # noqa: E402
from faults.cases import CASES, Outcome  # noqa: E402
from faults.world import World, now  # noqa: E402

# Number of subscribers, number of channels, and duration of a fault in seconds.
FULL = (1000, 20, 10.0)
SHORT = (150, 6, 4.0)
AFTER_S = 3.0

# Limit for the 99th percentile of an echo on the node that a fault affects. It allows for a busy
# machine, but not for a worker that waits for its engine: such a wait takes seconds.
ECHO_P99_MAX_S = 1.0
GROWTH_BYTES_MAX = 64 << 20
# Each node logs a problem once, not once per command.
LINES_MAX = 6

COLUMNS = ("fault", "publications", "deliveries", "lost", "doubled", "out of order", "offsets reused", "notified", "disconnected")
COLUMNS += ("attempts that failed", "longest publish", "echo p99 before and during")


def trouble(node):
    """Returns the warnings and errors about the engine in a node's log."""
    return [line for line in node.logs.splitlines() if "engine" in line and ("WARN" in line or "ERROR" in line)]


def judge(case, outcome, world, memory, p99):
    """Yields the deviations from the expected outcome of a fault."""
    ledger = world.ledger
    yield from world.failures
    yield from outcome.problems
    for kind in ("lost", "doubled", "reordered", "reused"):
        if count := getattr(ledger, kind):
            yield f"{count} {kind}"
    yield from ledger.examples
    notified = [each for each in world.subscribers if each.account.notified]
    if outcome.notified is not None:
        due = set(outcome.notified)
        if extra := set(notified) - due:
            yield f"{len(extra)} clients were notified of a loss that they did not have"
        if missing := due - set(notified):
            yield f"{len(missing)} of {len(due)} clients were not notified of their loss"
    if ends := [end for each in world.subscribers for end in each.ends]:
        yield f"{len(ends)} clients were disconnected: {ends[:3]}"
    if "no answer" in world.attempts.errors:
        yield f"{world.attempts.errors['no answer']} calls had no answer"
    if case.has_all_nodes:
        if growth := [grown for grown in memory if grown > GROWTH_BYTES_MAX]:
            yield f"a node grew by {max(growth) >> 20} MiB"
        if p99[1] > ECHO_P99_MAX_S:
            yield f"the 99th percentile of an echo was {p99[1] * 1000:.0f} ms"
    for node in world.nodes:
        lines = trouble(node)
        if case.is_logged and not lines:
            yield f"{node.name} has logged nothing of it"
        if len(lines) > LINES_MAX:
            yield f"{node.name} has logged {len(lines)} lines, such as {lines[-1]}"
        if "panicked at" in node.logs:
            yield f"{node.name} panicked"


def row(case, world, p99):
    ledger = world.ledger
    errors = sum(count for error, count in world.attempts.errors.items() if error != "node is down")
    notified = sum(each.account.notified > 0 for each in world.subscribers)
    ends = sum(bool(each.ends) for each in world.subscribers)
    echo = " and ".join(f"{seconds * 1000:.1f}" for seconds in p99) + " ms" if case.has_all_nodes else ""
    published = sum(ledger.acknowledged.values())
    counts = (published, ledger.deliveries, ledger.lost, ledger.doubled, ledger.reordered, ledger.reused, notified, ends, errors)
    return [case.name, *(f"{count:,}" for count in counts), f"{world.attempts.longest:.1f} s", echo]


async def run(case, size):
    """Tests one fault. Returns its row of the table, and its problems."""
    subscribers, channels, hold = size
    world = World(case.rule, case.sentinel, subscribers, channels)
    try:
        await world.start()
        await asyncio.sleep(AFTER_S)
        memory = [node.memory() for node in world.nodes]
        began = now()
        try:
            outcome = await case.make(world, hold)
        except TimeoutError as error:
            world.failures.append(str(error))
            outcome = Outcome(None)
        await world.settle(AFTER_S, outcome.notified or [])
        ended = now()
        grown = [node.memory() - before for node, before in zip(world.nodes, memory, strict=True)]
        p99 = [0.0, 0.0]
        if case.has_all_nodes:
            p99 = [max(echo.p99(*time) or 0.0 for echo in world.echoes) for time in ((0, began), (began, ended))]
    finally:
        await world.stop()
    problems = list(judge(case, outcome, world, grown, p99))
    print(f"{case.name}: {ended - began:.0f} s, {outcome.words} {dict(world.attempts.errors)} {dict(world.unsubscribed)}")
    for node in world.nodes:
        for line in trouble(node):
            print(f"  {node.name}: {line}")
    return row(case, world, p99), problems


def chosen(words, is_full):
    if words:
        return [case for case in CASES if any(word in case.name for word in words)]
    return CASES if is_full else [CASES[datetime.date.today().toordinal() % len(CASES)]]


async def main():
    is_full = sys.argv[1:2] == ["full"]
    words = sys.argv[1 + is_full :]
    size = FULL if is_full else SHORT
    if not shutil.which("redis-server"):
        print("SKIPPED: there is no redis-server")
        return 3
    if not stores.open_files(4 * size[0] + 500):
        print("SKIPPED: too few descriptors")
        return 3
    rows, failed = [], 0
    for case in chosen(words, is_full):
        line, problems = await run(case, size)
        rows.append(line)
        failed += bool(problems)
        for problem in problems:
            print(f"FAILED {case.name}: {problem}")
        sys.stdout.flush()
    print(f"\n| {' | '.join(COLUMNS)} |\n|---|{'---:|' * (len(COLUMNS) - 1)}")
    for line in rows:
        print(f"| {' | '.join(line)} |")
    print(f"\ncluster: {len(rows) - failed} passed, {failed} failed")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
