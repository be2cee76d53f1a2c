"""Sleeps in a library whose function tells what for: there is a better remedy than the function.

Source: the library's manual and source.
"""

from __future__ import annotations

import re
from typing import Dict, NamedTuple, Optional, Pattern, Sequence, Tuple

from udsprobe.model.code.frames import bare
from udsprobe.rules.remedy.row import Row, look, reload, restart
from udsprobe.rules.remedy.work import HUNG, POOL
from udsprobe.rules.servers import GENERIC


class KnownSleep(NamedTuple):
    """What a library waits for.

    Attributes:
        kind: of remedy. waits_for: in words. functions: of the library, one of which called the
            one that sleeps; several in a row are divided by newlines, the innermost first.
        library: its other functions, that called these; None: they say nothing of where it was
            called. may_rest: threads without a request wait so for work, too.
        is_native: an interpreter makes its own locks of it.
    """

    kind: str
    waits_for: str
    functions: Pattern[str]
    library: Optional[Pattern[str]] = None
    may_rest: bool = False
    is_native: bool = False

    def found_in(self, stack: Sequence[str]) -> Optional[int]:
        """The place of such a function in a stack."""
        text = "\n".join(stack)
        found = self.functions.search(text)
        return None if found is None else text.count("\n", 0, found.end(1))


def _in(functions: str) -> Pattern[str]:
    return re.compile(rf"^({functions})(?= \(|$)", re.MULTILINE)


def _first(functions: str) -> Pattern[str]:
    return re.compile(rf"\A({functions})(?= \(|$)", re.MULTILINE)


