"""The faults, each with what is required under it. A fault is a coroutine that breaks something, waits, and repairs it."""

import asyncio
import contextlib
import os
import pathlib
import shutil
import subprocess
import time
from dataclasses import dataclass

from ledger import call
from machines import NODES

AOF = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")
MEMORY = ("--save", "")
# Debian's default, with a file that only SAVE writes.
RDB = ("--save", "3600 1000000")


@dataclass(frozen=True)
class Fault:
    """`tells`: whether clients have to learn that they could not recover (True), must not (False), or may (None)."""

    name: str
    breaks: object
    options: tuple = AOF
    tells: object = False
    disconnects: bool = False
    has_sentinel: bool = False
    is_on_tmpfs: bool = False


async def kill_node(run):
    """A node and its supervisor die; the node comes back."""
    node, began = run.cluster.nodes[0], time.monotonic()
    victims = [each for each in run.crowd.subscribers if each.node is node]
    node.kill()
    is_back = lambda each: each.is_subscribed and each.node is not node
    await run.crowd.wait("clients on other nodes", lambda: all(map(is_back, victims)), 30)
    took = time.monotonic() - began
    run.note(f"elsewhere {took:.1f} s")
    run.require(f"clients were connected elsewhere after {took:.1f} s", took < run.reconnect_s)
    await right_presence(run, run.cluster.nodes[1], began)
    await asyncio.sleep(max(0, began + run.seconds(30) - time.monotonic()))
    await asyncio.to_thread(node.start)
    await asyncio.sleep(3)


async def right_presence(run, node, began):
    """Presence has each subscriber once, 10 s after a node died."""
    channels = {each.channel for each in run.crowd.subscribers}
    wrong = {}
    while time.monotonic() < began + 30:
        wrong = {}
        for channel in channels:
            answer = await call(node, "presence_stats", {"channel": channel})
            found = answer.get("result", {}).get("num_clients")
            present = sum(each.channel == channel and each.is_subscribed for each in run.crowd.subscribers)
            if found != present:
                wrong[channel] = (found, present)
        if not wrong:
            break
        await asyncio.sleep(0.2)
    took = time.monotonic() - began
    run.note(f"presence {took:.1f} s")
    # A look at all channels takes a moment, too.
    run.require(f"presence was right after {took:.1f} s: {wrong}", not wrong and took < 11)


def on_the_way(fault, seconds, number=0):
    """A fault of the network between one node and Redis."""

    async def breaks(run):
        run.relay(0, fault, number)
        await asyncio.sleep(run.seconds(seconds))
        run.relay(0, "none")

    return breaks


async def truncate(run):
    """Each connection ends within a reply, again and again."""
    for _ in range(5):
        run.relay(1, "truncate")
        await asyncio.sleep(0.5)
        run.relay(1, "none")
        await asyncio.sleep(1.5)


async def garbage(run):
    for node in range(NODES):
        run.relay(node, "garbage")
    await asyncio.sleep(run.seconds(10))
    for node in range(NODES):
        run.relay(node, "none")


async def restart(run):
    """Redis is killed and started again."""
    run.redis.kill()
    await asyncio.sleep(2)
    await asyncio.to_thread(run.redis.start)


async def old_file(run):
    """Redis is started from a file that is older than what clients have, and one node publishes before the others are back.
    Channels without a subscriber get publications, too."""
    quiet = await leave_some(run)
    # Until nodes have forgotten the channel that nobody uses.
    await asyncio.sleep(20)
    run.redis.kill()
    for node in (1, 2):
        run.relay(node, "cut")
    await asyncio.to_thread(run.redis.start)
    await asyncio.sleep(5)
    for node in (1, 2):
        run.relay(node, "none")
    await quiet()


