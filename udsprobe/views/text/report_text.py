"""The report as text, `--plain`: fits 80 columns and 40 lines for a usual service, and up to ten
more in which the slowest request is drawn.

Shows what the dashboard shows, in the same order, words and numbers. Rows that
do not fit the budget are counted, never dropped silently.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from rich.cells import cell_len
from rich.text import Text

from udsprobe.model.coverage import observed_s
from udsprobe.model.report import Action, Listener, Report, Served, Stacks, Syscall, Target
from udsprobe.views.fields import cells, numbers, waiting, words
from udsprobe.views.fields.breakdown import beside_requests, no_turns, time_lines
from udsprobe.views.fields.columns import Column
from udsprobe.views.fields.escape import column as padded
from udsprobe.views.fields.escape import fit, fit_words, visible, wrap, wrap_commands
from udsprobe.views.fields.sequence import drawn, headline, parts_line, remarks, woken_by
from udsprobe.views.fields.verdict import evidence, other_findings, remedy, said
from udsprobe.views.text.lines_of_text import printed

MIN_WIDTH = 80
MAX_WIDTH = 120
MAX_LINES = 40
_HEADINGS = 2
_SOON_S = 3600.0
DRAWN_LINES = 10
_PLACES_SHOWN = 5
FAILING_SHOWN = 3
_INDENT = "  "
_EVIDENCE = "  evidence: "
_DEEPER = " " * 9


class _Shown(NamedTuple):
    """How many lines or rows of each section, where the budget does not allow for all."""

    evidence: int = 3
    remedy: int = 2
    findings: int = 3
    per_request: int = 2
    chain: int = 3
    connects: int = 3
    listeners: int = 9
    members: int = 4
    calls: int = 8
    errors: int = 3
    targets: int = 4
    reasons: int = 8
    waits: int = 3


# The first that fits the budget is used: what says least goes first, the verdict last.
_MEASURES = (
    _Shown(),
    _Shown(targets=2, calls=6),
    _Shown(targets=2, calls=4, errors=2, connects=2, chain=2, reasons=4),
    _Shown(3, 2, 2, 2, 2, 2, 6, 3, 4, 1, 2, 2, 1),
    _Shown(3, 2, 2, 1, 1, 1, 4, 2, 4, 1, 1, 2, 0),
    _Shown(3, 2, 2, 1, 1, 1, 3, 1, 4, 1, 1, 1, 0),
    _Shown(2, 2, 1, 1, 1, 1, 3, 1, 3, 1, 1, 1, 0),
    _Shown(1, 1, 1, 1, 1, 1, 1, 0, 2, 1, 1, 1, 0),
)

# What is wrong or missing; every style has a word beside it.
HEADING, DIM, WARNING, CRITICAL = "bold", "dim", "yellow", "bold red"

_SYSCALLS = (
    Column("name", "system call", 14, "", right=False),
    Column("socket", "socket", 10, "", right=False),
    Column("calls", "calls", 9, ""),
    Column("calls_per_s", "/s", 5, ""),
    Column("bytes", "bytes", 6, ""),
    Column("p50", "p50", 6, ""),
    Column("p99", "p99", 6, ""),
    Column("max", "max", 6, ""),
    Column("cpu", "cpu%", 4, ""),
    Column("now", "now", 3, ""),
)


def render(
    report: Report, width: int = MIN_WIDTH, *, lines: int = MAX_LINES, colour: bool = False
) -> str:
    """The whole report, ending in a newline.

    Args:
        width: terminal columns; at least 80 and at most 120 are used.
        lines: the budget that system-call rows are cut to; other sections
            have budgets of their own. The drawn request is not in it.
        colour: ANSI styles; without them nothing is lost.
    """
    width = max(MIN_WIDTH, min(width, MAX_WIDTH))
    drawing = _slowest(report, width)
    for shown in _MEASURES:
        document = _document(report, width, lines + len(drawing), shown, drawing)
        if len(document) <= lines + len(drawing):
            break
    return printed(document, width, colour=colour)


def _document(
    report: Report, width: int, lines: int, shown: _Shown, drawing: Sequence[Text]
) -> List[Text]:
    above = [
        *_title(report, width, shown),
        *_findings(report, width, shown.findings),
        *_requests(report, width, shown),
        *drawing,
        *_code(report, width, shown.calls // 2),
        *_asleep(report, width, shown.calls // 2),
        *_waits(report, width, shown.waits),
        *_listeners(report, width, shown),
        *_traffic(report, width),
    ]
    below = [
        *_targets(report, width, shown.targets),
        *_unmeasured(report, width, shown.reasons),
        *_cost(report, width),
    ]
    room = lines - len(above) - len(below) - _HEADINGS
    calls = _syscalls(report, width, max(shown.calls, room), shown)
    return [*above, *calls, *below]


def heading(title: str, width: int) -> Text:
    text = Text(f"── {title} ", style=HEADING)
    text.append("─" * (width - text.cell_len))
    return text


def _title(report: Report, width: int, shown: _Shown) -> List[Text]:
    parts = [
        f"udsprobe {visible(report.version)}",
        words.who(report.targets, report.targets_exited),
        f"{numbers.span(report.window.duration_s)} from {words.started(report.window)}",
        visible(report.host.hostname),
    ]
    served, partly = report.requests.served, words.full_detail(report)
    return [
        Text(fit(" · ".join(parts), width), style=HEADING),
        *([Text(_INDENT + fit(partly, width - 2), style=DIM)] if partly else []),
        *_verdict(report, width, shown),
        *map(Text, time_lines(report, width, app=served is not None and served.count > 0)),
    ]


def _verdict(report: Report, width: int, shown: _Shown) -> List[Text]:
    """What it is, how sure, what it rests on, and what to do."""
    told, verdict = said(report), report.verdict
    if told is None or verdict is None:
        return [Text(f"verdict: {words.NOT_IN_THIS_VERSION}", style=DIM)]
    culprit = f"{told.severity}: {told.cause}" if told.severity else told.cause
    headline = " · ".join(filter(None, (told.name, culprit, told.headline, told.sure)))
    style = {"critical": CRITICAL, "warning": WARNING}.get(told.severity, HEADING)
    body = [Text(line, style=style) for line in wrap(headline, width)]
    body.append(Text(_INDENT + told.transport))
    for index, fact in enumerate(verdict.evidence[: shown.evidence]):
        label = " " * len(_EVIDENCE) if index else _EVIDENCE
        body.append(Text(label + fit_words(evidence(fact), width - len(label))))
    return [*body, *_remedy(verdict.actions, width, shown.remedy)]


def _remedy(actions: Sequence[Action], width: int, most: int) -> List[Text]:
    """The remedies of which no line is missing, the first at least."""
    lines: List[str] = []
    for action in actions:
        says, *more = wrap(remedy(action), width - len(_INDENT))
        run = wrap_commands(f"$ {action.run}", width - len(_EVIDENCE)) if action.run else []
        told = [f"{_INDENT}{says}", *(f"    {line}" for line in (*more, *run))]
        if lines and len(lines) + len(told) > most:
            break
        lines += told
    return [Text(line) for line in lines]


def _findings(report: Report, width: int, most: int) -> List[Text]:
    """What else is wrong or worth knowing, a line each."""
    others = other_findings(report)
    body: List[Text] = []
    for each in others[:most]:
        style = {"critical": CRITICAL, "warning": WARNING}.get(each.severity, "")
        more = len(others) - most if len(body) == most - 1 else 0
        told = f" (and {more} more)" if more > 0 else ""
        line = fit_words(f"also {each.severity}: {each.summary}", width - 2 - len(told))
        body.append(Text(_INDENT + line + told, style=style))
    return body


def _requests(report: Report, width: int, shown: _Shown) -> List[Text]:
    served = report.requests.served
    body = [heading("requests", width)]
    if served is None:
        body.append(_note(f"not measured: {words.why_not(report, 'served_requests')}"))
        return [*body, *_connects(report, width, shown.connects)]
    body.append(Text(_INDENT + served_line(served)))
    if served.count:
        body.append(Text(_INDENT + latency_line(served)))
        why = no_turns(served)
        if why is not None:
            body.append(Text(_INDENT + why, style=WARNING))
        body += [Text(_INDENT + fit(each, width - 2)) for each in beside_requests(report)]
        body += _failed_replies(report, width)
    else:
        body[-1].append(": no reply was sent yet on a connection the target accepted")
    if report.requests.syscalls_per_request is not None:
        room = shown.per_request * (width - 4)
        text = words.per_request(report.requests.syscalls_per_request, room)
        body += _wrapped(text, width)
    return [*body, *_chain(report, width, shown.chain), *_connects(report, width, shown.connects)]


def _failed_replies(report: Report, width: int) -> List[Text]:
    """`nginx 4711 replied 17 HTTP 503`, of the processes with most of them."""
    failing = [row for row in report.requests.served_by or () if row.http and row.http.failed]
    failing.sort(key=lambda row: row.http.failed if row.http is not None else 0, reverse=True)
    lines = [
        f"{cells.process(row.pid, row.comm)} replied {', '.join(cells.http_failed(row.http))}"
        for row in failing[:FAILING_SHOWN]
    ]
    return [Text(_INDENT + fit(line, width - 2), style=WARNING) for line in lines]


def _slowest(report: Report, width: int) -> List[Text]:
    """The slowest request, drawn to scale."""
    if not report.requests.slowest:
        return []
    request = report.requests.slowest[0]
    body = [heading("slowest request", width), Text(_INDENT + fit(headline(request), width - 2))]
    body.append(Text(_INDENT + fit_words(parts_line(request), width - 2)))
    told = [*woken_by(request)[:1], *remarks(request)[:1]]
    rows = drawn(request, width - 2, DRAWN_LINES - len(body) - len(told))
    body += [Text(_INDENT + row) for row in rows]
    return [*body, *(_note(fit_words(each, width - 2)) for each in told)]


def _chain(report: Report, width: int, most: int) -> List[Text]:
    """Hops from the outermost inwards, then requests to others."""
    comms = cells.comms_of(report.targets)
    body = []
    hops, upstreams = report.requests.hops or [], report.requests.upstream or []
    for hop in hops:
        shown = cells.hop(hop, observed_s(report, "served_requests"), comms)
        asks = f" → {shown['asks']}" if shown["asks"] else ""
        right = f"  {shown['calls']}  own {shown['own']} of {shown['whole']}"
        who = fit(f"hop {shown['who']}{asks}", width - 2 - len(right))
        body.append(Text(_INDENT + who + right))
    for upstream in upstreams:
        quantiles = cells.latency(upstream.latency_us)
        where = fit(f"{upstream.transport}:{upstream.address}", 36, keep="middle")
        line = f"upstream {where}  {numbers.count(upstream.count)}"
        lost = cells.failed_asking(upstream)
        line += f"  {lost}" if lost else ""
        line += f"  p50 {quantiles['p50']}  p99 {quantiles['p99']}"
        for told in (cells.queued_answers(upstream), cells.login_answers(upstream)):
            line += f", {told}" if told else ""
        body.append(Text(_INDENT + fit(line, width - 2), style=WARNING if lost else ""))
    return [*body[:most], *_more(len(body) - most, "hop or destination", "hops or destinations")]


def _connects(report: Report, width: int, most: int) -> List[Text]:
    """Outgoing connects by destination, those that fail first."""
    ranked = cells.by_trouble(report.connects or [])
    body = []
    for row in ranked[:most]:
        shown = cells.connect(row, observed_s(report, "connects"))
        failed = cells.connect_failed(row)
        told = f"  {'FAILED ' if failed else ''}{shown['errors']}" if shown["errors"] else ""
        right = f"  {shown['calls']}  p50 {shown['p50']}  p99 {shown['p99']}{told}"
        where = max(16, width - len(_INDENT) - len("connect ") - len(right))
        address = fit(shown["address"], where, keep="middle")
        line = fit(f"connect {address}{right}", width - len(_INDENT))
        body.append(Text(_INDENT + line, style=WARNING if failed else ""))
    return [*body, *_more(len(ranked) - most, "destination")]


def served_line(served: Served) -> str:
    """`served 48,120 · 4,812/s`."""
    return f"served {numbers.count(served.count, 15)} · {numbers.rate(served.rate_per_s)}/s"


def latency_line(served: Served) -> str:
    """`latency p50 2.10ms  p90 …  max 31.5ms`."""
    mean = served.latency_us.mean
    if served.latency_us.p50 is None and mean is not None:
        told = f"latency mean {numbers.duration(mean)}"
        return f"{told}  (of the outermost hop; percentiles not measured)"
    quantiles = cells.latency(served.latency_us)
    names = ("p50", "p90", "p99", "p999", "max")
    return "latency " + "  ".join(f"{name} {quantiles[name]}" for name in names)


def _code(report: Report, width: int, rows: int) -> List[Text]:
    """The functions that were running most often, where stacks were taken."""
    if report.stacks is None or not report.stacks.samples:
        return []
    body = [heading("code", width), Text(f"  {words.sampled(report.stacks)}", style=DIM)]
    for place in report.stacks.functions[:rows]:
        path = visible(" ← ".join(place.stack))
        body.append(Text(fit(f"  {numbers.share(place.share_pct / 100):>4} %  {path}", width)))
    return [*body, *_kinds(report.stacks, width), *_stages(report.stacks, width)]


def _kinds(stacks: Stacks, width: int) -> List[Text]:
    """What kinds of code ran, as far as functions tell it."""
    rows = words.code_kinds(stacks)
    body = [Text("  of which", style=DIM)] if rows else []
    for name, share, stack in rows:
        names = f": {visible(' ← … ← '.join(stack))}" if stack else ""
        body.append(Text(fit(f"  {numbers.share(share):>4} %  {name}{names}", width)))
    return body


def _stages(stacks: Stacks, width: int) -> List[Text]:
    """What most of each stage's samples are in."""
    rows = words.stages(stacks)
    body = [Text("  while requests are", style=DIM)] if rows else []
    for name, share, stack in rows:
        path = visible(" ← ".join(stack))
        body.append(Text(fit(f"  {numbers.share(share):>4} %  {name}: {path}", width)))
    return body


