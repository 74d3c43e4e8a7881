"""Draws the result of a shootout as an SVG: a panel for each load with a bar for each peer. The length of Veche's bar
is the unit.

The picture has its own background and follows the reader's light or dark theme, so that it is legible on any page.
"""

from html import escape

# The loads in the order of the picture; loads that were not run are left out.
_PANELS = [
    ("echo-20", "CPU time per message, echo of 20 B"),
    ("echo-8192", "CPU time per message, echo of 8 KiB"),
    ("storm", "CPU time per new connection"),
    ("http", "CPU time per HTTP request"),
    ("p99", "Latency, p99 at a fixed rate"),
    ("memory", "Memory per idle connection"),
]
_WIDTH, _MARGIN, _GAP = 860, 24, 32
_COLUMNS = 2
_PANEL_WIDTH = (_WIDTH - 2 * _MARGIN - _GAP) / _COLUMNS
_NAMES_WIDTH, _VALUE_WIDTH = 140, 44
_BARS_WIDTH = _PANEL_WIDTH - _NAMES_WIDTH - _VALUE_WIDTH
_ROW, _BAR, _TITLE = 19, 11, 30
# Longer bars are cut off and marked, so that one slow peer does not shrink all other bars.
_RATIO_MAX = 6.0

_STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de }
  text { fill: #1f2328; font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
  .head { font-size: 17px; font-weight: 600 } .title { font-size: 13px; font-weight: 600 }
  .soft { fill: #59636e } .ours { font-weight: 600 } .value { font-variant-numeric: tabular-nums }
  .bar { fill: #a8b3bf } .bar-ours { fill: #0f7b6c }
  .whisker { stroke: #424a53; stroke-width: 1.2 } .unit { stroke: #0f7b6c; stroke-dasharray: 2 3 }
  .cut { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc } .soft { fill: #9198a1 }
    .bar { fill: #59636e } .bar-ours { fill: #2fb8a3 }
    .whisker { stroke: #d1d7e0 } .unit { stroke: #2fb8a3 }
    .cut { fill: #0d1117 }
  }
"""


def draw(document, peers):
    """Returns the picture as text. `peers` are those that took part, Veche first."""
    panels = [(title, _rows(document["ratios"][key], peers)) for key, title in _PANELS if document["ratios"].get(key)]
    parts, top = [], 92.0
    for first in range(0, len(panels), _COLUMNS):
        beside = panels[first : first + _COLUMNS]
        for column, (title, rows) in enumerate(beside):
            parts.append(_panel(_MARGIN + column * (_PANEL_WIDTH + _GAP), top, title, rows))
        top += _TITLE + _ROW * max(len(rows) for _, rows in beside) + 22
    machine = document["machine"]
    rounds = document["rounds_run"]
    foot = (
        f"{machine['date'][:10]}, {machine['cpu']}, one core for the server, one for the tester; "
        f"median of {rounds} interleaved round{'s' if rounds > 1 else ''}"
        + (", the line is the 95 % interval" if rounds >= 6 else ", the line is the range")
    )
    height = top + 26
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" height="{height:.0f}"'
            ' role="img" aria-labelledby="name">',
            f'<title id="name">{escape(_in_words(panels))}</title>',
            f"<style>{_STYLE}</style>",
            f'<rect class="card" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1:.0f}" rx="8"/>',
            f'<text class="head" x="{_MARGIN}" y="38">Veche beside its peers</text>',
            f'<text class="soft" x="{_MARGIN}" y="60">What each takes, Veche being 1. Shorter is better.</text>',
            *parts,
            f'<text class="soft" x="{_MARGIN}" y="{height - 22:.0f}" style="font-size: 11px">{escape(foot)}</text>',
            "</svg>",
            "",
        ]
    )


def _rows(ratios, peers):
    """Returns rows of (name, whether it is Veche, ratio), the best first."""
    found = [(peer["name"], peer["key"] == "veche", ratios[peer["key"]]) for peer in peers if peer["key"] in ratios]
    return sorted(found, key=lambda row: row[2]["median"])


def _panel(left, top, title, rows):
    scale = _BARS_WIDTH / min(_RATIO_MAX, max(1.0, *(ratio["high"] for _, _, ratio in rows)))
    parts = [f'<text class="title" x="{left:.1f}" y="{top + 12:.1f}">{escape(title)}</text>']
    bars = left + _NAMES_WIDTH
    for place, (name, ours, ratio) in enumerate(rows):
        y = top + _TITLE + place * _ROW
        parts += _bar(left, bars, y, scale, name, ours, ratio)
    end = top + _TITLE + len(rows) * _ROW - 4
    unit = bars + scale
    parts.append(f'<line class="unit" x1="{unit:.1f}" y1="{top + _TITLE - 4:.1f}" x2="{unit:.1f}" y2="{end:.1f}"/>')
    return "\n".join(parts)


def _bar(left, bars, y, scale, name, ours, ratio):
    cut = ratio["median"] * scale > _BARS_WIDTH
    width = min(ratio["median"] * scale, _BARS_WIDTH)
    middle = y + _BAR / 2
    weight = " ours" if ours else ""
    yield f'<text class="name{weight}" x="{bars - 8:.1f}" y="{y + 10:.1f}" text-anchor="end">{escape(name)}</text>'
    yield f'<rect class="bar{"-ours" if ours else ""}" x="{bars:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_BAR}" rx="2"/>'
    if cut:
        x = bars + _BARS_WIDTH - 18
        yield f'<path class="cut" d="M{x:.1f} {y + _BAR + 1:.1f}l4 -13h4l-4 13z"/>'
    elif not ours:
        low, high = bars + ratio["low"] * scale, min(bars + ratio["high"] * scale, bars + _BARS_WIDTH)
        yield f'<line class="whisker" x1="{low:.1f}" y1="{middle:.1f}" x2="{high:.1f}" y2="{middle:.1f}"/>'
    number = "1" if ours else _number(ratio["median"])
    end = bars + _BARS_WIDTH + 6
    yield f'<text class="value{weight}" x="{end:.1f}" y="{y + 10:.1f}">{number}</text>'


def _number(value):
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _in_words(panels):
    said = []
    for title, rows in panels:
        said.append(f"{title}: " + ", ".join(f"{name} {'1' if ours else _number(r['median'])}" for name, ours, r in rows))
    return "Veche beside its peers, what each takes when Veche takes 1. " + ". ".join(said)
