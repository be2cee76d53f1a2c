"""What a target's row rests on: descriptors, threads, event loops, and who has the CPUs."""

from __future__ import annotations

from typing import List

from udsprobe.model.coverage import observed_s
from udsprobe.model.report import (
    Cpu,
    CpuAffinity,
    CpuCgroup,
    CpuHolder,
    HostCpu,
    Loop,
    Report,
    Target,
    ThreadTime,
)
from udsprobe.model.threads.cpu_list import cpu_list
from udsprobe.views.dashboard.feed import Frame
from udsprobe.views.dashboard.pages.lines import LABEL, Fact, plain, rests_on, rule, section
from udsprobe.views.dashboard.table import Line
from udsprobe.views.fields import bars, cells, numbers
from udsprobe.views.fields.breakdown import activities
from udsprobe.views.fields.escape import column, fit, visible, wrap

_BAR = 20
_MEASUREMENTS = ("thread_time", "loops", "cpu_holders")


def target_page(key: object, frame: Frame, width: int) -> List[Line]:
    """One process; says so when it has exited."""
    row = next((item for item in frame.window.targets if item.pid == key), None)
    if row is None:
        return [plain("this target has exited")]
    return [
        *section(cells.process(row.pid, row.comm), _facts(row), width),
        *_threads(frame, row.pid, width),
        *_loops(frame.interval, row.pid),
        *_cpu(frame.interval, row.pid, width),
        *_holders(frame.interval),
        *rests_on(frame.window, _MEASUREMENTS, width),
    ]


def _facts(row: Target) -> List[Fact]:
    fds = row.fds
    opened = f"{numbers.count(fds.open)} of {numbers.count(fds.limit, 15)}"
    if fds.growth_per_s:
        sign = "-" if fds.growth_per_s < 0 else "+"
        opened += f", {sign}{numbers.rate(abs(fds.growth_per_s))}/s"
    if fds.full_in_s is not None:
        opened += f": full in {numbers.span(fds.full_in_s)}"
    return [
        ("command line", "–" if row.cmdline is None else visible(row.cmdline)),
        ("runs in", cells.place(row) or "–"),
        ("state", visible(row.state)),
        ("became a target by", visible(row.via)),
        ("threads", numbers.count(row.threads)),
        ("open files", opened),
        ("refused a descriptor", cells.exhausted(fds)),
    ]


def _threads(frame: Frame, pid: int, width: int) -> List[Line]:
    """The process's threads in this interval, busiest first, with the shares worth telling."""
    time = frame.interval.time
    mine = [] if time is None else [thread for thread in time.threads if thread.pid == pid]
    if not mine:
        return []
    lines = [line for thread in mine for line in _thread(thread, width)]
    return [rule("threads in this interval, busiest first"), *lines, plain("")]


def _thread(thread: ThreadTime, width: int) -> List[Line]:
    name = fit(f"{thread.comm} {thread.tid}", LABEL)
    parts = sorted(activities(thread.share), key=lambda part: -part.share)
    told = " · ".join(f"{p.name} {numbers.share(p.share)}" for p in parts if p.share >= 0.0005)
    rows = wrap(told, width - LABEL - 4)
    return [plain(f"{column('' if n else name, LABEL)} {row}") for n, row in enumerate(rows)]


def _loops(report: Report, pid: int) -> List[Line]:
    """Its threads that poll: what becomes ready waits as long as they are away."""
    time = report.time
    mine = [] if time is None else [loop for loop in time.loops or [] if loop.pid == pid]
    if not mine:
        return []
    heads = ("rounds/s", "away mean", "away max")
    seconds = observed_s(report, "loops")
    return [
        rule("event loops: how long each was away from its poller (max: since the start)"),
        plain(" " * LABEL + "".join(f"{title:>11}" for title in heads)),
        *(_loop(loop, seconds) for loop in mine),
        plain(""),
    ]