def _asleep(report: Report, width: int, rows: int) -> List[Text]:
    """The system calls that targets slept in longest, where somebody watched."""
    sleeps = None if report.stacks is None else report.stacks.sleeps
    if sleeps is None or not sleeps.count:
        return []
    body = [heading("asleep", width), Text(f"  {words.slept(sleeps)}", style=DIM)]
    calls = [call for process in sleeps.processes for call in process.calls]
    for call in calls[:rows]:
        path = visible(" ← ".join(call.code[0].stack)) if call.code else ""
        took = numbers.duration(call.total_us)
        body.append(Text(fit(f"  {took:>7} {call.call or '–'}: {path}", width)))
    return body


def _waits(report: Report, width: int, rows: int) -> List[Text]:
    """Who the longest waits were for."""
    said = [waiting.sentence_now(row) for row in waiting.told_now(report, rows)]
    said += [waiting.sentence(row) for row in waiting.told(report, rows)]
    if not said:
        return []
    body = [heading("waits", width)]
    for sentence in said:
        first, *more = wrap(sentence, width - 4)
        body += [Text(f"  {first}"), *(Text(f"    {line}") for line in more)]
    return body


def _listeners(report: Report, width: int, shown: _Shown) -> List[Text]:
    body = [heading("listeners", width)]
    if report.listeners is None:
        return [*body, _note(f"not measured: {words.why_not(report, 'listeners')}")]
    if not report.listeners:
        return [*body, _note("none: no target listens on a Unix or TCP socket")]
    comms = cells.comms_of(report.targets)
    columns = _listener_columns(report.listeners, comms, width)
    body.append(_header(columns))
    groups = sorted(cells.listener_groups(report.listeners), key=_fullest_first)
    told, left = 0, len(report.listeners)
    for group in groups:
        lines = _listener_group(group, comms, columns, width, shown.members)
        if told and told + len(lines) > shown.listeners:
            break
        body += lines
        told, left = told + len(lines), left - len(group)
    return [*body, *_more(left, "listener")]


