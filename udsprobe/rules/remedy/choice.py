"""Which remedies a report calls for: its rows become the values of the table."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Dict, FrozenSet, List, Optional, Sequence, Tuple

from udsprobe.model.action import Action
from udsprobe.model.report import (
    CodeKind,
    Connect,
    Connection,
    Exits,
    Listener,
    Peer,
    Report,
    StartLimit,
    Starts,
    Target,
    Upstream,
)
from udsprobe.model.threads.cpu_list import cpu_list
from udsprobe.model.threads.exits import ASKED_TO_END, OUT_OF_MEMORY
from udsprobe.rules import shell
from udsprobe.rules.accounts.affinity import idle_beside
from udsprobe.rules.peers.connecting import NO_ANSWER, is_of_this_host
from udsprobe.rules.remedy.goroutine_waits import ParkedWait
from udsprobe.rules.remedy.row import Value
from udsprobe.rules.remedy.table import KINDS, remedies
from udsprobe.rules.remedy.work import CODE_NAMES
from udsprobe.rules.servers import (
    GENERIC,
    ONE_EACH,
    closes_each,
    recognise,
    server_of,
    target_of,
)
from udsprobe.rules.thresholds import (
    CODE_KIND_SHARE_MIN,
    HUNG_US_MIN,
    LOOPBACK_SEGMENT_BYTES,
    REQUESTS_MIN,
)
from udsprobe.rules.wording import duration, is_name_server

BACKLOG_STEP = 4
BACKLOG_MIN = 1024
NOFILE_STEP = 4
NOFILE_MIN = 65_536
PAGE_BYTES = 4096
FD_FREE_MIN = 0.5
"""Part of the descriptors that are free where EMFILE was not for want of them."""

STARTS_STEP = 4
STARTS_MIN = 4096
PID_MAX = 4_194_304
"""PID_MAX_LIMIT of include/linux/threads.h, on 64 bits."""

_WRITTEN_AT_ONCE = frozenset(("fsync", "fdatasync", "sync", "syncfs", "msync", "sync_file_range"))
_WRITES = frozenset(("write", "pwrite64", "writev", "pwritev"))
# Their log is opened with O_DIRECT (innodb_log_file_buffering of MariaDB 10.8 and later).
_WRITE_PAST_CACHE = frozenset({"mysql"})
# Without a call on a socket or a poller; the runtime may take memory meanwhile.
_COMPUTING = ("user", "runq", "sys_other")
_DENIED = ("EACCES", "EPERM")
# Where they happen, the kernel logs (show_signal_msg() and do_trap() of arch/x86); of abort() not.
_LOGGED_FAULTS = ("SIGSEGV", "SIGILL", "SIGFPE", "SIGTRAP")
# RFC 9110, 15.6: what a server means that answers so by itself.
_STATUS_HINTS = {
    "502": ": a proxy says 502 of an upstream that it does not reach, or whose answer it cannot "
    "use",
    "503": ", and for a limit of its own that answers 503",
    "504": ": a proxy says 504 of an upstream that does not answer in its time limit",
}


def queue_full(report: Report, listener: Listener) -> Tuple[Action, ...]:
    """The queue is too small: its backlog, or the limit that cuts it."""
    backlog = listener.backlog
    more = max(BACKLOG_MIN, BACKLOG_STEP * backlog.effective)
    somaxconn = _somaxconn(report, listener)
    values = _place(listener)
    values.update(backlog=more, was=backlog.effective)
    values["was_somaxconn"] = somaxconn if somaxconn is not None else backlog.effective
    server = server_of(_owner(report, listener))
    kind = "backlog-unix" if listener.transport == "unix" else "backlog-tcp"
    own = remedies(kind, server, **values)
    if not _is_cut(listener, somaxconn, more):
        return own
    raised = remedies("somaxconn", server, **values)
    if not raised:
        return remedies("somaxconn-only", backlog=more)
    if (backlog.requested or 0) >= more:
        return raised
    return (*raised, *own[1:])


def _is_cut(listener: Listener, somaxconn: Optional[int], more: int) -> bool:
    if somaxconn is not None:
        return somaxconn < more
    return listener.backlog.clamped_by is not None or bool(listener.backlog.equals_somaxconn)


def _somaxconn(report: Report, listener: Listener) -> Optional[int]:
    rows = [row for row in report.namespaces or [] if row.netns == listener.netns]
    return rows[0].somaxconn if rows else None


def full_elsewhere(transport: str, address: str, owner: Optional[Peer]) -> Tuple[Action, ...]:
    """The queue is another process's: how its program is told a backlog, and how to look at it."""
    look = remedies("full-elsewhere", address=address)
    if owner is None or not owner.comm:
        return look
    kind = "backlog-unix" if transport == "unix" else "backlog-tcp"
    values: Dict[str, Value] = {"pid": owner.pid, "address": address, "backlog": BACKLOG_MIN}
    if transport == "unix":
        values["path"] = address if address.startswith("/") else None
    return (*remedies(kind, recognise(owner.comm), **values), *look)