def _loop(loop: Loop, seconds: float) -> Line:
    values = (
        numbers.rate(cells.per_second(loop.iterations, seconds)),
        numbers.duration(loop.busy_us.mean),
        numbers.duration(loop.busy_us.max),
    )
    name = column(fit(f"{loop.comm} {loop.tid}", LABEL - 1), LABEL)
    return plain(name + "".join(f"{value:>11}" for value in values))


def _cpu(report: Report, pid: int, width: int) -> List[Line]:
    """The host's CPUs, every quota over this process, and which of them it may use."""
    cpu = report.cpu
    if cpu is None:
        return []
    lines = section("CPUs of the host in this interval", _host(cpu), width)
    groups = [group for group in cpu.cgroups or [] if pid in group.pids]
    for group in groups:
        lines += _quota(group, width)
    for limit in cpu.affinities or []:
        lines += _affinity(limit, width) if pid in limit.pids else []
    return lines


def _affinity(limit: CpuAffinity, width: int) -> List[Line]:
    idle = numbers.percentage(limit.others_idle_pct)
    files = ", ".join(map(visible, limit.cpusets))
    facts = [
        ("may run on", f"CPU {cpu_list(limit.cpus)}"),
        ("may not run on", f"CPU {cpu_list(limit.others)}, idle {idle} % of the time"),
        ("set by", files or "sched_setaffinity(2)"),
    ]
    return section("CPUs that it may use", facts, width)


def _host(cpu: Cpu) -> List[Fact]:
    pressure = numbers.percentage(cpu.pressure_some_pct)
    facts = [("a task waited", f"{pressure} % of the time (pressure)")]
    return [*(_shares(cpu.host) if cpu.host is not None else []), *facts]


def _shares(host: HostCpu) -> List[Fact]:
    named = (
        ("user", host.user_pct),
        ("system", host.system_pct),
        ("steal", host.steal_pct),
        ("iowait", host.iowait_pct),
    )
    told = ", ".join(f"{name} {numbers.percentage(value)}" for name, value in named)
    busy = numbers.percentage(host.busy_pct)
    return [
        ("busy", f"{busy} % of {host.cpus} CPUs ({told})"),
        ("runnable now", f"{numbers.count(host.runnable)} threads ran or waited for a CPU"),
    ]


def _quota(group: CpuCgroup, width: int) -> List[Line]:
    pct = numbers.percentage(group.throttled_pct)
    word = "THROTTLED " if group.throttled_periods else ""
    throttled = f"{word}{numbers.count(group.throttled_periods)} of {numbers.count(group.periods)}"
    waited = numbers.spaced(numbers.duration(group.throttled_us))
    facts = [
        ("cgroup", f"{visible(group.path)} (v{group.version})"),
        ("uses", f"{numbers.ratio(group.usage_cpus)} of {numbers.ratio(group.quota_cpus)} CPUs"),
        ("periods throttled", f"{throttled} ({pct} %), {waited} in all"),
    ]
    return section("CPU quota", facts, width)


def _whose(row: CpuHolder) -> str:
    if row.is_target:
        return "  a target"
    if row.is_partner:
        return "  talks to them"
    return "  the kernel's" if row.is_kernel else ""


def _holders(report: Report) -> List[Line]:
    """Who ran while threads of any target waited for a CPU."""
    rows = [] if report.time is None else report.time.cpu_holders or []
    if not rows:
        return []
    lines = [rule("what ran on the CPUs while threads of the targets waited for one")]
    for row in rows:
        who = "none: idle or CPU quota" if row.is_idle else cells.process(row.pid, row.comm)
        who = who if row.pid or row.is_idle else "processes that ended"
        mine = _whose(row)
        bar = bars.share_bar(row.share_pct, 100, _BAR)
        waited = f"{numbers.duration(row.waited_us):>9} {numbers.share(row.share_pct / 100):>5} %"
        name = column(fit(who, LABEL), LABEL)
        lines.append(plain(f"{name} {waited}  {bar}{mine}".rstrip()))
    return [*lines, plain("")]