def _fullest_first(group: Sequence[Listener]) -> Tuple[bool, float]:
    fullest = max((row.depth.now or 0) / max(row.depth.limit, 1) for row in group)
    return not any(map(cells.has_suffered, group)), -fullest


def _listener_group(
    group: Sequence[Listener],
    comms: Dict[int, str],
    columns: Sequence[Column],
    width: int,
    members: int,
) -> List[Text]:
    if len(group) == 1:
        return _listener(group[0], comms, columns, width)
    bar = next(column.width for column in columns if column.key == "bar")
    style = CRITICAL if any(map(cells.suffers, group)) else ""
    body = [_row(columns, cells.listener_sum(group, bar), style, keep={"address": "end"})]
    shown = ([row for row in group if cells.has_suffered(row)] or list(group))[:members]
    for row in shown:
        body += _listener(row, comms, columns, width, is_member=True)
    return [*body, *_more(len(group) - len(shown), "socket of it")]


def _listener(
    row: Listener,
    comms: Dict[int, str],
    columns: Sequence[Column],
    width: int,
    *,
    is_member: bool = False,
) -> List[Text]:
    style = CRITICAL if cells.suffers(row) else ""
    room = {column.key: column.width for column in columns}
    shown = cells.listener(row, comms, room["bar"])
    below = []
    if is_member:
        shown["address"] = cells.member_address(row, comms)
    elif cell_len(shown["address"]) > room["address"]:
        below = _wrapped(f"that is {shown['address']}", width, style, indent=_DEEPER)
    accepts = "" if is_member else cells.accept_story(row)
    if row.host_path is not None:
        below += _wrapped(f"here {visible(row.host_path)}", width, style, indent=_DEEPER)
    story = " · ".join(filter(None, (shown["trouble"], accepts)))
    below += _wrapped(story, width, style, indent=_DEEPER)
    return [_row(columns, shown, style, keep={"address": "end"}), *below]


