"""Tests of the pure parts of tests/run: the schedule of the steps, the selection of steps, and the reading of their
output."""

import json
import pathlib
import tempfile
import time
import unittest

from suite import binaries, steps, tally
from suite.running import Runner
from suite.schedule import ALONE, IDLE, Schedule, Step, chosen


def step(name, cores=1.0, needs=(), place="foreground"):
    return Step(name, "true", 60, cores=cores, needs=needs, place=place)


def names(steps_):
    return [each.name for each in steps_]


class Order(unittest.TestCase):
    def started(self, *waiting, cores=2):
        self.schedule = Schedule(waiting, cores)
        return names(self.schedule.start())

    def ended(self, name, succeeded=True):
        (step_,) = [each for each in self.schedule.running if each.name == name]
        lost = self.schedule.end(step_, succeeded)
        return names(self.schedule.start()), names(lost)

    def test_as_many_start_as_there_are_cores(self):
        self.assertEqual(self.started(step("a"), step("b"), step("c")), ["a", "b"])
        self.assertEqual(self.ended("a"), (["c"], []))
        self.assertEqual(self.ended("b"), ([], []))

    def test_what_waits_takes_little(self):
        self.assertEqual(self.started(step("a"), step("b", 0.5), step("c", 0.5), step("d", 0.5)), ["a", "b", "c"])

    def test_a_small_step_overtakes_one_that_does_not_fit(self):
        self.assertEqual(self.started(step("a", 1.5), step("b"), step("c", 0.5)), ["a", "c"])

    def test_a_step_may_want_more_cores_than_there_are(self):
        self.assertEqual(self.started(step("a", 1000), step("b", 0), step("c", 0.5)), ["a", "b"])
        self.assertEqual(self.ended("b"), ([], []))
        self.assertEqual(self.ended("a"), (["c"], []))

    def test_a_step_alone_has_the_foreground(self):
        self.assertEqual(self.started(step("a", place=ALONE), step("b"), step("c", 0)), ["a"])
        self.assertEqual(self.ended("a"), (["b", "c"], []))

    def test_nothing_overtakes_a_step_that_runs_alone(self):
        self.assertEqual(self.started(step("a"), step("b", place=ALONE), step("c")), ["a"])
        self.assertEqual(self.ended("a"), (["b"], []))
        self.assertEqual(self.ended("b"), (["c"], []))

    def test_one_idle_step_runs_beside_whatever_else(self):
        idle = [step("i", place=IDLE), step("j", place=IDLE)]
        self.assertEqual(self.started(*idle, step("a", place=ALONE), step("b")), ["i", "a"])
        self.assertEqual(self.ended("i"), (["j"], []))

    def test_no_idle_step_starts_beside_one_that_takes_all(self):
        self.assertEqual(self.started(step("a", 1000), step("i", place=IDLE)), ["a"])
        self.assertEqual(self.ended("a"), (["i"], []))

    def test_a_step_waits_for_what_it_needs(self):
        self.assertEqual(self.started(step("b", needs=("a",)), step("a"), step("c")), ["a", "c"])
        self.assertEqual(self.ended("a"), (["b"], []))

    def test_what_needs_a_failed_step_is_not_run(self):
        self.assertEqual(self.started(step("a", 2), step("b", needs=("a",)), step("c", needs=("b",)), step("d")), ["a"])
        self.assertEqual(self.ended("a", succeeded=False), (["d"], ["b", "c"]))
        self.assertEqual(self.schedule.waiting, [])

    def test_steps_take_the_place_of_the_one_that_stands_for_them(self):
        self.started(step("a", 2), step("b"), step("c"))
        self.schedule.replace(self.schedule.waiting[0], [step("b1"), step("b2")])
        self.assertEqual(names(self.schedule.waiting), ["b1", "b2", "c"])


class Choice(unittest.TestCase):
    STEPS = (step("setup"), step("build"), step("clippy"), step("browser", needs=("setup", "build")))

    def test_all_without_a_word(self):
        self.assertEqual(names(chosen(self.STEPS, [])), ["setup", "build", "clippy", "browser"])

    def test_a_step_brings_what_it_needs(self):
        self.assertEqual(names(chosen(self.STEPS, ["rows"])), ["setup", "build", "browser"])
        self.assertEqual(names(chosen(self.STEPS, ["clip"])), ["clippy"])

    def test_what_a_set_lacks_is_taken_for_done(self):
        self.assertEqual(chosen(self.STEPS[3:], [])[0].needs, ())


