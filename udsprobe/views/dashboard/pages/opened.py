"""Full-screen pages: what a row rests on, and help. Lines of text, made without a screen."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Optional, Sequence

from udsprobe.model.report import Connect, Latency, Report, Served, ServedBy, Syscall
from udsprobe.views.dashboard.feed import Frame
from udsprobe.views.dashboard.pages.connection import connection_page
from udsprobe.views.dashboard.pages.lines import (
    LABEL,
    Fact,
    latencies,
    plain,
    rests_on,
    rule,
    section,
)
from udsprobe.views.dashboard.pages.listener import listener_page
from udsprobe.views.dashboard.pages.slow import slow_page
from udsprobe.views.dashboard.pages.target import target_page
from udsprobe.views.dashboard.pages.verdict import finding_page, verdict_page
from udsprobe.views.dashboard.state import connect_key
from udsprobe.views.dashboard.table import Line, Table
from udsprobe.views.dashboard.timeline import REPLAY_KEYS_HELP
from udsprobe.views.fields import bars, cells, numbers, words
from udsprobe.views.fields.breakdown import app_parts, beside_requests, no_turns, stages
from udsprobe.views.fields.columns import (
    CONNECTIONS,
    FINDINGS,
    LISTENERS,
    SYSCALLS,
    TARGETS,
    Column,
)
from udsprobe.views.fields.escape import column, fit, visible

_BAR = 40

KEYS_HELP = (
    ("v", "the verdict: evidence, what to do, runners-up; a click on its line does the same"),
    ("↑ ↓", "on the verdict's or a finding's page: choose a remedy, then scroll"),
    (
        "y",
        "on such a page: copy the chosen remedy's command, if it has one and the terminal can copy",
    ),
    (
        "c",
        "the code: which functions time goes to, and where threads sleep, where stacks are taken",
    ),
    ("f", "on the page of code: a flame graph, and the tree again; Enter opens and closes a call"),
    ("r", "on the verdict's page: show the probes its figures come from, and back"),
    ("q, Ctrl+C", "quit; the report of everything seen stays in the terminal"),
    ("p", "pause the screen; measuring continues"),
    ("s", "sort system calls by the next of: calls, errors, p99, cpu, bytes"),
    ("/", "show only rows of this panel that contain a text; Esc shows all"),
    ("Tab, Shift+Tab", "next panel, previous panel; a click does the same"),
    ("↑ ↓ PgUp PgDn", "move in the panel; the wheel does the same"),
    ("z", "show the panel on the whole screen, and back"),
    ("Enter", "details of the row and what they rest on; a double click does the same"),
    (
        "Ctrl+Z",
        "suspend and return to the shell; `fg` resumes, with everything counted meanwhile",
    ),
    ("?", "this page"),
    ("Esc, q", "leave a page"),
)

MARKS_HELP = (
    ("–", "not measured, and never a zero; the reason is below or under Enter"),
    ("·", "measured, and nothing happened in this interval"),
    ("<.01", "more than zero, too small to show"),
    (
        "CAPITALS",
        "FULL, REFUSED, BLOCKED, DROPPED, CLOSED, STALLED, FAILED, LOST, PAUSED: "
        "words for everything that colour shows",
    ),
)


VERDICT_HELP = (
    ("THE TRANSPORT, NOT …", "the one cause that limits requests in the last 10 seconds"),
    (
        "THE SOCKET'S SET-UP",
        "clients cannot connect: queue, permissions, descriptors, connection limit; not its speed",
    ),
    (
        "NO BOTTLENECK",
        "nothing is refused, full, blocked or saturated; the distance to the limits is here",
    ),
    ("NOT ENOUGH DATA", "too few requests to judge, and how many are needed"),
    ("critical, warning", "the severity; its colour says the same"),
    ("sure", "higher with more data, and when no other cause comes near"),
    (
        "a free transport would save",
        "the most of a request that a transport without cost could save",
    ),
)


REQUESTS_HELP = (
    ("served", "replies sent on connections a target accepted, per second"),
    (
        "p50 … max",
        "from the first byte of a request queued to its reply handed to the kernel",
    ),
    (
        "hop",
        "targets that send each other requests, outermost first: own time of the total",
    ),
    ("connect", "the targets' own connects by destination; errors since the start"),
    ("slow", "the 20 slowest since the start and where their time went; Enter draws one"),
    ("calls/request", "all system calls of the targets, by served requests"),
)


def replay_help_page(frame: Optional[Frame], width: int) -> Table:
    """The keys of the time line, then `help_page`."""
    page = help_page(frame, width)
    return replace(page, lines=(*section("time line", REPLAY_KEYS_HELP, width), *page.lines))


def help_page(frame: Optional[Frame], width: int) -> Table:
    """Keys, marks, one sentence for each column, and what is not measured here."""
    lines = [*section("keys", KEYS_HELP, width), *section("marks", MARKS_HELP, width)]
    lines += section("verdict", VERDICT_HELP, width)
    lines += section(
        "where the time goes",
        (
            ("request", "the mean latency by stage, of the last interval; the parts add up to it"),
            ("thread", "the busiest thread's time; Enter on a target lists its threads"),
            ("█ ▓ ▒ ░", "the program, the kernel, ready without a CPU, waiting"),
            ("·", "of a request that is drawn: its earlier calls are not kept"),
        ),
        width,
    )
    lines += section("requests", REQUESTS_HELP, width)
    for name, columns in (
        ("listeners", LISTENERS),
        ("system calls", SYSCALLS),
        ("targets", TARGETS),
        ("findings", FINDINGS),
        ("connections", CONNECTIONS),
    ):
        lines += section(name, _sentences(columns), width)
    if frame is not None:
        lines += _missing(frame.window, width)
    return Table("help (Esc leaves)", tuple(lines))


def details(panel: str, key: object, frame: Frame, width: int) -> Table:
    """What one row rests on; says so when the row is gone."""
    makers = {
        "requests": _requests,
        "listeners": lambda key, frame, width: listener_page(key, frame.window, width),
        "system calls": _syscall,
        "targets": target_page,
        "connections": connection_page,
    }
    if panel == "verdict":
        return verdict_page(frame, width)
    if panel == "findings" and key is not None:
        return finding_page(key, frame, width)
    missing = key is None
    lines = _missing(frame.window, width) if missing else makers[panel](key, frame, width)
    return Table(f"{panel}: details (Esc leaves)", tuple(lines))


def _cpu(call: Syscall) -> str:
    if call.cpu_us is None:
        return "in the calls that submit and wait, and in threads of the kernel"
    return numbers.duration(call.cpu_us).strip()


def _syscall(key: object, frame: Frame, width: int) -> List[Line]:
    window = _call(frame.window, key)
    if window is None:
        return [plain("this row no longer exists")]
    interval = _call(frame.interval, key)
    facts = [
        ("system call", cells.call_label(window)),
        ("socket", cells.socket_label(window.transport, window.socket_type)),
        ("calls", numbers.count(window.calls, 15)),
        ("failed", f"{numbers.count(cells.failed(window), 15)}  {cells.errors(window.errors)}"),
        ("bytes", f"{numbers.count(window.bytes, 20)}"),
        ("time inside", f"{numbers.duration(window.wall_us).strip()}, all threads together"),
        ("on a CPU", _cpu(window)),
        ("in calls of 1 ms or more", f"{cells.slow_share(window)} % of the time inside"),
        ("threads inside now", numbers.count((interval or window).in_flight)),
    ]
    quiet = interval.latency_us if interval else Latency(count=0)
    return [
        *section("since the start", facts, width),
        *latencies({"this interval": quiet, "since the start": window.latency_us}),
        *rests_on(frame.window, ("syscalls", "in_flight"), width),
    ]


def _requests(key: object, frame: Frame, width: int) -> List[Line]:
    connect = next((c for c in frame.window.connects or [] if connect_key(c) == key), None)
    if connect is not None:
        return _connect(connect, frame, width)
    slow = slow_page(key, frame, width)
    if slow is not None:
        return slow
    served, since = frame.interval.requests.served, frame.window.requests.served
    if since is None:
        return _missing(frame.window, width)
    total = {"since the start": since.latency_us}
    if served is not None:
        total = {"this interval": served.latency_us, **total}
    return [
        *section("since the start", _served_facts(since, frame.window), width),
        *latencies(total),
        *_stages(since),
        *_app(frame.window),
        *_served_by(frame.window),
        *_calls_a_request(frame.window, width),
        *rests_on(frame.window, ("served_requests", "stages"), width),
    ]


def _served_facts(served: Served, report: Report) -> List[Fact]:
    facts = [("served", numbers.count(served.count, 15))]
    why = no_turns(served)
    if why is not None:
        facts.append(("but", why))
    facts += [("beside", each) for each in beside_requests(report)]
    return facts


def _stages(served: Served) -> List[Line]:
    measured = {name: value for name, value in vars(served.stages_us).items() if value is not None}
    lines = latencies(measured, "stages") if measured else []
    means = stages(served) if measured else None
    if means is None:
        return lines
    whole = sum(means.values())
    lines.append(rule("the mean request; accept: time after its bytes had arrived"))
    for name, mean in means.items():
        lines.append(_share_line(name, numbers.duration(mean), mean / whole if whole else 0.0))
    return [*lines, plain("")]


def _app(report: Report) -> List[Line]:
    parts = app_parts(report)
    if not parts:
        return []
    lines = [_share_line(part.name, "", part.share) for part in parts]
    return [rule("app: what the thread that received did until it sent"), *lines, plain("")]


def _served_by(report: Report) -> List[Line]:
    """Each process's requests, and what waits at it now."""
    rows = report.requests.served_by or []
    if not rows:
        return []
    heads = ("served", "/s", "mean", "app", "working", "unread", "oldest", "asking")
    lines = [
        rule("by process since the start; now: working on, unread, the oldest of both, asking"),
        plain(" " * LABEL + "".join(f"{title:>9}" for title in heads)),
    ]
    for row in rows:
        oldest = [one.oldest_us for one in (row.in_progress, row.unread) if one.oldest_us]
        cells_of = (
            numbers.count(row.count),
            numbers.rate(row.rate_per_s),
            numbers.duration(row.latency_us.mean),
            numbers.duration(row.stages_mean_us.app),
            *(numbers.count(one.count) for one in (row.in_progress, row.unread)),
            numbers.duration(max(oldest)) if oldest else cells.NOTHING_HAPPENED,
            numbers.count(row.asking.count),
        )
        name = column(fit(cells.process(row.pid, row.comm), LABEL - 1), LABEL)
        lines.append(plain(name + "".join(f"{value:>9}" for value in cells_of)))
    return [*lines, *_given_up(rows), plain("")]