def seats_taken(report: Report, listener: Listener) -> Tuple[Action, ...]:
    """Its threads have time, and a limit of the server keeps connections waiting."""
    return remedies("seats", server_of(_owner(report, listener)), **_place(listener))


def sent_slowly() -> Tuple[Action, ...]:
    """Clients send their requests slowly, and a thread waits for each."""
    return remedies("sent-slowly")


def stopped(target: Target) -> Tuple[Action, ...]:
    """A target that may not run goes on, by whoever holds it."""
    is_docker = target.runtime == "docker"
    return remedies(
        f"stopped-by-{target.stopped}",
        pid=target.pid,
        who=f"{target.comm} {target.pid}",
        container=target.container if is_docker else None,
        unit=None if target.container else target.unit,
    )


def traced(target: Target, tracer: str) -> Tuple[Action, ...]:
    """Another process looks at each system call of a target."""
    who = f"{target.comm} {target.pid}"
    return remedies("traced", pid=target.tracer_pid, tracer=tracer, who=who)


def accepts_late(report: Report, listener: Listener) -> Tuple[Action, ...]:
    """Who takes connections out of the queue is busy with something else."""
    return remedies("accept-late", server_of(_owner(report, listener)), **_place(listener))


def _place(listener: Listener) -> Dict[str, Value]:
    pid = listener.pids[0] if listener.pids else None
    values: Dict[str, Value] = {"pid": pid, "inode": listener.inode, "address": listener.address}
    return {**values, **_server_address(listener)}


def _server_address(listener: Listener) -> Dict[str, Value]:
    """What the clients of a database are told to find it."""
    return _for_clients(listener.transport, listener.host_path or listener.address)


def _for_clients(transport: str, address: str) -> Dict[str, Value]:
    if transport == "unix":
        return {"path": address if address.startswith("/") else None}
    host, _, port = address.rpartition(":")
    host = {"0.0.0.0": "127.0.0.1", "*": "127.0.0.1", "[::]": "::1"}.get(host, host.strip("[]"))
    return {"host": host, "port": int(port) if port.isdigit() else None}


_PSQL = "sudo -u postgres psql "
_PSQL_USUAL = ("/var/run/postgresql", "/run/postgresql")
_PGSQL_SOCKET = re.compile(r"(?P<folder>/.*)/\.s\.PGSQL\.(?P<port>\d+)")


def at_its_socket(report: Report, actions: Sequence[Action]) -> List[Action]:
    """Lines with psql, told where PostgreSQL listens, where that is not where psql looks itself."""
    paths = (row.host_path or row.address for row in report.listeners or () if row.pids)
    found = next(filter(None, map(_PGSQL_SOCKET.fullmatch, paths)), None)
    if found is None:
        return list(actions)
    where = "" if found["folder"] in _PSQL_USUAL else f"-h {shell.word(found['folder'])} "
    where += "" if found["port"] == "5432" else f"-p {found['port']} "
    return [_with_psql(each, f"{_PSQL}{where}") for each in actions]


def _with_psql(action: Action, psql: str) -> Action:
    if action.run is None or not action.run.startswith(_PSQL):
        return action
    run = action.run.replace(_PSQL, psql, 1)
    return replace(action, run=run, do=run)


