"""Tests the comparison of instruction counts, with counts whose result is known."""

import dataclasses
import tomllib
import unittest

from harness.counts import Baseline, Machine, changes, operations, problems, spread, sum_growth

MACHINE = Machine("a CPU", "rustc 1", "glibc 2", "valgrind 3")
COUNTS = {"echo": 1000, "publish": 9000}
BASELINE = Baseline(MACHINE, "the first", COUNTS, COUNTS)


class Judgement(unittest.TestCase):
    def test_the_same_counts_pass(self):
        self.assertEqual(problems(BASELINE, COUNTS), [])

    def test_two_percent_of_a_path_pass_and_three_do_not(self):
        self.assertEqual(problems(BASELINE, COUNTS | {"echo": 1020}), [])
        found = problems(BASELINE, COUNTS | {"echo": 1030})
        self.assertEqual(found, ["echo has grown by 3.0%: 1,000 -> 1,030"])

    def test_a_path_that_shrinks_passes(self):
        self.assertEqual(problems(BASELINE, COUNTS | {"echo": 10}), [])

    def test_small_steps_add_up(self):
        grown = Baseline(MACHINE, "many steps", {"echo": 1060, "publish": 9450}, COUNTS)
        self.assertAlmostEqual(sum_growth(COUNTS, grown.counts), 0.051)
        self.assertEqual(len(problems(grown, grown.counts)), 1)

    def test_a_path_can_not_come_or_go_unseen(self):
        self.assertEqual(problems(BASELINE, COUNTS | {"new": 5}), ["new is not in the file"])
        self.assertEqual(problems(BASELINE, {"echo": 1000}), ["publish is in the file and was not counted"])

    def test_changes_name_every_path(self):
        found = changes({"gone": 1, "echo": 2}, {"echo": 3, "new": 4})
        self.assertEqual([change.path for change in found], ["echo", "new", "gone"])
        self.assertEqual([change.growth for change in found], [0.5, None, None])

    def test_the_spread_of_runs_is_by_path(self):
        self.assertEqual(spread([{"echo": 100}, {"echo": 102}, {"echo": 101}]), {"echo": 2 / 101})


class File(unittest.TestCase):
    def test_it_comes_back_as_it_was(self):
        baseline = dataclasses.replace(BASELINE, reason='a "reason" with a \\')
        self.assertEqual(Baseline.of(tomllib.loads(baseline.to_toml())), baseline)

    def test_an_update_keeps_the_counts_that_the_sum_began_with(self):
        renewed = BASELINE.renewed(MACHINE, "a new path", {"echo": 1010, "publish": 9000, "new": 7})
        self.assertEqual(renewed.first, {"echo": 1000, "publish": 9000, "new": 7})

    def test_on_another_machine_it_begins_anew(self):
        other = dataclasses.replace(MACHINE, rustc="rustc 2")
        self.assertEqual(BASELINE.renewed(other, "a new rustc", {"echo": 1}).first, {"echo": 1})
        self.assertEqual(other.differences(MACHINE), ["rustc: rustc 1, here rustc 2"])

    def test_operations_are_read_from_the_source(self):
        source = 'pub const OPERATIONS: &[(&str, u32)] = &[\n    ("echo_20", 200),\n    ("idle", 10),\n];\n("no", 1)'
        self.assertEqual(operations(source), {"echo_20": 200, "idle": 10})


if __name__ == "__main__":
    unittest.main()
