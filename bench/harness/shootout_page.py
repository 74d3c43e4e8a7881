"""Makes the output of a shootout from its JSON document: a table for the terminal, a page and a picture."""

import json
from statistics import median

from harness import picture
from harness.stats import PAIRS_MIN, Control, Verdict

PICTURE = "shootout.svg"
RULE = (
    "*Met*: the median is at or below it and the 95 % interval's upper end at most 5 % above; *missed*: the lower end is above it; "
    f"*undecided*: anything else, fewer than {PAIRS_MIN} rounds, or a machine whose A/A control reaches further than 5 % from 1."
)
# The rows are ordered by the ratios of the first of these loads that was run.
_ORDER_BY = ("echo-20", "http")
# A higher load average means that other processes used the cores of the measurement.
_LOAD_AVERAGE_QUIET = 1.0


def write(document, folder):
    """Writes the files. The names of the JSON file and the page contain the date. The picture's name does not, since
    the README shows the latest picture. Returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / f"{document['machine']['date'][:10]}-shootout"
    base.with_suffix(".json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    (folder / PICTURE).write_text(picture.draw(document, ordered(document)))
    page = base.with_suffix(".md")
    page.write_text(_page(document))
    return page


def write_from(path):
    write(json.loads(path.read_text()), path.parent)


def ordered(document):
    """Returns the peers that took part: first Veche, then the others by their ratio under the first load of `_ORDER_BY`
    in which they took part.

    Servers without a figure, such as an HTTP server without an HTTP load, are left out.
    """
    measured = {key for ratios in document["ratios"].values() for key in ratios}
    failed = {failure["peer"] for failure in document["failures"]}

    def rank(peer):
        ratios = (document["ratios"].get(load, {}).get(peer["key"]) for load in _ORDER_BY)
        found = [(place, ratio["median"]) for place, ratio in enumerate(ratios) if ratio]
        return (peer["key"] != "veche", *min(found, default=(len(_ORDER_BY), 0)))

    shown = (peer for peer in document["peers"] if "absent" not in peer and peer["key"] in measured | failed)
    return sorted(shown, key=rank)


def text(document):
    """Returns the table for the terminal: ratios with intervals, and absent servers."""
    head = ["", *(load["title"] for load in document["loads"])]
    rows = [head] + [
        [peer["name"], *(_ratio(document, load, peer) for load in document["loads"])] for peer in ordered(document)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join(["", *lines, "", _reading(document), *(f"{note}" for note in _notes(document))])


def _page(document):
    loads, machine = document["loads"], document["machine"]
    lines = [f"# Veche beside its peers, {machine['date'][:10]}", "", f"![The same as a picture]({PICTURE})", ""]
    lines += [_reading(document), ""]
    lines += _table(document, loads, _ratio, bold_first=True)
    lines += ["", "## Verdicts", "", "The target: Veche takes no more than the peer. " + RULE, ""]
    lines += _table(document, loads, _verdict)
    lines += ["", *(f"- {load['title']}: {_control(document, load)}" for load in loads)]
    lines += ["", "## The figures behind the ratios", "", "Medians over the rounds.", ""]
    lines += _table(document, loads, _absolute, title=lambda load: f"{load['title']}, {load['unit']}")
    paced = [load for load in loads if any("per_second" in run for runs in _runs(document, load) for run in runs)]
    if paced:
        lines += ["", "Answers a second. The tester has one core too: where it is marked *t*, it set the pace.", ""]
        lines += _table(document, paced, _pace)
    lines += ["", "## The loads", ""]
    lines += [f"- **{load['title']}**: {load['what']}; {load['unit']}" for load in loads]
    lines += ["", "## Servers", ""]
    for peer in ordered(document):
        versions = ", ".join(f"{of} {version}" for of, version in peer["versions"].items())
        lines.append(f"- **{peer['name']}**: {peer['what']} ({versions})")
    lines += [f"- {note}" for note in _notes(document)]
    lines += ["", "## The machine", "", f"- tester: `{document['tester']}`"]
    lines += [f"- {key.replace('_', ' ')}: `{value}`" for key, value in machine.items()]
    lines += [f"- rounds: `{document['rounds_run']}`", f"- ended: `{document['ended']}`"]
    return "\n".join(lines) + "\n"


def _reading(document):
    rounds = document["rounds_run"]
    interval = "95 % interval" if rounds >= 6 else "range (too few rounds for a 95 % interval)"
    return (
        "Each figure is the peer's through Veche's in the same round: above 1 the peer takes more (CPU time, microseconds, "
        f"bytes). Median of {'at least ' if rounds >= PAIRS_MIN else ''}{rounds} interleaved round{'s' if rounds > 1 else ''} and its {interval}. "
        "Server on one core, tester on another; CPU time is of the server's process and its children."
    )


def _notes(document):
    notes = [f"{peer['name']}: absent ({peer['absent']})" for peer in document["peers"] if "absent" in peer]
    names = {peer["key"]: peer["name"] for peer in document["peers"]}
    titles = {load["key"]: load["title"] for load in document["loads"]}
    for failure in document["failures"]:
        if failure["load"] in titles:
            notes.append(f"{names[failure['peer']]} failed in {titles[failure['load']]}: {failure['reason']}")
    if (busy := document["machine"]["load_average"]) > _LOAD_AVERAGE_QUIET:
        notes.append(f"The machine was busy when this began (load average {busy:.1f}): take the figures for a trial.")
    return notes


def _table(document, loads, cell, title=lambda load: load["title"], bold_first=False):
    lines = ["| | " + " | ".join(title(load) for load in loads) + " |", "|---|" + "--:|" * len(loads)]
    for peer in ordered(document):
        name = f"**{peer['name']}**" if bold_first and peer["key"] == "veche" else peer["name"]
        lines.append(f"| {name} | " + " | ".join(cell(document, load, peer) for load in loads) + " |")
    return lines


def _ratio(document, load, peer):
    ratio = document["ratios"][load["key"]].get(peer["key"])
    if peer["key"] == "veche" and ratio:
        return "1"
    if ratio:
        return f"{_number(ratio['median'])} [{_number(ratio['low'])} – {_number(ratio['high'])}]"
    return _why_not(document, load, peer)


def _verdict(document, load, peer):
    """Returns the verdict by the current rules, even if the document was written under earlier rules."""
    ratio = document["ratios"][load["key"]].get(peer["key"])
    if peer["key"] == "veche" or not ratio:
        return "–" if ratio else _why_not(document, load, peer)
    return Verdict([1 / value for value in ratio["values"]], 1.0, _control_of(document, load)).word()


def _control_of(document, load):
    values = document.get("controls", {}).get(load["key"])
    return Control(tuple(values)) if values else None


def _control(document, load):
    return _control_of(document, load) or "no A/A control: from before controls were taken"


def _absolute(document, load, peer):
    runs = document["rounds"][load["key"]].get(peer["key"])
    return f"{median(run['value'] for run in runs):,.0f}" if runs else _why_not(document, load, peer)


def _pace(document, load, peer):
    runs = document["rounds"][load["key"]].get(peer["key"])
    if not runs:
        return _why_not(document, load, peer)
    bound = sum(run["tester_bound"] for run in runs) * 2 > len(runs)
    return f"{median(run['per_second'] for run in runs):,.0f}" + (" *t*" if bound else "")


def _why_not(document, load, peer):
    failed = any(f["load"] == load["key"] and f["peer"] == peer["key"] for f in document["failures"])
    return "failed" if failed else "–"


def _runs(document, load):
    return document["rounds"][load["key"]].values()


def _number(value):
    """Formats a number with three significant digits."""
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"
