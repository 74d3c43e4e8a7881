"""Tests the verdicts, with figures whose result is known: `python3 -m unittest discover -s bench -t bench`."""

import random
import unittest
from types import SimpleNamespace

from harness.measurement import CONTROL, Measurement
from harness.stats import MET, MISSED, UNDECIDED, Comparison, Control, Verdict, interval

QUIET = Control((1.0,) * 15)


def spread(middle, deviation, count=15):
    """Returns evenly spaced values whose median is `middle` and whose ends are `deviation` away from it."""
    step = 2 * deviation / (count - 1)
    return [middle - deviation + step * place for place in range(count)]


class Intervals(unittest.TestCase):
    def test_the_interval_of_fifteen_leaves_out_three_on_each_side(self):
        self.assertEqual(interval(list(range(15))), (3, 11))

    def test_below_six_values_it_is_the_range(self):
        self.assertEqual(interval([3, 1, 2]), (1, 3))

    def test_it_holds_the_true_median_in_about_95_of_100_runs(self):
        chance = random.Random(7)
        held = 0
        for _ in range(2000):
            low, high = interval([chance.gauss(1, 0.1) for _ in range(15)])
            held += low <= 1 <= high
        self.assertGreater(held / 2000, 0.94)


class Verdicts(unittest.TestCase):
    def word(self, values, target=1.0, control=QUIET):
        return Verdict(values, target, control).verdict

    def test_met(self):
        self.assertEqual(self.word(spread(0.97, 0.05)), MET)
        self.assertEqual(self.word(spread(1.0, 0.08)), MET, "the median may be the target")

    def test_an_interval_that_only_holds_the_target_is_not_met(self):
        self.assertEqual(self.word(spread(1.03, 0.1)), UNDECIDED, "the median is above the target")
        self.assertEqual(self.word(spread(0.95, 0.3)), UNDECIDED, "the upper end is more than 5 % above it")

    def test_missed_only_when_the_whole_interval_lies_above(self):
        self.assertEqual(self.word(spread(1.2, 0.1)), MISSED)
        self.assertEqual(self.word(spread(1.05, 0.1)), UNDECIDED)

    def test_fewer_than_fifteen_pairs_decide_nothing(self):
        verdict = Verdict(spread(0.5, 0.01, 14), 1.0, QUIET)
        self.assertEqual(verdict.verdict, UNDECIDED)
        self.assertEqual(verdict.word(), "undecided (14 of 15 pairs)")

    def test_a_noisy_control_leaves_everything_undecided(self):
        noisy = Control(tuple(spread(1.0, 0.12)))
        self.assertFalse(noisy.quiet)
        for values in (spread(0.5, 0.01), spread(2.0, 0.01)):
            self.assertEqual(self.word(values, control=noisy), UNDECIDED)
        self.assertEqual(Verdict(spread(0.5, 0.01), 1.0, noisy).word(), "undecided (noise)")

    def test_a_control_that_is_off_centre_is_noise_too(self):
        self.assertFalse(Control(tuple(spread(1.06, 0.01))).quiet)
        self.assertTrue(Control(tuple(spread(1.0, 0.04))).quiet)

    def test_the_verdict_of_a_run_without_a_control_says_so(self):
        self.assertEqual(Verdict(spread(0.5, 0.01), 1.0).word(), "met (no A/A control)")

    def test_without_a_target_there_is_no_verdict(self):
        self.assertEqual(Verdict([1.0] * 15).word(), "for information")


class Versions(unittest.TestCase):
    def test_slower_when_the_lower_end_is_above_two_per_cent(self):
        self.assertEqual(Comparison(spread(1.05, 0.02), QUIET).word(), "slower")
        self.assertEqual(Comparison(spread(1.0, 0.03), QUIET).word(), "not slower")
        self.assertEqual(Comparison(spread(1.04, 0.05), QUIET).word(), "undecided")


class Measurements(unittest.TestCase):
    """Rounds of programs whose cost is a function of the round."""

    def measurement(self, ours, peer, target=1.0):
        costs, self.order = {"ours": iter(ours), "peer": iter(peer)}, []

        def run(subject):
            self.order.append(subject.name)
            return {"value": next(costs[subject.name])}

        subjects = {name: SimpleNamespace(name=name, rounds=None, target=target) for name in ("ours", "peer")}
        return Measurement(SimpleNamespace(target=None, compares_versions=False), subjects, run)

    def test_each_round_runs_ours_twice_and_every_other_round_backwards(self):
        measurement = self.measurement([1.0] * 8, [2.0] * 4)
        measurement.take(4)
        self.assertEqual(self.order, ["ours", "peer", "ours"] * 4)
        self.assertEqual([len(runs) for runs in measurement.rounds.values()], [4, 4, 4])

    def test_a_machine_that_slows_down_steadily_does_not_move_the_control(self):
        slowing = [1.0 * 1.01**turn for turn in range(60)]
        measurement = self.measurement(slowing, slowing)
        measurement.take(16)
        low, high = measurement.control.interval
        self.assertLess(abs((low + high) / 2 - 1), 0.002)

    def test_an_overlapping_result_stays_undecided_as_more_pairs_come(self):
        chance = random.Random(3)
        measurement = self.measurement([1.0] * 120, (1 + chance.uniform(-0.2, 0.19) for _ in range(60)))
        measurement.take(15)
        self.assertTrue(measurement.undecided)
        measurement.take(45)
        self.assertEqual(measurement.pairs, 60)

    def test_the_verdict_is_on_the_ratio_of_the_same_round(self):
        swings = [1.0, 3.0, 0.5] * 5
        doubled = [value for swing in swings for value in (swing, swing)]
        measurement = self.measurement(doubled, [2 * swing for swing in swings])
        measurement.take(15)
        ((label, verdict),) = measurement.verdicts()
        self.assertEqual((label, verdict.median, verdict.verdict), ("ratio to peer", 0.5, MET))
        self.assertIn(CONTROL, measurement.rounds)


if __name__ == "__main__":
    unittest.main()
