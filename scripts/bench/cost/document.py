"""The figures of docs/overhead.md: each marked block written anew from a run's raw ones. Pure."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional

from scripts.bench.cost.figures import added_over
from scripts.bench.cost.outputs import markdown

Raw = Mapping[str, Any]
BLOCK = re.compile(r"(<!-- bench: (\w+) -->\n).*?(<!-- /bench -->)", re.DOTALL)
ADDED, CALLS = "ns_per_socket_call_added", "ns_per_socket_call"
LOOPS = ("socketpair", "unix", "tcp")
CPU_GOALS_PCT = {1_000: 1.0, 10_000: 2.0, 100_000: 5.0}
# What no program of this strategy can be below stands beside it.
FLOOR = (("", "udsprobe"), ("the empty pair alone", "empty"))
NOT_MEASURED = "not measured in this run"


class Figure(NamedTuple):
    """A value and the interval in which it is with 95 %, where it is known."""

    value: float
    low: Optional[float] = None
    high: Optional[float] = None

    def meets(self, goal: float, at_least: bool) -> str:
        """`met`, `missed`, or `not settled` when the goal is within the interval."""
        low = self.value if self.low is None else self.low
        high = self.value if self.high is None else self.high
        if low > goal or high < goal:
            return "met" if (low > goal) == at_least else "missed"
        if low == high:
            return "met"
        return (
            f"not settled ({'met' if (self.value >= goal) == at_least else 'missed'} in the median)"
        )


class Row(NamedTuple):
    """A goal, and what was reached in each case of it."""

    measure: str
    goal: float
    unit: str
    cases: Mapping[str, Optional[Figure]]
    digits: int = 2
    at_least: bool = False


def written(text: str, raw: Raw) -> str:
    """`text` with every block of this run.

    Args:
        raw: `peers`, `nginx_node`, `first_sample`, `scale`, `hot`, each a document of its bench
            or absent, and `machine`.

    Raises:
        KeyError: a block is marked that nobody writes.
    """

    def block(found: re.Match[str]) -> str:
        return f"{found[1]}{BLOCKS[found[2]](raw)}\n{found[3]}"

    return BLOCK.sub(block, text)


def machine(raw: Raw) -> str:
    """Where and when."""
    of = raw["machine"]
    memory = f"{of['memory_kb'] / 2**20:.0f} GiB"
    versions = "; ".join(f"{name} {_version(said)}" for name, said in of["versions"].items())
    return (
        f"Measured on {of['date']} on {of['cpus']} CPUs, {memory}, Linux {of['kernel']}, "
        f"{of['arch']};\nload average before: {of['load_average_before']:.2f}. "
        f"The run took {of['took_s'] / 60:.0f} minutes.\n\nVersions: {versions}."
    )


def _version(said: str) -> str:
    found = re.search(r"\d+\.\d[\w.+~-]*", said)
    return found.group() if found else said


def goals(raw: Raw) -> str:
    """The table of goals."""
    lines = ["| measure | goal | reached | |", "|---|---|---|---|"]
    return "\n".join([*lines, *map(_goal_line, _rows(raw))])


def _goal_line(row: Row) -> str:
    bound = f"{'≥' if row.at_least else '≤'} {row.goal:g}{row.unit}"
    known = {name: figure for name, figure in row.cases.items() if figure is not None}
    if not known:
        return f"| {row.measure} | {bound} | – | {NOT_MEASURED} |"
    reached = ", ".join(f"{name} {_shown(of, row)}".strip() for name, of in known.items())
    verdicts = {name: of.meets(row.goal, row.at_least) for name, of in known.items()}
    if len(set(verdicts.values())) == 1:
        verdict = next(iter(verdicts.values()))
    else:
        verdict = ", ".join(f"{name} {said}".strip() for name, said in verdicts.items())
    return f"| {row.measure} | {bound} | {reached} | {verdict} |"


def _shown(figure: Figure, row: Row) -> str:
    text = f"{figure.value:,.{row.digits}f}{row.unit}"
    if figure.low is None or figure.high is None or figure.low == figure.high:
        return text
    return f"{text} ({figure.low:,.{row.digits}f} to {figure.high:,.{row.digits}f})"


def _rows(raw: Raw) -> Iterator[Row]:
    yield Row("added to a socket call ÷ empty pair", 3.0, "", _ratios(raw, "udsprobe", "empty"))
    yield Row("÷ `syscount -L -p`", 0.6, "", _ratios(raw, "udsprobe", "syscount"))
    yield Row("÷ bpftrace, one histogram", 0.25, "", _ratios(raw, "udsprobe", "bpftrace"))
    strace = _ratios(raw, "strace", "udsprobe")
    yield Row("`strace -c` ÷ udsprobe", 60, "", strace, digits=0, at_least=True)
    yield Row("added to an untargeted process's call ÷ empty pair", 1.3, "", _untargeted(raw))
    nginx = {says: _of_tool(raw.get("nginx_node"), "nginx-node", tool) for says, tool in FLOOR}
    rounds = nginx[""].get("requests_lost_pct", {}).get("rounds", 0)
    what = f"nginx → Node, Node observed, {rounds} alternations: requests/s lost"
    lost = {says: _spread(of.get("requests_lost_pct")) for says, of in nginx.items()}
    yield Row(what, 3, " %", lost, 1)
    shift = {says: _spread(of.get("p99_shift_pct")) for says, of in nginx.items()}
    yield Row("p99 shift in that run", 5, " %", shift, 1)
    among = {"": _number(raw.get("hot", {}).get("hot", {}).get("ratio"))}
    yield Row("a call on 20 connections with 100,000 followed ÷ with 20", 1.15, "", among)
    for count, goal in CPU_GOALS_PCT.items():
        what = f"own CPU at 1 Hz, {count:,} connections followed"
        yield Row(what, goal, " %", _of_cases(raw, count, "own_cpu_pct"), 1)
    first = raw.get("first_sample", {})
    figures = {"": _first(first, "until_probes_live_s")}
    figures["on the screen"] = _first(first, "until_figures_on_screen_s")
    yield Row("command to first sample", 0.5, " s", figures)
    gone = {"": _first(first, "until_gone_s")}
    yield Row("last sample to all probes gone, from the signal", 0.3, " s", gone)
    plain = {"": _number(first.get("resident_mb"))}
    many = {f"{n:,}": _of_cases(raw, n, "rss_mb").get("busy") for n in (1_000, 10_000)}
    yield Row("resident memory without the screen", 50, " MB", {**plain, **many}, 0)
    screen = {"": _number(first.get("resident_with_screen_mb"))}
    yield Row("with the screen", 90, " MB", screen, 0)


def _ratios(raw: Raw, tool: str, other: str) -> Dict[str, Optional[Figure]]:
    """Of what two tools add to a call, by loop."""
    loads = raw.get("peers", {}).get("loads", {})
    return {
        name: _figure(added_over(loads[name]["rounds"], tool, other, CALLS))
        for name in LOOPS
        if name in loads
    }


def _untargeted(raw: Raw) -> Dict[str, Optional[Figure]]:
    load = raw.get("peers", {}).get("loads", {}).get("untargeted")
    if load is None:
        return {}
    names = {"send and recv": CALLS, "getppid": "ns_per_other_call"}
    return {
        says: _figure(added_over(load["rounds"], "udsprobe", "empty", name))
        for says, name in names.items()
    }


def _of_tool(peers: Optional[Raw], load: str, tool: str) -> Raw:
    found: Raw = (peers or {}).get("loads", {}).get(load, {}).get("tools", {}).get(tool, {})
    return found


def _of_cases(raw: Raw, connections: int, key: str) -> Dict[str, Optional[Figure]]:
    scale = raw.get("scale", {})
    cases = {kind: scale.get(f"{kind}-{connections}") for kind in ("idle", "busy")}
    return {kind: Figure(of[key]) for kind, of in cases.items() if of and key in of}


def _first(first: Raw, key: str) -> Optional[Figure]:
    return Figure(first[key]["median"]) if key in first else None


def _number(value: Optional[float]) -> Optional[Figure]:
    return None if value is None else Figure(value)


def _spread(figures: Optional[Raw]) -> Optional[Figure]:
    return None if figures is None else _figure(figures)


def _figure(found: Optional[Mapping[str, float]]) -> Optional[Figure]:
    return None if found is None else Figure(found["median"], found.get("low"), found.get("high"))


def tables(raw: Raw) -> str:
    """A table for each load."""
    if "peers" not in raw:
        return NOT_MEASURED
    rounds = ", ".join(f"`{name}` {_rounds(of)}" for name, of in raw["peers"]["loads"].items())
    return f"Rounds: {rounds}.\n\n{markdown(raw['peers']).rstrip()}"


def _rounds(load: Raw) -> int:
    return max((len(rounds) for rounds in load["rounds"].values()), default=0)


HEADS = (
    *("case", "own CPU, % of a core", "resident, MB", "attached after, s"),
    *("made", "counted", "turned away", "maps, MB"),
)


def scale(raw: Raw) -> str:
    """A line for each case of scripts/bench/scale.py."""
    lines = ["| " + " | ".join(HEADS) + " |", "|---" * len(HEADS) + "|"]
    for name, of in raw.get("scale", {}).items():
        if not isinstance(of, dict) or "own_cpu_pct" not in of:
            continue
        cells = [name, f"{of['own_cpu_pct']:.1f}", f"{of['rss_mb']:.0f}", f"{of['attach_s']:.2f}"]
        cells += [*_made(of), f"{of['turned_away']:,}", f"{of['maps_bytes'] / 1e6:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) if len(lines) > 2 else NOT_MEASURED


def _made(of: Raw) -> List[str]:
    if "made" in of:
        return [f"{of['made']:,}", f"{of['counted']:,}"]
    if of["calls_made"]:
        return [f"{of['calls_made']:,}", f"{of['calls_counted']:,}"]
    return [f"{of[name]:,} connections" for name in ("connections", "connections_seen")]


FIRST_SAYS = {
    "until_probes_live_s": "command to live probes and the first sample",
    "whole_process_s": "`attach --duration 0.2 --json`, whole",
    "until_figures_on_screen_s": "command to a figure on the screen",
    "until_gone_s": "SIGINT to the end of the process, and of every probe",
}


def first(raw: Raw) -> str:
    """What scripts/bench/first_sample.py says."""
    found = raw.get("first_sample")
    if not found:
        return NOT_MEASURED
    lines = ["| | median, s | least | most |", "|---|---|---|---|"]
    for key, says in FIRST_SAYS.items():
        cells = (f"{found[key][name]:.2f}" for name in ("median", "min", "max"))
        lines.append(f"| {says} | " + " | ".join(cells) + " |")
    plain, screen = (found[f"resident{of}_mb"] for of in ("", "_with_screen"))
    return "\n".join(lines) + f"\n\nResident: {plain:.0f} MB, {screen:.0f} MB with the screen."


BLOCKS = {"machine": machine, "goals": goals, "tables": tables, "scale": scale, "first": first}
