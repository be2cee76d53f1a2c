"""Which function the verdict names: of what ran, and of what slept while requests waited."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional, Sequence, Set, Tuple

import pytest

from tests.unit import ill, reports
from udsprobe.model.code.frames import JIT
from udsprobe.model.code.sleeps import sleeping_processes
from udsprobe.model.code.stacks import culprit_pids, stacks
from udsprobe.model.harm import Harm
from udsprobe.model.report import (
    CodePlace,
    ProcessCode,
    ProcessTime,
    Report,
    RootAuthor,
    Sleeps,
    Stacks,
    Verdict,
    Wait,
)
from udsprobe.rules.code.words import told
from udsprobe.rules.code_places import with_code
from udsprobe.rules.remedy import choice
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.wording import evidence
from udsprobe.sample import Sample, StackCounts, StackReading, ThreadActivities

LIBC, APP = "libc.so.6", "app"


def line(function: str, module: str) -> str:
    return f"{function}\t{module}\t\t"


def slept(
    call: str, *frames: Tuple[str, str], ms: int, owing_ms: int, truncated: int = 0
) -> StackCounts:
    text = "\n".join(line(*frame) for frame in frames)
    times = {"slept_ns": ms * 10**6, "owing_ns": owing_ms * 10**6}
    return StackCounts(1, "off-cpu", text, 4, truncated, call=call, **times)


LOCK = (
    *(("main", APP), ("lock", APP), ("pthread_mutex_lock", LIBC)),
    *(("__lll_lock_wait", LIBC), ("do_futex", "[kernel]")),
)
SAVE = (("main", APP), ("save", APP), ("fsync", LIBC), ("do_fsync", "[kernel]"))
JVM = "libjvm.so"
SLEPT = (
    slept("epoll_wait", ("main", APP), ("epoll_wait", LIBC), ms=9000, owing_ms=900),
    slept("futex", *LOCK, ms=300, owing_ms=250),
    slept("fsync", *SAVE, ms=40, owing_ms=30),
    slept("fsync", ("main", APP), ("idle", APP), ("fsync", LIBC), ms=2000, owing_ms=0),
)


def reading(*counts: StackCounts) -> StackReading:
    return StackReading(
        99, 0, 0, (1,), (), unwinds=True, stacks=counts, asleep_on_ns=10**9, sees_owing=True
    )


def found(*counts: StackCounts, before: Tuple[StackCounts, ...] = ()) -> Stacks:
    first, last = (
        replace(reports_sample(), stacks=each)
        for each in (
            replace(reading(*before), asleep_on_ns=0) if before else None,
            reading(*counts),
        )
    )
    made = stacks(first, last)
    assert made is not None
    return made


def of_threads(
    *counts: StackCounts, serving: Sequence[int], idle: Sequence[int] = (5, 98, 99)
) -> Sleeps:
    """Where these threads moved bytes of sockets in the window, and others did not."""
    first, last = (
        replace(
            reports_sample(),
            stacks=replace(reading(*counts), asleep_on_ns=ns),
            threads=tuple(
                ThreadActivities(1, tid, "x", {"sys_socket": ns if tid in serving else 7})
                for tid in {*serving, *idle}
            ),
        )
        for ns in (0, 10**9)
    )
    nothing = replace(first, stacks=replace(reading(), asleep_on_ns=0))
    made = stacks(nothing, last)
    assert made is not None and made.sleeps is not None
    return made.sleeps


BACKGROUND = replace(
    slept("futex", ("pool", APP), ("cond_wait", LIBC), ms=900, owing_ms=800),
    threads={98: 450_000_000, 99: 450_000_000},
)
SERVING = replace(
    slept("futex", *LOCK, ms=300, owing_ms=250), threads={5: 200_000_000, 98: 100_000_000}
)


def test_threads_in_the_background_do_not_hide_those_that_serve() -> None:
    (process,) = of_threads(BACKGROUND, SERVING, serving=(5,)).processes
    (call,) = process.calls
    assert call.code[0].stack[0] == "pthread_mutex_lock (libc.so.6)"
    assert call.code[0].share_pct == 100.0
    assert (call.total_us, call.owing_us) == pytest.approx((200_000.0, 250_000.0 * 2 / 3), rel=1e-6)
    # The process's own sums are of all of them.
    assert process.total_us == pytest.approx(1_200_000.0)


@pytest.mark.parametrize("serving", [(), (6,)])
def test_where_those_that_serve_do_not_sleep_in_it_the_others_do(serving: Tuple[int, ...]) -> None:
    (process,) = of_threads(BACKGROUND, SERVING, serving=serving).processes
    assert process.calls[0].code[0].stack[0] == "cond_wait (libc.so.6)"


@pytest.mark.parametrize(("owing_ms", "all_told"), [(30, True), (60, False)])
def test_where_no_request_waits_in_theirs_the_others_do(owing_ms: int, all_told: bool) -> None:
    """gRPC's workers move no byte, and its own threads sleep for 3 ms while these have requests."""
    own = replace(
        SERVING, slept_ns=300_000_000, owing_ns=owing_ms * 1_000_000, threads={5: 3 * 10**8}
    )
    (process,) = of_threads(BACKGROUND, own, serving=(5,)).processes
    assert (process.calls[0].total_us == pytest.approx(1_200_000.0)) is all_told


def test_a_thread_that_has_ended_may_have_served() -> None:
    """A server that starts one for each connection; who accepts is there all the time."""
    accepting = slept("futex", ("start", APP), ("sem_wait", LIBC), ms=20, owing_ms=20)
    ended = replace(SERVING, threads={5: 300_000_000})
    counts = (replace(accepting, threads={6: 20_000_000}), ended, BACKGROUND)
    (process,) = of_threads(*counts, serving=(6,), idle=(98, 99)).processes
    assert process.calls[0].code[0].stack[0] == "pthread_mutex_lock (libc.so.6)"
    assert process.calls[0].total_us == pytest.approx(320_000.0)


def test_sleeps_that_were_too_many_to_be_told_one_by_one_count() -> None:
    """By the innermost function alone; whose they were is not known."""
    untold = slept("futex", ("__lll_lock_wait", LIBC), ms=900, owing_ms=900, truncated=4)
    (process,) = of_threads(SERVING, BACKGROUND, untold, serving=(5,)).processes
    assert process.calls[0].total_us == pytest.approx(200_000.0 + 900_000.0)


def reports_sample() -> Sample:
    nothing = dict.fromkeys(
        ("calls", "in_flight", "syscalls_by_name", "threads", "exited_activity_ns", "listeners")
    )
    more = dict.fromkeys(("namespaces", "connects", "served", "upstream", "connections"))
    return Sample(
        sequence=0, monotonic_ns=0, unix_s=0.0, targets=(), targets_exited=0,
        connections_open=None, probe=None, **nothing, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def suspect(cause: str, *metrics: str) -> Suspect:
    facts = tuple(evidence(metric, 1.0, "µs", metric) for metric in metrics)
    return Suspect(cause, cause, "warning", True, 90.0, None, "it sleeps", facts)


def named(report: Report, cause: str, *metrics: str) -> List[str]:
    return [each.stack[0] for each in with_code(suspect(cause, *metrics), report).code]


@pytest.mark.parametrize(
    ("part", "first"),
    [
        ("app_lock_us", "100 % in pthread_mutex_lock ← lock (app)"),
        ("app_disk_us", "100 % in fsync ← save (app)"),
        ("app_timer_us", "100 % in epoll_wait ← main (app)"),
        (None, "100 % in pthread_mutex_lock ← lock (app)"),
    ],
)
def test_what_the_verdict_is_about_is_named(part: Optional[str], first: str) -> None:
    report = replace(reports.measured(), stacks=found(*SLEPT))
    named = with_code(suspect("app-blocked", *filter(None, [part])), report)
    assert named.headline == f"it sleeps: {first}"
    assert named.code[0].on == "off-cpu"
    assert named.evidence[0].says.startswith(first)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("nanosleep", "take the sleep out of the request, or make it shorter: f ← main (app)"),
        ("futex", "held for less long or divided: f ← main (app)"),
        ("fdatasync", "call fsync once for many changes"),
        ("wait4", "do without that call in the request, or make it less often: f ← main (app)"),
        ("epoll_wait", "find the timer"),
    ],
)
def test_what_to_do_is_told_with_the_function(call: str, says: str) -> None:
    """In place of the line that would look for it; what else there is to do stays."""
    slept_in = found(slept(call, ("main", APP), ("f", APP), ms=300, owing_ms=250))
    part = {"futex": "app_lock_us", "epoll_wait": "app_timer_us"}.get(call, "app_sleep_us")
    actions = (*remedies("sleeps", pid=1), *remedies("disk"))
    subject = "a timer (nanosleep)" if call == "nanosleep" else None
    asked = replace(suspect("app-blocked", part), actions=actions, subject=subject)
    told = with_code(asked, replace(reports.measured(), stacks=slept_in))
    assert says in told.actions[0].say and told.actions[1:] == remedies("disk")


