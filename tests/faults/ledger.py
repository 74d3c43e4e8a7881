"""Records the publications, and which of them each subscriber has received.

The publications of a channel have consecutive numbers: the publisher sends a number only after the previous one is
acknowledged. A subscriber that misses a number without being notified has therefore lost it."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Ledger:
    acknowledged: dict = field(default_factory=dict)  # the last acknowledged number of each channel
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    reused: int = 0
    deliveries: int = 0
    places: dict = field(default_factory=dict)  # the published number by (channel, epoch, offset)
    examples: list = field(default_factory=list)

    def note(self, kind, words):
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < 10:
            self.examples.append(f"{kind}: {words}")

    def place(self, channel, epoch, offset, number):
        """Checks that an offset of an epoch stands for the same publication for all subscribers."""
        first = self.places.setdefault((channel, epoch, offset), number)
        if first != number:
            self.note("reused", f"{channel} {epoch}:{offset} is {first} and {number}")


class Account:
    """The publications that one subscriber has received since it subscribed or was last notified of a loss."""

    def __init__(self, ledger, name, channel):
        self.ledger, self.name, self.channel = ledger, name, channel
        self.epoch, self.offset, self.last = None, 0, None
        self.seen = set()
        self.notified = 0

    def begin(self, epoch, offset):
        """Starts a new record after a subscription without recovery, or after a notice that publications are lost."""
        self.epoch, self.offset, self.last = epoch, offset, None
        self.seen.clear()

    def receive(self, offset, number):
        self.ledger.deliveries += 1
        self.ledger.place(self.channel, self.epoch, offset, number)
        where = f"{self.name} in {self.channel}: {number} at {self.epoch}:{offset} behind {self.last} at {self.offset}"
        if number in self.seen:
            self.ledger.note("doubled", where)
        elif self.last is not None and number < self.last:
            self.ledger.note("reordered", where)
        elif self.last is not None and number > self.last + 1:
            self.ledger.lost += number - self.last - 2
            self.ledger.note("lost", where)
        elif offset != self.offset + 1:
            self.ledger.note("reordered", "the offset: " + where)
        self.seen.add(number)
        self.last = max(number, self.last or 0)
        self.offset = offset

    def is_complete(self):
        return self.last == self.ledger.acknowledged.get(self.channel)

    def close(self):
        """Counts the publications that are still missing after the last one as lost."""
        final = self.ledger.acknowledged.get(self.channel, 0)
        missing = final - (self.last or 0)
        if missing > 0:
            self.ledger.lost += missing - 1
            self.ledger.note("lost", f"{self.name} in {self.channel}: the last is {self.last} of {final}")


class Attempts:
    """Statistics of the attempts to publish."""

    def __init__(self):
        self.errors = Counter()
        self.longest = 0.0
        self.overdue = 0
