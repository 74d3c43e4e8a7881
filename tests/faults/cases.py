"""The faults: how each is caused, and its expected effects."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from .stores import until
from .world import now

# Maximum time in seconds until clients of a dead node are connected to another node.
ELSEWHERE_S = 3.0
# Maximum time in seconds until the members of a dead node are gone from presence: the node's lease
# plus the interval at which other nodes check it.
PRESENCE_S = 12.0
# Duration of a stall in seconds. It is longer than a node waits for a reply.
STALLED_S = 10.0


@dataclass
class Case:
    name: str
    make: Callable
    # How Redis persists, see `stores.RULES`.
    rule: str = "aof"
    sentinel: bool = False
    # Whether memory growth and echo latency are checked. They are not checked if a node is killed.
    has_all_nodes: bool = True
    # Whether nodes have to log the fault. Nodes do not notice that Redis only loses data, or
    # replies late but before their timeout.
    is_logged: bool = True


@dataclass
class Outcome:
    """The expected effect of a fault. Exactly the subscribers in `notified` must be notified of lost publications; if
    it is `None`, any subscriber may be notified."""

    notified: list | None
    problems: tuple = ()
    words: str = ""


async def kill_node(world, hold):
    """Kills a node with its supervisor, waits until its clients are connected to other nodes, and starts the node
    again."""
    node = world.nodes[0]
    gone = [each for each in world.subscribers if each.node == 0]
    channel = world.channels[0]
    began = now()
    node.kill()
    await until("all clients elsewhere", lambda: all(each.back_after for each in gone))
    slowest = max(each.back_after[-1] for each in gone)
    count = len(world.of(channel))

    async def is_correct():
        return [await world.members(channel, other) for other in world.nodes[1:]] == [count, count]

    await until("presence without the dead node", is_correct)
    presence = now() - began
    await asyncio.sleep(max(0.0, began + hold * 3 - now()))
    await node.start()
    await until("the node to be known again", world.all_nodes_are_known)
    problems = []
    if slowest > ELSEWHERE_S:
        problems.append(f"a client was connected elsewhere after {slowest:.1f} s")
    if presence > PRESENCE_S:
        problems.append(f"presence was correct after {presence:.1f} s")
    words = f"{len(gone)} clients elsewhere within {slowest:.1f} s, presence correct after {presence:.1f} s"
    return Outcome([], tuple(problems), words)


def between(fault, seconds=0.0):
    """Returns a function that applies a fault to the relays of two nodes, and then to those of all nodes, for at least
    `seconds` each time."""

    async def make(world, hold):
        hold = max(hold, seconds)
        world.set(fault, [0, 1])
        await asyncio.sleep(hold)
        world.set(None)
        await asyncio.sleep(hold / 2)
        world.set(fault)
        await asyncio.sleep(hold)
        world.set(None)
        return Outcome([])

    return make


async def restart(world, _hold):
    """Kills Redis and restarts it with its stored data."""
    world.redis.kill()
    await asyncio.sleep(1)
    await world.redis.start()
    return Outcome([])


async def restart_behind(world, hold):
    """Restarts Redis without the latest publications, or without any. One node publishes before the others
    reconnect."""
    if world.rule == "rdb":
        await world.redis.do("save")
    await published_everywhere(world)
    await asyncio.sleep(hold / 2)
    world.redis.kill()
    world.set("cut", [1, 2])
    await world.redis.start()
    await asyncio.sleep(hold / 2)
    world.set(None)
    return Outcome(world.subscribers)


async def flush(world, _hold):
    await published_everywhere(world)
    await world.redis.do("flushall")
    return Outcome(world.subscribers)


async def evict_meta(world, _hold):
    channel = world.channels[0]
    await world.redis.do("del", f"veche:m:{channel}", expected="1")
    return Outcome(world.of(channel))


async def evict_stream(world, _hold):
    """Evicts publications while the clients that missed them are disconnected. The clients must be notified when they
    reconnect."""
    channel = world.channels[0]
    away = world.of(channel)[::2]
    for subscriber in away:
        subscriber.leave()
    await asyncio.sleep(0.2)
    before = world.ledger.acknowledged[channel]
    await until("a publication that they miss", lambda: world.ledger.acknowledged[channel] > before + 1)
    await world.redis.do("del", f"veche:s:{channel}", expected="1")
    for subscriber in away:
        subscriber.come_back()
    return Outcome(away)


async def failover(world, _hold):
    """Kills the primary. The replica, which lacks the latest writes, is promoted."""
    world.redis.kill()
    world.relays[0].set("cut")
    await is_promoted(world)
    return Outcome(world.subscribers)


async def is_promoted(world):
    async def role():
        return "role:master" in await world.replica.ask("info", "replication")

    await until("the promotion", role)


async def sleep(world, _hold):
    await world.redis.ask("debug", "sleep", "5")
    return Outcome([])


async def refuse_memory(world, hold):
    await world.redis.do("config", "set", "maxmemory", "1")
    await asyncio.sleep(hold)
    await world.redis.do("config", "set", "maxmemory", "0")
    return Outcome([])


async def refuse_writes(world, hold):
    """Makes the primary a replica for a while and then a primary again, which counts as a promotion."""
    await world.redis.do("replicaof", "127.0.0.1", "1")
    await asyncio.sleep(hold)
    await world.redis.do("replicaof", "no", "one")
    return Outcome(world.subscribers)


async def fill_disk(world, hold):
    """Prevents the files of Redis from growing, as on a full disk."""
    world.redis.limit_files(4096)
    await asyncio.sleep(hold)
    world.redis.limit_files(None)
    return Outcome([])


async def published_everywhere(world):
    """Waits until each channel has had another publication."""
    acknowledged = world.ledger.acknowledged
    before = dict(acknowledged)
    await until("publications", lambda: all(acknowledged[each] > before[each] for each in before))


CASES = (
    Case("node killed", kill_node, has_all_nodes=False, is_logged=False),
    Case("connections cut", between("cut")),
    Case("connections stalled", between("stall", STALLED_S)),
    # Nothing fails, so there is nothing to log.
    Case("connections delayed", between("delay"), is_logged=False),
    Case("connections half open", between("half_open")),
    Case("Redis restarted, AOF always", restart),
    Case("Redis restarted from an old RDB file", restart_behind, rule="rdb"),
    Case("Redis restarted without persistence", restart_behind, rule="none"),
    Case("FLUSHALL", flush, is_logged=False),
    Case("meta key evicted", evict_meta, is_logged=False),
    Case("stream evicted", evict_stream, is_logged=False),
    Case("failover by Sentinel", failover, sentinel=True),
    Case("Redis sleeps for 5 s", sleep, is_logged=False),
    Case("Redis answers garbage", between("garbage")),
    Case("replies cut off", between("truncate")),
    Case("Redis refuses writes: OOM", refuse_memory),
    Case("Redis refuses writes: READONLY", refuse_writes),
    Case("disk of Redis full", fill_disk, rule="everysec"),
)