def test_a_thread_of_go_that_writes_at_once_is_told_and_no_goroutines_are_looked_for() -> None:
    """Packages of go.etcd.io and go.uber.org are no part of Go: the thread is none of its own."""
    frames = (
        *(("runtime.goexit", "etcd"), ("go.etcd.io/etcd/wal.(*WAL).sync", "etcd")),
        ("syscall.Fdatasync", "etcd"),
    )
    actions = (*remedies("sleeps", "go", pid=1), *remedies("disk"))
    asked = replace(suspect("app-blocked", "app_disk_us"), actions=actions)
    slept_in = found(slept("fdatasync", *frames, ms=300, owing_ms=250))
    told = with_code(asked, replace(reports.measured(), stacks=slept_in))
    assert told.headline.endswith(
        "100 % in syscall.Fdatasync ← go.etcd.io/etcd/wal.(*WAL).sync (etcd)"
    )
    assert "call fsync once for many changes" in told.actions[0].say
    assert told.actions[1:] == remedies("disk")


def test_of_redis_no_timer_of_a_program_is_looked_for() -> None:
    """Its clients have it wait: CLIENT PAUSE, say. Nobody changes its code."""
    paused = found(slept("epoll_wait", ("main", APP), ("aeMain", APP), ms=300, owing_ms=250))
    asked = replace(suspect("app-blocked", "app_timer_us"), actions=remedies("sleeps", pid=1))
    heard = replace(reports.measured(), stacks=paused)
    heard = replace(
        heard,
        targets=[reports.target(1, "redis-server")],
        listeners=[replace(each, pids=[1]) for each in heard.listeners or []],
    )
    (look,) = with_code(asked, heard).actions
    assert "INFO commandstats" in (look.run or "") and "CLIENT UNPAUSE" in look.why
    assert choice.stuck(heard, 1)[0] == look


@pytest.mark.parametrize(
    ("call", "part", "says"),
    [
        ("epoll_wait", "app_timer_us", "find the timer"),
        ("nanosleep", "app_sleep_us", "take the sleep out of the request"),
        ("wait4", "app_sleep_us", "see in which system call each thread sleeps"),
    ],
)
def test_of_a_function_without_a_name_the_call_says_what_to_do(
    call: str, part: str, says: str
) -> None:
    """Of a program without symbols: the headline has no name that is none."""
    slept_in = found(slept(call, ("main", LIBC), ("", APP), ms=300, owing_ms=250))
    asked = replace(suspect("app-blocked", part), actions=remedies("sleeps", pid=1))
    told = with_code(asked, replace(reports.measured(), stacks=slept_in))
    assert told.headline == asked.headline and told.code[0].function is None
    assert [says in (each.say or "") for each in told.actions] == [True]


FAULT = (("main", APP), ("lookup", APP), ("handle_mm_fault", "[kernel]"))


@pytest.mark.parametrize("metric", ["app_disk_us", "app_sleep_us"])
def test_memory_that_is_read_from_the_disk(metric: str) -> None:
    """Outside of any system call only a page fault waits for a disk."""
    report = replace(reports.measured(), stacks=found(slept("", *FAULT, ms=300, owing_ms=250)))
    named = with_code(suspect("app-blocked", metric), report)
    if metric == "app_disk_us":
        words = "page faults read its memory from the disk: 100 % in lookup ← main (app)"
        assert named.headline == f"it sleeps; {words}"
        assert [each.effect for each in named.actions] == ["looks", "restarts"]
        assert "memory.max" in (named.actions[0].run or "")
    else:
        assert (named.headline, named.actions) == ("it sleeps: 100 % in lookup ← main (app)", ())


def test_without_names_of_the_kernel_no_page_fault_is_told() -> None:
    report = replace(reports.measured(), stacks=found(slept("", *FAULT[:2], ms=300, owing_ms=250)))
    named = with_code(suspect("app-blocked", "app_disk_us"), report)
    assert named.headline == "it sleeps: 100 % in lookup ← main (app)"


