"""The judgement: the median of paired ratios with an interval that assumes nothing about their distribution."""

from math import comb
from statistics import median


def interval(values):
    """The 95 % interval of the median by order statistics (binomial), or the whole range below six values."""
    ordered = sorted(values)
    n = len(ordered)
    below, rank = 0.0, 0
    while below + comb(n, rank) / 2**n <= 0.025:
        below += comb(n, rank) / 2**n
        rank += 1
    first = max(rank - 1, 0)
    return ordered[first], ordered[n - 1 - first]


class Verdict:
    """A median, its interval and whether a target is met: the interval holds the target or lies below it."""

    def __init__(self, values, target=None):
        self.values = list(values)
        self.median = median(self.values)
        self.low, self.high = interval(self.values)
        self.target = target

    @property
    def met(self):
        return None if self.target is None else self.low <= self.target

    def word(self):
        return {None: "for information", True: "met", False: "NOT MET"}[self.met]

    def as_dict(self):
        return {
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "target": self.target,
            "met": self.met,
            "values": self.values,
        }