def _owner(report: Report, listener: Listener) -> Optional[Target]:
    owners = set(listener.pids or ())
    return next((each for each in report.targets if each.pid in owners), None)


def connect_failing(error: str, transport: str, address: str) -> Tuple[Action, ...]:
    """Connects to an address fail with `error`."""
    if error in _DENIED and transport == "unix":
        return remedies("denied", address=address)
    if error == "ENOENT":
        return remedies("missing", address=address)
    if error == "EADDRNOTAVAIL":
        return remedies("no-port")
    if error in NO_ANSWER and transport == "tcp":
        return remedies("no-answer", GENERIC, **_for_clients(transport, address))
    if transport == "unix":
        return remedies("nobody-unix", address=address)
    return remedies("nobody-tcp", address=address, port=address.rpartition(":")[2])


def descriptors(target: Optional[Target], is_host: bool = False) -> Tuple[Action, ...]:
    """No descriptor is left, or soon none will be."""
    if is_host:
        return remedies("nofile-host")
    if target is None:
        return remedies("nofile")
    opened, limit = target.fds.open, target.fds.limit
    if opened is not None and limit and opened < (1 - FD_FREE_MIN) * limit:
        return remedies("own-limit", pid=target.pid, open=opened, limit=limit)
    more = max(NOFILE_MIN, NOFILE_STEP * (limit or 0))
    return remedies(
        "nofile", server_of(target), pid=target.pid, more=more, more_hard=more, was=limit
    )


def reader(row: Connection, who: str) -> Tuple[Action, ...]:
    """Who reads at the other end of a connection does not keep up."""
    kind = "reader-unix" if row.transport == "unix" else "reader-tcp"
    pid = row.peer.pid if row.peer is not None and row.peer.pid else None
    return remedies(kind, peer_pid=pid, who=who)[:1]


def send_buffer(report: Report, needed: float) -> Tuple[Action, ...]:
    """A program set a send buffer that its replies of `needed` bytes do not fit."""
    limits = [n.wmem_max for n in report.namespaces or [] if n.wmem_max is not None]
    values: Dict[str, Value] = {"bytes": round(needed), "was": min(limits, default=None)}
    own = remedies("send-buffer", GENERIC, **values)
    if not limits or needed <= min(limits):
        return own
    return (*own, *remedies("wmem-max", GENERIC, **values))


def busy(
    report: Report,
    pid: int,
    tid: int,
    comm: str,
    of_many: bool = False,
    has_all_cpus: bool = False,
) -> Tuple[Action, ...]:
    """A thread computes all the time: where, and how to have more of it.

    Args:
        of_many: of processes that do so together, and none of them alone.
        has_all_cpus: no CPU is left for more of it.
    """
    target = target_of(report, pid)
    server = recognise(comm) if target is None else server_of(target)
    heard = _heard(report, pid)
    values: Dict[str, Value] = {"pid": pid, "tid": tid}
    values.update(_server_address(heard) if heard is not None else {})
    profiles = (
        "profile-many" if of_many and server in KINDS["profile-many"].by_server else "profile"
    )
    more_of_it = "all-cpus" if has_all_cpus else "more-cpu"
    profile, more = (remedies(kind, server, **values) for kind in (profiles, more_of_it))
    endless = _computes_on(report, pid, tid)
    return (*profile, *endless, *_with_idle_cpus(report, target), *more)


def _computes_on(report: Report, pid: int, tid: int) -> Tuple[Action, ...]:
    """As long as it is observed, while its process replied to nobody."""
    lasted_us = 1e6 * report.window.duration_s
    replied = any(row.pid == pid and row.count for row in report.requests.served_by or ())
    threads = report.time.threads if report.time is not None else ()
    thread = next((each for each in threads if (each.pid, each.tid) == (pid, tid)), None)
    if thread is None or replied or lasted_us < HUNG_US_MIN:
        return ()
    if any(share for name, share in thread.share.items() if name not in _COMPUTING):
        return ()
    return remedies("computes-on", lasted=duration(lasted_us))