def _listener_columns(rows: Sequence[Listener], comms: Dict[int, str], width: int) -> List[Column]:
    longest = max(len(cells.socket_label(row.transport, row.socket_type)) for row in rows)
    owners = max(cell_len(cells.owners(row.pids, comms)) for row in rows)
    address = max(map(cell_len, _addresses(rows, comms)))
    state = max(len(cells.listener_state(row)) for row in rows)
    shares_address = len(cells.listener_groups(rows)) < len(rows)
    state = max(state, len("99 FULL")) if shares_address and state else state
    backlog = max(len(cells.backlog(row.backlog)) for row in rows)
    high_water = any(row.depth.max is not None for row in rows)
    fixed = [
        Column("now", "now", 5, ""),
        *([Column("max", "max", 5, "")] if high_water else []),
        Column("limit", "limit", 5, ""),
        *([Column("state", "", state, "", right=False)] if state else []),
        Column("backlog", "backlog", max(7, backlog), "", right=False),
        Column("owners", "owners", min(15, max(6, owners)), "", right=False),
    ]
    socket = Column("socket", "socket", max(6, longest), "", right=False)
    room = width - 4 - socket.width - sum(column.width + 1 for column in fixed)
    bar = max(6, min(12, room - address - 1))
    title = "accept queue" if bar == 12 else "queue"
    return [
        socket,
        Column("address", "address", min(room - bar, max(7, address)), "", right=False),
        Column("bar", title, bar, "", right=False),
        *fixed,
    ]


