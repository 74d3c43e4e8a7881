"""The rounds of one scenario and the verdicts on them."""

from harness.stats import UNDECIDED, Comparison, Control, Verdict

CONTROL = "A/A control"


class Measurement:
    """Interleaved rounds of a scenario.

    Each round runs every subject once, and the program under test a second time as the A/A control. These two runs are
    the first and the last of the round. Every other round runs in reverse order, so that a machine which slows down
    steadily favours neither side. `present` maps labels to subjects, the program under test first; `run` measures one
    subject and returns a dict with `value`.
    """

    def __init__(self, scenario, present, run):
        self.scenario, self.present, self.run = scenario, present, run
        self.ours = next(iter(present))
        self.rounds = {label: [] for label in [*present, CONTROL]}

    @property
    def pairs(self):
        return len(self.rounds[self.ours])

    def take(self, rounds):
        for turn in range(self.pairs, self.pairs + rounds):
            order = [*self.present, CONTROL]
            for label in order if turn % 2 == 0 else reversed(order):
                subject = self.present[self.ours if label == CONTROL else label]
                if subject.rounds is None or turn < subject.rounds:
                    self.rounds[label].append(self.run(subject))

    @property
    def control(self):
        return Control(tuple(self._ratios(CONTROL, self.ours)))

    def verdicts(self):
        """Returns rows of a label and a Verdict each."""
        control, rows = self.control, []
        if self.scenario.target is not None:
            values = [run["value"] for run in self.rounds[self.ours]]
            rows.append((self.ours, Verdict(values, self.scenario.target, control)))
        for label, subject in list(self.present.items())[1:]:
            ratios = self._ratios(self.ours, label)
            if self.scenario.compares_versions:
                rows.append((f"ratio to {label}", Comparison(ratios, control)))
            else:
                rows.append((f"ratio to {label}", Verdict(ratios, subject.target, control)))
        return rows

    @property
    def undecided(self):
        return any(verdict.verdict == UNDECIDED for _, verdict in self.verdicts())

    def _ratios(self, label, other):
        return [one["value"] / two["value"] for one, two in zip(self.rounds[label], self.rounds[other])]