def _given_up(rows: Sequence[ServedBy]) -> List[Line]:
    """Requests that ended without a reply, or with one that failed, where there are any."""
    lines = []
    for row in rows:
        name = column(fit(cells.process(row.pid, row.comm), LABEL - 1), LABEL)
        ends = (_left(row), _dropped(row), _failed(row))
        lines += [plain(f"{name}{told}") for told in ends if told]
    return lines


def _left(row: ServedBy) -> str:
    given_up = row.given_up
    if given_up is None or not given_up.count + given_up.kept_open:
        return ""
    told = f"{given_up.count + given_up.kept_open:,} clients left without a reply"
    if given_up.count:
        told += f", after {numbers.duration(given_up.waited_mean_us)} on average"
    if row.abandoned is not None and row.abandoned.count:
        told += f"; {row.abandoned.count:,} not closed"
    return told


def _dropped(row: ServedBy) -> str:
    if row.dropped is None or not row.dropped.count:
        return ""
    after = numbers.duration(row.dropped.waited_mean_us)
    return f"{row.dropped.count:,} ended by it without a reply, after {after} on average"


def _failed(row: ServedBy) -> str:
    failed = cells.http_failed(row.http)
    return f"replied {', '.join(failed)}" if failed else ""


def _share_line(name: str, amount: str, share: float) -> Line:
    bar = bars.share_bar(share, 1, _BAR).rstrip()
    return plain(f"{column(name, LABEL)} {amount:>9} {numbers.share(share):>5} %  {bar}".rstrip())


