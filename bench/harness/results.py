"""What a run leaves behind: a JSON file with every value and a page to read, both with machine and command."""

import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

from harness import servers

RESULTS = servers.BENCH / "results"


def first_line(*command):
    """What a program says of itself, in the folder of the project."""
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


def write(scenario, rounds, verdicts, notes, environment):
    """`verdicts`: (label, what it says, Verdict) rows. Returns the page's path."""
    RESULTS.mkdir(exist_ok=True)
    base = RESULTS / f"{environment['date'][:10]}-{scenario.name}"
    document = {
        "scenario": scenario.name,
        "what": scenario.what,
        "unit": scenario.unit,
        "machine": environment,
        "notes": notes,
        "verdicts": [{"against": label} | verdict.as_dict() for label, verdict in verdicts],
        "rounds": rounds,
    }
    base.with_suffix(".json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    lines = [f"# {scenario.name}: {scenario.what}", ""]
    lines += ["| against | median | 95 % interval | target | verdict |", "|---|---|---|---|---|"]
    for label, verdict in verdicts:
        target = "–" if verdict.target is None else f"≤ {verdict.target:g}"
        low, high = number(verdict.low), number(verdict.high)
        lines.append(f"| {label} | {number(verdict.median)} | {low} – {high} | {target} | {verdict.word()} |")
    lines += ["", f"In {scenario.unit}; medians over the rounds:", ""]
    for label, values in rounds.items():
        ordered = sorted(run["value"] for run in values)
        lines.append(f"- {label}: {ordered[len(ordered) // 2]:,.0f} ({len(values)} runs)")
    lines += [f"- {note}" for note in notes]
    lines += [""] + [f"- {key.replace('_', ' ')}: `{value}`" for key, value in environment.items()]
    base.with_suffix(".md").write_text("\n".join(lines) + "\n")
    return base.with_suffix(".md")


def number(value):
    """Ratios with three digits, bytes with none."""
    return f"{value:.3f}" if value < 20 else f"{value:,.0f}"
