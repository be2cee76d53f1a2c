"""Recordings for unit tests: a busy service, sample by sample, written and read back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Iterator, List, Optional, Sequence

from tests.unit import samples
from udsprobe.model.report import Finding, Report
from udsprobe.recording import Recorder, Retention
from udsprobe.reporting import Reporter
from udsprobe.sample import Sample

START_UNIX_S = samples.START_UNIX_S


def service(count: int, interval_s: float = 1.0) -> Iterator[Sample]:
    """A service whose connections come and go and whose order changes."""
    for number in range(count):
        took_ns = [1_000 + 37 * each for each in range(number + 1)]
        inodes = [700 + each for each in range(number // 7, number // 7 + 5)]
        yield samples.sample(
            number * interval_s,
            sequence=number,
            calls=(
                samples.call("read", samples.UNIX, took_ns, errors={"EAGAIN": number}),
                samples.call("epoll_pwait", samples.OTHER, took_ns[::3], bytes=0),
            ),
            in_flight=(samples.in_flight(since_ns=samples.BOOT_NS + number),) * (number % 3),
            threads=(samples.thread(user=number * 1_000_003, runq=number),),
            exited_activity_ns=samples.activities(user=number),
            served=samples.served(took_ns),
            upstream=(samples.upstream(took_ns[::5]),) if number > 3 else (),
            listeners=(samples.listener(queue=samples.queue(took_ns[::2]), depth_now=number % 4),),
            connections=tuple(
                samples.connection(inode=inode, turns=number, bytes_in=number * inode)
                for inode in (inodes if number % 2 else inodes[::-1])
            ),
            connections_open=5,
        )


def record(
    path: Path,
    taken: Sequence[Sample],
    retention: Optional[Retention] = None,
    *,
    findings: Sequence[int] = (),
    severity: str = "critical",
) -> Recorder:
    """A recorder that was given these samples and is still open.

    Args:
        findings: numbers of samples whose interval has a finding.
    """
    recorder = Recorder(str(path), retention)
    reporter = Reporter(samples.observation(), taken[0])
    recorder.begin(samples.observation(), taken[0])
    for sample in taken[1:]:
        interval = reporter.interval(sample)
        found = [finding(severity)] if sample.sequence in findings else []
        recorder.add(sample, replace(interval, findings=found))
    return recorder


def finding(severity: str) -> Finding:
    return Finding("accept-queue-full", severity, "/run/app.sock", "the queue is full")


def recorded(path: Path, count: int, *, findings: Sequence[int] = ()) -> List[Sample]:
    """A finished recording at `path`, and what is in it."""
    taken = list(service(count))
    with record(path, taken, findings=findings) as recorder:
        assert recorder.failure is None
    return taken


def intervals(taken: Sequence[Sample]) -> List[Report]:
    """As they are live."""
    reporter = Reporter(samples.observation(), taken[0])
    return [reporter.interval(sample) for sample in taken[1:]]