class Sets(unittest.TestCase):
    ALL = {**steps.SETS, **steps.PARTS}

    def test_names_differ_within_a_set(self):
        for name, set_ in self.ALL.items():
            self.assertEqual(len(set(names(set_))), len(set_), name)

    def test_needs_come_first_and_are_there(self):
        for name, set_ in self.ALL.items():
            with self.subTest(name):
                for at, each in enumerate(set_):
                    for need in each.needs:
                        self.assertTrue(name == "check" or need in names(set_), f"{each.name} needs {need}")
                    self.assertFalse(set(each.needs) & set(names(set_[at:])), each.name)

    def test_each_fuzz_target_is_in_one_part(self):
        there = sorted(path.stem for path in (steps.ROOT / "fuzz" / "fuzz_targets").glob("*.rs"))
        fuzzed = [each.command.split()[2:] for part in steps.PARTS.values() for each in part if each.name == "fuzz"]
        self.assertEqual(sorted(target for targets in fuzzed for target in targets), there)

    def test_examples_in_documentation_are_found(self):
        self.assertEqual(steps.with_examples(), "-p veche-centrifuge")
        for source, expected in (
            ("//! ```\n//! f();\n//! ```\n", True),
            ("    /// ```no_run\n    /// f();\n    /// ```\n", True),
            ("//! ```text\n//! a picture\n//! ```\n", False),
            ("// ```\n// f();\n// ```\n", False),
        ):
            self.assertEqual(steps.has_example(source), expected, source)

    def test_only_binaries_that_compute_are_idle(self):
        names_ = {"hub::lib", "server::tidy", "archive::kill", "nodes::carriers", "server::served", "outbound::lib"}
        for group, expected in (("cargo test", {"hub::lib", "server::tidy"}), ("pure tests", set())):
            needs = steps.needs_of(names_, group)
            self.assertEqual({name for name, one in needs.items() if one.get("place") == IDLE}, expected, group)
            self.assertEqual(list(needs)[: len(steps.BINARIES)], list(steps.BINARIES))
        for crate in steps.COMPUTING:
            folder = steps.ROOT / ("sim" if crate == "sim" else f"crates/{crate}")
            self.assertTrue(folder.is_dir(), crate)

    def test_each_binary_that_is_named_has_its_source(self):
        of_steps = {each.binary for set_ in self.ALL.values() for each in set_ if each.binary}
        for name in of_steps | set(steps.BINARIES) | steps.LONG | steps.TIMED:
            crate, target = name.split("::")
            folder = steps.ROOT / ("sim" if crate == "sim" else f"crates/{crate}") / "tests"
            self.assertTrue((folder / f"{target}.rs").exists() or (folder / target / "main.rs").exists(), name)


def message(package, kind, target, **other):
    return json.dumps(
        {
            "reason": "compiler-artifact", "manifest_path": f"/veche/{package}/Cargo.toml", "executable": f"/deps/{target}-1",
            "target": {"kind": [kind], "name": target}, "profile": {"test": True},
        } | other
    )  # fmt: skip


class Binaries(unittest.TestCase):
    def test_libraries_and_folders_of_tests_are_found(self):
        found = binaries.found(
            [
                message("crates/hub", "lib", "veche_hub"),
                message("crates/hub", "test", "rules"),
                message("crates/hub", "lib", "veche_hub", executable=None),
                message("crates/server", "bin", "veche", profile={"test": False}),
                '{"reason":"build-finished","success":true}',
                "",
            ]
        )
        self.assertEqual(list(found), ["hub::lib", "hub::rules"])
        self.assertEqual(found["hub::rules"].executable, "/deps/rules-1")
        self.assertEqual(found["hub::lib"].folder, pathlib.Path("/veche/crates/hub"))

    def test_two_of_a_name_would_hide_each_other(self):
        with self.assertRaises(ValueError):
            binaries.found([message("a/hub", "test", "rules"), message("b/hub", "test", "rules")])

    def test_those_with_needs_come_first(self):
        found = binaries.found([message("crates/hub", "test", name) for name in ("a", "b", "c")])
        group = Step("cargo test", "", 900, needs=("build",))
        steps_ = binaries.steps(found, group, {"hub::c": {"place": ALONE}, "hub::gone": {}, "hub::b": {"cores": 0.5}})
        self.assertEqual(names(steps_), ["hub::c", "hub::b", "hub::a"])
        self.assertEqual([each.place for each in steps_], [ALONE, "foreground", "foreground"])
        self.assertEqual([each.cores for each in steps_], [1, 0.5, 1])
        self.assertEqual({(each.limit, each.needs, each.group) for each in steps_}, {(900, ("build",), "cargo test")})


