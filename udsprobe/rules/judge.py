"""Of all suspects, the one that is the root; the rest are findings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from udsprobe.model.harm import Harm
from udsprobe.model.report import Finding, Report, RunnerUp, Verdict
from udsprobe.rules import causes, harm, nearness
from udsprobe.rules.accounts.request_time import RequestTime, request_time
from udsprobe.rules.accounts.service import Service, services
from udsprobe.rules.accounts.transport_share import NOT_MEASURED, TransportShare, transport_share
from udsprobe.rules.causes import CAUSES, FAILED_CONNECTS, FAILING, PARTS, QUEUES
from udsprobe.rules.code_places import with_code
from udsprobe.rules.no_pressure import healthy, unknown, untold
from udsprobe.rules.remedy.choice import at_its_socket
from udsprobe.rules.seats.held_by_clients import held_by_clients
from udsprobe.rules.seats.kept_pool import kept_pool_suspects
from udsprobe.rules.seats.no_seat import with_no_seat
from udsprobe.rules.suspects import processing as inside
from udsprobe.rules.suspects.buffers import (
    buffer_suspects,
    has_stuck_reader,
    readers_keep_up,
    slow_reader_findings,
)
from udsprobe.rules.suspects.churn import (
    accepted_churn,
    is_most_of_the_work,
    most_opened,
    opened_churn,
)
from udsprobe.rules.suspects.hung import hung_suspects
from udsprobe.rules.suspects.logins import with_logins
from udsprobe.rules.suspects.losses import account_findings
from udsprobe.rules.suspects.nagle import nagle_findings, with_nagle
from udsprobe.rules.suspects.narrow_buffers import narrow_buffer_suspects
from udsprobe.rules.suspects.one_worker import is_most_of, is_queued_at, of_worker, slow_workers
from udsprobe.rules.suspects.stuck import stuck_suspects
from udsprobe.rules.suspects.suspect import LOGINS, SEVERITIES, Suspect
from udsprobe.rules.suspects.traced import is_tracer, with_tracers
from udsprobe.rules.thresholds import ACCOUNTED_FOR_MIN, NEAR_LIMIT, RUNNER_UP_SHARE_PCT_MIN
from udsprobe.rules.turned_away.accept_queue import (
    accept_queue_suspects,
    accepts_late,
    is_overloaded,
    is_short,
    late_alone,
)
from udsprobe.rules.turned_away.closed_unread import closed_unread_suspects
from udsprobe.rules.turned_away.connects import connect_suspects, without_harmless_failures
from udsprobe.rules.turned_away.descriptors import descriptor_suspects
from udsprobe.rules.turned_away.dropped import dropped_suspects
from udsprobe.rules.turned_away.exits import with_exits
from udsprobe.rules.turned_away.failing_replies import with_failing_replies
from udsprobe.rules.turned_away.given_up import with_given_up
from udsprobe.rules.turned_away.no_answer import kept_too_long_findings, with_no_answer
from udsprobe.rules.turned_away.overload import has_time, is_retried
from udsprobe.rules.turned_away.recycled import with_recycled
from udsprobe.rules.turned_away.unstarted import with_unstarted
from udsprobe.rules.wording import at_most, place


def judged(
    report: Report, slo_us: Optional[float] = None, before: Optional[Verdict] = None
) -> Report:
    """The report with its verdict and findings.

    Args:
        slo_us: pressure too when the p99 of served requests is above it.
        before: the verdict a moment ago, which holds while its figures are near their limits.
    """
    judged_services = [_judged_service(report, each, slo_us) for each in services(report)]
    if slo_us is None:
        judged_services = without_waits_for_the_healthy(judged_services)
    judged_services = [each for one in judged_services for each in _with_slow_workers(report, one)]
    suspects = [*_around(report), *(each for one in judged_services for each in one.suspects)]
    suspects = _together(report, suspects)
    near = nearness.highest(
        [
            *(
                nearness.of_service(report, each.service, each.time, slo_us)
                for each in judged_services
            ),
            *({each.cause: each.near} for each in suspects if each.near is not None),
        ]
    )
    suspects = _held(suspects, report, judged_services, near, before)
    outermost = judged_services[0]
    pressing = [each for each in suspects if each.is_pressure]
    root = root_cause(pressing, report, judged_services)
    share = NOT_MEASURED
    if tells_time(report):
        share = transport_share(outermost.service, outermost.time, report)
    if root is None:
        quiet = _without_pressure(report, outermost, share, near)
        return replace(report, verdict=quiet, findings=_findings(suspects, report))
    named = _named(root, suspects, report)
    outweighed = [each for each in pressing if _is_outweighed(each, root, judged_services)]
    suspects = [named if each is root else each for each in suspects]
    root = named
    verdict = _verdict(root, suspects, outweighed, share, report, near)
    findings = _findings(suspects, report, root, verdict.harm)
    return replace(report, verdict=verdict, findings=findings)


def _together(report: Report, suspects: Sequence[Suspect]) -> List[Suspect]:
    """With those, and as those, that the others say more of."""
    found = with_given_up(report, with_no_answer(report, suspects))
    found = with_failing_replies(report, with_no_seat(report, found))
    found = with_unstarted(report, with_exits(report, with_recycled(report, found)))
    found = with_logins(report, with_tracers(report, found))
    return without_harmless_failures(report, found)


# Whose figures have limits that a steady load can be at.
_HELD = (*PARTS, "connection-churn")


def _held(
    suspects: List[Suspect],
    report: Report,
    judged_services: Sequence[JudgedService],
    near: Mapping[str, float],
    before: Optional[Verdict],
) -> List[Suspect]:
    """With what was the verdict a moment ago, while its figures are near their limits.

    It gives way to what is worse, or clearly above its own limit.
    """
    if before is None or before.cause not in _HELD:
        return suspects
    if near.get(before.cause, 0.0) < 1 - NEAR_LIMIT:
        return suspects
    pressing = [each for each in suspects if each.is_pressure]
    root = root_cause(pressing, report, judged_services)
    if root is not None and root.cause == before.cause:
        return suspects
    rivals = [each for each in pressing if each.cause in _HELD]
    if len(rivals) < len(pressing) or any(_is_clear(each, near) for each in rivals):
        return suspects
    was = [each for each in suspects if each.cause == before.cause]
    held = max(was, key=lambda each: (each.subject == before.subject, each.share_pct), default=None)
    if held is None:
        return suspects
    return [
        replace(each, is_pressure=each is held) if each is held or each in rivals else each
        for each in suspects
    ]


def _is_clear(each: Suspect, near: Mapping[str, float]) -> bool:
    return harm.rank(each) > 1 or near.get(each.cause, 0.0) >= 1 + NEAR_LIMIT


def tells_time(report: Report) -> bool:
    """Whether it is measured what threads, and so requests, spend their time on."""
    states = [each.state for each in report.probe.measurements if each.name == "thread_time"]
    return report.time is not None or "off" not in states


@dataclass(frozen=True)
class JudgedService:
    """One service, what its requests spend their time on, and what that points to."""

    service: Service
    time: RequestTime
    suspects: Tuple[Suspect, ...]


def root_cause(
    pressing: Sequence[Suspect], report: Report, judged_services: Sequence[JudgedService] = ()
) -> Optional[Suspect]:
    """The cause of the others: errors, then what fills the queues, then the queues.

    No descriptor left explains every other failure. Of connects that fail and those that a
    full queue turns away, what more users meet comes first.
    """
    exhausted = _first(pressing, ("fd-limit",))
    if exhausted is not None:
        return exhausted
    failing, queue = _first(pressing, FAILED_CONNECTS), _first(pressing, QUEUES)
    if failing is not None and (queue is None or _is_felt_more(failing, queue, report)):
        return failing
    processing = _innermost(pressing)
    if queue is not None:
        if processing is None or not _explains(processing, queue, report, judged_services):
            return queue
        return processing
    if processing is not None and processing.kind == LOGINS:
        return processing
    churns = [each for each in pressing if not _is_outweighed(each, processing, judged_services)]
    return most_opened(report, churns) or processing


# Of a service itself, and those of them that can be another one's.
_INSIDE = (*PARTS, *FAILING)
_OF_OTHERS = ("upstream-wait", *FAILING)


def _innermost(pressing: Sequence[Suspect]) -> Optional[Suspect]:
    """Who waits for another target waits for whatever that one suffers from."""
    found = _first(pressing, _INSIDE)
    passed = []
    while found is not None and found.cause in _OF_OTHERS and found not in passed:
        passed.append(found)
        deeper = [each for each in pressing if each.pids & found.waits_for]
        logins = (each for each in deeper if each.kind == LOGINS)
        found = _first(deeper, _INSIDE) or next(logins, found)
    return found


def without_waits_for_the_healthy(judged_services: Sequence[JudgedService]) -> List[JudgedService]:
    """A target without pressure inside answers as fast as it can: waiting for it is no pressure.

    Only where its own request time accounts for the wait: what is lost between two targets is
    neither's.
    """
    well: Dict[int, float] = {}  # pid → its mean request, µs
    kept: List[JudgedService] = []
    for one in reversed(judged_services):
        suspects = tuple(
            replace(each, is_pressure=False) if _waits_for_the_healthy(each, one, well) else each
            for each in one.suspects
        )
        kept.append(replace(one, suspects=suspects))
        latency = one.service.latency
        # Churn stays a cause of its own, and is named then.
        suffers = any(each.is_pressure and each.cause in PARTS for each in suspects)
        if inside.is_enough(one.time) and not suffers:
            mean_us = (latency.mean if latency is not None else None) or 0.0
            well.update(dict.fromkeys(one.service.pids or (), mean_us))
    return kept[::-1]


def _waits_for_the_healthy(each: Suspect, one: JudgedService, well: Mapping[int, float]) -> bool:
    if each.cause != "upstream-wait" or not each.is_pressure or not each.waits_for:
        return False
    asked = sum(row.count for row in one.service.upstream)
    if not asked or not each.waits_for <= well.keys():
        return False
    accounted_us = max(well[pid] for pid in each.waits_for)
    return accounted_us >= ACCOUNTED_FOR_MIN * one.service.upstream_us / asked


def with_send_as_transport(time: RequestTime) -> RequestTime:
    """Readers that keep up: senders sleep for no longer than copying takes."""
    parts = dict(time.parts_us)
    parts["transport"] += parts["send"]
    parts["send"] = 0.0
    return replace(time, parts_us=parts)


def _judged_service(report: Report, service: Service, slo_us: Optional[float]) -> JudgedService:
    time = request_time(service, starved=accepts_late(report, service.pids))
    if readers_keep_up(report):
        time = with_send_as_transport(time)
        service = replace(service, sends_move=not has_stuck_reader(report))
    found = accepted_churn(report, service)
    if tells_time(report):
        pressed = inside.processing_suspects(inside.of(report, service, time, slo_us))
        found += with_nagle(report, service, time, pressed)
        found += held_by_clients(report, service, time)
    return JudgedService(service, time, tuple(found))


def _with_slow_workers(report: Report, one: JudgedService) -> List[JudgedService]:
    """Its workers too that are ill where all together are well, or that have most of the time."""
    pressing = [each for each in one.suspects if each.is_pressure]
    found = []
    for worker in slow_workers(report, one.service, late_alone(report)):
        other = _judged_service(report, worker, None)
        told = tuple(of_worker(each, worker, one.service, report) for each in other.suspects)
        leads = not pressing or is_most_of(worker, one.service)
        if leads and is_queued_at(other.time) and any(each.is_pressure for each in told):
            found.append(replace(other, suspects=told))
    if not found:
        return [one]
    relieved = tuple(replace(each, is_pressure=False) for each in one.suspects)
    return [replace(one, suspects=relieved), *found]


def _without_pressure(
    report: Report, judged: JudgedService, share: TransportShare, near: Mapping[str, float]
) -> Verdict:
    if not tells_time(report):
        return untold(report)
    service = judged.service
    return unknown(report, service, share) or healthy(report, service, judged.time, share, near)


def _around(report: Report) -> List[Suspect]:
    """What can be wrong beside the requests."""
    return [
        *descriptor_suspects(report),
        *connect_suspects(report),
        *accept_queue_suspects(report),
        *closed_unread_suspects(report),
        *buffer_suspects(report),
        *narrow_buffer_suspects(report),
        *_stuck(report),
        *dropped_suspects(report),
        *opened_churn(report),
    ]


def _stuck(report: Report) -> List[Suspect]:
    """Requests without a reply: by the waits that go on, else by what their process does."""
    found = kept_pool_suspects(report)
    told = {pid for each in found for pid in each.pids}
    found += [each for each in stuck_suspects(report) if not each.pids & told]
    told |= {pid for each in found for pid in each.pids}
    return [*found, *(each for each in hung_suspects(report) if not each.pids & told)]


def _first(suspects: Sequence[Suspect], causes: Tuple[str, ...]) -> Optional[Suspect]:
    """Of the causes, the one that concerns most."""
    found = [each for each in suspects if each.cause in causes]
    return max(
        found,
        key=lambda each: (harm.rank(each), each.severity == "critical", each.share_pct),
        default=None,
    )


def _is_felt_more(failing: Suspect, queue: Suspect, report: Report) -> bool:
    if harm.rank(failing) != harm.rank(queue):
        return harm.rank(failing) > harm.rank(queue)
    return harm.felt(failing, report) >= harm.felt(queue, report)


def _explains(
    processing: Suspect,
    queue: Suspect,
    report: Report,
    judged_services: Sequence[JudgedService],
) -> bool:
    """More arrives than such a thread can take; a burst would have found it free again."""
    if not processing.overloads or queue.refuses:
        return False
    rows = [row for row in report.listeners or [] if place(row) == queue.subject]
    if any(is_retried(row) and is_short(report, row) for row in rows):
        return False
    if any(map(is_retried, rows)):
        services_of = [one.service for one in judged_services if processing in one.suspects]
        if any(has_time(report, each) for each in services_of):
            return False
    return queue.cause == "accept-starved" or any(is_overloaded(row) for row in rows)


def _is_outweighed(
    churn: Suspect, processing: Optional[Suspect], judged_services: Sequence[JudgedService]
) -> bool:
    """What the service suffers from is not what these connections cost: CPU time of its own.

    Of a thread that is busy, they are the reason if they are its service's, and more of its work
    than requests are.
    """
    if churn.cause != "connection-churn" or processing is None or processing.cause not in _INSIDE:
        return False
    if processing.cause not in ("app-cpu", "transport"):
        return True
    if churn.pids and processing.pids and not churn.pids & processing.pids:
        return True
    own = [one.service for one in judged_services if processing in one.suspects]
    return processing.cause == "app-cpu" and not any(map(is_most_of_the_work, own))


def _verdict(
    root: Suspect,
    suspects: Sequence[Suspect],
    outweighed: Sequence[Suspect],
    share: TransportShare,
    report: Report,
    near: Mapping[str, float],
) -> Verdict:
    suffered = harm.worst(suspects, report)
    if root.harm is not None and root.harm.kind == suffered.kind == harm.SLOW:
        suffered = root.harm
    return Verdict(
        cause=root.cause,
        transport_bound=root.cause == "transport",
        transport_share_pct=share.share_pct,
        max_gain_pct=share.max_gain_pct,
        confidence=_confidence(root, [s for s in suspects if s not in outweighed], near),
        summary=_summary(root, suspects, share, suffered),
        subject=root.subject,
        evidence=list(root.evidence),
        actions=at_its_socket(report, root.actions),
        runners_up=_runners_up(root, suspects),
        class_=CAUSES[root.cause].class_,
        harm=suffered,
        code=list(root.code),
        code_kinds=list(root.code_kinds),
    )


def _confidence(root: Suspect, suspects: Sequence[Suspect], near: Mapping[str, float]) -> float:
    """More when much was seen, far from the limit, and when no rival comes near.

    What follows from the root is no rival, nor what hurts less than being turned away does, or
    than a failure that is told by itself.
    """
    symptoms = symptoms_of(root, suspects)
    others = [
        each.share_pct
        for each in suspects
        if each.cause != root.cause and each.is_pressure and each not in symptoms
        if not _is_told_by_itself(root) or harm.rank(each) >= harm.rank(root)
    ]
    margin = 1.0 - 0.5 * min(1.0, max(others, default=0.0) / max(root.share_pct, 1.0))
    amount = root.seen / (root.seen + 2.0)
    at_limit = near.get(root.cause, 0.0)
    clear = nearness.clearness(at_limit) if harm.rank(root) <= 1 and at_limit else 1.0
    return round(min(0.99, margin * amount * (0.5 + 0.5 * clear)), 2)


def _is_told_by_itself(root: Suspect) -> bool:
    """The program turns clients away, or fails, by its own decision; or the kernel tells an error.

    What hurts less is another illness, or follows from that (a proxy sleeps before it tries again).
    """
    return root.refuses or root.cause in (*FAILING, *FAILED_CONNECTS)


def symptoms_of(root: Suspect, suspects: Sequence[Suspect]) -> List[Suspect]:
    """What presses because of the root: queues that it fills, and whoever waits for it."""
    found: List[Suspect] = []
    pids = set(root.pids)
    for each in suspects:
        if each is root or not each.is_pressure:
            continue
        if each.cause in QUEUES and root.overloads and root.cause in PARTS:
            found.append(each)
        # Who is turned away comes again; and what a short queue has no room for are these.
        meets = root.refuses or root.cause == "accept-queue-full"
        if each.cause == "connection-churn" and meets and each.subject == root.subject:
            found.append(each)
    grows = True
    while grows:
        more = [
            each
            for each in suspects
            if each is not root and each.is_pressure and each not in found and each.waits_for & pids
        ]
        found += more
        grows = bool(more)
        pids |= {pid for each in more for pid in each.pids}
    return found


def _named(root: Suspect, suspects: Sequence[Suspect], report: Report) -> Suspect:
    """The root with its code, and as severe as the worst that follows from it."""
    named = root if is_tracer(root) else with_code(root, report)
    all_of_it = [root, *symptoms_of(root, suspects)]
    return replace(named, severity=max((each.severity for each in all_of_it), key=SEVERITIES.index))


_CLASS_WORDS = {
    causes.TRANSPORT: "The transport is the bottleneck",
    causes.NOT_TRANSPORT: "It is not the transport",
    causes.SET_UP: "It is the socket's set-up, not its speed",
}


def _summary(
    root: Suspect, suspects: Sequence[Suspect], share: TransportShare, suffered: Harm
) -> str:
    """What users suffer, its root, what follows from that, and what it says of the transport."""
    queues = [each.headline for each in symptoms_of(root, suspects) if each.cause in QUEUES]
    chain = f"; as a result, {_result(root.headline, queues[0])}" if queues else ""
    class_ = CAUSES[root.cause].class_
    # Of those that got in a free transport could save much, and let in nobody else.
    gain = "" if class_ == causes.SET_UP else _gain(share)
    return f"{suffered.says}: {root.headline}{chain}. {_CLASS_WORDS[class_]}{gain}."


def _result(root: str, symptom: str) -> str:
    """What follows, without the root's words once more."""
    again = f"{root} and "
    return f"it {symptom[len(again) :]}" if symptom.startswith(again) else symptom


