"""What kind of code a cause is in, in words, and what helps against that kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping, Optional, Tuple

from udsprobe.model.code.frames import is_script
from udsprobe.model.code.marks import CALL_BACK
from udsprobe.model.report import CodeKind, Evidence, ProcessCode, Report
from udsprobe.rules.accounts.service import ON_CPU, Service, accepted_by, whole_service
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.thresholds import CODE_KIND_SHARE_MIN, CODE_LARGE_SHARE_MIN
from udsprobe.rules.wording import count, duration, evidence, percent

KIND_WORDS: Mapping[str, str] = {
    "memory-reclaim": "the kernel taking memory back",
    "memory-compaction": "the kernel making huge pages",
    "garbage-collection": "garbage collection",
    "tls-handshake": "TLS handshakes",
    "password-hashing": "password hashing",
    "compression": "compression",
    "json-writing": "writing JSON",
    "json-reading": "reading JSON",
    "template-compiling": "compiling templates",
    "templates": "rendering templates",
    "regular-expression": "regular expressions",
    "text-encoding": "making bytes of text",
    "tls-records": "encryption of what TLS sends and receives",
    "process-creation": "starting and ending processes and threads",
    "disk-sync": "writing files to the disk at once (fsync)",
    "kernel-locks": "locks in the kernel",
    "page-faults": "page faults",
}


def with_kinds(named: Suspect, headline: str, found: ProcessCode, report: Report) -> Suspect:
    """The cause with its kinds of code; the one that has most of the CPU time leads.

    Args:
        named: with its functions. headline: before these were said.
        found: of the process that it is about.
    """
    named = replace(named, code_kinds=tuple(found.kinds))
    service = whole_service(report)
    first = max(found.kinds, key=lambda kind: _part_of_time(kind, service), default=None)
    if first is None or _part_of_time(first, service) < CODE_KIND_SHARE_MIN:
        return named
    facts = (
        _fact(first, found),
        *_handshake_fact(first, found.pid, report),
        *_reply_fact(first, found.pid, report),
    )
    own = choice.code_kind(report, found.pid, first)
    return replace(
        named,
        headline=_headline(named, headline, first) + _said_of_waits(first, service),
        evidence=(*facts, *named.evidence),
        actions=(*own, *named.actions),
    )


def _part_of_time(kind: CodeKind, service: Service) -> float:
    """Of the CPU time; of what is written to the disk at once, with the waits for that disk."""
    share = kind.share_pct / 100
    if not _waits_too(kind, service):
        return share
    cpu_us, disk_us = service.app_us("cpu"), service.app_us("disk")
    return (share * cpu_us + disk_us) / (cpu_us + disk_us)


def _waits_too(kind: CodeKind, service: Service) -> bool:
    """Whose waits they are is not known: its own where fsync has a large part of the CPU time."""
    is_large = kind.share_pct >= 100 * CODE_LARGE_SHARE_MIN
    return kind.kind == "disk-sync" and is_large and service.app_us("disk") > 0


def _said_of_waits(kind: CodeKind, service: Service) -> str:
    if not _waits_too(kind, service):
        return ""
    share = service.app_us("disk") / sum(service.stage_sums_us.values())
    return f"; requests wait for the disk for {percent(share)} of their time"


def _headline(named: Suspect, before: str, kind: CodeKind) -> str:
    share = f"{percent(kind.share_pct / 100)} of its CPU time is {KIND_WORDS[kind.kind]}"
    # A program's own function says more than the library that it calls.
    if is_script(named.code[0].file) or kind.kind in CALL_BACK:
        return f"{named.headline}; {share}"
    *inner, last = kind.stack
    names = [*(name.rpartition(" (")[0] for name in inner), last]
    return f"{before}: {share}: {' ← … ← '.join(names)}"


def _fact(kind: CodeKind, found: ProcessCode) -> Evidence:
    share = kind.share_pct / 100
    says = f"{percent(share)} of {count(found.samples, 'sample')} are {KIND_WORDS[kind.kind]}"
    if kind.threads and kind.threads[0].comm is not None:
        first = kind.threads[0]
        says += f", {percent(first.share_pct / 100)} of these in {first.comm} thread {first.tid}"
    return evidence("code_kind_share", share, "of 1", says, CODE_KIND_SHARE_MIN)


def _handshake_fact(kind: CodeKind, pid: int, report: Report) -> Tuple[Evidence, ...]:
    """What handshakes cost for each connection: that much a connection that is kept saves."""
    accepted, spent_us = accepted_by(report, frozenset((pid,))), _cpu_us(report, pid)
    if kind.kind != "tls-handshake" or not accepted or spent_us is None:
        return ()
    share = kind.share_pct / 100
    each_us = share * spent_us / accepted
    says = (
        f"it accepted {count(accepted, 'connection')}, and handshakes took "
        f"{duration(each_us)} of CPU time for each: connections that are kept would save up to "
        f"{percent(share)} of its CPU time"
    )
    return (evidence("handshake_us", each_us, "µs", says),)


def _reply_fact(kind: CodeKind, pid: int, report: Report) -> Tuple[Evidence, ...]:
    """How much is made of it for each request."""
    if kind.kind not in ("json-writing", "templates", "text-encoding"):
        return ()
    served = [row for row in report.connections or [] if row.pid == pid and row.role == "served"]
    replies = sum(row.requests or 0 for row in served)
    if not replies:
        return ()
    each_bytes = sum(row.bytes_out or 0 for row in served) / replies
    says = f"a reply has {each_bytes:,.0f} bytes on average"
    return (evidence("reply_bytes", each_bytes, "bytes", says),)


def _cpu_us(report: Report, pid: int) -> Optional[float]:
    rows = report.time.processes if report.time is not None else []
    found = next((row for row in rows if row.pid == pid), None)
    if found is None:
        return None
    return 1e6 * found.observed_s * sum(found.share.get(name, 0.0) for name in ON_CPU)
