"""Tests of the pure parts of mutants.py: the sample, the patterns for cargo-mutants, and the verdict."""

import re
import tomllib
import unittest

from mutants import CRATES, FULL, ROOT, Crate, Result, Suite, commands, lanes_of, part_of, pattern, sample, status, table, verdicts

NAMES = [f"crates/hub/src/hub.rs:{line}:9: replace Hub::f{line} -> bool with {value}" for line in range(100) for value in ("true", "false")]
OWN = Suite(("veche-hub",))
HUB = Crate("hub", 50, 95, (OWN,))


def result(caught=0, missed=0, timeout=0, unviable=0, crate=HUB):
    counts = {"caught": caught, "missed": missed, "timeout": timeout, "unviable": unviable}
    found = {f"{verdict} {number}": verdict for verdict, count in counts.items() for number in range(count)}
    return Result(crate, len(found), found)


class Sample(unittest.TestCase):
    def test_a_seed_makes_one_sample(self):
        self.assertEqual(sample(NAMES, 30, 1), sample(list(reversed(NAMES)), 30, 1))
        self.assertEqual(len(set(sample(NAMES, 30, 1))), 30)
        self.assertNotEqual(sample(NAMES, 30, 1), sample(NAMES, 30, 2))

    def test_a_small_crate_is_taken_whole(self):
        self.assertEqual(sample(NAMES[:5], 30, 1), sorted(NAMES[:5]))

    def test_code_that_moves_changes_nothing(self):
        moved = [re.sub(r":(\d+):", lambda line: f":{int(line[1]) + 7}:", name, count=1) for name in NAMES]
        functions = [name.split("replace ")[1] for name in sample(NAMES, 30, 1)]
        self.assertEqual(sorted(name.split("replace ")[1] for name in sample(moved, 30, 1)), sorted(functions))

    def test_a_new_mutant_pushes_one_out_at_most(self):
        more = sample([*NAMES, "crates/hub/src/new.rs:1:1: replace new with ()"], 30, 1)
        self.assertGreaterEqual(len(set(more) & set(sample(NAMES, 30, 1))), 29)

    def test_mutants_that_differ_by_line_only_are_told_apart(self):
        same = [f"a.rs:{line}:5: replace < with == in f" for line in range(10)]
        self.assertEqual(len(set(sample(same, 4, 1))), 4)

    def test_the_shares_are_those_of_the_goal(self):
        shares = {crate.name: crate.share for crate in CRATES}
        self.assertEqual(FULL, 300)
        self.assertEqual(shares["hub"] + shares["worker"], 100)
        goals = {crate.name: crate.goal for crate in CRATES}
        self.assertEqual({name for name, goal in goals.items() if goal == 85}, {"frontends"})
        self.assertEqual({goal for name, goal in goals.items() if name != "frontends"}, {95})


class Names(unittest.TestCase):
    def test_a_pattern_matches_its_name_alone(self):
        for name in [
            "crates/a.rs:1:2: replace <impl Wake for Wait<'_>>::wake -> Option<(u32, [u8; 2])> with None",
            "crates/a.rs:1:2: replace * with + in f",
            r"crates/a.rs:1:2: replace f -> &str with \"x|y$\" {}^",
        ]:
            self.assertTrue(re.search(pattern(name), name))
            self.assertFalse(re.search(pattern(name), f"x{name}") or re.search(pattern(name), f"{name}x"))
        self.assertFalse(re.search(pattern("a.rs:1:2: replace + with - in f"), "aXrs:1:2: replace + with - in f"))

    def test_the_call_has_the_suite_and_each_mutant(self):
        suite = Suite(("veche-hub", "veche-sim"), ("--features=model",), ("--lib", "name"))
        call = commands(HUB, suite, ["a.rs:1:2: x", "b.rs:1:2: y"], "out")
        self.assertEqual(call[-3:], ["--", "--lib", "name"])
        for word in ["--package=veche-hub", "--test-package=veche-hub", "--test-package=veche-sim", "--features=model"]:
            self.assertIn(word, call)
        self.assertEqual(sum(word.startswith("--re=") for word in call), 2)
        self.assertNotIn("--", commands(HUB, OWN, ["a"], "out"))


