"""Writes the files of a run: a JSON file with all values and a page for readers, both with the machine and the
command."""

import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

from harness import servers
from harness.scenarios import OLD_SUFFIX, SCENARIOS
from harness.stats import Comparison, Control, Verdict

INDEX_HEAD = (
    "Written by `bench/run` and `bench/run --judge`. How a verdict is reached: [bench/README.md](../README.md#verdicts). "
    "Only figures with a target are listed; each page has the others, the machine and the command."
)

RESULTS = servers.BENCH / "results"


def first_line(*command):
    """Runs a program in the folder of the project. Returns the first line of its output."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, cwd=servers.ROOT)
    except OSError:
        return "absent"
    return ((done.stdout or done.stderr).strip().splitlines() or ["?"])[0]


def cpu_model():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "?")


def commit():
    return first_line("git", "describe", "--always", "--dirty")


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def machine():
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load_average": os.getloadavg()[0],
        "server_core": servers.SERVER_CORE,
        "driver_core": servers.DRIVER_CORE,
        "veche": first_line(servers.veche_binary(), "--version"),
        "commit": commit(),
        "nginx": first_line("nginx", "-v"),
        "go": first_line("go", "version"),
        "rustc": first_line("rustc", "--version"),
        "command": " ".join(["bench/run", *sys.argv[1:]]),
        "date": now(),
    }


def write(scenario, measurement, notes, environment):
    """Writes the JSON file and the page of a run. Returns the page's path."""
    RESULTS.mkdir(exist_ok=True)
    base = RESULTS / f"{environment['date'][:10]}-{scenario.name}"
    document = {
        "scenario": scenario.name,
        "what": scenario.what,
        "unit": scenario.unit,
        "machine": environment,
        "notes": notes,
        "control": list(measurement.control.values),
        "verdicts": [{"against": label} | verdict.as_dict() for label, verdict in measurement.verdicts()],
        "rounds": measurement.rounds,
    }
    return _write(document, base.with_suffix(".json"))


def judge(document, file):
    """Computes the verdicts of an earlier run again, by the current rules and against the current targets of its
    scenario."""
    scenario = next((known for known in SCENARIOS if known.name == document["scenario"]), None)
    for row in document["verdicts"]:
        verdict = _verdict_of(row, document)
        verdict.target = scenario.target_against(row["against"], row["target"]) if scenario else row["target"]
        row.pop("met", None)
        row |= verdict.as_dict()
    _write(document, file)


def _verdict_of(row, document):
    control = Control(tuple(document["control"])) if document.get("control") else None
    if document.get("scenario", "").endswith(OLD_SUFFIX):
        return Comparison(row["values"], control)
    return Verdict(row["values"], row["target"], control)


def _write(document, file):
    file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    page = file.with_suffix(".md")
    page.write_text(_page(document))
    return page


def _page(document):
    lines = [f"# {document['scenario']}: {document['what']}", ""]
    lines += ["| against | median | 95 % interval | pairs | target | verdict |", "|---|---|---|---|---|---|"]
    lines += [f"| {' | '.join(cells)} |" for cells in _rows(document)]
    lines += ["", _control_of(document), "", f"In {document['unit']}; medians over the rounds:", ""]
    for label, values in document["rounds"].items():
        ordered = sorted(run["value"] for run in values)
        lines.append(f"- {label}: {ordered[len(ordered) // 2]:,.0f} ({len(values)} runs)")
    lines += [f"- {note}" for note in document["notes"]]
    lines += [""] + [f"- {key.replace('_', ' ')}: `{value}`" for key, value in document["machine"].items()]
    return "\n".join(lines) + "\n"


def _rows(document):
    for row in document["verdicts"]:
        verdict = _verdict_of(row, document)
        target = "–" if verdict.target is None else f"≤ {verdict.target:g}"
        span = f"{number(verdict.low)} – {number(verdict.high)}"
        yield [row["against"], number(verdict.median), span, str(len(verdict.values)), target, verdict.word()]


def _control_of(document):
    if not document.get("control"):
        return "This run has no A/A control: it is from before controls were taken."
    return f"{Control(tuple(document['control']))}."


def write_index():
    """Writes results/README.md: the verdicts of the newest run of each scenario, and the other pages."""
    newest = {}
    for file in sorted(RESULTS.glob("*.json")):
        document = json.loads(file.read_text())
        if "verdicts" in document:
            newest[document["scenario"]] = (file, document)
    lines = ["# Results", "", INDEX_HEAD, "", "| scenario | against | median | 95 % interval | pairs | target | verdict | run |", "|---|---|---|---|---|---|---|---|"]
    for name in sorted(newest, key=_place_of):
        file, document = newest[name]
        for cells in _rows(document):
            if cells[4] != "–":
                lines.append(f"| {name} | {' | '.join(cells)} | [{file.name[:10]}]({file.with_suffix('.md').name}) |")
    page = RESULTS / "README.md"
    listed = {file.with_suffix(".md").name for file, _ in newest.values()}
    lines += ["", "Other pages:", ""]
    for other in sorted(RESULTS.glob("*.md")):
        if other != page and other.name not in listed:
            title = other.read_text().splitlines()[0].lstrip("# ")
            lines.append(f"- [{title}]({other.name})")
    page.write_text("\n".join(lines) + "\n")
    return page


def _place_of(name):
    """Returns the sort key of a scenario: its position in `bench/run --list`; removed scenarios come last."""
    names = [scenario.name for scenario in SCENARIOS]
    return (names.index(name) if name in names else len(names), name)


def number(value):
    """Formats a number: with three decimals below 20, as ratios are, and otherwise without decimals."""
    return f"{value:.3f}" if value < 20 else f"{value:,.0f}"
