"""The table of remedies: from a kind of trouble and a server to rows, and to actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterator, Mapping, Tuple

from udsprobe.model.action import Action
from udsprobe.rules.remedy import (
    code_kinds,
    exits,
    goroutine_waits,
    host,
    known_sleeps,
    moving,
    queues,
    starts,
    task_waits,
    work,
)
from udsprobe.rules.remedy.row import Row, Value
from udsprobe.rules.servers import GENERIC, WRITTEN_IN

Rows = Mapping[str, Tuple[Row, ...]]


@dataclass(frozen=True)
class Kind:
    """A kind of trouble.

    Attributes:
        cause: of the verdicts. about: in a few words.
        by_server: the rows of a server; where it has none those of its language, then of `generic`.
        first: what comes before them for every server.
    """

    cause: str
    about: str
    by_server: Rows
    first: Tuple[Row, ...] = ()

    def rows(self, server: str) -> Tuple[Row, ...]:
        """In the order in which they are offered."""
        for known in (server, WRITTEN_IN.get(server, GENERIC), GENERIC):
            if known in self.by_server:
                return (*self.first, *self.by_server[known])
        return self.first


_LIMIT: Rows = {GENERIC: (queues.SOMAXCONN_HERE,)}

KINDS: Dict[str, Kind] = {
    "backlog-unix": Kind(
        "accept-queue-full",
        "the backlog is the limit, Unix socket",
        queues.BACKLOG,
        (queues.LISTEN_UNIX,),
    ),
    "backlog-tcp": Kind(
        "accept-queue-full", "the backlog is the limit, TCP", queues.BACKLOG, (queues.LISTEN_TCP,)
    ),
    "somaxconn": Kind(
        "accept-queue-full",
        "somaxconn cuts the backlog",
        {GENERIC: (queues.SOMAXCONN,)},
        (queues.SOMAXCONN_AND_LISTEN,),
    ),
    "somaxconn-only": Kind(
        "accept-queue-full", "somaxconn cuts the backlog, owner not known", _LIMIT
    ),
    "full-elsewhere": Kind(
        "accept-queue-full", "the queue of a listener that is not a target's", host.FULL_ELSEWHERE
    ),
    "seats": Kind(
        "accept-starved", "the server's limit of connections or workers is reached", queues.SEATS
    ),
    "sent-slowly": Kind("accept-starved", "clients send their requests slowly", queues.SENT_SLOWLY),
    "accept-late": Kind("accept-starved", "the accepting thread is busy", queues.ACCEPT_LATE),
    "recycled": Kind(
        "accept-starved", "its processes end after a few connections", queues.RECYCLED
    ),
    "stopped-by-signal": Kind(
        "accept-starved", "a signal stopped the process", host.STOPPED_BY_SIGNAL
    ),
    "stopped-by-tracer": Kind(
        "accept-starved", "a debugger stopped the process", host.STOPPED_BY_TRACER
    ),
    "stopped-by-freezer": Kind("accept-starved", "its cgroup is frozen", host.STOPPED_BY_FREEZER),
    "denied": Kind("connect-failing", "EACCES, EPERM", host.DENIED),
    "missing": Kind("connect-failing", "ENOENT", host.MISSING),
    "nobody-unix": Kind("connect-failing", "ECONNREFUSED, Unix socket", host.NOBODY_UNIX),
    "nobody-tcp": Kind("connect-failing", "any other error", host.NOBODY_TCP),
    "no-answer": Kind("connect-failing", "nobody answers, TCP", host.NO_ANSWER),
    "no-port": Kind("connect-failing", "EADDRNOTAVAIL", host.NO_PORT),
    "nofile": Kind("fd-limit", "of a process", host.NOFILE),
    "nofile-host": Kind("fd-limit", "ENFILE, of the host", host.NOFILE_HOST),
    "own-limit": Kind("fd-limit", "EMFILE with descriptors free", host.OWN_LIMIT),
    "reader-unix": Kind("send-blocked", "the reader does not read, Unix socket", work.READER_UNIX),
    "reader-tcp": Kind("send-blocked", "the reader does not read, TCP", work.READER_TCP),
    "send-buffer": Kind("send-blocked", "a small SO_SNDBUF", work.SEND_BUFFER),
    "wmem-max": Kind("send-blocked", "wmem_max cuts SO_SNDBUF", work.WMEM_MAX),
    "datagrams": Kind("send-blocked", "a log's reader is slow", work.DATAGRAMS),
    "churn": Kind("connection-churn", "what the client changes", work.CHURN),
    "churn-php-fpm": Kind(
        "connection-churn", "what the client of PHP-FPM changes", work.CHURN_PHP_FPM
    ),
    "logins": Kind("connection-churn", "what stands before a database", work.LOGINS),
    "keeps-none": Kind("connection-churn", "the server closes each connection", work.KEEPS_NONE),
    "polls-all": Kind("transport", "poll() or select() of many connections", moving.POLLS_ALL),
    "nagle": Kind("transport", "sends that Nagle's algorithm keeps back", work.NODELAY),
    "profile": Kind("app-cpu", "where its CPU time goes", work.PROFILE),
    "profile-many": Kind("app-cpu", "where the time of many processes goes", work.PROFILE_MANY),
    "code-names": Kind("app-cpu", "its functions have no names", work.CODE_NAMES),
    "computes-on": Kind("app-cpu", "without an end, it seems", work.COMPUTES_ON),
    "more-cpu": Kind("app-cpu", "more of it", work.MORE_CPU),
    "all-cpus": Kind("app-cpu", "it has all CPUs already", work.ALL_CPUS),
    "few-cpus": Kind("app-cpu", "CPUs that it may not use are idle", work.FEW_CPUS),
    "code-garbage-collection": Kind("app-cpu", "garbage collection", code_kinds.GARBAGE),
    "code-garbage-collection-young": Kind(
        "app-cpu", "garbage collection, of short-lived objects", code_kinds.YOUNG_GARBAGE
    ),
    "code-tls-handshake": Kind("app-cpu", "TLS handshakes", code_kinds.HANDSHAKES),
    "code-tls-records": Kind("app-cpu", "encryption of what is sent", code_kinds.RECORDS),
    "code-compression": Kind("app-cpu", "compression", code_kinds.COMPRESSION),
    "code-json-writing": Kind("app-cpu", "writing JSON", code_kinds.JSON_WRITING),
    "code-json-reading": Kind("app-cpu", "reading JSON", code_kinds.JSON_READING),
    "code-text-encoding": Kind("app-cpu", "making bytes of text", code_kinds.ENCODING),
    "code-template-compiling": Kind("app-cpu", "compiling templates", code_kinds.COMPILING),
    "code-templates": Kind("app-cpu", "rendering templates", code_kinds.TEMPLATES),
    "code-regular-expression": Kind("app-cpu", "regular expressions", code_kinds.EXPRESSIONS),
    "code-password-hashing": Kind("app-cpu", "hashes of passwords", code_kinds.PASSWORDS),
    "code-password-hashing-beside": Kind(
        "app-cpu", "hashes of passwords beside an event loop", code_kinds.PASSWORDS_BESIDE
    ),
    "code-memory-reclaim": Kind("app-cpu", "the kernel takes memory back", code_kinds.RECLAIM),
    "code-memory-compaction": Kind("app-cpu", "the kernel makes huge pages", code_kinds.COMPACTION),
    "code-page-faults": Kind("app-cpu", "page faults", code_kinds.FAULTS),
    "code-kernel-locks": Kind("app-cpu", "locks in the kernel", code_kinds.LOCKS),
    "code-disk-sync": Kind("app-cpu", "each change is written to the disk", code_kinds.SYNC),
    "code-process-creation": Kind("app-cpu", "processes start and end", code_kinds.PROCESSES),
    "sleeps": Kind("app-blocked", "what it sleeps in", work.SLEEPS),
    "erlang-processes": Kind("app-blocked", "processes of Erlang that wait", work.ERLANG_PROCESSES),
    "virtual-threads": Kind(
        "app-blocked", "virtual threads of Java that wait", work.VIRTUAL_THREADS
    ),
    "child-each": Kind("app-blocked", "a process is started for each request", work.CHILD_EACH),
    "loop-sleeps": Kind("app-blocked", "its event loop itself sleeps", work.LOOP_SLEEPS),
    "sleep-in": Kind("app-blocked", "a function that sleeps", work.SLEEP_IN),
    "lock-in": Kind("app-blocked", "a function that waits for a lock", work.LOCK_IN),
    "go-pool": Kind("app-blocked", "its pool of connections is empty", goroutine_waits.GO_POOL),
    "limit-in": Kind("app-blocked", "a limit that it sets itself", goroutine_waits.LIMIT_IN),
    "executor-in": Kind(
        "app-blocked", "a task that it gave to other threads", known_sleeps.EXECUTOR_IN
    ),
    "condition-in": Kind(
        "app-blocked", "a condition that another thread meets", known_sleeps.CONDITION_IN
    ),
    "node-child": Kind("app-blocked", "a child process in an event loop", known_sleeps.NODE_CHILD),
    "room-in": Kind("app-blocked", "a channel without room", goroutine_waits.ROOM_IN),
    "retry-in": Kind("app-blocked", "a proxy asks again after a pause", goroutine_waits.RETRY_IN),
    "same-in": Kind(
        "app-blocked", "a goroutine does what others ask for, too", goroutine_waits.SAME_IN
    ),
    "channel-in": Kind(
        "app-blocked", "a goroutine that waits for another one", goroutine_waits.CHANNEL_IN
    ),
    "task-pool": Kind("app-blocked", "its pool of connections is empty", task_waits.TASK_POOL),
    "task-room": Kind("app-blocked", "a queue without room", task_waits.TASK_ROOM),
    "task-in": Kind("app-blocked", "a task that waits for another one", task_waits.TASK_IN),
    "await-in": Kind("app-blocked", "a promise that it waits for", task_waits.AWAIT_IN),
    "task-thread": Kind("app-blocked", "a function that a thread runs", task_waits.TASK_THREAD),
    "call-in": Kind("app-blocked", "a function that waits in a call", work.CALL_IN),
    "event-in": Kind("app-blocked", "a function that waits for events", work.EVENT_IN),
    "threads-held": Kind(
        "app-blocked", "several threads are in one function all the time", work.THREADS_HELD
    ),
    "held-back": Kind(
        "app-blocked", "a proxy lets requests wait before it asks its upstream", work.HELD_BACK
    ),
    "sqlite-lock": Kind(
        "app-blocked", "another writer has the SQLite database", known_sleeps.SQLITE_LOCK
    ),
    "postgresql-lock": Kind(
        "app-blocked", "a lock of a PostgreSQL database", known_sleeps.POSTGRESQL_LOCK
    ),
    "innodb-lock": Kind(
        "app-blocked", "a lock of a MySQL or MariaDB database", known_sleeps.INNODB_LOCK
    ),
    "mysql-table-lock": Kind(
        "app-blocked", "a lock of a table of MySQL or MariaDB", known_sleeps.MYSQL_TABLE_LOCK
    ),
    "postgresql-standby": Kind(
        "app-blocked", "a standby of PostgreSQL is slow", known_sleeps.POSTGRESQL_STANDBY
    ),
    "php-session": Kind(
        "app-blocked", "a PHP session that another request has", known_sleeps.PHP_SESSION
    ),
    "redis-lock": Kind("app-blocked", "a lock that is kept in Redis", known_sleeps.REDIS_LOCK),
    "pool-in": Kind("app-blocked", "its pool of connections is empty", known_sleeps.POOL_IN),
    "occupied": Kind("app-blocked", "all that serve sleep", work.OCCUPIED),
    "one-worker": Kind("app-blocked", "one of several workers is full", work.ONE_WORKER),
    "pool-of-threads": Kind(
        "app-blocked", "a pool of threads that an event loop waits for", work.POOL_OF_THREADS
    ),
    "pool-of-processes": Kind(
        "app-blocked", "a pool of processes that an event loop waits for", work.POOL_OF_PROCESSES
    ),
    "traced": Kind("app-blocked", "strace or a debugger traces it", host.TRACED),
    "disk": Kind("app-blocked", "the disk", work.DISK),
    "memory": Kind("app-blocked", "page faults that read from the disk", code_kinds.RECLAIM),
    "pipe-full": Kind("app-blocked", "who reads a pipe is slow", work.PIPE_FULL),
    "pipe-unread": Kind("app-blocked", "nobody reads a pipe", work.PIPE_UNREAD),
    "hung": Kind("app-blocked", "nothing completes", work.HUNG),
    "unanswered": Kind("app-blocked", "requests that nothing answers", work.UNANSWERED),
    "dropped": Kind("app-blocked", "it ends requests without a reply", work.DROPPED),
    "failing": Kind("app-failing", "it replies with HTTP 5xx", work.FAILING),
    "fault": Kind("app-failing", "its processes crash", exits.FAULT),
    "out-of-memory": Kind("app-failing", "the kernel kills it for its memory", exits.OUT_OF_MEMORY),
    "killed": Kind("app-failing", "another process kills it", exits.KILLED),
    "exit-status": Kind("app-failing", "its processes end by themselves", exits.BY_ITSELF),
    "tasks-unit": Kind("accept-starved", "its unit may start no thread more", starts.UNIT),
    "tasks-container": Kind(
        "accept-starved", "its container may start no thread more", starts.CONTAINER
    ),
    "tasks-cgroup": Kind("accept-starved", "its cgroup may start no thread more", starts.CGROUP),
    "tasks-user": Kind("accept-starved", "its user may start no thread more", starts.USER),
    "tasks-host": Kind("accept-starved", "the host may start no thread more", starts.HOST),
    "tasks": Kind("accept-starved", "it may start no thread more", starts.UNKNOWN),
    "tasks-memory": Kind("accept-starved", "no memory for another thread", starts.NO_MEMORY),
    "passes-on": Kind("app-failing", "an upstream answers with HTTP 5xx", work.PASSES_ON),
    "holder": Kind("app-blocked", "a process that holds a file lock", work.HOLDER),
    "lookups": Kind("app-blocked", "it looks names up for each request", work.LOOKUPS),
    "lookups-lost": Kind(
        "upstream-wait", "the name server that does not answer", work.LOOKUPS_LOST
    ),
    "served-elsewhere": Kind(
        "accept-starved", "others of its listener are not observed", work.SERVED_ELSEWHERE
    ),
    "sender": Kind("upstream-wait", "requests wait for what another client sends", work.SENDER),
    "asks-again": Kind("upstream-wait", "each request asks it many times", work.ASKS_AGAIN),
    "sent-through": Kind(
        "upstream-wait", "requests wait for what others send through an upstream", work.SENT_THROUGH
    ),
    "upstream": Kind("upstream-wait", "the upstream that answers late", work.UPSTREAM),
    "upstream-drops": Kind(
        "upstream-wait", "the upstream that ends requests without an answer", work.UPSTREAM_DROPS
    ),
    "kept-too-long": Kind(
        "upstream-wait", "an upstream that closes idle connections first", work.KEPT_TOO_LONG
    ),
    "loop-waits": Kind("upstream-wait", "its event loop itself waits for it", work.LOOP_WAITS),
    "pool": Kind("upstream-wait", "few connections to it, all busy", work.POOL),
    "pool-of-one": Kind("upstream-wait", "a single connection to it, busy", work.POOL_OF_ONE),
    "kept-pool": Kind(
        "upstream-wait", "a proxy's connections to it, which clients keep", work.KEPT_POOL
    ),
    "quota": Kind("cpu-contention", "a CPU quota", host.QUOTA),
    "affinity": Kind("cpu-contention", "its affinity keeps it from idle CPUs", host.AFFINITY),
    "cpuset": Kind("cpu-contention", "a cpuset keeps it from idle CPUs", host.CPUSET),
    "too-many-threads": Kind("cpu-contention", "too many threads", host.TOO_MANY_THREADS),
    "stranger": Kind("cpu-contention", "an unrelated process has the CPU", host.STRANGER),
    "stranger-session": Kind(
        "cpu-contention", "a process of another session has the CPU", host.STRANGER_SESSION
    ),
    "stranger-cgroup": Kind(
        "cpu-contention", "a process of another cgroup has the CPU", host.STRANGER_CGROUP
    ),
    "lowered": Kind("cpu-contention", "the target has a low priority", host.LOWERED),
    "lowered-session": Kind(
        "cpu-contention", "the target's session has a low priority", host.LOWERED_SESSION
    ),
    "lowered-cgroup": Kind(
        "cpu-contention", "the target's cgroup has a small CPU weight", host.LOWERED_CGROUP
    ),
    "partner": Kind("cpu-contention", "a partner has the CPU", host.PARTNER),
    "kernel-thread": Kind("cpu-contention", "the kernel has the CPU", host.KERNEL_THREAD),
    "short-lived": Kind("cpu-contention", "short-lived processes", host.SHORT_LIVED),
    "who-runs": Kind("cpu-contention", "no single process", host.WHO_RUNS),
    "fewer-calls": Kind("transport", "many small calls", moving.FEWER_CALLS),
    "fewer-bytes": Kind("transport", "large messages", moving.FEWER_BYTES),
    "sendfile": Kind("transport", "files that are read to be sent", moving.SENDFILE),
    "unix-instead": Kind("transport", "TCP on one host", moving.UNIX_INSTEAD),
}


def remedies(kind: str, server: str = GENERIC, **values: Value) -> Tuple[Action, ...]:
    """The actions of one kind of trouble at one server, the best first.

    A row that needs a value which is not given or None is left out.
    """
    return tuple(_actions(KINDS[kind].rows(server), values))


def _actions(rows: Tuple[Row, ...], values: Mapping[str, Value]) -> Iterator[Action]:
    for row in rows:
        action = row.action(values)
        if action is not None:
            yield action
