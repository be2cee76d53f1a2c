"""The report of a recording as a page: verdict, evidence, remedies, plots, tables."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from markupsafe import Markup

from udsprobe.model.coverage import observed_s
from udsprobe.model.report import Connection, Listener, Report, Served, Stacks
from udsprobe.model.timeline import HeatMap, Timeline, heat_map
from udsprobe.views.fields import breakdown, cells, numbers, sequence, verdict, waiting, words
from udsprobe.views.html import flame, sequence_plot, time_plots
from udsprobe.views.html.page import render as page
from udsprobe.views.text.report_text import latency_line, served_line

ROWS_MAX = 200
"""Of a table; what is left out is counted."""

CONNECTIONS_MAX = 20
CALLERS_MAX = 3
ASLEEP_MAX = 30
WAITS_MAX = 20
QUEUES_MAX = 12
"""Listeners whose queue is plotted, the fullest first."""

DRAWN_MAX = 3
"""Requests that are drawn, the slowest first."""

_BAR_CELLS = 8
_NOT_AT_ALL = 0.0005


class Column(NamedTuple):
    """`kind`: `text` begins at the left edge, `prose` may be broken too; else numbers."""

    key: str
    title: str
    kind: str = ""


class Table(NamedTuple):
    """`columns` of `rows`; `left_out` rows more there would be."""

    id: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Dict[str, str]]
    left_out: int = 0


class Queue(NamedTuple):
    """One listener's accept queue over time."""

    name: str
    says: str
    plot: Markup


class Moment(NamedTuple):
    """A finding as it was made while recording."""

    first_unix_s: float
    last_unix_s: float
    severity: str
    id: str
    summary: str


def render(report: Report, line: Timeline, moments: Sequence[Moment] = ()) -> str:
    """One HTML document.

    Args:
        line: of the same time as `report`.
        moments: findings of that time.
    """
    return page(
        "report.html.jinja",
        report=report,
        who=words.who(report.targets, report.targets_exited),
        when=f"{numbers.span(report.window.duration_s)} from {words.started(report.window)} UTC",
        said=verdict.said(report),
        evidence=[(fact.says, verdict.measured(fact)) for fact in _facts(report)],
        findings=_findings(report),
        moments=_moments(moments),
        **_requests(report, line),
        **_over_time(report, line),
        **_thread(report),
        **_waits(report),
        **_code(report),
        **_asleep(report),
        **_slowest(report),
        **_tables(report),
        cost=[words.cost(report.probe), "events: " + words.events(report.probe)],
        lost=words.is_incomplete(report.probe),
        missing=_missing(report),
        spoken=numbers.spoken,
        why_not=lambda name: words.why_not(report, name),
    )


def _facts(report: Report) -> Sequence[Any]:
    return () if report.verdict is None else report.verdict.evidence


def _findings(report: Report) -> List[Dict[str, Any]]:
    return [
        {
            "finding": each,
            "evidence": [(fact.says, verdict.measured(fact)) for fact in each.evidence],
        }
        for each in verdict.other_findings(report)
    ]


def _moments(moments: Sequence[Moment]) -> Optional[Table]:
    columns = (
        Column("first", "from"),
        Column("last", "to"),
        Column("severity", "severity", "text"),
        Column("id", "finding", "text"),
        Column("summary", "says", "prose"),
    )
    rows = [
        {
            "first": _clock(each.first_unix_s),
            "last": _clock(each.last_unix_s),
            "severity": each.severity,
            "id": each.id,
            "summary": each.summary,
        }
        for each in moments
    ]
    return _table(
        "moments", "Findings over time, each about the ten seconds before.", columns, rows
    )


def _clock(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, tz=timezone.utc).strftime("%m-%d %H:%M:%S")


def _requests(report: Report, line: Timeline) -> Dict[str, Any]:
    served = report.requests.served
    if served is None or not served.count:
        return {"served": served, "stages": None, "stages_plot": None, "lines": []}
    lines = [served_line(served), latency_line(served)]
    why = breakdown.no_turns(served)
    lines += [*([why] if why is not None else []), *breakdown.beside_requests(report)]
    if report.requests.syscalls_per_request is not None:
        lines.append(words.per_request(report.requests.syscalls_per_request, 400))
    return {
        "served": served,
        "lines": lines,
        "stages": _stages(report, served),
        "stages_plot": time_plots.stage_means(line),
    }


