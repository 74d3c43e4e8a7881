"""The file that stores the instruction counts of code paths, and the comparison of new counts with it."""

import dataclasses
import re
import statistics

# Maximum growth in percent of a measured code path's instruction count since the last update of the
# file. More growth is a failure.
PATH_GROWTH_MAX = 2
# Maximum growth in percent of the sum over all paths since the file was created.
SUM_GROWTH_MAX = 5


@dataclasses.dataclass(frozen=True)
class Machine:
    """The properties of a machine that instruction counts depend on. Counts from different machines can't be
    compared."""

    cpu: str
    rustc: str
    libc: str
    valgrind: str

    def differences(self, other):
        """Returns the differences from another machine, as `cpu: OLD, here NEW`."""
        fields = [field.name for field in dataclasses.fields(self)]
        return [
            f"{name}: {getattr(other, name)}, here {getattr(self, name)}"
            for name in fields
            if getattr(self, name) != getattr(other, name)
        ]


@dataclasses.dataclass(frozen=True)
class Baseline:
    """The content of bench/instructions.toml: the instructions of one operation of each path."""

    machine: Machine
    reason: str
    counts: dict
    # The baseline for the sum of all paths: for each path, its count when the path was first
    # recorded.
    first: dict

    def renewed(self, machine, reason, counts):
        """Returns the content of the file after an update: new counts with their reason. On another machine the
        comparison starts again."""
        first = self.first if machine == self.machine else {}
        first = {path: first.get(path, count) for path, count in counts.items()}
        return Baseline(machine, reason, counts, first)

    def to_toml(self):
        def quoted(text):
            return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'

        def table(counts):
            return "".join(f"{path} = {count}\n" for path, count in counts.items())

        machine = "".join(f"{name} = {quoted(value)}\n" for name, value in dataclasses.asdict(self.machine).items())
        return (
            "# Instructions of one operation of each path. Written by bench/instructions --update --reason TEXT, in the\n"
            "# commit that changes them.\n"
            f"reason = {quoted(self.reason)}\n\n"
            f"[machine]\n{machine}\n[counts]\n{table(self.counts)}\n"
            f"# What the sum may rise {SUM_GROWTH_MAX} % above.\n[first]\n{table(self.first)}"
        )

    @classmethod
    def of(cls, document):
        """Creates a baseline from the parsed TOML file."""
        return cls(Machine(**document["machine"]), document["reason"], document["counts"], document["first"])


@dataclasses.dataclass(frozen=True)
class Change:
    """The old and the new count of one path."""

    path: str
    old: int | None
    new: int | None

    @property
    def growth(self):
        """The growth as a share of the old count; None if either count is missing."""
        return None if self.old is None or self.new is None else self.new / self.old - 1

    @property
    def is_too_much(self):
        return self.growth is not None and self.new * 100 > self.old * (100 + PATH_GROWTH_MAX)


def changes(old, new):
    """Returns the changes of all paths, in the order of `new`; removed paths come last."""
    paths = list(new) + [path for path in old if path not in new]
    return [Change(path, old.get(path), new.get(path)) for path in paths]


def sum_growth(first, counts):
    """Returns the growth of the sum over the paths that occur in both, as a share of the old sum."""
    both = [path for path in counts if path in first]
    before = sum(first[path] for path in both)
    return sum(counts[path] for path in both) / before - 1 if before else 0.0


def problems(baseline, counts):
    """Returns the reasons why a run fails against a baseline from the same machine, one line each; empty if it
    passes."""
    found = []
    for change in changes(baseline.counts, counts):
        if change.old is None:
            found.append(f"{change.path} is not in the file")
        elif change.new is None:
            found.append(f"{change.path} is in the file and was not counted")
        elif change.is_too_much:
            found.append(f"{change.path} has grown by {change.growth:.1%}: {change.old:,} -> {change.new:,}")
    rise = sum_growth(baseline.first, counts)
    if rise * 100 > SUM_GROWTH_MAX:
        found.append(f"the sum of all paths has grown by {rise:.1%} since the file was begun; the limit is {SUM_GROWTH_MAX} %")
    return found


def spread(runs):
    """Returns for each path the difference between the largest and the smallest count of the runs, as a share of their
    median."""
    return {
        path: (max(values) - min(values)) / statistics.median(values)
        for path, values in ((path, [run[path] for run in runs]) for path in runs[0])
    }


def table(lines):
    """Formats lines as a table whose first column is aligned to the left and the others to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]

    def cell(text, column):
        return text.ljust(widths[column]) if column == 0 else text.rjust(widths[column])

    return "\n".join("  ".join(cell(text, column) for column, text in enumerate(line)).rstrip() for line in lines)


def operations(source):
    """Returns the number of runs of each path, from the table OPERATIONS of bench/counts/src/lib.rs."""
    body = source.split("pub const OPERATIONS", 1)[1].split("];", 1)[0]
    return {name: int(count) for name, count in re.findall(r'\("(\w+)", (\d+)\)', body)}