def test_the_window_has_what_was_added_in_it() -> None:
    half = tuple(
        replace(each, samples=1, slept_ns=each.slept_ns // 2, owing_ns=each.owing_ns // 2)
        for each in SLEPT
    )
    sleeps = found(*SLEPT, before=half).sleeps
    assert sleeps is not None
    assert (sleeps.count, sleeps.total_us) == (12, 5_670_000.0)
    assert sleeps.processes[0].owing_us == 590_000.0


def test_of_whom_no_caller_is_known_says_nothing_against_the_others() -> None:
    known = slept("fsync", ("save", APP), ("fsync", LIBC), ms=10, owing_ms=10)
    bare = slept("fsync", ("fsync", LIBC), ms=90, owing_ms=90, truncated=4)
    (process,) = found(known, bare).sleeps.processes  # type: ignore[union-attr]
    (call,) = process.calls
    assert call.code[0].stack == ["fsync (libc.so.6)", "save (app)"]
    assert (call.truncated, call.code[0].share_pct) == (4, 100.0)


def test_where_only_the_sleeper_is_known_it_was_entered_as_elsewhere() -> None:
    """Short sleeps in one lock: stacks of some of them were taken."""
    bare = slept("futex", ("__lll_lock_wait", LIBC), ms=900, owing_ms=900, truncated=4)
    (process,) = found(slept("futex", *LOCK, ms=300, owing_ms=300), bare).sleeps.processes  # type: ignore[union-attr]
    place = process.calls[0].code[0]
    assert place.stack[:2] == ["pthread_mutex_lock (libc.so.6)", "lock (app)"]
    assert place.share_pct == 100.0


def test_the_way_into_the_kernel_is_no_place() -> None:
    """Three system calls have a third of the time each: what calls all of them is named."""
    stacks_of = [
        "\n".join(
            [
                *(line("main.main", APP), line("app.copy", APP), line(f"syscall.{call}", APP)),
                *(line(each, "[kernel]") for each in ("entry_SYSCALL_64_after_hwframe",)),
                *(line(each, "[kernel]") for each in ("do_syscall_64", f"__x64_sys_{call}")),
            ]
        )
        for call in ("read", "readv", "write")
    ]
    counts = [StackCounts(1, "cpu", text, 100, 0) for text in stacks_of]
    (process,) = found(*counts).processes
    assert process.code[0].stack == ["app.copy (app)", "main.main (app)"]
    assert process.code[1].stack[:2] == ["__x64_sys_read ([kernel])", "syscall.read (app)"]


def test_interpreted_code_is_named_where_a_part_of_its_stacks_was_taken() -> None:
    script = "\n".join((line("main", "node"), "dump\tnode\t/srv/app.js\t7", line("fsync", LIBC)))
    known = StackCounts(1, "off-cpu", script, 4, 0, call="fsync", slept_ns=200 * 10**6)
    bare = slept("fsync", ("fsync", LIBC), ms=800, owing_ms=0, truncated=4)
    (process,) = found(known, bare).sleeps.processes  # type: ignore[union-attr]
    place = process.calls[0].code[0]
    assert (place.stack[0], place.share_pct) == ("dump (app.js:7)", 100.0)
    bare = slept("fsync", ("fsync", LIBC), ms=8000, owing_ms=0, truncated=4)
    (process,) = found(known, bare).sleeps.processes  # type: ignore[union-attr]
    assert process.calls[0].code[0].function == "fsync"
    often = replace(known, samples=400)
    (process,) = found(often, bare).sleeps.processes  # type: ignore[union-attr]
    assert process.calls[0].code[0].function == "dump"


def asleep_in(call: str, *frames: Tuple[str, str], owing_ms: int = 10) -> StackCounts:
    """The innermost first."""
    return slept(call, *reversed(frames), ms=10, owing_ms=owing_ms)


def owns(*counts: StackCounts) -> List[Optional[str]]:
    """Of each call's first place."""
    sleeping = found(*counts).sleeps
    assert sleeping is not None
    return [call.code[0].own for each in sleeping.processes for call in each.calls]


GO = "server"
# The innermost first, as all in the tests that follow.
TAKEN = (
    *(("pthread_cond_wait", LIBC), ("std::condition_variable::wait", "libstdc++.so.6")),
    ("pool::take", APP),
)
LOCKED = (
    *(("syscall", LIBC), ("<std::sys::sync::mutex::futex::Mutex>::lock_contended", APP)),
    ("<alloc::vec::Vec<u8> as crate::Store>::put", APP),
)
SYNCED = (
    *(("internal/runtime/syscall/linux.Syscall6", GO), ("syscall.Syscall", GO)),
    *(("syscall.Fsync", GO), ("internal/poll.(*FD).Fsync", GO), ("os.(*File).Sync", GO)),
    *(("shop.example/db.save", GO), ("runtime.goexit", GO)),
)
PARKED = (("runtime.futex.abi0", GO), ("runtime.notesleep", GO), ("runtime.mcall", GO))


@pytest.mark.parametrize(
    ("frames", "first", "own"),
    [
        ((("fsync", LIBC), ("save", APP)), "fsync (libc.so.6)", "save (app)"),
        ((("fsync", LIBC), ("", APP), ("save", APP)), "fsync (libc.so.6)", "save (app)"),
        ((("fsync", LIBC), ("", APP)), "fsync (libc.so.6)", None),
        (TAKEN, f"{TAKEN[1][0]} (libstdc++.so.6)", "pool::take (app)"),
        (LOCKED, f"{LOCKED[1][0]} (app)", f"{LOCKED[2][0]} (app)"),
        (SYNCED, "os.(*File).Sync (server)", "shop.example/db.save (server)"),
        (PARKED, "not known (server)", None),
        ((("epoll_wait", LIBC), ("uv_run", "node")), "epoll_wait (libc.so.6)", None),
        ((("poll", LIBC), ("f", "select.cpython-311.so")), "poll (libc.so.6)", None),
        ((("time.part.0", APP), ("main", APP)), "time.part.0 (app)", "time.part.0 (app)"),
    ],
)
def test_who_waits_is_told_from_how(
    frames: Tuple[Tuple[str, str], ...], first: str, own: Optional[str]
) -> None:
    counts = asleep_in("fsync", *frames)
    assert owns(counts) == [own]
    (process,) = found(counts).sleeps.processes  # type: ignore[union-attr]
    assert process.calls[0].code[0].stack[0] == first


LATCH = (("epoll_wait", LIBC), ("wait_events", APP), ("wait_latch", APP))


def test_what_waits_for_work_go_through_too_is_how_a_program_waits() -> None:
    asked = asleep_in("epoll_wait", *LATCH, ("pg_sleep", APP), ("run", APP))
    assert owns(asked) == ["wait_events (app)"]
    idle = asleep_in("epoll_wait", *LATCH, ("writer", APP), owing_ms=0)
    assert owns(asked, idle) == ["pg_sleep (app)"]
    # The same wait while nothing is owed says nothing of it.
    again = replace(asked, pid=2, owing_ns=0)
    assert owns(asked, again) == ["wait_events (app)", "wait_events (app)"]
    # What has no name may be anything.
    nameless = asleep_in("epoll_wait", LATCH[0], ("", APP), ("writer", APP), owing_ms=0)
    assert owns(asked, nameless) == ["wait_events (app)"]


@pytest.mark.parametrize(("served_ms", "is_told"), [(30.0, True), (3.0, False)])
def test_where_threads_wait_for_work_is_no_place_of_requests(
    served_ms: float, is_told: bool
) -> None:
    """They slept in the same call for far longer than requests wait for locks."""
    requests = ill.served(10, recv_wait=0, recv=0, send=0, app=1000 * served_ms, lock=100.0)
    slept_in = asleep_in("futex", ("main", APP), ("take", APP), ("futex_wait", LIBC), owing_ms=30)
    told_of = found(slept_in)
    assert told_of.sleeps is not None
    sleeps = replace(told_of.sleeps, watched_s=ill.SECONDS / 10)
    report = replace(ill.service(requests), stacks=replace(told_of, sleeps=sleeps))
    code = with_code(suspect("app-blocked", "app_lock_us"), report).code
    assert bool(code) is is_told


def test_a_verdict_ends_with_who_waits() -> None:
    stack = ["epoll_wait (libc.so.6)", "wait_latch (app)", "pg_sleep (app)"]
    place = CodePlace("epoll_wait", LIBC, None, None, 99.0, "off-cpu", stack, "pg_sleep (app)")
    assert told(place) == "99 % in epoll_wait ← … ← pg_sleep (app)"


@pytest.mark.parametrize(
    ("first", "own", "says"),
    [
        ("main.mix (main.go:3)", "main.mix (main.go:3)", "main.mix (main.go:3) ← "),
        ("runtime.mallocgc (malloc.go:1055)", "main.serve (main.go:7)", "runtime.mallocgc ← "),
    ],
)
def test_of_go_the_program_s_own_function_has_its_place(first: str, own: str, says: str) -> None:
    name, place = first.rstrip(")").split(" (")
    file, line = place.split(":")
    stack = [first, "main.serve (main.go:7)"]
    code = CodePlace(name, "shop", file, int(line), 97.0, "cpu", stack, own)
    assert told(code) == f"97 % in {says}main.serve (main.go:7)"


STANDBY = "a standby to confirm its commit (synchronous replication)"
TABLE = "a lock of a table, or of all tables (metadata lock)"


def test_most_that_wait_for_a_lock_are_told_and_not_who_ends_it() -> None:
    """Whose transaction others wait for is the subject, and sleeps for something else."""
    for_lock = (("ProcSleep", APP), ("WaitLatch", APP), ("epoll_wait", LIBC))
    waits = slept("epoll_wait", *for_lock, ms=700, owing_ms=700)
    ends = slept("epoll_wait", ("pg_sleep", APP), ("epoll_wait", LIBC), ms=900, owing_ms=900)
    rows = [replace(waits, pid=pid) for pid in (2, 3)] + [replace(ends, pid=9)]
    report = with_processes(found(*rows), 2, 3, 9)
    root = replace(suspect("app-blocked", "app_timer_us"), subject="postgres 9")
    named_ = with_code(root, report)
    assert named_.headline.endswith(
        "for a lock of the database: 100 % in epoll_wait ← … ← ProcSleep (app)"
    )
    alone = with_processes(found(rows[0], rows[2]), 2, 9)
    assert "pg_sleep" in with_code(root, alone).headline


def with_processes(stacks_of: Stacks, *pids: int) -> Report:
    """A report with these stacks, of processes of PostgreSQL."""
    report = reports.measured()
    assert report.time is not None
    share = report.time.total
    processes = [ProcessTime(pid, "postgres", 1, 10.0, share) for pid in pids]
    return replace(report, stacks=stacks_of, time=replace(report.time, processes=processes))


@pytest.mark.parametrize(
    ("cause", "subject", "pids"),
    [
        ("app-blocked", "postgres 9", {2, 3, 9}),
        ("app-cpu", "postgres 9", {9}),
        ("app-blocked", None, {2, 3, 8, 9}),
    ],
)
def test_stacks_are_taken_of_those_that_wait_too(
    cause: str, subject: Optional[str], pids: Set[int]
) -> None:
    report = with_processes(found(*SLEPT), 2, 3, 9)
    serving = [ill.served_by(pid, 100) for pid in (2, 3)]
    told_of = Verdict(cause, False, None, None, 0.9, "postgres waits", subject)
    blamed = replace(
        report,
        verdict=told_of,
        targets=[reports.target(pid, "postgres") for pid in (2, 3, 8, 9)],
        requests=replace(report.requests, served_by=serving),
    )
    assert culprit_pids(blamed) == pids


@pytest.mark.parametrize(
    ("function", "waits_for", "says"),
    [
        ("ProcSleep", "a lock of the database", "pg_blocking_pids"),
        ("lock_wait", "a lock of the database", "innodb_lock_waits"),
        ("SyncRepWaitForLSN", STANDBY, "pg_stat_replication"),
        ("MDL_wait::timed_wait", TABLE, "show full processlist"),
        ("sqliteDefaultBusyCallback", "the lock of a SQLite database", "journal_mode"),
        ("php_session_start", "a session that another request has", "session_write_close()"),
        ("session_start", "a session that another request has", "session_write_close()"),
    ],
)
def test_what_a_library_waits_for_is_told_by_its_function(
    function: str, waits_for: str, says: str
) -> None:
    nap = (("main", APP), (function, APP), ("epoll_wait", LIBC))
    report = replace(
        reports.measured(), stacks=found(slept("epoll_wait", *nap, ms=90, owing_ms=90))
    )
    named = with_code(suspect("app-blocked", "app_timer_us"), report)
    assert f", for {waits_for}: 100 % in epoll_wait ← {function} (app)" in named.headline
    assert says in (named.actions[0].run or "") + " ".join(each.say for each in named.actions)
    meanwhile = "while requests wait for its reply"
    on_it = replace(
        suspect("app-blocked", "app_timer_us"),
        headline=f"postgres sleeps on a timer, or an event in its poller {meanwhile}",
    )
    named = with_code(on_it, report)
    assert named.headline.startswith(f"postgres waits for {waits_for} {meanwhile}: 100 % in")


PAY = "Shop.pay\t[jit]\tShop.java\t6"
HIKARI = (
    *(
        PAY,
        "com.zaxxer.hikari.HikariDataSource.getConnection\t[jit]\tHikariDataSource.java\t94",
    ),
    *("com.zaxxer.hikari.pool.HikariPool.getConnection\t[jit]\tHikariPool.java\t142",),
    *("com.zaxxer.hikari.util.ConcurrentBag.borrow\t[jit]\tConcurrentBag.java\t135",),
    *("java.util.concurrent.SynchronousQueue.poll\t[jit]\tSynchronousQueue.java\t903",),
)
JAVA_NAP = (PAY, "java.lang.Thread.sleep\t[jit]\tThread.java\t")
REDIS = (
    *("work\tpython3\tapp.py\t7", "cached.<locals>.wrapper\tpython3\tsite.py\t2"),
    *("BlockingConnectionPool.get_connection\tpython3\tconnection.py\t3664",),
    *("Queue.get\tpython3\tqueue.py\t154", "Condition.wait\tpython3\tthreading.py\t295"),
)


RUBY = (
    *("buy\tlibruby-3.1.so\tconfig.ru\t3", "ConnectionPool#with\tlibruby-3.1.so\tpool.rb\t58"),
    *("Thread.handle_interrupt\tlibruby-3.1.so\truby:internal\t",),
    *("block in ConnectionPool#with\tlibruby-3.1.so\tpool.rb\t59",),
    *("ConnectionPool::TimedStack#pop\tlibruby-3.1.so\tstack.rb\t63",),
    *("Thread::Mutex#synchronize\tlibruby-3.1.so\truby:internal\t",),
    *("block (2 levels) in ConnectionPool::TimedStack#pop\tlibruby-3.1.so\tstack.rb\t69",),
    *("Thread::ConditionVariable#wait\tlibruby-3.1.so\truby:internal\t",),
)
LOCKS = "java.util.concurrent.locks.ReentrantLock.lock\t[jit]\tReentrantLock.java\t322"
PARKS = "java.util.concurrent.locks.LockSupport.park\t[jit]\tLockSupport.java\t204"


def in_futex(lines: Sequence[str], ms: int) -> StackCounts:
    times = {"slept_ns": ms * 10**6, "owing_ns": ms * 10**6}
    return StackCounts(1, "off-cpu", "\n".join(lines), 4, 0, call="futex", **times)


def lent_out(waiting: Sequence[str], comm: str, nap_ms: int) -> Suspect:
    """A pool of connections is empty for requests; another thread naps for so long of 5 s."""
    one = replace(
        suspect("app-blocked"),
        headline="shop sleeps on a lock (futex) while requests wait for its reply",
    )
    told_of = found(in_futex(waiting, 40_000), in_futex(JAVA_NAP, nap_ms))
    assert told_of.sleeps is not None
    told_of = replace(told_of, sleeps=replace(told_of.sleeps, watched_s=5.0))
    targets = [reports.target(1, comm)]
    return with_code(one, replace(reports.measured(), stacks=told_of, targets=targets))


def test_requests_that_wait_for_a_connection_of_a_pool_are_told_with_who_has_them() -> None:
    waits = "shop waits for a free connection of its pool while requests wait for its reply: "
    called = "com.zaxxer.hikari.HikariDataSource.getConnection (HikariDataSource.java:94)"
    one = lent_out(HIKARI, "java", nap_ms=9_000)
    meanwhile = (
        "; others meanwhile in java.lang.Thread.sleep (Thread.java) ← Shop.pay (Shop.java:6)"
    )
    assert one.headline == f"{waits}82 % in {called} ← Shop.pay (Shop.java:6){meanwhile}"
    assert "maximumPoolSize" in one.actions[0].say
    assert f"asks anybody else: {called} ← Shop.pay" in one.actions[1].say
    # Now and then is not who has a connection all the time.
    assert "meanwhile" not in lent_out(HIKARI, "java", nap_ms=100).headline
    scripted_one = lent_out(REDIS, "gunicorn", nap_ms=0)
    place = "BlockingConnectionPool.get_connection (connection.py:3664) ← work (app.py:7)"
    assert scripted_one.headline == f"{waits}100 % in {place}"
    assert "psycopg_pool" in scripted_one.actions[0].say
    of_ruby = lent_out(RUBY, "puma", nap_ms=0)
    assert (
        of_ruby.headline == f"{waits}100 % in ConnectionPool#with (pool.rb:58) ← buy (config.ru:3)"
    )
    assert "database.yml" in of_ruby.actions[0].say


def test_requests_that_wait_for_a_limit_of_the_program_are_told_so() -> None:
    permit = "java.util.concurrent.Semaphore.acquire\t[jit]\tSemaphore.java\t309"
    one = lent_out((PAY, permit, PARKS), "java", nap_ms=9_000)
    waits = "shop waits for a limit of its own (semaphore) while requests wait for its reply: "
    where = "java.util.concurrent.Semaphore.acquire (Semaphore.java:309) ← Shop.pay (Shop.java:6)"
    meanwhile = (
        "; others meanwhile in java.lang.Thread.sleep (Thread.java) ← Shop.pay (Shop.java:6)"
    )
    assert one.headline == f"{waits}82 % in {where}{meanwhile}"
    assert one.actions[0].say.startswith("raise that limit")


def test_a_lock_that_is_kept_in_redis_is_no_sleep_to_make_shorter() -> None:
    lock = ("Lock.__enter__\tpython3\tlock.py\t167", "Lock.acquire\tpython3\tlock.py\t190")
    waits = replace(in_futex(("buy\tpython3\tapp.py\t7", *lock), 400), call="clock_nanosleep")
    told_of = replace(reports.measured(), stacks=found(waits))
    one = with_code(suspect("app-blocked", "app_sleep_us"), told_of)
    where = "Lock.__enter__ (lock.py:167) ← buy (app.py:7)"
    assert one.headline == f"it sleeps, for a lock that it keeps in Redis: 100 % in {where}"
    assert [where in each.say for each in one.actions] == [True, False]
    assert "sleep=" in one.actions[1].say


def test_a_queue_that_is_no_pool_is_a_lock() -> None:
    own = ("work\tpython3\tapp.py\t7", *REDIS[3:])
    assert "pool" not in lent_out(own, "gunicorn", nap_ms=0).headline


def behind_a_lock(nap_ms: int, *napping: str) -> str:
    """Nine threads wait for a lock all of 5 s, and one naps so long."""
    one = replace(
        suspect("app-blocked", "app_lock_us"),
        headline="shop sleeps on a lock (futex) while requests wait for its reply",
    )
    told_of = found(in_futex((PAY, LOCKS, PARKS), 45_000), in_futex(napping or JAVA_NAP, nap_ms))
    assert told_of.sleeps is not None
    told_of = replace(told_of, sleeps=replace(told_of.sleeps, watched_s=5.0))
    requests = ill.served(1_000, recv_wait=0, recv=0, send=0, app=80_000, lock=98.0)
    report = ill.service(requests, ill.thread(4711))
    return with_code(one, replace(report, stacks=told_of)).headline


def test_behind_a_lock_it_is_told_where_another_one_is_that_has_passed_it() -> None:
    waits = "shop sleeps on a lock (futex) while requests wait for its reply: "
    where = "java.util.concurrent.locks.ReentrantLock.lock (ReentrantLock.java:322) ← Shop.pay"
    meanwhile = (
        "; others meanwhile in java.lang.Thread.sleep (Thread.java) ← Shop.pay (Shop.java:6)"
    )
    assert behind_a_lock(4_900) == f"{waits}90 % in {where} (Shop.java:6){meanwhile}"
    # Who is there now and then holds nothing all the time; nor does who came another way.
    assert "meanwhile" not in behind_a_lock(1_000)
    other = ("Shop.tidy\t[jit]\tShop.java\t9", *JAVA_NAP[1:])
    assert "meanwhile" not in behind_a_lock(4_900, *other)


@pytest.mark.parametrize(("share_ms", "is_told"), [(90, True), (40, False)])
def test_a_library_that_waits_for_its_lock_says_so(share_ms: int, is_told: bool) -> None:
    sqlite = (
        *(("main", APP), ("sqlite3InvokeBusyHandler", "libsqlite3.so.0")),
        *(("", "libsqlite3.so.0"), ("usleep", LIBC)),
    )
    naps = [slept("clock_nanosleep", *sqlite, ms=share_ms, owing_ms=share_ms)]
    for name in ("one", "other"):
        nap = (("main", APP), (name, APP), ("usleep", LIBC))
        naps.append(slept("clock_nanosleep", *nap, ms=30, owing_ms=30))
    report = replace(reports.measured(), stacks=found(*naps))
    named = with_code(suspect("app-blocked", "app_sleep_us"), report)
    assert ("for the lock of a SQLite database: " in named.headline) == is_told
    assert any("journal_mode=WAL" in each.say for each in named.actions) == is_told


def scripted(*frames: Tuple[str, str], ms: int) -> StackCounts:
    """Called by a function of a script."""
    text = "\n".join(("put\tpython3\tapp.py\t7", *(line(*frame) for frame in frames)))
    times = {"slept_ns": ms * 10**6, "owing_ns": ms * 10**6}
    return StackCounts(1, "off-cpu", text, 4, 0, call="clock_nanosleep", **times)


@pytest.mark.parametrize(("locked_ms", "is_told"), [(90, True), (9, False)])
def test_a_script_that_waits_for_its_library_says_so(locked_ms: int, is_told: bool) -> None:
    """The script's function has other sleeps, too: the library is behind it."""
    counts = scripted(*SQLITE, ms=locked_ms), scripted(*NAP, ms=20)
    report = replace(reports.measured(), stacks=found(*counts))
    named = with_code(suspect("app-blocked", "app_sleep_us"), report)
    told_of = "for the lock of a SQLite database: 82 % in put (app.py:7)"
    assert (told_of in named.headline) == is_told
    assert any("journal_mode=WAL" in each.say for each in named.actions) == is_told
    assert (named.code[0].function, named.code[0].share_pct) == ("put", 100.0)


SQLITE = (("sqlite3InvokeBusyHandler", "libsqlite3.so.0"), ("usleep", LIBC))
NAP = (("time_sleep", "python3"), ("clock_nanosleep", LIBC))


def left(*frames: Tuple[str, str], slept_s: float, threads: int = 1) -> Suspect:
    """A process that owes a reply for 9 s, and of 10 sleeps so long, time after time."""
    one = replace(
        suspect("app-blocked"),
        headline="app 1 is asleep in its poller",
        harm=Harm("stuck", None, 1, 9.0, "1 reply outstanding"),
        pids=frozenset([1]),
    )
    told_of = found(scripted(*frames, ms=round(1000 * slept_s)))
    assert told_of.sleeps is not None
    told_of = replace(told_of, sleeps=replace(told_of.sleeps, watched_s=5.0))
    targets = [replace(reports.target(1, "app"), threads=threads)]
    report = replace(reports.measured(), stacks=told_of, targets=targets)
    return with_code(one, report)


def test_who_sleeps_time_after_time_is_told_with_its_code() -> None:
    assert left(*NAP, slept_s=4.9).headline == (
        "app 1 sleeps in clock_nanosleep: 100 % in put (app.py:7)"
    )
    assert left(*SQLITE, slept_s=4.9).headline == (
        "app 1 waits for the lock of a SQLite database: 100 % in put (app.py:7)"
    )


def test_of_a_process_that_works_for_the_loop_it_is_told_what_it_kept_it_waiting_with() -> None:
    """It waits for work at a pipe for longer; no request is its own."""
    export = scripted(*NAP, ms=90)
    idle = slept("read", ("get", APP), ("read", LIBC), ms=900, owing_ms=0)
    root = RootAuthor("thread", 1, 1, "app", True, "sleep", "clock_nanosleep", 9e4)
    polls = Wait(7, 7, "web", "poll", 9, 9e4, 1e4, [], 0.0, [root])
    time = ill.service(ill.served(9), ill.thread()).time
    assert time is not None
    time = replace(time, processes=[ProcessTime(1, "app", 1, 5.0, {})])
    told_of = found(replace(export, owing_ns=0), idle)
    report = replace(reports.measured(), stacks=told_of, waits=[polls], time=time)
    about = replace(suspect("app-blocked", "app_timer_us"), subject="app 1")
    assert with_code(about, report).headline == "it sleeps: 100 % in put (app.py:7)"
    assert with_code(replace(about, subject=None), report).code == ()


@pytest.mark.parametrize(("slept_s", "threads"), [(2.0, 1), (4.9, 2)])
def test_which_thread_has_the_request_is_not_guessed(slept_s: float, threads: int) -> None:
    named = left(*NAP, slept_s=slept_s, threads=threads)
    assert (named.headline, named.code) == ("app 1 is asleep in its poller", ())


@pytest.mark.parametrize(("share_ms", "is_told"), [(90, True), (40, False)])
def test_a_language_with_files_does_not_hide_what_its_library_waits_for(
    share_ms: int, is_told: bool
) -> None:
    begins = ("{main}\tphp8.2\t/srv/index.php\t1", "save\tphp8.2\t/srv/index.php\t12")
    execs = ("PDO::exec\tphp8.2\tphp:internal\t", "sqliteDefaultBusyCallback\tlibsqlite3.so.0\t\t")
    counts = [
        StackCounts(
            1, "off-cpu", "\n".join(frames), 4, 0, call="clock_nanosleep",
            slept_ns=ms * 10**6, owing_ns=ms * 10**6,
        )
        for frames, ms in (
            ((*begins, *execs, "nanosleep\tlibc.so.6\t\t"), share_ms),
            ((*begins, "sleep\tphp8.2\tphp:internal\t", "sleep\tlibc.so.6\t\t"), 60),
        )
    ]  # fmt: skip
    report = replace(reports.measured(), stacks=found(*counts))
    named = with_code(suspect("app-blocked", "app_sleep_us"), report)
    assert ("for the lock of a SQLite database: " in named.headline) == is_told
    says = "PDO::exec ← save (index.php:12)" if is_told else "sleep ← save (index.php:12)"
    assert says in named.headline


@pytest.mark.parametrize(
    "stack",
    [
        ("runtime.futex",),
        ("runtime.mcall", "runtime.netpoll", "internal/runtime/syscall.EpollWait"),
        ("runtime.mcall", "runtime.netpoll", "internal/runtime/syscall/linux.EpollWait"),
    ],
)
def test_of_a_wait_nobody_is_known_of_the_verdict_says_nothing(stack: Tuple[str, ...]) -> None:
    """Of Go's scheduler, in whatever package of its runtime."""
    slept_in = asleep_in("futex", *((name, GO) for name in stack))
    report = replace(reports.measured(), stacks=found(slept_in))
    one = suspect("app-blocked", "app_lock_us")
    named = with_code(one, report)
    assert (named.headline, named.actions) == (one.headline, one.actions)
    assert named.code[0].function is None


LOCKED_IN_GO = (
    *(("runtime.gopark", GO), ("runtime.semacquire1", GO), ("sync.runtime_SemacquireMutex", GO)),
    *(("internal/sync.(*Mutex).lockSlow", GO), ("main.(*Store).Put", GO), ("main.buy", GO)),
)
SLEEPS_IN_GO = (
    *(("runtime.gopark", GO), ("time.Sleep", GO), ("main.(*Store).Put", GO), ("main.buy", GO)),
)
WORKS_IN_GO = (("runtime.gopark", GO), ("runtime.chanrecv2", GO), ("main.work", GO))


def parked(*frames: Tuple[str, str], ms: int, owing_ms: int) -> StackCounts:
    """The innermost first."""
    return slept("goroutine", *reversed(frames), ms=ms, owing_ms=owing_ms)


IN_GO = "goroutines of shop wait for a timer, a lock or a channel while requests wait"


def in_go(*counts: StackCounts, headline: str = IN_GO) -> Suspect:
    """The verdict of a program of Go, whose scheduler sleeps as well."""
    scheduler = asleep_in("futex", ("runtime.futex", GO), owing_ms=900)
    one = replace(
        suspect("app-blocked", "app_lock_us"),
        headline=headline,
        actions=(*remedies("sleeps", "go", pid=1), *remedies("disk")),
    )
    return with_code(one, replace(reports.measured(), stacks=found(*counts, scheduler)))


def test_what_goroutines_wait_for_is_said_and_what_those_do_that_do_not_wait_for_it() -> None:
    told = in_go(
        parked(*LOCKED_IN_GO, ms=950, owing_ms=950), parked(*SLEEPS_IN_GO, ms=50, owing_ms=50)
    )
    assert told.headline == (
        "goroutines of shop wait for a mutex while requests wait: 95 % in "
        "main.(*Store).Put (server); others meanwhile in "
        "time.Sleep ← main.(*Store).Put (server)"
    )
    assert "held for less long or divided" in told.actions[0].say
    assert told.actions[1:] == remedies("disk")
    assert "of 8 waiting goroutines met" in told.evidence[0].says


HOLDER = "\n".join(f"{name}\t{module}\t\t" for name, module in reversed(SLEEPS_IN_GO))
HELD = "held by a goroutine that sleeps in time.Sleep ← main.(*Store).Put (server)"


def test_who_holds_the_lock_is_told_where_it_is_known_of_half_of_the_time() -> None:
    locked = parked(*LOCKED_IN_GO, ms=900, owing_ms=900)
    others = parked(*WORKS_IN_GO, ms=100, owing_ms=100)
    for held_ms in (450, 449):
        held_by = {HOLDER: held_ms * 10**6, "": (900 - held_ms) * 10**6}
        told = in_go(replace(locked, held_by=held_by), others)
        assert (HELD in told.headline) == (held_ms == 450)
        assert ("others meanwhile in" in told.headline) == (held_ms == 449)
        facts = [each for each in told.evidence if each.metric == "holder_share"]
        assert [round(each.value, 3) for each in facts] == ([0.5] if held_ms == 450 else [])
    assert told.headline.endswith("runtime.chanrecv2 ← main.work (server)")


def test_the_remedy_names_who_holds_the_lock() -> None:
    locked = parked(*LOCKED_IN_GO, ms=900, owing_ms=900)
    told = in_go(replace(locked, held_by={HOLDER: 900 * 10**6}))
    assert told.headline == (
        f"goroutines of shop wait for a mutex {HELD} while requests wait: 100 % in "
        "main.(*Store).Put (server)"
    )
    assert HELD in told.actions[0].say
    left = in_go(replace(locked, held_by={HOLDER: 900 * 10**6}), headline="shop 1 does not answer")
    assert f"its goroutines wait for a mutex {HELD}: 100 % in" in left.headline


def test_who_holds_another_lock_is_not_told_of_the_first_place() -> None:
    """Two mutexes at once, in two functions."""
    get = (*LOCKED_IN_GO[:4], ("main.(*Store).Get", GO), ("main.buy", GO))
    first = parked(*LOCKED_IN_GO, ms=600, owing_ms=600)
    second = replace(parked(*get, ms=400, owing_ms=400), held_by={HOLDER: 400 * 10**6})
    told = in_go(replace(first, held_by={"": 600 * 10**6}), second)
    assert "held by" not in told.headline


def test_another_story_of_goroutines_is_told_with_where_they_wait() -> None:
    """Of clients that give up, say."""
    locked = parked(*LOCKED_IN_GO, ms=950, owing_ms=950)
    told = in_go(locked, headline="shop 1 does not answer them")
    assert told.headline == (
        "shop 1 does not answer them; its goroutines wait for a mutex: 100 % in "
        "main.(*Store).Put (server)"
    )
    assert told.actions == remedies("disk")


def test_of_goroutines_that_may_wait_for_work_the_headline_says_nothing() -> None:
    told = in_go(parked(*WORKS_IN_GO, ms=900, owing_ms=0), parked(*LOCKED_IN_GO, ms=90, owing_ms=0))
    assert "a timer, a lock or a channel" in told.headline
    assert "see where its goroutines wait" in told.actions[0].say
    assert told.evidence[0].says.startswith("91 % in runtime.chanrecv2 ← main.work (server)")


def test_goroutines_are_no_sleeps_of_threads() -> None:
    sleeping = found(parked(*LOCKED_IN_GO, ms=950, owing_ms=950), *SLEPT[:1]).sleeps
    assert sleeping is not None
    (process,) = sleeping.processes
    assert (sleeping.count, sleeping.total_us) == (4, 9e6) == (process.count, process.total_us)
    assert [(each.call, each.total_us) for each in process.calls] == [
        ("goroutine", 950e3),
        ("epoll_wait", 9e6),
    ]


PYTHON = "python3.13"
LIB = "/usr/lib/python3.13/asyncio/"
LOCKED_TASK = (
    *(("Lock.acquire", f"{LIB}locks.py", 90), ("Store.put", "/srv/app.py", 7)),
    *(("buy", "/srv/app.py", 20), ("serve", "/srv/app.py", 30)),
)
NAPS_TASK = (("sleep", f"{LIB}tasks.py", 703), *LOCKED_TASK[1:])
AWAITS_TASK = (("Future.__await__", "", 0), ("ask", "/srv/app.py", 9), ("serve", "/srv/app.py", 30))
IN_LOOP = "api sleeps on a timer, or an event in its poller while requests wait"


def of_task(*frames: Tuple[str, str, int], ms: int, owing_ms: int) -> StackCounts:
    """The innermost first."""
    lines = [f"{name}\t{PYTHON}\t{file}\t{line or ''}" for name, file, line in reversed(frames)]
    row = slept("task", ("", PYTHON), ms=ms, owing_ms=owing_ms)
    return replace(row, frames="\n".join(lines))


def in_loop(*counts: StackCounts, headline: str = IN_LOOP) -> Suspect:
    """The verdict of a program of asyncio, whose loop sleeps as well."""
    loop = asleep_in("epoll_wait", ("epoll_wait", LIBC), owing_ms=900)
    one = replace(
        suspect("app-blocked", "app_timer_us"),
        headline=headline,
        actions=(*remedies("sleeps", "python", pid=1), *remedies("disk")),
    )
    return with_code(one, replace(reports.measured(), stacks=found(*counts, loop)))


def test_what_tasks_wait_for_is_said_and_what_those_do_that_do_not_wait_for_it() -> None:
    told = in_loop(
        of_task(*LOCKED_TASK, ms=950, owing_ms=950), of_task(*NAPS_TASK, ms=50, owing_ms=50)
    )
    assert told.headline == (
        "tasks of api wait for a lock (asyncio.Lock) while requests wait: 95 % in "
        "Store.put (app.py:7); others meanwhile in sleep (tasks.py:703) ← Store.put (app.py:7)"
    )
    assert "held for less long or divided" in told.actions[0].say
    assert told.actions[1:] == remedies("disk")
    assert "of 8 waiting tasks met" in told.evidence[0].says


def test_a_future_that_the_program_awaits_itself_is_one() -> None:
    told = in_loop(of_task(*AWAITS_TASK, ms=950, owing_ms=950))
    assert told.headline == (
        "tasks of api wait for a future while requests wait: 100 % in ask (app.py:9)"
    )


def test_of_a_task_a_package_s_function_is_not_the_program_s_own() -> None:
    """Where one is; the program called it."""
    installed = "/srv/venv/lib/python3.13/site-packages/asyncpg/pool.py"
    pool = (("Queue.get", f"{LIB}queues.py", 9), ("Pool._acquire", installed, 50))
    told = in_loop(of_task(*pool, *AWAITS_TASK[1:], ms=950, owing_ms=950))
    assert told.headline == (
        "tasks of api wait for a free connection of its pool while requests wait: 100 % in "
        "ask (app.py:9)"
    )
    assert "Queue.get (queues.py:9) ← … ← ask (app.py:9)" in told.evidence[0].says
    alone = in_loop(of_task(*pool, ms=950, owing_ms=950))
    assert alone.headline.endswith("100 % in Pool._acquire (pool.py:50)")


def test_of_several_places_none_is_said_to_be_a_wait() -> None:
    """Most are below a function that waits for nothing itself."""
    get = (("Queue.get", f"{LIB}queues.py", 9), ("take", "/srv/app.py", 40), *AWAITS_TASK[2:])
    told = in_loop(
        *(of_task(*each, ms=300, owing_ms=300) for each in (AWAITS_TASK, get, NAPS_TASK))
    )
    assert told.headline == IN_LOOP


def test_tasks_that_may_have_no_request_are_not_what_requests_wait_in() -> None:
    told = in_loop(of_task(*NAPS_TASK, ms=900, owing_ms=0))
    assert told.headline == IN_LOOP
    assert told.code[0].function == "epoll_wait"


LOCK_OF_JS = (
    *(("lock", "/srv/app.js", 5), ("put", "/srv/app.js", 9)),
    ("(anonymous)", "/srv/app.js", 20),
)
HOLDS_OF_JS = LOCK_OF_JS[1:]


def of_function(*frames: Tuple[str, str, int], ms: int, owing_ms: int) -> StackCounts:
    """The innermost first, of JavaScript."""
    row = of_task(*frames, ms=ms, owing_ms=owing_ms)
    return replace(row, call="async function", frames=row.frames.replace(PYTHON, JIT))


def in_loop_of_js(*counts: StackCounts, timer_pct: float) -> Suspect:
    """The verdict of a program of Node, of whose request time that part is in its poller."""
    times = {"cpu": 100 - timer_pct, "poll": timer_pct}
    report = reports.measured()
    assert report.requests.served is not None
    served = replace(report.requests.served, app_time_pct=times)
    one = replace(suspect("app-blocked", "app_timer_us"), headline=IN_LOOP)
    loop = asleep_in("epoll_wait", ("epoll_wait", LIBC), owing_ms=900)
    report = replace(report, requests=replace(report.requests, served=served))
    return with_code(one, replace(report, stacks=found(*counts, loop)))


def test_async_functions_wait_for_a_promise_and_others_meanwhile_do_what_ends_it() -> None:
    told = in_loop_of_js(
        of_function(*LOCK_OF_JS, ms=95_000, owing_ms=95_000),
        of_function(*HOLDS_OF_JS, ms=5_000, owing_ms=5_000),
        timer_pct=95,
    )
    assert told.headline == (
        "async functions of api wait for a promise while requests wait: 95 % in lock (app.js:5); "
        "others meanwhile in put (app.js:9) ← (anonymous) (app.js:20)"
    )
    assert "let what it awaits be done sooner: lock (app.js:5)" in told.actions[0].say


def test_async_functions_that_were_met_seldom_are_no_place_of_a_loop() -> None:
    place = of_function(*LOCK_OF_JS, ms=50, owing_ms=50)
    assert in_loop_of_js(place, timer_pct=95).headline == IN_LOOP


def test_async_functions_that_may_wait_for_an_upstream_are_not_what_a_timer_ends() -> None:
    """Both wait alike: of the first place it is not known."""
    place = of_function(*LOCK_OF_JS, ms=950, owing_ms=950)
    assert in_loop_of_js(place, timer_pct=50).headline == IN_LOOP


def test_another_story_of_a_loop_is_told_with_where_its_tasks_wait() -> None:
    locked = of_task(*LOCKED_TASK, ms=950, owing_ms=950)
    told = in_loop(locked, headline="api 1 does not answer them")
    assert told.headline == (
        "api 1 does not answer them; its tasks wait for a lock (asyncio.Lock): 100 % in "
        "Store.put (app.py:7)"
    )


def test_who_waits_for_a_thread_of_a_pool_is_told_where_the_thread_is_in_no_function() -> None:
    """Of the program's own."""
    pool = "/usr/lib/python3.13/concurrent/futures/thread.py"
    nap = asleep_in("clock_nanosleep", ("_worker", PYTHON), owing_ms=900)
    nap = replace(nap, frames=f"_worker\t{PYTHON}\t{pool}\t69\nrun\t{PYTHON}\t{pool}\t53")
    thread = (("to_thread", f"{LIB}threads.py", 12), *AWAITS_TASK[1:])
    one = suspect("app-blocked", "app_sleep_us")
    stacks = found(of_task(*thread, ms=900, owing_ms=900), nap)
    told = with_code(one, replace(reports.measured(), stacks=stacks))
    assert told.headline.endswith(
        "100 % in _worker (thread.py:69); its tasks wait for a function that a thread "
        "runs: 100 % in ask (app.py:9)"
    )


def test_where_a_loop_waits_for_whatever_comes_is_no_place() -> None:
    """Node's, say; what is asked for in it has a function of its own."""
    poll = (("epoll_pwait", LIBC), ("uv__io_poll", "node"), ("uv_run", "node"))
    asked = (("epoll_wait", LIBC), ("WaitLatch", "postgres"), ("pg_sleep", "postgres"))
    one = suspect("app-blocked", "app_timer_us")
    named = [
        with_code(one, replace(reports.measured(), stacks=found(asleep_in(stack[0][0], *stack))))
        for stack in (poll, asked)
    ]
    assert named[0].headline == one.headline and named[0].code[0].function == "epoll_pwait"
    assert named[1].headline.startswith(f"{one.headline}: 100 % in epoll_wait ← ")


def test_what_runs_an_event_loop_does_not_wait_for_what_the_loop_waits_for() -> None:
    """`asyncio.run` of an application server; a handler of it is named."""
    outside = (
        "serve\tpython3\t/srv/app/run.py\t21",
        "BaseEventLoop.run_forever\tpython3\t/usr/lib/python3.11/asyncio/base_events.py\t607",
        "BaseEventLoop._run_once\tpython3\t/usr/lib/python3.11/asyncio/base_events.py\t1884",
    )
    select = "EpollSelector.select\tpython3\t/usr/lib/python3.11/selectors.py\t468"
    handler = "ask\tpython3\t/srv/app/views.py\t12"
    times = {"slept_ns": 10**7, "owing_ns": 10**7}
    counts = [
        StackCounts(1, "off-cpu", "\n".join(lines), 4, 0, call="epoll_wait", **times)
        for lines in ((*outside, select), (*outside, handler, select))
    ]
    assert [owns(each) for each in counts] == [[None], ["ask (views.py:12)"]]


@pytest.mark.parametrize(
    ("turn", "is_own"),
    [
        (("mio::poll::Poll::poll", "tokio::runtime::io::driver::Driver::turn"), False),
        (("mio::sys::unix::selector::Selector::select",), False),
        (("tokio::runtime::scheduler::multi_thread::park::Inner::park_condvar",), False),
        (("polling::epoll::Poller::wait", "async_io::reactor::ReactorLock::react"), False),
        (("shop::ask", "tokio::runtime::scheduler::multi_thread::worker::Context::run"), True),
    ],
)
def test_a_runtime_of_rust_turns_a_loop(turn: Tuple[str, ...], is_own: bool) -> None:
    frames = (("epoll_wait", LIBC), *((name, APP) for name in turn), ("shop::main", APP))
    assert owns(asleep_in("epoll_wait", *frames)) == ["shop::ask (app)" if is_own else None]


def test_a_call_of_go_whose_callers_are_not_known_goes_to_those_that_are() -> None:
    """Short sleeps: of most of them only the function that makes any call is known."""
    call = "internal/runtime/syscall.Syscall6"
    known = asleep_in("fsync", (call, GO), ("os.(*File).Sync", GO), ("main.save", GO))
    bare = slept("fsync", (call, GO), ms=20, owing_ms=20, truncated=4)
    (process,) = found(known, bare).sleeps.processes  # type: ignore[union-attr]
    assert "main.save" in process.calls[0].code[0].stack[-1]


def test_what_has_half_is_named_where_others_are_nearer_to_their_callers() -> None:
    """KEYS of Redis: what matches is deep, what goes through the keys is called from the same."""
    command = (("main", APP), ("keys", APP))
    deep = "\n".join(line(*each) for each in (*command, ("match", APP), *[("", APP)] * 4))
    shallow = "\n".join(line(*each) for each in (*command, ("next", APP)))
    counts = [StackCounts(1, "cpu", deep, 77, 0), StackCounts(1, "cpu", shallow, 23, 0)]
    (process,) = found(*counts).processes
    assert (process.code[0].function, process.code[0].share_pct) == ("match", 77.0)


def handled(file: str, samples: int, *deeper: str) -> StackCounts:
    entered = (line("main", "node"), line("Builtins_JSEntry", "node"))
    own = f"{file}\tnode\t/srv/{file}.js\t7"
    return StackCounts(1, "cpu", "\n".join((*entered, own, *deeper)), samples, 0)


def test_where_nothing_has_most_the_program_s_own_is_named() -> None:
    """Three handlers, which call the same: the way into all of them is no place."""
    split = line("memcpy", LIBC)
    counts = [handled("orders", 40), handled("users", 30, split), handled("cart", 30, split)]
    (process,) = found(*counts).processes
    first = process.code[0]
    assert (first.stack[0], first.share_pct) == ("orders (orders.js:7)", 40.0)
    assert told(first).startswith("40 % in orders (orders.js:7)")
    many = [handled(f"handler{n}", 10, split) for n in range(10)]
    (process,) = found(*many).processes
    assert told(process.code[0]).startswith("10 % in handler9 (handler9.js:7)")
    assert told(process.code[0]).endswith(", the rest in many others")


def test_a_runtime_is_not_named_for_code_that_it_made() -> None:
    """Node without a map: V8 enters it by a builtin that has a name."""
    text = "\n".join((line("main", "node"), line("Builtins_JSEntry", "node"), line("", "[jit]")))
    counts = (
        StackCounts(1, "cpu", text, 90, 90),
        StackCounts(1, "cpu", f"{text}\n{line('Builtins_LoadIC', 'node')}", 10, 10),
    )
    (process,) = found(*counts).processes
    assert process.code[0].stack == ["not known ([jit])", "Builtins_JSEntry (node)", "main (node)"]
    assert told(process.code[0]) == "100 % in code made at run time, without names"
    of_ours = "\n".join(("handler\t[jit]\t/app.js\t", line("", "[jit]")))
    (process,) = found(StackCounts(1, "cpu", of_ours, 90, 90)).processes
    nameless = next(each for each in process.code if each.function is None)
    assert told(nameless) == "100 % in code made at run time, without names ← handler (app.js)"
    # What it calls is named when it has half.
    called = f"{text}\n{line('SHA256_Final', 'node')}"
    (process,) = found(*counts, StackCounts(1, "cpu", called, 110, 0)).processes
    assert process.code[0].function == "SHA256_Final"


@pytest.mark.parametrize(
    "wrapper",
    [
        "internal/runtime/syscall.Syscall6",
        "syscall.RawSyscall6",
        "internal/runtime/syscall/linux.Syscall6",
    ],
)
def test_what_makes_any_system_call_is_no_place(wrapper: str) -> None:
    text = "\n".join(line(each, GO) for each in ("main.copy", "syscall.write", wrapper))
    (process,) = found(StackCounts(1, "cpu", text, 100, 0)).processes
    assert process.code[0].stack == ["syscall.write (server)", "main.copy (server)"]
    assert process.code[0].own == "main.copy (server)"


def test_callers_of_one_function_say_nothing_of_another() -> None:
    known = slept("fsync", ("save", APP), ("fsync", LIBC), ms=300, owing_ms=300)
    bare = slept("fsync", ("not_unwound", APP), ms=700, owing_ms=700, truncated=4)
    (process,) = found(known, bare).sleeps.processes  # type: ignore[union-attr]
    places = process.calls[0].code
    assert [(each.function, each.share_pct) for each in places] == [
        *(("not_unwound", 70.0), ("fsync", 30.0)),
    ]


@pytest.mark.parametrize(
    ("stack", "says"),
    [
        (["f (app)", "g (app)"], "50 % in f ← g (app)"),
        (["f (app)", "not known (app)", "g (app)"], "50 % in f ← … ← g (app)"),
        (["f (app)", "not known (app)"], "50 % in f ← not known (app)"),
        (["f (app)"], "50 % in f (app)"),
    ],
)
def test_callers_without_a_name_are_passed_over(stack: List[str], says: str) -> None:
    assert told(CodePlace("f", "app", None, None, 50.0, "cpu", stack)) == says


def test_other_causes_are_left_as_they_are() -> None:
    one = suspect("upstream-wait")
    assert with_code(one, replace(reports.measured(), stacks=found(*SLEPT))) is one
    assert sleeping_processes([], sees_owing=True) == []


@pytest.mark.parametrize(
    ("comm", "function", "tells"),
    [
        ("hot", None, "not stripped"),
        ("node", None, "--perf-basic-prof"),
        ("hot", "verify", None),
        ("php-fpm", "execute_ex", "opcache.jit"),
        ("ruby", "vm_exec_core", "--yjit-perf"),
        ("caddy", None, "not stripped"),
        ("caddy", "net/http.(*conn).serve", None),
    ],
)
def test_where_names_lack_the_remedy_says_how_to_get_them(
    comm: str, function: Optional[str], tells: Optional[str]
) -> None:
    place = CodePlace(
        function, "hot", None, None, 99.0, "cpu", [f"{function or 'not known'} (hot)"]
    )
    sampled = Stacks(
        99, 4.0, 300, 0, 0, [4711], [], True, [ProcessCode(4711, 300, 0, [place])], [], [], 0
    )
    target = reports.target(4711, comm)
    report = replace(reports.measured(), stacks=sampled, targets=[replace(target, cmdline=comm)])
    says = " ".join(each.say for each in with_code(suspect("app-cpu"), report).actions)
    assert "symbols" not in says if tells is None else tells in says


@pytest.mark.parametrize(("has_names", "asks"), [(True, False), (False, True)])
@pytest.mark.parametrize("server", ["java", "python", "ruby"])
def test_stacks_are_not_asked_for_where_they_are_known(
    server: str, has_names: bool, asks: bool
) -> None:
    place = CodePlace("shop.digest", "[jit]", None, None, 99.0, "cpu", ["shop.digest ([jit])"])
    sampled = Stacks(
        99, 4.0, 300, 0, 0, [4711], [], True, [ProcessCode(4711, 300, 0, [place])], [], [], 0
    )
    sampled = replace(sampled, mapped_pids=[4711] if has_names else [])
    report = replace(reports.measured(), stacks=sampled, targets=[reports.target(4711, server)])
    root = replace(suspect("app-cpu"), actions=remedies("profile", server, pid=4711))
    runs = [each.run or "" for each in with_code(root, report).actions]
    tools = ("Thread.print", "py-spy dump", "rbspy dump")
    assert any(tool in run for run in runs for tool in tools) is asks


@pytest.mark.parametrize(("call", "asks"), [("clock_nanosleep", False), ("futex", True)])
def test_java_is_asked_who_holds_a_lock(call: str, asks: bool) -> None:
    """Where it sleeps is known; of a lock also what to do about it."""
    nap = slept(call, ("main", APP), ("Shop.reserve", "[jit]"), ms=90, owing_ms=90)
    stacks_ = replace(found(nap), mapped_pids=[1])
    targets = [replace(reports.target(1, "java"), cmdline="java -jar shop.jar")]
    report = replace(reports.measured(), stacks=stacks_, targets=targets)
    part = "app_lock_us" if asks else "app_sleep_us"
    root = replace(suspect("app-blocked", part), actions=remedies("profile", "java", pid=1))
    actions = with_code(root, report).actions
    assert "Shop.reserve" in actions[0].say and actions[0].run is None
    assert any("Thread.print" in (each.run or "") for each in actions) is asks


_BEGIN = (("clone3", LIBC), ("start_thread", LIBC), ("thread_native_entry(Thread*)", JVM))
COLLECTOR = (*_BEGIN, ("GangWorker::loop()", JVM), ("__new_sem_wait_slow64", LIBC))
HANDLER = (*_BEGIN, ("JavaCalls::call_helper()", JVM), ("", "[jit]"), ("JVM_Sleep", JVM))


def test_threads_of_a_virtual_machine_itself_are_not_the_programs() -> None:
    """Its collectors sleep all the time, requests or none."""
    own = slept("futex", *COLLECTOR, ms=9000, owing_ms=9000)
    asked = slept("futex", *HANDLER, ms=300, owing_ms=250)
    (process,) = found(own, asked).sleeps.processes  # type: ignore[union-attr]
    assert (process.count, process.total_us) == (8, 9_300_000.0)
    (call,) = process.calls
    assert (call.count, call.owing_us) == (4, 250_000.0)
    assert call.code[0].stack[:2] == ["JVM_Sleep (libjvm.so)", "not known ([jit])"]
    # Where nothing else slept it is told all the same.
    (process,) = found(own).sleeps.processes  # type: ignore[union-attr]
    assert process.calls[0].count == 4


def test_goroutines_are_not_known_by_the_threads_that_they_left() -> None:
    scheduler = (("runtime.mcall", "server"), ("runtime.futexsleep", "server"))
    parked = slept("futex", *scheduler, ms=90, owing_ms=90)
    lock = slept("futex", *LOCK, ms=5, owing_ms=5)
    (process,) = found(parked, lock).sleeps.processes  # type: ignore[union-attr]
    assert process.calls[0].count == 8


def test_the_poller_of_the_scheduler_is_no_function_that_waits() -> None:
    call = ("internal/runtime/syscall/linux.Syscall6", "server")
    polls = slept("epoll_pwait", ("runtime.mcall", "server"), call, ms=90, owing_ms=90)
    alone = slept("epoll_pwait", call, ms=90, owing_ms=90)
    for each, first in ((polls, "not known (server)"), (alone, call[0] + " (server)")):
        (process,) = found(each).sleeps.processes  # type: ignore[union-attr]
        assert process.calls[0].code[0].stack[0] == first


def test_a_wrapper_of_the_same_name_is_no_caller() -> None:
    stack = ["clock_gettime ([vdso])", "clock_gettime (libc.so.6)", "now (libjvm.so)"]
    place = CodePlace("clock_gettime", "[vdso]", None, None, 86.0, "cpu", stack, None)
    assert told(place) == "86 % in clock_gettime ← now (libjvm.so)"
    again = replace(place, function="fib", module="app", stack=["fib (app)", "fib (app)"])
    assert told(again) == "86 % in fib ← fib (app)"
    alone = replace(place, stack=stack[:2])
    assert told(alone) == "86 % in clock_gettime ([vdso])"


@pytest.mark.parametrize(("language", "told"), [("go", False), (None, True)])
def test_that_the_scheduler_of_go_sleeps_is_no_evidence(
    language: Optional[str], told: bool
) -> None:
    parked = slept("futex", ("runtime.mcall", "server"), ms=90, owing_ms=90)
    report = replace(reports.measured(), stacks=found(parked))
    pid = report.stacks.sleeps.processes[0].pid  # type: ignore[union-attr]
    report = replace(report, targets=[replace(reports.target(pid, "server"), language=language)])
    named = with_code(suspect("app-blocked", "app_lock_us"), report)
    assert any("not known (server)" in each.says for each in named.evidence) == told


def test_no_sleeps_no_code() -> None:
    nothing = Stacks(99, 0.0, 0, 0, 0, [], [], True, [], [], [], 0, Sleeps(1.0, 0, 0, 0, 0.0, []))
    assert named(replace(reports.measured(), stacks=nothing), "app-blocked") == []


def test_the_code_of_a_script_of_php_is_nobody_s_reason() -> None:
    """What it calls in C is; and a function of the program is before that."""
    script = "{main}\tphp8.2\t/srv/index.php\t1"
    calls = "hash_pbkdf2\tphp8.2\tphp:internal\t"
    verify = "App\\Auth::verify\tphp8.2\t/srv/auth.php\t7"
    for frames, says, own in (
        ((script, calls), "hash_pbkdf2 (php:internal)", None),
        ((script, verify, calls), "hash_pbkdf2 ← App\\Auth::verify (auth.php:7)", "auth.php:7"),
        ((script, verify), "App\\Auth::verify (auth.php:7)", "auth.php:7"),
        ((script,), "{main} (index.php:1)", None),
    ):
        (process,) = found(StackCounts(1, "cpu", "\n".join(frames), 90, 90)).processes
        place = process.code[0]
        assert told(place) == f"100 % in {says}"
        assert place.own is None if own is None else own in (place.own or "")


def test_the_statements_of_a_file_of_python_are_nobody_s_reason() -> None:
    """A loop's wait for events has nothing else of the program in it."""
    loop = (
        "<module>\tpython3\t/app.py\t1",
        "run\tpython3\t/usr/lib/python3.11/asyncio/runners.py\t160",
        "select\tpython3\t/usr/lib/python3.11/selectors.py\t451",
        "epoll_wait\tlibc.so.6\t\t",
    )
    text = "\n".join(loop)
    counts = StackCounts(
        1, "off-cpu", text, 4, 0, call="epoll_wait", slept_ns=10**7, owing_ns=10**7
    )
    assert owns(counts) == [None]
    (process,) = found(counts).sleeps.processes  # type: ignore[union-attr]
    assert told(process.calls[0].code[0]) == "100 % in run (runners.py:160)"
    # Where they compute themselves it is them.
    (process,) = found(StackCounts(1, "cpu", loop[0], 90, 90)).processes  # type: ignore[assignment]
    assert told(process.code[0]) == "100 % in <module> (app.py:1)"


POOL_RUN = "Pool::run (shop)"


@pytest.mark.parametrize(
    ("callers", "said"),
    [
        (
            ("std::_Function_handler<int>::_M_invoke (shop)", "Pool::run (shop)"),
            "… ← Pool::run (shop)",
        ),
        (("std::thread::_State_impl<int>::_M_run (shop)", "start_thread (libc.so.6)"), ""),
        (("std::rt::lang_start (shop)", "__pthread_once_slow (libc.so.6)"), ""),
        ((POOL_RUN,), POOL_RUN),
    ],
)
def test_where_a_library_calls_the_program_says_nothing(
    callers: Tuple[str, ...], said: str
) -> None:
    own = "price (shop)"
    place = CodePlace("price", "shop", None, None, 90.0, "on-cpu", [own, *callers], own)
    assert told(place) == (f"90 % in price ← {said}" if said else f"90 % in {own}")
