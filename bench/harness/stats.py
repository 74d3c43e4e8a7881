"""Evaluates paired ratios: their median, its 95 % interval, and one of three verdicts.

- met: the median is at or below the target and the interval's upper end at most 5 % above it.
- missed: the interval's lower end is above the target.
- undecided: anything else, fewer than 15 pairs, or a machine too noisy to judge on.

The noise of the machine is measured by the A/A control of the same run, which compares the program under test with
itself in the same rounds. If the interval of the control extends more than 5 % from 1, every verdict of the run is
undecided.
"""

from dataclasses import dataclass
from math import comb
from statistics import median

PAIRS_MIN = 15
PAIRS_MAX = 60
# Number of pairs added while a verdict is undecided. The confidence interval is evaluated only
# after 15, 30, 45 and 60 pairs, since each evaluation adds a chance of a wrong verdict.
PAIRS_STEP = 15
# The upper end of a confidence interval may be at most this multiple of the target.
MARGIN = 1.05
CONTROL_DEVIATION_MAX = 0.05
# A new version counts as slower than the old one if the lower end of the 95 % interval of their ratio is above
# this.
SLOWER = 1.02

MET, MISSED, UNDECIDED, INFORMATION = "met", "missed", "undecided", "for information"


def interval(values):
    """Returns the 95 % interval of the median by order statistics (binomial), or the whole range if there are fewer
    than six values."""
    ordered = sorted(values)
    n = len(ordered)
    below, rank = 0.0, 0
    while below + comb(n, rank) / 2**n <= 0.025:
        below += comb(n, rank) / 2**n
        rank += 1
    first = max(rank - 1, 0)
    return ordered[first], ordered[n - 1 - first]


@dataclass(frozen=True)
class Control:
    """The A/A control of a run: the ratios of the program to itself, one per round."""

    values: tuple

    @property
    def interval(self):
        return interval(self.values)

    @property
    def quiet(self):
        """Whether the machine is quiet enough for a verdict."""
        low, high = self.interval
        return low >= 1 - CONTROL_DEVIATION_MAX and high <= 1 + CONTROL_DEVIATION_MAX

    def __str__(self):
        low, high = self.interval
        noise = "" if self.quiet else ", wider than ±5 %: no verdict holds"
        return f"A/A control {median(self.values):.3f} [{low:.3f} – {high:.3f}]{noise}"


class Verdict:
    """A median, its interval and the verdict on a target. Without a target the figure is only for information.

    `control` is the run's `Control`. It is `None` for old runs without a control, which the text of the verdict
    mentions.
    """

    def __init__(self, values, target=None, control=None):
        self.values = list(values)
        self.median = median(self.values)
        self.low, self.high = interval(self.values)
        self.target, self.control = target, control

    @property
    def verdict(self):
        if self.target is None:
            return INFORMATION
        if len(self.values) < PAIRS_MIN or (self.control and not self.control.quiet):
            return UNDECIDED
        if self.low > self.target:
            return MISSED
        if self.median <= self.target and self.high <= self.target * MARGIN:
            return MET
        return UNDECIDED

    def word(self):
        """Returns the verdict as text, with the reason if it is unreliable or undecided."""
        if self.verdict in (MET, MISSED) and self.control is None:
            return f"{self.verdict} (no A/A control)"
        if self.verdict == UNDECIDED and len(self.values) < PAIRS_MIN:
            return f"undecided ({len(self.values)} of {PAIRS_MIN} pairs)"
        if self.verdict == UNDECIDED and self.control and not self.control.quiet:
            return "undecided (noise)"
        return self.verdict

    def as_dict(self):
        return {
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "target": self.target,
            "verdict": self.verdict,
            "values": self.values,
        }


class Comparison(Verdict):
    """Compares a new version with an old one by the same rule; `missed` means that the new version is slower."""

    WORDS = {MET: "not slower", MISSED: "slower", UNDECIDED: UNDECIDED}

    def __init__(self, values, control=None):
        super().__init__(values, SLOWER, control)

    def word(self):
        word = super().word()
        return word.replace(self.verdict, self.WORDS[self.verdict], 1)


def single(value, target):
    """Describes the only figure of a run relative to its target. A single figure has no interval, so it gets no
    verdict."""
    return "within the target in this run" if value <= target else f"{value / target:.2f} × the target in this run"