def _addresses(rows: Sequence[Listener], comms: Dict[int, str]) -> List[str]:
    shown = []
    for group in cells.listener_groups(rows):
        if len(group) == 1:
            shown.append(visible(group[0].address))
        else:
            shown.append(cells.listener_sum(group, 12)["address"])
            shown += [cells.member_address(row, comms) for row in group]
    return shown


def _syscalls(report: Report, width: int, room: int, limit: _Shown) -> List[Text]:
    body = [heading("system calls", width)]
    if report.syscalls is None:
        return [*body, _note(f"not measured: {words.why_not(report, 'syscalls')}")]
    ranked = cells.by_busiest([row for row in report.syscalls if row.calls or row.in_flight])
    if not ranked:
        return [*body, _note("none: no target has made a call on a socket or a poller yet")]
    most = max(1, min(limit.errors, room - limit.calls))
    failures = _failures(ranked, width, most)
    body.append(_header(_SYSCALLS))
    space = max(4, room - len(failures))
    shown = ranked if len(ranked) <= space else ranked[: space - 1]
    seconds = observed_s(report, "syscalls")
    body += [_row(_SYSCALLS, cells.syscall(row, row, seconds)) for row in shown]
    return [*body, *_more(len(ranked) - len(shown), "row"), *failures]