async def leave_some(run):
    """Saves Redis' file between two publications to a channel that nobody subscribes to. Returns what publishes to it again
    and reads what a client would recover."""
    node, number = run.cluster.nodes[2], 0
    channel = "quiet"

    async def publish(count):
        nonlocal number
        for _ in range(count):
            number += 1
            while "result" not in await call(node, "publish", {"channel": channel, "data": number, "idempotency_key": f"q{number}"}):
                await asyncio.sleep(0.2)

    await publish(10)
    await asyncio.to_thread(run.redis.call, "SAVE")
    await publish(10)
    before = (await call(node, "history", {"channel": channel}))["result"]

    async def come_back():
        await publish(20)
        since = {"offset": before["offset"], "epoch": before["epoch"]}
        answer = await call(node, "history", {"channel": channel, "limit": -1, "since": since})
        found = [each["data"] for each in answer.get("result", {}).get("publications", [])]
        run.require(
            f"who comes back to a channel that nobody used gets {found} behind 20",
            "error" in answer or found == list(range(21, 41)),
        )

    return come_back


async def flush(run):
    await asyncio.to_thread(run.redis.call, "FLUSHALL")


def evict(kind):
    """The keys of a kind vanish, as a server with an eviction policy does it."""

    async def breaks(run):
        keys = (await asyncio.to_thread(run.redis.call, "KEYS", f"veche:{kind}:ledger*")).split()
        run.require(f"keys of streams and positions exist: {keys}", keys)
        await asyncio.to_thread(run.redis.call, "DEL", *keys[: len(keys) // 2 or 1])

    return breaks


async def fail_over(run):
    run.cluster.redis.kill()
    await asyncio.sleep(run.seconds(15))
    role = await asyncio.to_thread(run.cluster.replica.call, "ROLE")
    run.require(f"the replica was promoted: {role.split()[:1]}", role.startswith("master"))


async def sleep(run):
    await asyncio.to_thread(run.redis.call, "DEBUG", "SLEEP", "5")


async def out_of_memory(run):
    await asyncio.to_thread(run.redis.call, "CONFIG", "SET", "maxmemory", "1")
    await asyncio.sleep(run.seconds(10))
    await asyncio.to_thread(run.redis.call, "CONFIG", "SET", "maxmemory", "0")


async def read_only(run):
    await asyncio.to_thread(run.redis.call, "REPLICAOF", "127.0.0.1", "1")
    await asyncio.sleep(run.seconds(10))
    await asyncio.to_thread(run.redis.call, "REPLICAOF", "NO", "ONE")


async def disk_full(run):
    """No room for the file: Redis refuses writes until one has been written."""
    if os.geteuid() != 0:
        return
    folder = pathlib.Path(run.redis.folder) / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True)
    try:
        with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
        await asyncio.to_thread(run.redis.call, "CONFIG", "SET", "dir", str(folder))
        await asyncio.to_thread(run.redis.call, "BGSAVE")
        await asyncio.sleep(run.seconds(10))
        status = await asyncio.to_thread(run.redis.call, "INFO", "persistence")
        run.require("Redis could not write its file", "rdb_last_bgsave_status:err" in status)
        await asyncio.to_thread(run.redis.call, "CONFIG", "SET", "dir", str(run.redis.folder))
        await asyncio.to_thread(run.redis.call, "BGSAVE")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)


FAULTS = (
    Fault("node killed", kill_node, disconnects=True),
    Fault("cut 10 s", on_the_way("cut", 10)),
    Fault("stalled 10 s", on_the_way("stall", 10)),
    Fault("half open 10 s", on_the_way("half-open", 10)),
    Fault("delayed 200 ms", on_the_way("delay", 10, 0.2)),
    Fault("truncated", truncate),
    Fault("restart, AOF always", restart),
    Fault("restart, old RDB", old_file, RDB, tells=True),
    Fault("restart, nothing kept", restart, MEMORY, tells=True),
    Fault("FLUSHALL", flush, tells=True),
    Fault("streams evicted", evict("s"), tells=None),
    Fault("positions evicted", evict("m"), tells=True),
    Fault("failover", fail_over, MEMORY, tells=True, has_sentinel=True),
    Fault("DEBUG SLEEP 5", sleep),
    Fault("garbage", garbage),
    Fault("OOM", out_of_memory),
    Fault("READONLY", read_only, tells=None),
    Fault("disk full", disk_full, RDB),
)