def started_for_requests(report: Report) -> Optional[str]:
    """The name of most processes that came and went; None where hardly any did."""
    ended = [target.comm for target in report.targets if target.state != "running"]
    if not ended or report.targets_exited < REQUESTS_MIN:
        return None
    return Counter(ended).most_common(1)[0][0]


def served_elsewhere(address: str) -> Tuple[Action, ...]:
    """Processes that are not observed accept the connections to that listener."""
    return remedies("served-elsewhere", address=address)


def sender(pid: int, who: str) -> Tuple[Action, ...]:
    """Requests wait for what that other client of their server sends."""
    return remedies("sender", peer_pid=pid, who=who)


def sent_through(pid: Optional[int], who: str) -> Tuple[Action, ...]:
    """Requests wait for what another process sends through the one that is asked."""
    return remedies("sent-through", peer_pid=pid, who=who)


def child_each(program: str) -> Tuple[Action, ...]:
    """A process of that program is started for each request."""
    return remedies("child-each", recognise(program), program=program)


def _with_idle_cpus(report: Report, target: Optional[Target]) -> Tuple[Action, ...]:
    """Of Go no thread waits for CPUs that it may not use: it has no more threads than CPUs."""
    if target is None or target.language != "go":
        return ()
    limit = idle_beside(report, target.pid)
    if limit is None:
        return ()
    return remedies("few-cpus", cpus=cpu_list(limit.cpus), others=cpu_list(limit.others))


def code_kind(report: Report, pid: int, kind: CodeKind) -> Tuple[Action, ...]:
    """Most of a process's CPU time is of one kind of code.

    A server has rows of its own, or its runtime has, which the names of its functions tell.
    """
    name = f"code-{kind.kind}"
    parts = (kind.part, "beside" if _is_beside_loops(report, pid, kind) else None)
    name = next((f"{name}-{part}" for part in parts if f"{name}-{part}" in KINDS), name)
    return _of_code(report, pid, name, kind.runtime)


def _is_beside_loops(report: Report, pid: int, kind: CodeKind) -> bool:
    """The process has event loops, and other threads do most of it."""
    rows = report.time.loops if report.time is not None else None
    has_loop = any(row.pid == pid for row in rows or ())
    loops = {row.tid for row in rows or ()}
    in_loops_pct = sum(each.share_pct for each in kind.threads if each.tid in loops)
    return has_loop and bool(kind.threads) and in_loops_pct < 100 * CODE_KIND_SHARE_MIN


def _of_code(report: Report, pid: int, name: str, runtime: Optional[str]) -> Tuple[Action, ...]:
    server = server_of(target_of(report, pid))
    has_own = server != GENERIC and server in KINDS[name].by_server
    if not has_own and runtime is not None:
        server = runtime
    return remedies(name, server, pid=pid, **_its_address(report, pid))


def _its_address(report: Report, pid: Optional[int]) -> Dict[str, Value]:
    """Where its clients find it; nothing where it does not listen."""
    heard = _heard(report, pid) if pid is not None else None
    return _server_address(heard) if heard is not None else {}


def _heard(report: Report, pid: int) -> Optional[Listener]:
    return next((row for row in report.listeners or [] if pid in (row.pids or ())), None)


def code_names(report: Report, pid: int, *, is_nameless: bool) -> Tuple[Action, ...]:
    """For code that a runtime makes or interprets, and for any whose functions have no names."""
    target = target_of(report, pid)
    server = server_of(target)
    runtime_has_a_way = server != GENERIC and server in CODE_NAMES
    if not (runtime_has_a_way or is_nameless):
        return ()
    return remedies("code-names", server, pid=pid)


def sleeps(
    report: Report, pid: int, on_disk: bool, is_occupied: bool = False
) -> Tuple[Action, ...]:
    """A server sleeps while requests wait for its reply.

    Args:
        is_occupied: all that serve are asleep in a request nearly always, and others queue.
    """
    target = target_of(report, pid)
    server = server_of(target)
    found = remedies("sleeps", server, pid=pid)
    found += remedies("disk") if on_disk else ()
    # Of Go as many requests wait as there are: a goroutine each, not a thread.
    if is_occupied and server != "go":
        found += remedies("seats" if server in ONE_EACH else "occupied", server)
    return found


