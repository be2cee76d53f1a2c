"""Where the code is that waits for the upstream which requests wait for."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Sequence, Tuple

from udsprobe.model.code.sleeps import FOR_ANSWERS, is_parked
from udsprobe.model.report import CodePlace, ProcessSleep, Report, SleepCall
from udsprobe.rules.accounts.service import upstream_us
from udsprobe.rules.code.parked import is_enough
from udsprobe.rules.code.sleep_calls import (
    asleep_in,
    service_of,
    waited_us,
    while_watched,
)
from udsprobe.rules.code.words import told
from udsprobe.rules.remedy.known_sleeps import known_sleep
from udsprobe.rules.remedy.task_waits import A_FUTURE, task_wait
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.thresholds import CODE_KIND_SHARE_MIN
from udsprobe.rules.wording import duration, evidence, place
from udsprobe.sample import TASK

_Asked = Tuple[CodePlace, float]

# net/http reads from its client through these, also through a program's own type of connection:
# for the next request, and, while a handler runs, for the end of the connection (server.go).
_READS_FROM_CLIENT = ("net/http.(*connReader).", "net/http.(*conn).readRequest")


def asking(root: Suspect, report: Report) -> Suspect:
    """The cause with the function that most of its upstream's time is waited in."""
    parked, others = _calls(asleep_in(root, report))
    asked_us = service_of(root, report).upstream_us
    inside = _asked([each for each in parked if is_enough(each, asked_us, report)])
    found = inside or _asked(others)
    if not found:
        return root
    total_us = sum(us for _, us in found)
    code = [replace(each, share_pct=100 * us / total_us) for each, us in found]
    slept_us = 0.0 if inside else total_us
    if not _is_of_upstream(code[0], slept_us, root, report):
        return root
    where = told(code[0], code[0].own)
    says = f"{where}, of {duration(total_us)} that requests waited for answers"
    fact = evidence("code_share", code[0].share_pct / 100, "of 1", says)
    return replace(
        root,
        headline=f"{root.headline}: {where}",
        evidence=(fact, *root.evidence),
        code=tuple(code),
    )


def _calls(processes: Sequence[ProcessSleep]) -> Tuple[List[SleepCall], List[SleepCall]]:
    """In which requests may wait for answers: inside a runtime, and those of threads."""
    calls = [call for each in processes for call in each.calls if call.call in FOR_ANSWERS]
    owing = [call for call in calls if call.owing_us]
    parked = [call for call in owing if is_parked(call)]
    return parked, [call for call in owing if call not in parked]


def _asked(calls: Sequence[SleepCall]) -> List[_Asked]:
    """By the program's own function: the place and its time in µs, the longest first."""
    spent_us: Dict[str, float] = {}
    places: Dict[str, CodePlace] = {}
    for call in calls:
        for each in _for_answers(call):
            name, us = each.own or each.stack[0], each.share_pct / 100 * waited_us(call)
            spent_us[name] = spent_us.get(name, 0.0) + us
            places.setdefault(name, each)
    found = [(places[name], us) for name, us in spent_us.items() if us]
    return sorted(found, key=lambda each: -each[1])


def _for_answers(call: SleepCall) -> List[CodePlace]:
    """Without those that wait for a client, or of which a library's function tells that they wait
    for something else."""
    if call.call == TASK:
        return [each for each in call.asked_in if task_wait(each.stack) in (None, A_FUTURE)]
    found = [each for each in call.asked_in if known_sleep(each.stack) is None]
    return [each for each in found if not _is_for_client(each)]


def _is_for_client(place: CodePlace) -> bool:
    return any(frame.startswith(_READS_FROM_CLIENT) for frame in place.stack)


def _is_of_upstream(first: CodePlace, us: float, root: Suspect, report: Report) -> bool:
    """What is waited for others cannot be all that is waited there, and most of this is told.

    Args:
        us: by threads, of whom every sleep is seen; 0 where it was looked now and then.
    """
    service = service_of(root, report)
    asked_us = sum(upstream_us(row) for row in service.upstream if place(row) == root.subject)
    if not asked_us or first.share_pct / 100 <= 1 - asked_us / service.upstream_us:
        return False
    return not us or us >= CODE_KIND_SHARE_MIN * while_watched(asked_us, service, report)