def _failures(calls: Sequence[Syscall], width: int, most: int) -> List[Text]:
    failing = sorted((row for row in calls if row.errors), key=lambda row: -cells.failed(row))
    parts = [
        f"{cells.call_label(row)} {cells.socket_label(row.transport, row.socket_type)} "
        f"{cells.errors(row.errors)}"
        for row in failing
    ]
    if not parts:
        return []
    lines = _wrapped("errors: " + " · ".join(parts), width, WARNING)
    if len(lines) > most:
        told = " · and more errors: --json has all"
        last = fit(lines[most - 1].plain, width - len(told)) + told
        lines[most - 1 :] = [Text(last, WARNING)]
    return lines


def _traffic(report: Report, width: int) -> List[Text]:
    """What sockets moved, where no system call is seen: a line for each kind."""
    if report.traffic is None:
        return []
    body = [heading("traffic", width)]
    for row in report.traffic:
        socket = cells.socket_label(row.transport, row.socket_type)
        sent, received = (
            f"{numbers.count(messages)} messages, {numbers.size(moved)}"
            for messages, moved in (
                (row.sent_messages, row.sent_bytes),
                (row.received_messages, row.received_bytes),
            )
        )
        body.append(Text(f"{_INDENT}{fit(socket, 15):<15} sent {sent} · received {received}"))
    return body if report.traffic else [*body, _note("no socket moved a byte")]


def _targets(report: Report, width: int, shown: int) -> List[Text]:
    body = [heading("targets", width)]
    if not report.targets:
        return [*body, _note(f"none left: {report.targets_exited} exited")]
    columns = (
        Column("pid", "pid", 7, ""),
        Column("comm", "process", 15, "", right=False),
        Column("state", "state", 7, "", right=False),
        Column("threads", "threads", 7, ""),
        Column("fds", "fds", 6, ""),
        Column("fds_limit", "limit", 8, ""),
        Column("cmdline", "command line", width - 58, "", right=False),
    )
    body.append(_header(columns))
    body += [_row(columns, cells.target(row, 12)) for row in _first_targets(report.targets, shown)]
    body += _more(len(report.targets) - shown, "target")
    body += _places(report.targets, width)
    body += _descriptors(report.targets, width)
    unstarted = words.unstarted(report.starts)
    if unstarted:
        line = fit_words(f"starts REFUSED: {unstarted}", width - len(_INDENT))
        body.append(Text(_INDENT + line, style=WARNING))
    unshown = report.targets_exited - sum(each.state == "exited" for each in report.targets)
    if unshown > 0:
        body.append(_note(f"and {unshown:,} that exited before"))
    ended = words.ends(report.exits)
    if ended:
        body.append(_note(fit_words(f"ended with {ended}", width - len(_INDENT))))
    return body