def larger_pool(report: Report, pid: int, are_processes: bool) -> Tuple[Action, ...]:
    """An event loop hands requests to threads or processes, all of which are busy."""
    if are_processes:
        return remedies("pool-of-processes")
    return remedies("pool-of-threads", server_of(target_of(report, pid)))


def sleeps_in(
    report: Report, pid: Optional[int], kind: str, call: Optional[str], where: str
) -> Tuple[Action, ...]:
    """The function in which a server sleeps while requests wait for its reply is known.

    Args:
        kind: `lock`, `event`, `sleep` (for as long as it says itself), or `call`: any other.
    """
    if pid is not None and call in _WRITTEN_AT_ONCE:
        return _of_code(report, pid, "code-disk-sync", None)
    server = server_of(target_of(report, pid))
    return remedies(f"{kind}-in", server, where=where, call=call, **_its_address(report, pid))


def written_first(
    report: Report, pid: Optional[int], call: Optional[str], in_turns: bool
) -> Tuple[Action, ...]:
    """Requests wait until another thread has written to the disk at once; none for other calls.

    Of a database that is each commit. More that serve, or another query, change nothing.

    Args:
        in_turns: the threads that serve do so for each other.
    """
    writes_past = in_turns and server_of(target_of(report, pid)) in _WRITE_PAST_CACHE
    if pid is None or not (call in _WRITTEN_AT_ONCE or (writes_past and call in _WRITES)):
        return ()
    return (*_of_code(report, pid, "code-disk-sync", None), *remedies("disk"))


def turn(report: Report, pid: Optional[int], kind: str, where: str) -> Tuple[Action, ...]:
    """Requests wait there until others let go of what a library counts: connections, permits."""
    server = server_of(target_of(report, pid))
    return remedies(kind, server, where=where)


def parked(wait: ParkedWait, where: str) -> Tuple[Action, ...]:
    """Where goroutines or tasks wait while requests wait for their reply is known."""
    return remedies(wait.kind, where=where)


def stuck(report: Report, pid: int) -> Tuple[Action, ...]:
    """A server waits while it owes a reply, and who will end that is not known."""
    target = target_of(report, pid)
    return remedies("hung", server_of(target), pid=pid, **_its_address(report, pid))


def unanswered(report: Report, pid: int) -> Tuple[Action, ...]:
    """A server leaves requests without a reply, and nothing that it waits for is seen."""
    target = target_of(report, pid)
    return remedies("unanswered", server_of(target), pid=pid)


def dropped(report: Report, pid: int, who: str) -> Tuple[Action, ...]:
    """A server ends requests without a reply."""
    target = target_of(report, pid)
    return remedies("dropped", server_of(target), who=who)


def failing(report: Report, pid: int, who: str, status: str) -> Tuple[Action, ...]:
    """A server replies that it failed; `status` is what it says most often."""
    target = target_of(report, pid)
    unit = target.unit if target is not None and not target.container else None
    hint = _STATUS_HINTS.get(status, "")
    return remedies("failing", server_of(target), who=who, unit=unit, hint=hint)


def exits(report: Report, row: Exits) -> Tuple[Action, ...]:
    """Processes of one program end, in one way."""
    target = next((each for each in report.targets if each.comm == row.comm), None)
    unit = target.unit if target is not None and not target.container else None
    values: Dict[str, Value] = {"who": row.comm, "how": row.how, "unit": unit, "hint": ""}
    return remedies(_kind_of_exit(row.how), server_of(target), **values)


def recycled(report: Report, pids: FrozenSet[int], who: str) -> Tuple[Action, ...]:
    """Processes of one program end after a few connections."""
    return remedies("recycled", _server_among(report, pids), who=who)