# A writer that finds the database locked sleeps and tries again, and nothing wakes it when the
# lock is free (sqlite.org/c3ref/busy_timeout.html).
_SQLITE = KnownSleep(
    "sqlite-lock",
    "the lock of a SQLite database",
    _in(r"sqlite3InvokeBusyHandler|btreeInvokeBusyHandler|sqliteDefaultBusyCallback"),
)
# src/backend/storage/lmgr: of a row, a table or what a program locks by itself.
_POSTGRESQL = KnownSleep(
    "postgresql-lock",
    "a lock of the database",
    _in(r"ProcSleep|JoinWaitQueue|LockAcquireExtended|XactLockTableWait"),
)
# storage/innobase/lock/lock0wait.cc
_INNODB = KnownSleep("innodb-lock", "a lock of the database", _in(r"lock_wait(_suspend_thread)?"))
# src/backend/replication/syncrep.c: a commit waits until a standby says that it has it.
_STANDBY = KnownSleep(
    "postgresql-standby",
    "a standby to confirm its commit (synchronous replication)",
    _in("SyncRepWaitForLSN"),
)
# sql/mdl.cc: of a table, or of all (FLUSH TABLES WITH READ LOCK, a backup), of any engine.
_TABLE_IN_MYSQL = KnownSleep(
    "mysql-table-lock",
    "a lock of a table, or of all tables (metadata lock)",
    _in(r"MDL_wait::timed_wait"),
)
# ext/session/mod_files.c: a session's file is locked until it is written, at the end of a request.
_PHP_SESSION = KnownSleep(
    "php-session",
    "a session that another request has",
    _in(
        r"(php_)?session_(start|regenerate_id)|php_session_initialize|ps_(read|open)_files"
        r"|ps_files_open"
    ),
)
# Functions that do nothing but wait for one: HikariCP 7, Commons Pool 2 (DBCP, Jedis), Tomcat JDBC,
# c3p0 0.10, Druid 1.2.
_JAVA_POOLS = (
    r"com\.zaxxer\.hikari\.util\.ConcurrentBag\.borrow"
    r"|org\.apache\.commons\.pool2\.impl\.LinkedBlockingDeque\.(takeFirst|pollFirst)"
    r"|org\.apache\.tomcat\.jdbc\.pool\.(MultiLock)?FairBlockingQueue\.poll"
    r"|com\.mchange\.v2\.resourcepool\.BasicResourcePool\.awaitAvailable"
    r"|com\.alibaba\.druid\.pool\.DruidDataSource\.(pollLast|takeLast)"
)
# SQLAlchemy 2, psycopg_pool 3, redis 7, urllib3 2, DBUtils 3, in CPython 3.11 and later: before it
# its functions have no classes.
_PYTHON_POOLS = (
    r"Queue\.get \(queue\.py:\d+\)\n(QueuePool\._do_get|BlockingConnectionPool\.get_connection"
    r"|HTTPConnectionPool\._get_conn)"
    r"|WaitingClient\.wait|PooledDB\._wait_lock"
)
# connection_pool 2, Sequel 5, ActiveRecord (connection_adapters/abstract/connection_pool/queue.rb).
_RUBY_POOLS = (
    r"Thread::ConditionVariable#wait \(ruby:internal\)\n(block (\(\d levels\) )?in )?"
    r"(ConnectionPool::TimedStack#pop|Sequel::ThreadedConnectionPool#acquire)"
    r"|ActiveRecord::ConnectionAdapters::ConnectionPool::Queue#wait_poll"
)
_POOL = KnownSleep(
    "pool-in",
    "a free connection of its pool",
    _in(f"{_JAVA_POOLS}|{_PYTHON_POOLS}|{_RUBY_POOLS}"),
    re.compile(
        r"(com\.zaxxer\.hikari|org\.apache\.commons\.(pool2|dbcp2)|org\.apache\.tomcat\.jdbc\.pool"
        r"|com\.mchange\.v2|com\.alibaba\.druid\.pool|redis\.clients\.jedis)\..*"
        r"|_Connection(Record|Fairy)\.\w+|(Pool|Engine)\.\w+|Connection\.__init__"
        r"|ConnectionPool\.\w+|PooledDB\.connection|HTTPConnectionPool\.urlopen"
        r"|RequestMethods\.\w+|PoolManager\.urlopen"
        r"|(block .*in )?(ConnectionPool|Sequel|ActiveRecord|ActiveSupport)(::\w+)*[#.]\w+[?!]?"
    ),
)
# `java.util.concurrent`, Guava, resilience4j; CPython's threading, 3.11 and later.
_LIMIT = KnownSleep(
    "limit-in",
    "a limit of its own (semaphore)",
    _in(
        r"java\.util\.concurrent\.Semaphore\.(acquire|tryAcquire)\w*"
        r"|com\.google\.common\.util\.concurrent\.RateLimiter\.acquire"
        r"|Semaphore\.acquire \(threading\.py:\d+\)"
    ),
    re.compile(r"io\.github\.resilience4j\..*|java\.util\.concurrent\.Semaphore\..*"),
    may_rest=True,
)
# `java.util.concurrent`, and concurrent.futures of CPython: another thread does it.
_TASK = KnownSleep(
    "executor-in",
    "a task that it gave to other threads",
    _in(
        r"java\.util\.concurrent\.(FutureTask|CompletableFuture|ForkJoinTask)\.(get|join|awaitDone)"
        r"|java\.util\.concurrent\.(Abstract|ThreadPool)?ExecutorService\.invoke(All|Any)"
        r"|Future\.result \(_base\.py:\d+\)"
    ),
    re.compile(r"java\.util\.concurrent\.\w+\.(get|join|invoke(All|Any))|Future\.\w+"),
)
# Functions of the C and C++ libraries, Rust's and rayon's: another thread ends it, which may have
# worked off a task, made room, or given something back.
_CONDITION = KnownSleep(
    "condition-in",
    "another of its threads (a condition)",
    _first(
        r"pthread_cond_(timed|clock)?wait|cnd_(timed)?wait"
        r"|std::condition_variable(_any)?::wait\w*|std::__condvar::wait\w*"
        r"|std::__atomic_futex_unsigned_base::_M_futex_wait_until\w*"
        r"|<?std::sync::(\w+::)*(Condvar::wait\w*|mp[sm]c::\S*::recv\w*)"
        r"|std::sys::(\w+::)*[cC]ondvar::(\w+::)*\w*wait\w*"
        r"|rayon_core::latch::LockLatch::wait\w*"
    ),
    re.compile(r"(<?(std|rayon_core|rayon)::|std::).*"),
    may_rest=True,
    is_native=True,
)
# lib/child_process.js of Node: it runs a loop of its own until the child has ended.
_NODE_CHILD = KnownSleep(
    "node-child",
    "a child process in its event loop (spawnSync)",
    re.compile(r"^(spawnSync|execFileSync|execSync) \((?:node:)?child_process\b", re.MULTILINE),
)
# redis/lock.py of redis-py 3 to 7: who does not get it sleeps, for 0.1 s where the program does not
# say, and looks again. CPython 3.11 and later.
_REDIS_LOCK = KnownSleep(
    "redis-lock",
    "a lock that it keeps in Redis",
    _in(r"Lock\.acquire \(lock\.py:\d+\)"),
    re.compile(r"Lock\.__enter__"),
)
_KNOWN = (
    *(_REDIS_LOCK, _SQLITE, _POSTGRESQL, _STANDBY, _INNODB, _TABLE_IN_MYSQL, _PHP_SESSION),
    *(_POOL, _LIMIT, _TASK, _NODE_CHILD, _CONDITION),
)
# Sleeps for a time, which the runtime makes of a lock or its poller: thread.c of Ruby, of Java
# jvm.cpp (JVM_Sleep) and Thread.java.
_FOR_A_TIME = _in(r"Kernel#sleep|java\.lang\.Thread\.sleep(Nanos)?0?")
# Of the language, between a library and who calls it.
_BETWEEN = re.compile(
    r"_GeneratorContextManager\.__enter__|.*<locals>.*"
    r"|Kernel#loop|(Thread::Mutex|Monitor)#synchronize|MonitorMixin#\w+|Thread\.handle_interrupt"
)

