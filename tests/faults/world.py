"""Three nodes on one Redis, with relays between them, subscribers, publishers and a ledger."""

import asyncio
import time
from collections import Counter

from .clients import Subscriber, publish
from .ledger import Attempts, Ledger
from .nodes import Echo, Node
from .relay import Relay
from .stores import Redis, Sentinel, port, until

NODES = 3
# Number of publications per channel and second.
RATE = 3
REPLICA_LAG_S = 0.1


class World:
    """All parts of one test. `rule` selects how Redis persists; with `sentinel` there are also a lagging replica and a
    Sentinel."""

    def __init__(self, rule, sentinel, subscribers, channels):
        self.redis = Redis(rule)
        self.replica = Redis(rule) if sentinel else None
        self.sentinel = None
        self.rule, self.count = rule, subscribers
        self.channels = [f"news{number}" for number in range(channels)]
        self.ledger, self.attempts, self.unsubscribed = Ledger(), Attempts(), Counter()
        self.relays, self.nodes, self.subscribers, self.echoes = [], [], [], []
        self.is_silent = self.is_over = False
        self.tasks, self.publishers, self.failures = set(), [], []

    def begin(self, coroutine):
        """Runs a coroutine in the background; an error in it fails the case."""
        task = asyncio.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.done)
        return task

    def done(self, task):
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() and not self.is_over:
            self.failures.append(f"{type(task.exception()).__name__}: {task.exception()}")

    async def start(self):
        await self.redis.start()
        if self.replica:
            await self.start_replica()
            urls = [f"redis+sentinel://127.0.0.1:{self.sentinel.port}/main"] * NODES
        else:
            self.relays = [Relay(port(), self.redis.port) for _ in range(NODES)]
            for relay in self.relays:
                await relay.start()
            urls = [f"redis://127.0.0.1:{relay.port}" for relay in self.relays]
        self.nodes = [Node(f"node{number}", url) for number, url in enumerate(urls)]
        await asyncio.gather(*(node.start() for node in self.nodes))
        await until("three nodes that know each other", self.all_nodes_are_known)
        self.subscribers = [Subscriber(self, number) for number in range(self.count)]
        for subscriber in self.subscribers:
            self.begin(subscriber.connect())
        await until("all subscribers", self.all_are_subscribed)
        self.echoes = [Echo(node) for node in self.nodes]
        for echo in self.echoes:
            self.begin(echo.run())
        self.publishers = [self.begin(publish(self, name, 1 / RATE, at)) for at, name in enumerate(self.channels)]
        await until("the first publications", lambda: len(self.ledger.acknowledged) == len(self.channels))

    async def start_replica(self):
        """Starts a replica whose data from the primary is delayed. The nodes use the same relay, but without the delay,
        because the primary must have one address for all."""
        relay = Relay(port(), self.redis.port, REPLICA_LAG_S)
        self.relays = [relay]
        await relay.start()
        await self.replica.start()
        await self.redis.do("config", "set", "repl-diskless-sync-delay", "0")
        await self.replica.do("replicaof", "127.0.0.1", str(relay.port))

        async def is_synchronised():
            return "master_link_status:up" in await self.replica.ask("info", "replication")

        await until("a replica that has everything", is_synchronised)
        self.sentinel = Sentinel(relay.port)
        await self.sentinel.start()

        async def knows_replica():
            return "num-slaves\n1" in await self.sentinel.ask("sentinel", "master", "main")

        await until("a Sentinel that knows the replica", knows_replica)

    async def all_nodes_are_known(self):
        infos = [await node.call("info", {}) for node in self.nodes]
        return all(len(info["result"]["nodes"]) == NODES for info in infos)

    def all_are_subscribed(self):
        return all(subscriber.is_subscribed for subscriber in self.subscribers)

    def set(self, fault, nodes=range(NODES)):
        for number in nodes:
            self.relays[number].set(fault)

    async def members(self, channel, node):
        """Returns the number of connections in a channel, as reported by a node."""
        answer = await node.call("presence_stats", {"channel": channel})
        return answer.get("result", {}).get("num_clients")

    def of(self, channel):
        return [subscriber for subscriber in self.subscribers if subscriber.channel == channel]

    def rest(self):
        """Returns the subscribers that have not yet received all publications."""
        return [each for each in self.subscribers if not each.account.is_complete()]

    async def settle(self, seconds, due):
        """Waits for the due notices, lets the publishers continue for `seconds`, stops them, and waits until all
        publications have arrived."""
        try:
            await until("all notices", lambda: all(each.account.notified for each in due))
            await until("all subscribers again", self.all_are_subscribed)
            before = dict(self.ledger.acknowledged)
            await asyncio.sleep(seconds)
            acknowledged = self.ledger.acknowledged
            # One new acknowledgement may be for a publication sent before the copy, so each channel needs two.
            await until("publications to all channels", lambda: all(acknowledged[each] > before[each] + 1 for each in before))
            self.is_silent = True
            _, late = await asyncio.wait(self.publishers, timeout=30)
            if late:
                raise TimeoutError(f"{len(late)} publishers are without an acknowledgement")
            await until("what was published", lambda: not self.rest())
        except TimeoutError as error:
            self.failures.append(str(error))
        for subscriber in self.subscribers:
            subscriber.account.close()

    async def stop(self):
        self.is_over = self.is_silent = True
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for subscriber in self.subscribers:
            if subscriber.connection:
                subscriber.connection.transport.abort()
        await asyncio.gather(*(asyncio.to_thread(node.stop) for node in self.nodes if node.is_up))
        for relay in self.relays:
            await relay.stop()
        for store in (self.sentinel, self.replica, self.redis):
            if store:
                store.stop()


def now():
    return time.monotonic()