def starts(report: Report, row: Starts, who: str) -> Tuple[Action, ...]:
    """A program cannot start threads or processes."""
    pid = row.pids[0] if row.pids else None
    target = target_of(report, pid)
    limit = row.limit
    values: Dict[str, Value] = {"pid": pid, "who": who}
    if "EAGAIN" not in row.refused_by_errno:
        return remedies("tasks-memory", server_of(target), **values)
    if limit is None:
        return remedies("tasks", server_of(target), **values)
    more = max(STARTS_MIN, STARTS_STEP * limit.limit)
    values.update(was=limit.limit, more=min(more, PID_MAX), name=limit.name, file=limit.file)
    unit = (limit.cgroup or "").rsplit("/", 1)[-1]
    values.update(pids=tuple(row.pids) or None, unit=unit)
    if target is not None and target.runtime == "docker":
        values.update(container=target.container)
    return remedies(_kind_of_tasks(limit, values), server_of(target), **values)


def _kind_of_tasks(limit: StartLimit, values: Dict[str, Value]) -> str:
    if limit.name == "RLIMIT_NPROC":
        return "tasks-user"
    if limit.cgroup is None:
        return "tasks-host"
    container, unit = values.get("container"), str(values["unit"])
    if container is not None and str(container) in unit:
        return "tasks-container"
    # The units below are those of the user's own manager.
    is_of_user = "/user@" in limit.cgroup.rpartition("/")[0]
    is_unit = unit.endswith((".service", ".scope", ".slice")) and not is_of_user
    return "tasks-unit" if is_unit else "tasks-cgroup"


def _kind_of_exit(how: str) -> str:
    if how == OUT_OF_MEMORY:
        return "out-of-memory"
    if how == "SIGKILL" or how in ASKED_TO_END:
        return "killed"
    return "fault" if how in _LOGGED_FAULTS else "exit-status"


def no_seat(row: Upstream) -> Tuple[Action, ...]:
    """A database that is asked has all the connections that it allows."""
    own = recognise(row.peer.comm) if row.peer is not None and row.peer.comm else GENERIC
    server = own if own != GENERIC else row.no_seat_by or GENERIC
    return remedies("seats", server, **_for_clients(row.transport, row.address))


_READS = ("read", "pread64", "readv", "preadv", "preadv2")
SENDS = ("send", "sendto", "sendmsg", "sendmmsg", "write", "writev")


def to_move_less(report: Report, pids: Optional[FrozenSet[int]]) -> Tuple[Action, ...]:
    """Requests spend their time on moving bytes.

    Where each call fills a packet of the loopback interface, larger ones change nothing.
    """
    rows = [row for row in report.syscalls or [] if row.bytes and row.transport != "other"]
    moved, calls = sum(row.bytes for row in rows), sum(row.calls for row in rows)
    large = bool(calls) and moved >= LOOPBACK_SEGMENT_BYTES * calls
    less = remedies("fewer-bytes" if large else "fewer-calls")
    return (*less, *files_to_send(report, pids))


def files_to_send(report: Report, pids: Optional[FrozenSet[int]]) -> Tuple[Action, ...]:
    """Half of what is sent was read from files by calls of their own, in pages or more."""
    rows = report.syscalls or []
    reads = [row for row in rows if row.transport == "other" and row.name in _READS]
    read, calls = sum(row.bytes for row in reads), sum(row.calls for row in reads)
    sent = sum(row.bytes for row in rows if row.transport != "other" and row.name in SENDS)
    if not sent or 2 * read < sent or read < PAGE_BYTES * calls:
        return ()
    return remedies("sendfile", _server_among(report, pids))


def keeping_clients(report: Report, row: Listener, client: Optional[str]) -> Tuple[Action, ...]:
    """A client, None: it is not known, opens a connection for each of its requests there."""
    owners = [
        target_of(report, pid) for pid in (*(row.pids or ()), *map(int, row.accepted_by or {}))
    ]
    server = next((server_of(each) for each in owners if closes_each(each)), None)
    if server is not None:
        return remedies("keeps-none", server)
    kept = _kept(recognise(client) if client else GENERIC, [server_of(each) for each in owners])
    database = login_server(report, row)
    return (*kept, *remedies("logins", database)) if database is not None else kept