class Running(unittest.TestCase):
    def run_one(self, command, limit=60, **other):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.runner = Runner(folder, folder / "logs")
        return self.runner.run(Step("a step", command, limit, **other))

    def test_status_output_and_time_are_kept(self):
        ended = self.run_one("echo out; echo $WORD >&2; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exit 3", environment={"WORD": "err"})
        self.assertEqual((ended.status, ended.output), (3, "out\nerr\n"))
        self.assertGreater(ended.cpu, 0.02)
        self.assertEqual(self.runner.log_of(Step("hub::rules", "", 1, group="cargo test")).parts[-2:], ("cargo-test", "hub-rules.log"))

    def test_a_late_step_is_ended_with_its_children(self):
        ended = self.run_one("sleep 60 & echo $!; wait", limit=0.2)
        pid, *_, late = ended.output.splitlines()
        self.assertEqual((ended.status, late), (1, "not done after 0.2 s"))
        self.assertLess(ended.took, 30)
        command = pathlib.Path(f"/proc/{pid}/cmdline")
        deadline = time.monotonic() + 10
        while command.exists() and command.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(command.exists() and command.read_text())

    def test_an_idle_step_takes_what_is_left(self):
        script = "import os; print(os.sched_getscheduler(0) == os.SCHED_IDLE, os.getsid(0) == os.getppid())"
        self.assertEqual(self.run_one(f"python3 -c '{script}' && :", place=IDLE).output, "True True\n")
        script = "import os; print(os.sched_getscheduler(0) == os.SCHED_IDLE, os.getpgid(0) == os.getppid())"
        self.assertEqual(self.run_one(f"python3 -c '{script}' && :").output, "False True\n")


class Output(unittest.TestCase):
    def test_counts(self):
        for output, status, expected in (
            ("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured", 0, "3 passed, 0 failed, 1 skipped"),
            ("1 passed; 0 failed\n2 passed; 1 failed\n", 101, "3 passed, 1 failed, 0 skipped"),
            ("Ran 7 tests in 0.1s\n\nOK", 0, "7 passed, 0 failed, 0 skipped"),
            ("Ran 7 tests in 0.1s\n\nFAILED", 1, "0 passed, 1 failed, 0 skipped"),
            ("ℹ pass 4\nℹ fail 0\nℹ skipped 2", 0, "4 passed, 0 failed, 2 skipped"),
            ("ok      PHP\nok      Python\n", 0, "2 passed, 0 failed, 0 skipped"),
            ("", 0, "1 passed, 0 failed, 0 skipped"),
            ("", 1, "0 passed, 1 failed, 0 skipped"),
            ("\nSKIPPED test a::b: no disk\ntest result: ok. 5 passed; 0 failed; 1 ignored", 0, "4 passed, 0 failed, 2 skipped"),
            ("SKIPPED: no Autobahn", tally.SKIPPED, "0 passed, 0 failed, 1 skipped"),
        ):
            self.assertEqual(str(tally.count(output, status)), expected, output)

    def test_a_panic_is_a_reason(self):
        output = "test a ... ok\nthread 'b' (1) panicked at src/b.rs:1:1:\nit broke\nmore\n"
        self.assertEqual(tally.reasons("hub", output), ["hub: thread 'b' (1) panicked at src/b.rs:1:1:\nit broke"])
        self.assertEqual(tally.reasons("hub", "first\nlast"), ["hub: last"])


if __name__ == "__main__":
    unittest.main()
