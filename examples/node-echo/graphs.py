"""The benchmark's two graphs and its CSV file, from the runs of both transports."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Dict, List, Sequence

import matplotlib as mpl
from matplotlib.figure import Figure

from examples.frame.times import typical

# Transport → packet size in bytes → milliseconds of each run.
Runs = Dict[str, Dict[int, List[float]]]
CSV = "uds_vs_tcp.csv"
TIMES = "execution_time.svg"
RELATIVE = "relative_execution_time.svg"
# The same figures give the same file.
STABLE = {"Date": None, "Creator": None}


def write(runs: Runs, packets: Dict[int, int], folder: Path) -> List[Path]:
    """All three into a folder; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_csv(runs, folder / CSV)
    with mpl.rc_context({"svg.hashsalt": "udsprobe", "font.size": 9}):
        _draw_times(runs, packets, folder / TIMES)
        _draw_relative(runs, folder / RELATIVE)
    return [folder / name for name in (CSV, TIMES, RELATIVE)]


def _write_csv(runs: Runs, path: Path) -> None:
    """As the benchmark's script makes it: a line for each transport and size."""
    most = max(len(values) for sizes in runs.values() for values in sizes.values())
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["NAME", *(f"RUN {at}" for at in range(most))])
        for transport, sizes in sorted(runs.items(), reverse=True):
            for size, values in sorted(sizes.items()):
                writer.writerow([f"{transport} Size {size}", *(f"{one:.3f}" for one in values)])


def _draw_times(runs: Runs, packets: Dict[int, int], path: Path) -> None:
    """Per packet: large ones are sent less often."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for transport, sizes in sorted(runs.items()):
        each = [1000 * typical(values) / packets[size] for size, values in sizes.items()]
        axes.plot(list(sizes), each, marker="o", label=transport)
    axes.set(yscale="log", ylabel="µs for a packet there and back", title="Execution time")
    _finish(figure, list(packets), path)


def _draw_relative(runs: Runs, path: Path) -> None:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    tcp = {size: typical(values) for size, values in runs["TCP"].items()}
    for transport, sizes in sorted(runs.items()):
        shares = [typical(values) / tcp[size] for size, values in sizes.items()]
        axes.plot(list(sizes), shares, marker="o", label=transport)
    axes.set(ylim=(0, None), ylabel="of TCP's time", title="Relative execution time")
    _finish(figure, list(tcp), path)


def _finish(figure: Figure, sizes: Sequence[int], path: Path) -> None:
    axes = figure.axes[0]
    axes.set_xscale("log", base=2)
    axes.set(xlabel="packet size, bytes", xticks=sizes[::2])
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(path, format="svg", metadata=STABLE)