def login_server(report: Report, row: Listener) -> Optional[str]:
    """The database that a listener is of, to which each connection logs in."""
    found = {server_of(target_of(report, pid)) for pid in row.pids or ()}
    return next(iter(found & {"postgresql", "mysql"}), None)


def kept_connections(
    report: Report, row: Connect, pids: Optional[FrozenSet[int]], answering: Optional[str] = None
) -> Tuple[Action, ...]:
    """These of the targets open a connection for each request of their own; None: any of them.

    Args:
        answering: what answers there calls itself, `php-fpm8.2`.
    """
    port = row.address.rpartition(":")[2] if row.transport == "tcp" else None
    return _kept(_server_among(report, pids), [recognise(answering or "")], port)


def _kept(client: str, servers: Sequence[str], port: Optional[str] = None) -> Tuple[Action, ...]:
    """A client, of `SERVERS`, is to keep connections to those."""
    if "php-fpm" in servers:
        return remedies("churn-php-fpm", client, port=port)
    return remedies("churn", client, port=port)


def lookups(report: Report, pids: Optional[FrozenSet[int]], where: str) -> Tuple[Action, ...]:
    """Requests wait for a name server."""
    return remedies("lookups", _server_among(report, pids), who=where)


def polls_all(report: Report, pids: Optional[FrozenSet[int]], call: str) -> Tuple[Action, ...]:
    """CPU time goes to a poller that looks at all descriptors in each call."""
    return remedies("polls-all", _server_among(report, pids), call=call)


def loop_waits(report: Report, pids: Optional[FrozenSet[int]]) -> Tuple[Action, ...]:
    """An event loop itself waits for an upstream."""
    return remedies("loop-waits", _server_among(report, pids))


def held_back(report: Report, pids: Optional[FrozenSet[int]]) -> Tuple[Action, ...]:
    """A proxy lets requests wait before it asks its upstream for them."""
    return remedies("held-back", _server_among(report, pids))


def held_threads(report: Report, pids: Optional[FrozenSet[int]], where: str) -> Tuple[Action, ...]:
    """Several threads of a process are in one function all the time, and requests wait."""
    return remedies("threads-held", _server_among(report, pids), where=where)


def loop_sleeps(report: Report, pids: Optional[FrozenSet[int]]) -> Tuple[Action, ...]:
    """An event loop itself sleeps: for a time, or until a child process has ended."""
    return remedies("loop-sleeps", _server_among(report, pids))


def pool(report: Report, pids: Optional[FrozenSet[int]], size: int) -> Tuple[Action, ...]:
    """Requests wait for one of `size` connections to an upstream."""
    # With one, a lock that is held meanwhile looks the same.
    return remedies("pool-of-one" if size == 1 else "pool", _server_among(report, pids))


def kept_pool(report: Report, pid: int) -> Tuple[Action, ...]:
    """Clients of a proxy wait for connections upstream, which others keep."""
    return remedies("kept-pool", server_of(target_of(report, pid)))


def _server_among(report: Report, pids: Optional[FrozenSet[int]]) -> str:
    """What the first of these processes is; None: of all targets."""
    target = next((each for each in report.targets if pids is None or each.pid in pids), None)
    return server_of(target)


_MAPPED = re.compile(r"\[::ffff:([\d.]+)\]")


def asks_again(server: str, who: str) -> Tuple[Action, ...]:
    """Each request asks that server, of `SERVERS`, again and again."""
    return remedies("asks-again", server, who=who)


def upstream(pid: Optional[int], who: str, place: str, is_kept: bool = True) -> Tuple[Action, ...]:
    """To look at an upstream that answers late.

    Of names what was looked up can be kept.

    Args:
        pid: of the process there, where it is known. is_kept: its connections are. Where each
            request has a new one it may have a process of its own as well (PostgreSQL's), which has
            ended by now.
    """
    if is_name_server(place):
        return remedies("lookups", who=place)
    transport, _, address = place.partition(":")
    is_here = transport == "unix" or is_of_this_host(address)
    if is_here and (pid is None or not is_kept):
        return remedies("upstream", who=who, address=_MAPPED.sub(r"\1", address))
    return remedies("upstream", peer_pid=pid, who=who)