def _places(targets: Sequence[Target], width: int) -> List[Text]:
    """Units, containers and pods, those with the most targets first; one line."""
    told = Counter(filter(None, map(cells.place, targets))).most_common(_PLACES_SHOWN)
    each = (where if n == len(targets) else f"{where} ×{n}" for where, n in told)
    line = fit_words("runs in: " + " · ".join(each), width - len(_INDENT))
    return [_note(line)] if told else []


def _first_targets(targets: Sequence[Target], shown: int) -> List[Target]:
    return sorted(targets, key=_fds_used, reverse=True)[:shown]


def _descriptors(targets: Sequence[Target], width: int) -> List[Text]:
    """Who got no descriptor, and who will soon have none; one line."""
    told = []
    for row in targets:
        if row.fds.exhausted:
            told.append(f"{cells.process(row.pid, row.comm)} REFUSED {cells.exhausted(row.fds)}")
        elif row.fds.full_in_s is not None and row.fds.full_in_s < _SOON_S:
            told.append(f"{cells.process(row.pid, row.comm)} full in {cells.full_in(row.fds)}")
    line = fit_words("descriptors: " + " · ".join(told), width - len(_INDENT))
    return [Text(_INDENT + line, style=WARNING)] if told else []


def _fds_used(row: Target) -> float:
    return (row.fds.open or 0) / (row.fds.limit or 1)


def _unmeasured(report: Report, width: int, most: int) -> List[Text]:
    missing = words.not_built(report)
    reasons = words.impaired(report)
    lines = [line for reason in reasons[:most] for line in _wrapped(reason, width)]
    lines += _more(len(reasons) - most, "reason")
    if missing:
        lines += _wrapped(f"{words.NOT_IN_THIS_VERSION}: {', '.join(missing)}", width, DIM)
    return [heading("not measured", width), *lines] if lines else []


def _cost(report: Report, width: int) -> List[Text]:
    style = CRITICAL if words.is_incomplete(report.probe) else ""
    return [
        heading("own cost", width),
        Text(_INDENT + fit(_host(report) + words.cost(report.probe), width - 2)),
        *_wrapped("events: " + words.events(report.probe), width, style),
    ]


def _host(report: Report) -> str:
    return f"{words.way(report.probe)} on Linux {visible(report.host.kernel)} · "


def _header(columns: Sequence[Column]) -> Text:
    titles = (padded(c.title, c.width, right=c.right) for c in columns)
    return Text(_INDENT + " ".join(titles), style=DIM)


def _row(
    columns: Sequence[Column],
    row: cells.Cells,
    style: str = "",
    keep: Optional[Dict[str, str]] = None,
) -> Text:
    ends = keep or {}
    shown = (
        padded(fit(row[c.key], c.width, keep=ends.get(c.key, "start")), c.width, right=c.right)
        for c in columns
    )
    return Text(_INDENT + " ".join(shown), style=style)


def _note(text: str) -> Text:
    return Text(_INDENT + text, style=DIM)


def _more(count: int, noun: str, plural: str = "") -> List[Text]:
    if count <= 0:
        return []
    several = plural or _plural(noun, count)
    return [_note(f"and {count} more {several if count > 1 else noun}: --json has all")]


def _plural(noun: str, count: int) -> str:
    first, _, rest = noun.partition(" ")
    return f"{first}{'s' if count > 1 else ''} {rest}".rstrip()


def _wrapped(text: str, width: int, style: str = "", indent: str = _INDENT) -> List[Text]:
    if not text:
        return []
    room = width - len(indent)
    lines: List[str] = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= room:
            lines[-1] = joined
        else:
            lines.append(fit(word, room))
    return [Text(indent + line, style=style) for line in lines]