SQLITE_LOCK: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "keep what writes to the SQLite database short: nothing else between BEGIN and COMMIT, "
            "and many rows in one transaction; or let one process write for all",
            "one writes at a time; the others sleep and try again, and are not told when it is "
            "free",
        ),
        restart(
            "PRAGMA journal_mode=WAL; in the database, and PRAGMA synchronous=NORMAL; in each "
            "connection",
            "readers then do not wait for the writer, and its commits are shorter",
        ),
    )
}
_SHORT_TRANSACTIONS = restart(
    "keep transactions short, without a wait for anybody else inside, and change rows that many "
    "share (a counter, a balance) last in them",
    "who changes such a row keeps all others waiting until its transaction ends",
)
POSTGRESQL_LOCK: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (HUNG["postgresql"][0], _SHORT_TRANSACTIONS)
}
INNODB_LOCK: Dict[str, Tuple[Row, ...]] = {GENERIC: (HUNG["mysql"][0], _SHORT_TRANSACTIONS)}
MYSQL_TABLE_LOCK: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        HUNG["mysql"][1],
        restart(
            "end transactions that have read a table before ALTER TABLE, LOCK TABLES or FLUSH "
            "TABLES WITH READ LOCK comes, give these a short lock_wait_timeout, and take backups "
            "without that lock (mariadb-dump --single-transaction, mariadb-backup)",
            "such a statement waits for all that use the table, and all that come later wait for "
            "it",
        ),
    )
}
POSTGRESQL_STANDBY: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        look(
            'sudo -u postgres psql -c "select application_name, state, sync_state, write_lag, '
            'flush_lag, replay_lag from pg_stat_replication"',
            "see which standby PostgreSQL waits for, and how far it lags",
            "a commit is answered when the standbys of synchronous_standby_names have confirmed it",
        ),
        reload(
            "until that standby keeps up, synchronous_standby_names = 'ANY 1 (…)' with more than "
            "one of them, or synchronous_commit = local where a lost commit does no harm",
            "the slowest standby that is needed sets the pace of all commits",
        ),
    )
}

REDIS_LOCK: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "hold that lock for less long, or lock less with it (a name for each order or file in "
            "place of one for all): {where}",
            "one has it at a time, of all processes that use its name",
        ),
        restart(
            "give redis-py's Lock a smaller sleep= (0.1 s by default)",
            "who waits looks again after that time, and is not told when the lock is free",
        ),
    )
}
PHP_SESSION: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "call session_write_close() as soon as a request has set what it sets in its session, "
            "and session_start(['read_and_close' => true]) where it only reads",
            "PHP locks a session from session_start() to the end of the request: requests of one "
            "client take turns",
        ),
    )
}
EXECUTOR_IN: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "let that task take less time, or give its executor more threads where tasks queue "
            "for them: {where}",
            "a request waits there until another thread of the program has done it",
        ),
    )
}
CONDITION_IN: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "let what it waits for there be done sooner, or by more threads at once: {where}",
            "a request waits until another thread has worked off a task, made room or given "
            "something back",
        ),
    )
}
NODE_CHILD: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "await the child: execFile() or spawn() of node:child_process (with util.promisify) in "
            "place of execFileSync(), execSync() and spawnSync()",
            "the event loop serves nobody until the child has ended",
        ),
    )
}
POOL_IN: Dict[str, Tuple[Row, ...]] = {
    server: (
        *rows,
        restart(
            "hold a connection for less long: give it back before a request computes, sleeps or "
            "asks anybody else: {where}",
            "who has one keeps the others waiting, whether the upstream works for it or not",
        ),
    )
    for server, rows in POOL.items()
    if server in (GENERIC, "java", "python", "ruby")
}


def known_sleep(stack: Sequence[str]) -> Optional[KnownSleep]:
    """What a stack waits for; None where no function of it tells.

    Args:
        stack: `function (module)`, the innermost first.
    """
    return next((each for each in _KNOWN if each.found_in(stack) is not None), None)


def sleeps_for_a_time(stack: Sequence[str]) -> bool:
    """Whether the program asks for this sleep itself, and nothing else ends it sooner.

    Args:
        stack: as above.
    """
    return bool(stack) and _FOR_A_TIME.match(stack[0]) is not None


def called_from(wait: KnownSleep, stack: Sequence[str]) -> Sequence[str]:
    """The outermost function of the library, and the one that called it where that is known; none
    where it does not wait so.

    Args:
        stack: as above, in which it waits so.
    """
    at = wait.found_in(stack)
    if wait.library is None or at is None:
        return ()
    entered = stack[at]
    for named in stack[at + 1 :]:
        if wait.library.fullmatch(bare(named)):
            entered = named
        elif not _BETWEEN.fullmatch(bare(named)):
            return entered, named
    return (entered,)
