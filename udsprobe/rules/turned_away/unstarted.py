"""Threads and processes that cannot be started: whoever needs one for its work turns it away.

Nobody suffers from a refusal alone: it is the root only of harm to the same processes' clients.
"""

from __future__ import annotations

from dataclasses import replace
from typing import FrozenSet, List, Sequence

from udsprobe.model.report import Evidence, Report, Starts
from udsprobe.rules import harm
from udsprobe.rules.causes import FAILED_CONNECTS, FAILING, QUEUES
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.suspect import CRITICAL, WARNING, Suspect
from udsprobe.rules.thresholds import ACCOUNTED_FOR_MIN
from udsprobe.rules.wording import count, evidence, place, process

_BLOCKED = "app-blocked"
_CALLS = ("clone3", "clone", "fork", "vfork")


def with_unstarted(report: Report, suspects: Sequence[Suspect]) -> List[Suspect]:
    """The suspects, and one for each program that cannot start threads or processes; what follows
    from that is its harm."""
    found = list(suspects)
    for row in report.starts or ():
        if not row.refused:
            continue
        caused = [each for each in found if _is_caused(report, row, each)]
        found = [each for each in found if each not in caused]
        found.append(_suspect(report, row, caused))
    return found


def _is_caused(report: Report, row: Starts, each: Suspect) -> bool:
    """By these: one for every second of them at least; of connections that wait, most tries."""
    if not each.is_pressure or each.cause not in (*QUEUES, *FAILED_CONNECTS, *FAILING, _BLOCKED):
        return False
    if not _pids_of(report, each) & _pids(report, row):
        return False
    of: float = row.started + row.refused
    if each.refuses or each.cause not in QUEUES:
        of = _how_many(each)
    return row.refused >= ACCOUNTED_FOR_MIN * of


def _how_many(each: Suspect) -> float:
    """Processes that ended; else clients or requests that are turned away, fail or are late."""
    ended = [fact.value for fact in each.evidence if fact.metric == "exits"]
    lost = each.harm.count if each.harm is not None else None
    return ended[0] if ended else lost or each.seen


def _pids_of(report: Report, each: Suspect) -> FrozenSet[int]:
    rows = [row for row in report.listeners or () if place(row) == each.subject]
    if not each.pids and not rows and each.cause in (_BLOCKED, *FAILING):
        return frozenset(target.pid for target in report.targets)
    return each.pids or frozenset(pid for row in rows for pid in row.pids or ())


def _pids(report: Report, row: Starts) -> FrozenSet[int]:
    """Those that were refused one, and others of the program: of some that have exited."""
    named = (each.pid for each in report.targets if each.comm == row.comm)
    return frozenset([*row.pids, *named])


def _suspect(report: Report, row: Starts, caused: Sequence[Suspect]) -> Suspect:
    queues = [each for each in caused if each.cause in QUEUES]
    worst = sorted(queues or caused, key=lambda each: (harm.rank(each), each.share_pct))
    cause = "accept-starved" if queues else FAILING[0]
    facts = [fact for each in caused for fact in each.evidence]
    own = Suspect(
        cause=cause,
        name=f"{cause}:starts:{row.comm}",
        severity=WARNING,
        is_pressure=False,
        share_pct=100 * row.refused / (row.started + row.refused),
        subject=_who(report, row),
        headline=f"{_who(report, row)} cannot start threads or processes: {_why(report, row)}",
        evidence=(*_facts(report, row), *facts),
        actions=choice.starts(report, row, _who(report, row)),
        seen=row.refused,
        pids=_pids(report, row),
    )
    if not worst:
        return own
    first = worst[-1]
    return replace(
        own,
        severity=CRITICAL,
        is_pressure=True,
        share_pct=first.share_pct,
        subject=first.subject,
        harm=first.harm,
        refuses=first.refuses,
    )


def _who(report: Report, row: Starts) -> str:
    """`python 4711`; `3 processes of apache2`."""
    if len(row.pids) != 1:
        return f"{len(row.pids)} processes of {row.comm}" if row.pids else row.comm
    named = {each.pid: each.comm for each in report.targets}
    return process(row.pids[0], named.get(row.pids[0], row.comm))


def _why(report: Report, row: Starts) -> str:
    """`clone3 fails with EAGAIN, pids.max of /app is 4`."""
    errno = next(iter(row.refused_by_errno))
    return f"{_call(report)} fails with {errno}, {_limit(row)}"


def _call(report: Report) -> str:
    """The only one that targets make; else what all of them are."""
    calls = report.requests.syscalls_per_request
    made = [name for name in _CALLS if calls is not None and name in calls.by_syscall]
    return made[0] if len(made) == 1 else "the call"


def _limit(row: Starts) -> str:
    if next(iter(row.refused_by_errno)) == "ENOMEM":
        return "for want of memory"
    limit = row.limit
    if limit is None:
        return "at a limit that is not known"
    of = f" of {limit.cgroup}" if limit.cgroup is not None else ""
    return f"{limit.name}{of} is {limit.limit:,}"


def _facts(report: Report, row: Starts) -> List[Evidence]:
    per_s = row.refused / report.window.duration_s if report.window.duration_s else 0.0
    errors = ", ".join(f"{errno}: {n:,}" for errno, n in row.refused_by_errno.items())
    says = (
        f"{count(row.refused, 'call')} started no thread or process ({errors}), {per_s:,.0f} a "
        f"second; {row.started:,} started one"
    )
    facts = [evidence("starts_refused", row.refused, "calls", says)]
    if row.limit is not None:
        says = f"{_limit(row)}, and {row.limit.used:,} were there when one was refused last"
        facts.append(evidence("starts_limit", row.limit.limit, "threads", says))
    return facts