def _calls_a_request(report: Report, width: int) -> List[Line]:
    per_request = report.requests.syscalls_per_request
    calls = {} if per_request is None else per_request.by_syscall
    ranked = sorted(calls.items(), key=lambda item: (-item[1], item[0]))
    facts = [(visible(name), numbers.ratio(value)) for name, value in ranked]
    return section("system calls per request", facts, width)


def _connect(since: Connect, frame: Frame, width: int) -> List[Line]:
    latest = [c for c in frame.interval.connects or [] if connect_key(c) == connect_key(since)]
    quiet = latest[0].latency_us if latest else Latency(count=0)
    facts = [
        ("to", visible(f"{since.transport}:{since.address}")),
        ("connect() calls", numbers.count(since.calls, 15)),
        ("failed", cells.errors(cells.connect_errors(since)) or "0"),
    ]
    if "EINPROGRESS" in since.errors:
        facts.append(
            ("EINPROGRESS", "continues in the background, as a non-blocking TCP connect does")
        )
    return [
        *section("outgoing connects since the start", facts, width),
        *latencies({"this interval": quiet, "since the start": since.latency_us}),
        *rests_on(frame.window, ("connects",), width),
    ]


def _call(report: Report, key: object) -> Optional[Syscall]:
    rows = report.syscalls or []
    return next((call for call in rows if cells.syscall_key(call) == key), None)


def _missing(report: Report, width: int) -> List[Line]:
    facts = [("on this kernel", reason) for reason in words.impaired(report)]
    absent = words.not_built(report)
    if absent:
        facts.append(("in this version", ", ".join(absent)))
    return section("not measured", facts, width) if facts else []


def _sentences(columns: Dict[str, Column]) -> List[Fact]:
    return [(column.title or "FULL", column.says) for column in columns.values()]