def _stages(report: Report, served: Served) -> Optional[Table]:
    means = breakdown.stage_means(served) or {}
    total = sum(means.values()) or 1.0
    rows = [
        {
            "stage": name,
            "mean": numbers.duration(mean),
            "share": numbers.share(mean / total),
            "of_app": "",
        }
        for name, mean in means.items()
    ]
    parts = [
        {"stage": f"└ {each.name}", "mean": "", "share": "", "of_app": numbers.share(each.share)}
        for each in breakdown.app_parts(report)
        if each.share >= _NOT_AT_ALL
    ]
    below = [*means].index("app") + 1 if "app" in means else len(rows)
    columns = (
        Column("stage", "stage", "text"),
        Column("mean", "mean"),
        Column("share", "% of request"),
        Column("of_app", "% of app"),
    )
    caption = "The mean request of the whole time by stage."
    return _table("stages", caption, columns, [*rows[:below], *parts, *rows[below:]])


def _over_time(report: Report, line: Timeline) -> Dict[str, Any]:
    shown = heat_map(line.intervals)
    queues = _queues(report.listeners or [], line)
    return {
        "thinned": _thinned(line),
        "heat": None if shown is None else time_plots.heat(line, shown),
        "bands": None if shown is None else _bands(shown),
        "percentiles": time_plots.percentiles(line),
        "intervals": _intervals(line),
        "queues": queues[:QUEUES_MAX],
        "queues_left_out": len(queues[QUEUES_MAX:]),
    }