class Excluded(unittest.TestCase):
    def test_patterns_name_types_and_functions_of_their_file(self):
        patterns = tomllib.loads((ROOT / ".cargo/mutants.toml").read_text())["exclude_re"]
        self.assertTrue(patterns)
        for excluded in patterns:
            path, mutant = excluded.removeprefix("^").replace("\\.", ".").split(":.*", 1)
            code = (ROOT / path).read_text()
            types = re.findall(r"\b[A-Z]\w{2,}", mutant.replace("None", ""))
            functions = "|".join("".join(names) for names in re.findall(r"::\(?([a-z0-9_|]+)\)?(?:\$| )|in ([a-z0-9_]+)\$", mutant))
            for definition in [
                *(rf"\b(impl|trait|enum)\b[^\n{{]*\b{name}\b" for name in types),
                *(rf"\bfn {name}\b" for name in functions.split("|") if name),
            ]:
                self.assertTrue(re.search(definition, code), f"{excluded}: there is no {definition}")


class Judgement(unittest.TestCase):
    def test_outcomes_without_the_baseline(self):
        outcomes = [
            {"scenario": "Baseline", "summary": "Success"},
            {"scenario": {"Mutant": {"name": "a"}}, "summary": "CaughtMutant"},
            {"scenario": {"Mutant": {"name": "b"}}, "summary": "MissedMutant"},
            {"scenario": {"Mutant": {"name": "c"}}, "summary": "Timeout"},
            {"scenario": {"Mutant": {"name": "d"}}, "summary": "Unviable"},
        ]
        self.assertEqual(verdicts(outcomes), {"a": "caught", "b": "missed", "c": "timeout", "d": "unviable"})

    def test_what_hangs_is_seen_and_what_can_not_be_built_does_not_count(self):
        self.assertEqual(result(caught=90, timeout=5, missed=5, unviable=300).percent, 95)
        self.assertIsNone(result(unviable=3).percent)

    def test_the_goal_is_met_or_not(self):
        self.assertEqual(status([result(caught=95, missed=5)]), 0)
        self.assertEqual(status([result(caught=94, missed=6)]), 1)
        self.assertEqual(status([result(caught=95, missed=5), result(caught=1, missed=9)]), 1)

    def test_what_was_not_measured_is_no_success(self):
        self.assertEqual(status([result(caught=95, missed=5), result()]), 2)
        self.assertEqual(status([result(caught=1, missed=5), result()]), 1)
        self.assertEqual(status([]), 2)

    def test_the_table_names_what_was_missed(self):
        lines = table([result(caught=1, missed=2), result(), result(caught=1)])
        self.assertEqual(lines[0].split(), ["crate", "caught", "missed", "timeout", "unviable", "percent", "goal"])
        self.assertEqual(lines[1].split(), ["hub", "1", "2", "0", "0", "33.3", "95", "below"])
        self.assertEqual(lines[2].split(), ["hub", "0", "0", "0", "0", "–", "95", "not", "measured"])
        self.assertEqual(lines[3].split(), ["hub", "1", "0", "0", "0", "100.0", "95"])
        self.assertEqual(lines[4:], ["missed: missed 0", "missed: missed 1"])

    def test_each_crate_is_in_one_lane_and_the_lanes_have_about_the_same_to_do(self):
        lanes = lanes_of(CRATES, 2)
        self.assertEqual(sorted(crate.name for lane in lanes for crate in lane), sorted(crate.name for crate in CRATES))
        first, second = (sum(crate.share * crate.cost for crate in lane) for lane in lanes)
        self.assertLess(abs(first - second), 0.1 * (first + second))
        self.assertEqual(lanes_of(CRATES[:1], 2), [[CRATES[0]]])

    def test_the_time_is_divided_by_what_is_left(self):
        crates = [Crate("a", 10, 95, ()), Crate("b", 10, 95, (), cost=2)]
        self.assertEqual(part_of(60, crates[0], crates), 20)
        self.assertEqual(part_of(60, crates[1], crates), 60)