def _gain(share: TransportShare) -> str:
    """One figure: the part of a request that a free transport would save."""
    if share.max_gain_pct is None:
        return ""
    return f": a free transport would save {at_most(share.max_gain_pct / 100)} of request time"


def _runners_up(root: Suspect, suspects: Sequence[Suspect]) -> List[RunnerUp]:
    best: Dict[str, float] = {}
    for each in suspects:
        if each.cause != root.cause and each.share_pct >= RUNNER_UP_SHARE_PCT_MIN:
            best[each.cause] = max(best.get(each.cause, 0.0), each.share_pct)
    ranked = sorted(best.items(), key=lambda item: -item[1])
    return [RunnerUp(cause, round(share_pct, 2)) for cause, share_pct in ranked]


def _is_above_its_limits(each: Suspect) -> bool:
    """Nothing is a finding below a limit that it prints."""
    return all(fact.threshold is None or fact.value >= fact.threshold for fact in each.evidence)


def _told(each: Suspect, harm_: Optional[Harm]) -> str:
    return each.headline if harm_ is None else f"{harm_.says}: {each.headline}"


def _findings(
    suspects: Sequence[Suspect],
    report: Report,
    root: Optional[Suspect] = None,
    suffered: Optional[Harm] = None,
) -> List[Finding]:
    """Args: suffered: the verdict's harm, which may be of what follows from the root."""
    causes_inside = tuple(PARTS)
    shown = [
        each
        for each in suspects
        if each.is_pressure
        or is_tracer(each)
        or (each.cause not in causes_inside and _is_above_its_limits(each))
    ]
    ranked = sorted(
        shown, key=lambda each: (each is not root, -SEVERITIES.index(each.severity), each.name)
    )
    found = [
        Finding(
            id=each.cause,
            severity=each.severity,
            subject=each.subject,
            summary=_told(each, suffered if each is root and each.harm else each.harm),
            evidence=list(each.evidence),
            actions=at_its_socket(report, each.actions),
            code=list(each.code),
        )
        for each in ranked
    ]
    return [
        *found,
        *nagle_findings(report, shown),
        *kept_too_long_findings(report),
        *slow_reader_findings(report),
        *account_findings(report),
    ]