def _thinned(line: Timeline) -> str:
    """How many intervals of what length, and what that means for what is shown."""
    count, samples = len(line.intervals), line.samples
    if not count:
        return "Only one sample: nothing to plot over time."
    lengths = sorted(each.end_s - each.start_s for each in line.intervals)
    typical = numbers.span(lengths[len(lengths) // 2])
    if count == samples - 1:
        return f"{count:,} intervals of {typical}, one for each sample."
    return (
        f"{samples:,} samples are shown as {count:,} intervals of {typical}: counts and "
        "percentiles are of everything that happened in an interval, depths are its maximum."
    )


def _bands(shown: HeatMap) -> Optional[Table]:
    totals = [sum(counts) for counts in shown.counts]
    rows = [
        {
            "band": f"{numbers.duration(low)} – {numbers.duration(high)}",
            "count": numbers.count(count, 15),
            "share": numbers.share(count / sum(totals)),
        }
        for (low, high), count in zip(shown.bounds_us, totals)
    ]
    columns = (Column("band", "latency", "text"), Column("count", "requests"), Column("share", "%"))
    return _table("bands", "Requests of the whole time by latency.", columns, rows)


def _intervals(line: Timeline) -> Optional[Table]:
    names = ("p50", "p90", "p99", "p999", "max")
    columns = (
        Column("from", "from"),
        Column("count", "requests"),
        *(Column(name, name) for name in names),
    )
    rows = []
    for each in line.intervals:
        served = each.served
        shown = cells.latency(None if served is None else served.latency_us)
        count = numbers.count(None if served is None else served.count)
        rows.append({"from": _clock(line.start_unix_s + each.start_s), "count": count, **shown})
    return _table("intervals", "Latencies of each interval.", columns, rows, len(rows))


def _queues(listeners: Sequence[Listener], line: Timeline) -> List[Queue]:
    """Listeners that ever had a connection in the queue, the fullest first."""
    found: List[Tuple[float, Listener, int]] = []
    for row in listeners:
        most = max((each.depth_max.get(row.inode, 0) for each in line.intervals), default=0)
        if most:
            found.append((most / max(row.depth.limit, 1), row, most))
    found.sort(key=lambda each: -each[0])
    plotted = found[:QUEUES_MAX]
    drawn = [
        Queue(
            f"{cells.socket_label(row.transport, row.socket_type)} {row.address}",
            _queue_says(row, most),
            time_plots.depth(line, row.inode, row.depth.limit),
        )
        for _, row, most in plotted
    ]
    return [*drawn, *(Queue(row.address, "", Markup("")) for _, row, _ in found[QUEUES_MAX:])]


def _queue_says(row: Listener, most: int) -> str:
    limit = f"limit {row.depth.limit:,}"
    if not time_plots.has_limit_in_scale(most, row.depth.limit):
        limit += ", far above the scale"
    high = f"at most {most:,} connections; {limit}"
    measured = "" if row.depth.max is not None else "; as seen at each sample"
    return " · ".join(filter(None, (high + measured, cells.trouble(row), cells.accept_story(row))))


def _thread(report: Report) -> Dict[str, Any]:
    busiest = None if report.time is None else report.time.busiest
    if busiest is None:
        return {"thread": None, "thread_plot": None}
    parts = breakdown.activities(busiest.share)
    shown = [(each.name, each.share) for each in parts if each.share >= _NOT_AT_ALL]
    return {
        "thread": {
            "name": f"{busiest.comm} {busiest.tid}",
            "says": ", ".join(f"{name} {numbers.share(share)} %" for name, share in shown),
        },
        "thread_plot": time_plots.shares(shown),
    }


def _code(report: Report) -> Dict[str, Any]:
    """Where stacks were taken."""
    stacks = report.stacks
    if stacks is None or not stacks.samples:
        return {"code": None}
    rows = [
        {
            "function": each.stack[0],
            "share": numbers.share(each.share_pct / 100),
            "own": each.own or "–",
            "callers": " ← ".join(each.stack[1 : 1 + CALLERS_MAX]),
        }
        for each in stacks.functions
    ]
    columns = (
        Column("function", "function", "text"),
        Column("share", "%"),
        Column("own", "own code", "text"),
        Column("callers", "called from, mostly", "prose"),
    )
    caption = "Functions that were running, by their part of the samples."
    return {
        "flame": flame.flame([each for each in stacks.stacks if each.on == "cpu"]),
        "code_says": words.sampled(stacks),
        "code": _table("code", caption, columns, rows),
        "kinds_of_code": _kinds_of_code(stacks),
        "stage_code": _stage_code(stacks),
    }


def _kinds_of_code(stacks: Stacks) -> Optional[Table]:
    """What kinds of code ran; None where functions tell none."""
    rows = [
        {"kind": kind, "share": numbers.share(share), "code": " ← … ← ".join(stack) or "–"}
        for kind, share, stack in words.code_kinds(stacks)
    ]
    columns = (
        Column("kind", "kind of code", "text"),
        Column("share", "%"),
        Column("code", "mostly in", "prose"),
    )
    caption = "What kinds of code ran, by their part of the samples."
    return _table("kinds_of_code", caption, columns, rows) if rows else None


def _stage_code(stacks: Stacks) -> Optional[Table]:
    """What most of each stage's samples are in; None where stages are not known."""
    rows = [
        {
            "stage": stage,
            "share": numbers.share(share),
            "code": " ← ".join(stack[: 1 + CALLERS_MAX]),
        }
        for stage, share, stack in words.stages(stacks)
    ]
    columns = (
        Column("stage", "while requests are", "text"),
        Column("share", "%"),
        Column("code", "mostly in", "prose"),
    )
    caption = "What ran in which stage of requests, by its part of the samples."
    return _table("stage_code", caption, columns, rows) if rows else None


def _asleep(report: Report) -> Dict[str, Any]:
    """Where somebody watched for sleeps."""
    sleeps = None if report.stacks is None else report.stacks.sleeps
    if report.stacks is None or sleeps is None or not sleeps.count:
        return {"asleep": None}
    comms = cells.comms_of(report.targets)
    rows = [
        {
            "process": f"{comms.get(process.pid, '')} {process.pid}".strip(),
            "call": call.call or "–",
            "time": numbers.duration(call.total_us),
            "own": (call.code[0].own if call.code else None) or "–",
            "from": " ← ".join(call.code[0].stack[: 1 + CALLERS_MAX]) if call.code else "–",
        }
        for process in sleeps.processes
        for call in process.calls
    ]
    columns = (
        Column("process", "process", "text"),
        Column("call", "system call", "text"),
        Column("time", "asleep"),
        Column("own", "own code", "text"),
        Column("from", "called from, mostly", "prose"),
    )
    caption = "System calls that threads slept in, all threads together."
    return {
        "asleep_flame": flame.flame([each for each in report.stacks.stacks if each.on != "cpu"]),
        "asleep_says": words.slept(sleeps),
        "asleep": _table("asleep", caption, columns, rows[:ASLEEP_MAX]),
    }


def _waits(report: Report) -> Dict[str, Any]:
    """Whom threads waited for; first those that wait still while replies are owed."""
    rows = [
        {
            "who": waiting.thread(each.comm, each.pid, each.tid),
            "what": waiting.WAITS_FOR.get(each.kind, each.kind),
            "count": "goes on",
            "total": numbers.duration(each.lasted_us),
            "author": waiting.outlook(each),
        }
        for each in waiting.told_now(report, WAITS_MAX)
    ]
    rows += [
        {
            "who": waiting.thread(each.comm, each.pid, each.tid),
            "what": waiting.WAITS_FOR.get(each.kind, each.kind),
            "count": f"{each.count:,}",
            "total": numbers.duration(each.total_us),
            "author": waiting.by_whom(each),
        }
        for each in waiting.told(report, WAITS_MAX)
    ]
    if not rows:
        return {"waits": None}
    columns = (
        Column("who", "thread", "text"),
        Column("what", "waited for", "text"),
        Column("count", "times"),
        Column("total", "together"),
        Column("author", "who ended it", "prose"),
    )
    caption = "The longest waits, and who ended them. Who wakes a thread need not have held a lock."
    return {"waits": _table("waits", caption, columns, rows)}


def _slowest(report: Report) -> Dict[str, Any]:
    """The slowest requests: some drawn, all in a table."""
    found = report.requests.slowest or []
    rows = [
        {
            "took": numbers.duration(each.latency_us),
            "until": each.at[11:23],
            "who": cells.process(each.pid, each.comm),
            "address": f"{each.transport}:{each.address}",
            "parts": sequence.parts_line(each),
        }
        for each in found
    ]
    columns = (
        Column("took", "latency"),
        Column("until", "until"),
        Column("who", "thread", "text"),
        Column("address", "address", "text"),
        Column("parts", "where its time went", "prose"),
    )
    caption = "The slowest requests of every hop; their parts add up to the latency."
    return {
        "drawn_requests": [
            {
                "name": sequence.headline(each),
                "says": ". ".join(
                    (
                        sequence.parts_line(each),
                        *sequence.woken_by(each),
                        *sequence.remarks(each),
                    )
                ),
                "plot": sequence_plot.sequence(each),
            }
            for each in found[:DRAWN_MAX]
        ],
        "slowest": _table("slowest", caption, columns, rows),
    }


def _tables(report: Report) -> Dict[str, Any]:
    return {
        "targets": _targets(report),
        "calls": _calls(report),
        "listeners": _listeners(report),
        "hops": _hops(report),
        "upstreams": _upstreams(report),
        "connects": _connects(report),
        "connections": _connections(report),
    }


def _targets(report: Report) -> Optional[Table]:
    columns = (
        Column("pid", "pid"),
        Column("comm", "process", "text"),
        Column("state", "state", "text"),
        Column("threads", "threads"),
        Column("fds", "open files"),
        Column("fds_limit", "limit"),
        Column("place", "runs in", "prose"),
        Column("cmdline", "command line", "prose"),
    )
    rows = [cells.target(row, _BAR_CELLS) for row in report.targets]
    ended = words.ends(report.exits)
    more = f" Ended with {ended}." if ended else ""
    unstarted = words.unstarted(report.starts)
    more += f" Starts refused: {unstarted}." if unstarted else ""
    return _table("targets", f"The observed processes.{more}", columns, rows)


def _calls(report: Report) -> Optional[Table]:
    ranked = cells.by_busiest([row for row in report.syscalls or () if row.calls or row.in_flight])
    rows = [cells.syscall(row, row, observed_s(report, "syscalls")) for row in ranked]
    columns = (
        Column("name", "system call", "text"),
        Column("socket", "socket", "text"),
        Column("calls", "calls"),
        Column("calls_per_s", "calls/s"),
        Column("bytes", "bytes"),
        Column("p50", "p50"),
        Column("p99", "p99"),
        Column("max", "max"),
        Column("cpu", "cpu%"),
        Column("now", "now"),
        Column("errors", "errors", "prose"),
    )
    return _table("calls", "System calls of the targets; “now” are in progress.", columns, rows)


def _listeners(report: Report) -> Optional[Table]:
    comms = cells.comms_of(report.targets)
    rows = []
    for row in report.listeners or ():
        shown = cells.listener(row, comms, _BAR_CELLS)
        shown["accepted"] = numbers.count(row.accepted)
        shown["address"] = f"{shown['socket']}:{shown['address']}"
        if row.refused is None and row.drops is None:
            shown["trouble"] = shown["trouble"] or numbers.NOT_MEASURED
        rows.append(shown)
    columns = (
        Column("address", "address", "text"),
        Column("now", "now"),
        Column("max", "max"),
        Column("limit", "limit"),
        Column("backlog", "backlog"),
        Column("accepted", "accepted"),
        Column("wait", "wait p99"),
        Column("owners", "owners", "text"),
        Column("trouble", "refused, blocked", "prose"),
    )
    return _table(
        "listeners",
        "Listeners; now, max and limit are connections in the accept queue.",
        columns,
        rows,
    )


def _hops(report: Report) -> Optional[Table]:
    comms = cells.comms_of(report.targets)
    seconds = observed_s(report, "served_requests")
    rows = [cells.hop(row, seconds, comms) for row in report.requests.hops or ()]
    columns = (
        Column("who", "server", "text"),
        Column("address", "listens on", "text"),
        Column("calls", "requests"),
        Column("calls_per_s", "requests/s"),
        Column("whole", "mean"),
        Column("own", "own time"),
        Column("asks", "asks", "prose"),
    )
    caption = "The path of a request, from the outermost server inwards."
    return _table("hops", caption, columns, rows)


def _upstreams(report: Report) -> Optional[Table]:
    rows = [
        {
            "address": f"{row.transport}:{row.address}",
            "peer": cells.peer(row.peer),
            "count": numbers.count(row.count),
            "lost": cells.failed_asking(row),
            "queued": numbers.duration(row.recv_wait_mean_us),
            "logins": cells.login_answers(row),
            **cells.latency(row.latency_us),
        }
        for row in report.requests.upstream or ()
    ]
    columns = (
        Column("address", "destination", "text"),
        Column("peer", "answered by", "text"),
        Column("count", "requests"),
        Column("lost", "failed", "prose"),
        Column("p50", "p50"),
        Column("p99", "p99"),
        Column("max", "max"),
        Column("queued", "of that queued for the app, on average"),
        Column("logins", "of the answers", "prose"),
    )
    return _table("upstreams", "Requests from the targets to other servers.", columns, rows)


def _connects(report: Report) -> Optional[Table]:
    ranked = cells.by_trouble(report.connects or [])
    rows = [cells.connect(row, observed_s(report, "connects")) for row in ranked]
    columns = (
        Column("address", "destination", "text"),
        Column("calls", "connects"),
        Column("p50", "p50"),
        Column("p99", "p99"),
        Column("errors", "errors", "prose"),
    )
    return _table("connects", "Outgoing connects.", columns, rows)


def _connections(report: Report) -> Optional[Table]:
    listed = sorted(report.connections or (), key=lambda row: not cells.connection_state(row))
    rows = [_connection(row) for row in listed]
    more = max(0, (report.connections_total or 0) - len(rows))
    columns = (
        Column("local", "local address", "text"),
        Column("peer", "peer", "text"),
        Column("role", "role", "text"),
        Column("requests", "requests"),
        Column("bytes_in", "in"),
        Column("bytes_out", "out"),
        Column("queued", "unsent"),
        Column("most", "max"),
        Column("buffer", "buffer"),
        Column("state", "state", "prose"),
    )
    told = f"; {more:,} more are open" if more else ""
    caption = f"Connections, those that cannot send first, then the busiest{told}."
    return _table("connections", caption, columns, rows, CONNECTIONS_MAX)


def _connection(row: Connection) -> Dict[str, str]:
    shown = cells.connection(row, _BAR_CELLS)
    unmeasured = row.send_blocked is None and row.stalled_us is None
    state = numbers.NOT_MEASURED if unmeasured else shown["state"]
    return {**shown, "local": shown["local"] or "(no name)", "state": state}


def _table(
    name: str,
    caption: str,
    columns: Sequence[Column],
    rows: Sequence[Dict[str, str]],
    most: int = ROWS_MAX,
) -> Optional[Table]:
    if not rows:
        return None
    return Table(name, caption, columns, rows[:most], len(rows[most:]))


def _missing(report: Report) -> List[str]:
    missing = words.not_built(report)
    not_built = [f"{words.NOT_IN_THIS_VERSION}: {', '.join(missing)}"] if missing else []
    return [*words.impaired(report), *not_built]
