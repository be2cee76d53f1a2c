"""What the verdict or a finding rests on, and what to do about it: pages of text."""

from __future__ import annotations

from typing import Hashable, Iterable, List, Sequence

from udsprobe.model.report import Action, Evidence, Finding, Report, Verdict
from udsprobe.views.dashboard.feed import Frame
from udsprobe.views.dashboard.pages.lines import plain, rests_on, rule, section
from udsprobe.views.dashboard.table import (
    CRITICAL,
    DIM,
    PLAIN,
    WARNING,
    Line,
    Table,
    remedy_key,
)
from udsprobe.views.fields import numbers, waiting, words
from udsprobe.views.fields.escape import visible, wrap, wrap_commands
from udsprobe.views.fields.verdict import (
    commands,
    measured,
    other_findings,
    own_finding,
    remedy,
    said,
)

SEVERITY = {"critical": CRITICAL, "warning": WARNING}
_KEYS = ("y copies", "↑↓ choose")
_WAITS_SHOWN = 3
_MEASUREMENTS = ("thread_time", "stages", "served_requests", "accept_queue", "connects")


def finding_key(finding: Finding) -> Hashable:
    return "finding", finding.id, finding.subject


def verdict_page(frame: Frame, width: int) -> Table:
    """The summary in full, evidence, remedies, runners-up, and what was not measured."""
    report = frame.interval
    verdict = report.verdict
    if verdict is None:
        return Table("verdict (Esc leaves)", (plain(f"verdict: {words.NOT_IN_THIS_VERSION}"),))
    lines = [
        *_head(report, width),
        *_evidence(verdict.evidence, width),
        *_remedies(verdict.actions, width),
        *_waits(report, width),
        *_runners_up(verdict, width),
        *_others(report, width),
        *_unmeasured(report, width),
    ]
    return _page("verdict", lines, verdict.actions, rests_on(report, _MEASUREMENTS, width))


def finding_page(key: object, frame: Frame, width: int) -> Table:
    """One finding's own verdict page; the verdict's where it is that."""
    rows = frame.interval.findings or []
    row = next((each for each in rows if finding_key(each) == key), None)
    if row is None:
        return Table("findings: details (Esc leaves)", (plain("this finding no longer exists"),))
    if row is own_finding(frame.interval):
        return verdict_page(frame, width)
    severity = SEVERITY.get(row.severity, PLAIN)
    lines = [
        Line(None, ", ".join((visible(row.id), visible(row.severity))), severity),
        *_paragraph(row.summary, width),
        *_paragraph(f"about {row.subject}" if row.subject else "", width),
        plain(""),
        *_evidence(row.evidence, width),
        *_remedies(row.actions, width),
        *_unmeasured(frame.interval, width),
    ]
    return _page("finding", lines, row.actions)


def _page(
    name: str, lines: Sequence[Line], actions: Sequence[Action], behind: Sequence[Line] = ()
) -> Table:
    copies = commands(actions)
    keys = ("Esc leaves", *_KEYS[: min(2, len(copies))][::-1], *(["r: probes"] if behind else []))
    title = f"{name} ({', '.join(keys)})"
    return Table(title, tuple(lines), copies=copies, behind=tuple(behind))


def _head(report: Report, width: int) -> List[Line]:
    verdict, told = report.verdict, said(report)
    assert verdict is not None and told is not None
    culprit = ", ".join(filter(None, (told.cause, told.severity)))
    name = " · ".join(filter(None, (told.name, culprit, told.sure)))
    return [
        Line(None, name, SEVERITY.get(told.severity, PLAIN)),
        *_paragraph(verdict.summary, width),
        plain(""),
    ]


def _paragraph(text: str, width: int, indent: int = 0) -> List[Line]:
    if not text:
        return []
    return [plain(" " * indent + line) for line in wrap(text, width - 4 - indent)]


def _evidence(facts: Sequence[Evidence], width: int) -> List[Line]:
    if not facts:
        return []
    lines = [rule("evidence")]
    for fact in facts:
        lines += _paragraph(fact.says, width)
        lines.append(Line(None, f"    {measured(fact)}", DIM))
    return [*lines, plain("")]


def _remedies(actions: Sequence[Action], width: int) -> List[Line]:
    if not actions:
        return []
    lines = [rule("what to do")]
    for number, action in enumerate(actions):
        said_first, *more = wrap(remedy(action), width - 4)
        lines += [Line(remedy_key(number), said_first), *map(plain, more)]
        if action.run is not None:
            lines += [plain(f"    {line}") for line in wrap_commands(f"$ {action.run}", width - 8)]
        undo = [] if action.undo is None else wrap_commands(f"undo: {action.undo}", width - 8)
        lines += [Line(None, f"    {line}", DIM) for line in undo]
        lines += [Line(None, line.text, DIM) for line in _paragraph(action.why, width, 4)]
    return [*lines, plain("")]


def _waits(report: Report, width: int) -> List[Line]:
    return [
        *_sentences(
            "waits that go on",
            map(waiting.sentence_now, waiting.told_now(report, _WAITS_SHOWN)),
            width,
        ),
        *_sentences(
            "who the longest waits were for",
            map(waiting.sentence, waiting.told(report, _WAITS_SHOWN)),
            width,
        ),
    ]


def _sentences(title: str, said: Iterable[str], width: int) -> List[Line]:
    lines = [line for each in said for line in _paragraph(each, width)]
    return [rule(title), *lines, plain("")] if lines else []


def _runners_up(verdict: Verdict, width: int) -> List[Line]:
    if not verdict.runners_up:
        return []
    facts = [
        (visible(each.cause), f"{numbers.spoken(each.share_pct)} %") for each in verdict.runners_up
    ]
    name = "runners-up: part of request time, or of the connections or calls concerned"
    return section(name, facts, width)


def _others(report: Report, width: int) -> List[Line]:
    others = other_findings(report)
    if not others:
        return []
    lines = [rule("other findings")]
    for each in others:
        label = f"{visible(each.severity)} {visible(each.id)}"
        lines.append(Line(None, label, SEVERITY.get(each.severity, PLAIN)))
        lines += _paragraph(each.summary, width, 4)
        for action in each.actions[:1]:
            lines += _paragraph(remedy(action), width, 4)
    return [*lines, plain("")]


def _unmeasured(report: Report, width: int) -> List[Line]:
    facts = [("on this kernel", reason) for reason in words.impaired(report)]
    return section("not measured", facts, width) if facts else []
