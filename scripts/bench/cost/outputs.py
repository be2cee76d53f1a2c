"""Raw JSON, one table in Markdown, one plot: of the figures of all loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from scripts.bench.cost.loads import LOADS
from scripts.bench.cost.tools import TOOLS

ADDED, LOST = "ns_per_socket_call_added", "requests_lost_pct"
SAYS = {load.name: load.says for load in LOADS}
TOOL_SAYS = {tool.name: tool.says for tool in TOOLS}


def write_all(document: Mapping[str, Any], folder: Path) -> List[Path]:
    """`peers.json`, `peers.md` and `peers.svg` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    raw, table, plot = (folder / f"peers.{kind}" for kind in ("json", "md", "svg"))
    raw.write_text(json.dumps(document, indent=1) + "\n")
    table.write_text(markdown(document))
    draw(document, plot)
    return [raw, table, plot]


def markdown(document: Mapping[str, Any]) -> str:
    """A table for each load, and what each tool is."""
    lines: List[str] = []
    for name, load in document["loads"].items():
        lines += [f"### {name}: {SAYS.get(name, name)}", "", *_table(load["tools"]), ""]
        lines += [f"- {tool}: not measured: {why}" for tool, why in load["reasons"].items()]
        lines += [""] if load["reasons"] else []
    lines += [f"- **{name}**: {says}" for name, says in TOOL_SAYS.items()]
    return "\n".join(lines) + "\n"


def _table(tools: Mapping[str, Any]) -> List[str]:
    columns = [column for column in COLUMNS if any(column[1] in t for t in tools.values())]
    heads = [head for head, _, _ in columns]
    rows = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for name, figures in tools.items():
        cells = (_cell(figures, key, digits) for _, key, digits in columns)
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return rows


COLUMNS = (
    ("ns per socket call", "ns_per_socket_call", 0),
    ("added", ADDED, 0),
    ("÷ empty pair", "ns_per_socket_call_over_empty", 2),
    ("ns per getppid", "ns_per_other_call", 0),
    ("÷ empty pair, getppid", "ns_per_other_call_over_empty", 2),
    ("requests/s", "requests_per_s", 0),
    ("lost, %", LOST, 1),
    ("p99, µs", "p99_us", 0),
    ("p99 shift, %", "p99_shift_pct", 1),
    ("own CPU, % of a core", "own_cpu_pct", 1),
    ("looks after, s", "attach_s", 2),
    ("gone after, s", "end_s", 2),
    ("calls not counted", "calls_not_counted", 0),
    ("events lost, by its own word", "events_told_lost", 0),
)


def _cell(figures: Mapping[str, Any], key: str, digits: int) -> str:
    value = figures.get(key)
    if value is None:
        return "–"
    if not isinstance(value, dict):
        return f"{value:,}"
    text = f"{value['median']:,.{digits}f}"
    if "quarter" in value and value["rounds"] > 1:
        text += f" ({value['quarter']:,.{digits}f}–{value['three_quarters']:,.{digits}f})"
    return text


def draw(document: Mapping[str, Any], path: Path) -> None:
    """What is added to a call, and what a service loses, each tool a bar, on a log scale."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "udsprobe"
    from matplotlib import pyplot

    panels = [
        (ADDED, "ns added to a socket call", _bars(document, ADDED)),
        (LOST, "requests per second lost, %", _bars(document, LOST)),
    ]
    panels = [panel for panel in panels if panel[2]]
    figure, axes = pyplot.subplots(1, max(1, len(panels)), figsize=(11, 5), squeeze=False)
    for axis, (_, title, bars) in zip(axes[0], panels):
        _panel(axis, title, bars)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _bars(document: Mapping[str, Any], key: str) -> Dict[str, Dict[str, float]]:
    """Load → tool → median, where it was measured and is not the bare run."""
    found: Dict[str, Dict[str, float]] = {}
    for name, load in document["loads"].items():
        for tool, figures in load["tools"].items():
            value: Optional[Mapping[str, float]] = figures.get(key)
            if value is not None:
                found.setdefault(name, {})[tool] = value["median"]
    return found


def _panel(axis: Any, title: str, bars: Mapping[str, Mapping[str, float]]) -> None:
    tools = [tool for tool in TOOL_SAYS if any(tool in of for of in bars.values())]
    height = 0.8 / max(1, len(tools))
    for at, tool in enumerate(tools):
        places = [row + at * height for row, of in enumerate(bars.values()) if tool in of]
        values = [max(of[tool], 0.1) for of in bars.values() if tool in of]
        axis.barh(places, values, height, label=tool)
    axis.set_yticks([row + 0.4 - height / 2 for row in range(len(bars))], list(bars))
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.set_xlabel(title)
    axis.grid(axis="x", alpha=0.3)
    axis.legend(fontsize="small")
