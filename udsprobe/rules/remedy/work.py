"""Remedies for what happens inside a server: its CPU time, its sleep, its connections, its sends.

Sources: each server's manual; docs/remedies.md has what was tried.
"""

from __future__ import annotations

from typing import Dict, Tuple

from udsprobe.model.action import LOOKS
from udsprobe.rules.remedy.row import Row, look, now, reload, restart
from udsprobe.rules.servers import GENERIC

_PERF = look(
    "sudo perf record -F 99 -g -t {tid} -o - -- sleep 10 | "
    "perf report -i - --stdio --no-children | head -n 60",
    "see which code its CPU time is spent in (package linux-perf, or linux-tools-generic)",
    "samples the stack of the busy thread 99 times a second, for 10 s",
)
_PY_SPY = look(
    "sudo py-spy dump --pid {pid}",
    "see what its Python threads do (pip install py-spy)",
    "prints the stack of each thread with its line; run it twice to see whether it moves",
)
_RBSPY = look(
    "sudo rbspy dump --pid {pid}",
    "see what its Ruby threads do (cargo install rbspy)",
    "prints the stack of each thread with its line",
)
_SLOW_COMMANDS = (
    "see the slow commands of Redis (package redis-tools)",
    "one slow command holds up all clients: Redis runs commands in one thread",
)
PROFILE: Dict[str, Tuple[Row, ...]] = {
    "generic": (_PERF,),
    "python": (_PY_SPY,),
    "java": (
        look(
            "sudo jcmd {pid} Thread.print",
            "see what its Java threads do (package default-jdk-headless)",
            "prints the stack of each thread",
        ),
    ),
    "ruby": (_RBSPY,),
    "postgresql": (
        look(
            'sudo -u postgres psql -c "SELECT pid, state, wait_event, query FROM pg_stat_activity '
            'WHERE pid = {pid}"',
            "see which query that process of PostgreSQL runs",
            "a slow query is the usual reason: EXPLAIN (ANALYZE, BUFFERS) of it says why",
        ),
    ),
    "mysql": (
        look(
            'sudo "$(command -v mariadb || command -v mysql)" -e "SHOW FULL PROCESSLIST"',
            "see which queries MySQL or MariaDB runs",
            "a slow query is the usual reason: EXPLAIN of it says why",
        ),
    ),
    "redis": (
        look("redis-cli -s {path} SLOWLOG GET 10", *_SLOW_COMMANDS),
        look("redis-cli -h {host} -p {port} SLOWLOG GET 10", *_SLOW_COMMANDS),
        _PERF,
    ),
}
PROFILE_MANY: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (_PERF,),
    "postgresql": (
        look(
            'sudo -u postgres psql -c "SELECT count(*), wait_event, left(query, 60) AS query FROM '
            "pg_stat_activity WHERE state = 'active' GROUP BY 2, 3 ORDER BY 1 DESC\"",
            "see which queries the processes of PostgreSQL run",
            "each serves one connection, and none is busy alone; EXPLAIN (ANALYZE, BUFFERS) of the "
            "query that most run says why",
        ),
    ),
}

_CODE_NAMED = "then the function, its file and its line are in the verdict"
_X_PERF = restart(
    "start it with python3 -X perf (or PYTHONPERFSUPPORT=1), Python 3.12 or later", _CODE_NAMED
)
_YJIT_PERF = restart(
    'start it with RUBYOPT="--yjit --yjit-perf", Ruby 3.3 or later',
    "then the methods that YJIT has compiled have names; without it methods of Ruby 3.0 or later "
    "have names, but for arm64",
)
CODE_NAMES: Dict[str, Tuple[Row, ...]] = {
    "node": (
        restart(
            "start it with node --perf-basic-prof --interpreted-frames-native-stack", _CODE_NAMED
        ),
    ),
    "java": (
        look(
            "sudo jcmd {pid} Compiler.perfmap",
            "let Java 17 or later write the names of its compiled functions (package "
            "default-jdk-headless)",
            "writes the map file for perf, which udsprobe reads too; frames need "
            "-XX:+PreserveFramePointer",
        ),
    ),
    "php-fpm": (
        restart(
            "set opcache.jit=function, opcache.jit_buffer_size=64M and opcache.jit_debug=16 (PHP "
            "8.0 or later)",
            "then each process names the functions that it has compiled itself; without it they "
            "have names unless PHP is built with threads (ZTS), or for arm64",
        ),
    ),
    "python": (_X_PERF,),
    "ruby": (_YJIT_PERF,),
    GENERIC: (
        restart(
            "run a build of it that is not stripped, or install its debug symbols (Debian: the "
            "-dbgsym package)",
            "then its functions have names",
        ),
    ),
}

COMPUTES_ON: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "mend what it computes, or put a limit on it: it has looked at no socket for {lasted} "
            "or longer; if it never comes back, only a restart ends it",
            "more processes compute the same when they get the same request",
        ),
    ),
}

FEW_CPUS: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "start it without its limit to CPU {cpus} (taskset, CPUAffinity=, a cpuset): CPU "
            "{others} is idle most of the time",
            "Go computes on as many CPUs as it may use at its start; from Go 1.25 on it follows "
            "a change by itself",
        ),
    ),
}

_DATABASE = "a further server of the same data needs replication; a cheaper query needs nothing"
MORE_CPU: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        restart(
            "use more worker processes or threads, if CPUs are free",
            "one thread runs on one CPU; a faster transport does not change that",
        ),
    ),
    "nginx": (
        reload("worker_processes auto; then reload nginx", "a worker runs on one CPU at a time"),
    ),
    "node": (
        restart(
            "run the program in more processes (node:cluster), or move what computes to "
            "worker_threads, if CPUs are free",
            "JavaScript runs in one thread; a faster transport does not change that",
        ),
    ),
    "gunicorn": (
        restart(
            "raise --workers of gunicorn, if CPUs are free; SIGTTIN to its master adds one at once",
            "a worker computes on one CPU at a time",
        ),
    ),
    "uvicorn": (
        restart(
            "raise --workers of uvicorn, if CPUs are free", "a worker computes on one CPU at a time"
        ),
    ),
    "python": (
        restart(
            "serve with more processes, if CPUs are free",
            "threads of one Python process compute one after the other",
        ),
    ),
    "uwsgi": (
        restart("raise `processes` of uWSGI, if CPUs are free", "a process computes on one CPU"),
    ),
    "puma": (
        restart(
            "raise `workers` in config/puma.rb, if CPUs are free",
            "threads of one Ruby process compute one after the other",
        ),
    ),
    "unicorn": (
        restart(
            "raise `worker_processes` in config/unicorn.rb, if CPUs are free",
            "a worker computes on one CPU",
        ),
    ),
    "php-fpm": (
        reload(
            "raise pm.max_children of the pool, if CPUs are free; opcache.enable=1 in any case",
            "a child computes on one CPU",
        ),
    ),
    "haproxy": (
        reload("raise nbthread in HAProxy's global section", "a thread runs on one CPU at a time"),
    ),
    "memcached": (restart("raise -t of memcached", "a thread runs on one CPU at a time"),),
    "postgresql": (restart("find the query and make it cheaper: an index, fewer rows", _DATABASE),),
    "mysql": (restart("find the query and make it cheaper: an index, fewer rows", _DATABASE),),
    "redis": (
        restart(
            "find the slow commands (SLOWLOG GET) and spread the keys over several instances",
            "Redis runs commands in one thread; io-threads only moves bytes",
        ),
    ),
    "pgbouncer": (
        restart(
            "run a second PgBouncer on the same port (so_reuseport = 1)",
            "PgBouncer is one thread",
        ),
    ),
    "java": (
        restart(
            "look at the profile, and at garbage collection: -Xlog:gc, a larger -Xmx",
            "with too small a heap it collects garbage all the time",
        ),
    ),
    "go": (
        restart(
            "give it more CPUs (GOMAXPROCS no larger than those), or its handlers less to do",
            "goroutines compute on as many CPUs as GOMAXPROCS says; more only wait for each other",
        ),
    ),
    "caddy": (
        restart(
            "give Caddy more CPUs, or its handlers less to do (`templates`, `encode`)",
            "Caddy runs on as many CPUs as GOMAXPROCS says: all that it may use",
        ),
    ),
}

ALL_CPUS: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "make what it computes cheaper, or give it more CPUs, or other hosts a part of it",
            "all CPUs are taken: one worker more would wait as these do",
        ),
    ),
    **{server: MORE_CPU[server] for server in ("postgresql", "mysql", "redis")},
}

_SLEEPS = look(
    "sudo head -v /proc/{pid}/task/*/wchan /proc/{pid}/task/*/syscall",
    "see in which system call each thread sleeps",
    "the call in which it sleeps shows what it waits for while requests wait for its reply",
)
GOROUTINES_LOOK = "see where its goroutines wait"
"""How the remedy begins that is a look at them: of no use where that is told."""

_GOROUTINES = restart(
    f"{GOROUTINES_LOOK}: /debug/pprof/goroutine?debug=2 where it serves net/http/pprof; else "
    "`sudo kill -QUIT {pid}` writes them all to its standard error, and ends it",
    "goroutines wait inside the program, where the kernel does not see for what",
)
SLEEPS: Dict[str, Tuple[Row, ...]] = {
    "go": (_GOROUTINES,),
    "generic": (_SLEEPS,),
    "python": (_PY_SPY, _SLEEPS),
    "java": (*PROFILE["java"], _SLEEPS),
    "postgresql": (*PROFILE["postgresql"], _SLEEPS),
    "mysql": (*PROFILE["mysql"], _SLEEPS),
}
VIRTUAL_THREADS: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        look(
            "sudo jcmd {pid} Thread.dump_to_file -overwrite /tmp/threads-{pid}.txt && sudo less "
            "/tmp/threads-{pid}.txt",
            "see where its virtual threads wait (package default-jdk-headless, of its version)",
            "virtual threads wait inside the program, where the kernel does not see for what; "
            "Thread.print leaves them out",
        ),
    )
}
ERLANG_PROCESSES: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        Row(
            "see where its processes wait, in a shell of it (bin/app remote, iex --remsh, "
            "rabbitmqctl remote_shell): [{{P, erlang:process_info(P, current_stacktrace)}} || "
            "P <- erlang:processes()].",
            "processes of Erlang and Elixir wait inside the program, where the kernel does not see "
            "for what",
            effect=LOOKS,
        ),
    )
}
CHILD_EACH: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "start {program} once and not for each request (FastCGI or HTTP in place of CGI, "
            "workers that stay), or make it quicker",
            "a process of it is started for each request, which waits until that is done",
        ),
    ),
    "postgresql": (
        look(
            'sudo -u postgres psql -c "SELECT leader_pid, pid, query FROM pg_stat_activity WHERE '
            'leader_pid IS NOT NULL"',
            "see which queries PostgreSQL runs with parallel workers",
            "it starts them for each such query, which waits until they are done; an index, or "
            "fewer rows, makes it quicker",
        ),
    ),
}
SLEEP_IN: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "take the sleep out of the request, or make it shorter: {where}",
            "the program asks for this sleep itself: nothing else ends it sooner",
        ),
    )
}
LOCK_IN: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "let requests wait less for that lock, held for less long or divided: {where}",
            "each request waits there until another one lets go of it",
        ),
    )
}
CALL_IN: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "do without that call in the request, or make it less often: {where}",
            "each request waits there until {call}() returns",
        ),
    )
}
_NGINX_TIMERS = (
    "sudo nginx -T 2>/dev/null | grep -nE '"
    "limit_req |limit_rate|_cache_lock|auth_delay|resolver |_by_lua'"
)
_CALLS_IN_REDIS = "INFO commandstats | grep -E 'pause|failover|_bl|_bz|xread|_wait'"
_WHO_HOLDS_REDIS = (
    "see whether clients of Redis have paused it, or wait for what others send (package "
    "redis-tools)",
    "more calls of client|pause each time are CLIENT PAUSE, by a failover as well, and CLIENT LIST "
    "has `cmd=client|pause` of who sent it: a pause of WRITE ends with CLIENT UNPAUSE, in one of "
    "ALL redis-cli waits until it is over, too; bl…, bz…, xread and wait wait because clients ask "
    "for it",
)
_HELD_IN_REDIS = (
    look(f"redis-cli -s {{path}} {_CALLS_IN_REDIS}", *_WHO_HOLDS_REDIS),
    look(f"redis-cli -h {{host}} -p {{port}} {_CALLS_IN_REDIS}", *_WHO_HOLDS_REDIS),
)
EVENT_IN: Dict[str, Tuple[Row, ...]] = {
    "redis": _HELD_IN_REDIS,
    "nginx": (
        look(
            _NGINX_TIMERS,
            "see which of its settings make requests wait",
            "its poller sleeps until a timer of its own ends: {where}; limit_req waits without "
            "nodelay, cache locks for up to 500 ms at a time until another request has filled the "
            "cache, names until the resolver answers",
        ),
    ),
    GENERIC: (
        restart(
            "find the timer (asyncio.sleep, setTimeout, tokio::time::sleep) or the queue in its "
            "code that requests wait for, and wait for less",
            "its poller sleeps until a timer of its own ends: {where}",
        ),
    ),
}
_NO_THREAD_LEFT = (
    "where these threads are all that its pool has, each further request waits for one"
)
THREADS_HELD: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "give the pool that serves requests more threads than can be held at once, or answer "
            "what holds them for long elsewhere: {where}",
            _NO_THREAD_LEFT,
        ),
    ),
    "python": (
        restart(
            "serve streams with grpc.aio, which holds no thread for each, or give grpc.server() "
            "more max_workers than streams are open at once; of other servers raise the number of "
            "threads likewise: {where}",
            _NO_THREAD_LEFT,
        ),
    ),
}
_OWN_LIMIT = "they wait before the upstream is asked: more or faster upstreams change nothing"
HELD_BACK: Dict[str, Tuple[Row, ...]] = {
    "nginx": (
        look(_NGINX_TIMERS, "see which of its settings make requests wait", _OWN_LIMIT),
        reload(
            "take that one away for them, then reload nginx: proxy_cache_lock off, or "
            "proxy_cache_bypass, where the upstream's replies may not be cached; nodelay or a "
            "higher rate for limit_req",
            "with proxy_cache_lock one request for a key is passed on at a time, and the others "
            "look every 500 ms whether it has filled the cache: what may not be cached fills "
            "none; limit_req without nodelay lets a burst wait for its rate",
        ),
    ),
    GENERIC: (
        reload(
            "find the limit of its own that requests wait for (a rate, a delay, a cache that "
            "fetches one at a time, a name that is looked up), and raise it or take it away",
            _OWN_LIMIT,
        ),
    ),
}
OCCUPIED: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "serve with more workers or threads",
            "all that there are sleep inside a request nearly always, and others queue",
        ),
    ),
    "java": (
        restart(
            "raise the number of its threads (Tomcat: maxThreads; Jetty: maxThreads of its "
            "QueuedThreadPool; Undertow: worker threads; HttpServer: setExecutor), or serve with "
            "virtual threads (Java 21 or later)",
            "all that there are sleep inside a request nearly always, and others queue",
        ),
    ),
}
ONE_WORKER: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "let its clients reach the other workers: end a connection after some hundred requests "
            "(Node: server.maxRequestsPerSocket; a proxy in front: keepalive_requests of nginx, "
            "least_conn)",
            "a client stays with the worker that has its connection, however busy that one is",
        ),
    )
}
_LARGER_POOL = "all of them are busy, and requests queue for them"
POOL_OF_THREADS: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (restart("give that pool more threads", _LARGER_POOL),),
    "node": (restart("start it with a larger UV_THREADPOOL_SIZE (4 by default)", _LARGER_POOL),),
    "uvicorn": (
        restart(
            "raise anyio.to_thread.current_default_thread_limiter().total_tokens at its start "
            "(40 by default), or make the handler async",
            _LARGER_POOL,
        ),
    ),
}
POOL_OF_PROCESSES: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "give that pool more processes (max_workers of ProcessPoolExecutor, processes of "
            "multiprocessing.Pool)",
            _LARGER_POOL,
        ),
    ),
}
PIPE_FULL: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        restart(
            "write to a file, or let {who} read faster; log less, or from a thread of its own",
            "{who} reads the pipe more slowly than it is written to, so each write waits",
        ),
        look(
            "sudo sh -c 'ls -l /proc/{pid}/fd | grep pipe:'",
            "see which descriptors are pipes: 1 and 2 are its output and its errors",
            "whose pipe it is says what is written there",
        ),
    )
}
PIPE_UNREAD: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        look(
            "sudo ps -o pid,stat,wchan:24,etime,args -p {peer_pid}",
            "see why {who} does not read: T is stopped (`sudo kill -CONT {peer_pid}` lets it go "
            "on), D waits for a disk; else restart it, or what it writes to",
            "each write to that pipe waits until it reads, and with it who needs the writer's lock",
        ),
        look(
            "sudo sh -c 'ls -l /proc/{pid}/fd | grep -E \"pipe:|fifo\"'",
            "see which descriptors are pipes: 1 and 2 are its output and its errors",
            "whose pipe it is says what is written there",
        ),
        restart(
            "write its log to a file, or from a thread of its own that drops lines while its queue "
            "is full (QueueHandler of Python, AsyncAppender with neverBlock of Logback)",
            "then no request waits for who reads the log",
        ),
    )
}
DISK: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        look(
            "iostat -x 1 10",
            "see which disk is busy (package sysstat)",
            "shows how long the disk takes per request, and how full its queue is",
        ),
        restart(
            "move its data to a faster disk, or to one that nobody else writes to; raise the IOPS "
            "of a volume, or the limit of its control group (io.max, blkio.throttle)",
            "what is written waits for all that was written to the disk before it",
        ),
    )
}
_STOPPED_IN = look(
    "sudo head -v /proc/{pid}/task/*/wchan /proc/{pid}/task/*/syscall",
    "see in which system call each of its threads sleeps, or that it is stopped",
    "a server that does not answer sleeps in a call that does not return",
)
_ENDS_IT = "what waits goes on when that session commits, rolls back or ends"
HUNG: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (_STOPPED_IN,),
    "go": (_GOROUTINES, _STOPPED_IN),
    "python": (_PY_SPY, _STOPPED_IN),
    "java": (*PROFILE["java"], _STOPPED_IN),
    "postgresql": (
        look(
            'sudo -u postgres psql -c "select w.pid, b.pid as blocked_by, b.state, now() - '
            "b.state_change as since, b.query from pg_stat_activity w, pg_stat_activity b where "
            'b.pid = any(pg_blocking_pids(w.pid))"',
            "see which session of PostgreSQL blocks which, and what it does (without a row: none "
            "waits for a lock of the database)",
            f"{_ENDS_IT}: select pg_terminate_backend(PID) ends one, and undoes its transaction",
        ),
        _STOPPED_IN,
    ),
    "mysql": (
        look(
            'sudo "$(command -v mariadb || command -v mysql)" -e "select w.trx_mysql_thread_id as '
            "id, b.trx_mysql_thread_id as blocked_by, b.trx_started, b.trx_query, w.trx_query as "
            "waits_with from information_schema.innodb_lock_waits l join "
            "information_schema.innodb_trx w on w.trx_id = l.requesting_trx_id join "
            'information_schema.innodb_trx b on b.trx_id = l.blocking_trx_id"',
            "see which session of MariaDB blocks which (MySQL 8: select * from "
            "sys.innodb_lock_waits)",
            f"{_ENDS_IT}: KILL ID ends one, and undoes its transaction",
        ),
        look(
            'sudo "$(command -v mariadb || command -v mysql)" -e "show full processlist"',
            "see what each session of MySQL or MariaDB waits for (`Waiting for table metadata "
            "lock`: of a table, which a session has that is in no list of rows)",
            "shows the state of each session, since when, and its statement",
        ),
        _STOPPED_IN,
    ),
    "redis": (*_HELD_IN_REDIS, _STOPPED_IN),
    "rabbitmq": (
        look(
            "sudo rabbitmq-diagnostics check_local_alarms; sudo rabbitmqctl list_connections name "
            "state",
            "see whether RabbitMQ has an alarm: then memory or disk is short, and it reads nothing "
            "from connections that publish",
            "they are `blocked` until the alarm is over: consumers that take messages away, a "
            "larger vm_memory_high_watermark, or a free disk end it",
        ),
        _STOPPED_IN,
    ),
}
_INSIDE = (
    "what they wait for is inside the program: a callback, a promise, a channel or a queue that "
    "nobody serves"
)
_LEFT_INSIDE = f"{_INSIDE}; the program's own log says which requests begin and do not end"
UNANSWERED: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "give whatever a request waits for a timeout, and each way through its handler a "
            "reply, errors too",
            _LEFT_INSIDE,
        ),
    ),
    "go": (
        restart(
            "give whatever a handler waits for the request's context and a timeout "
            "(context.WithTimeout; select with ctx.Done() beside each channel)",
            f"{_INSIDE}; a goroutine that waits for ever holds its request for ever",
        ),
        _GOROUTINES,
    ),
    "node": (
        restart(
            "end the response on each way through its handler, error callbacks too, and let no "
            "promise stay open: give it a timeout",
            _LEFT_INSIDE,
        ),
    ),
}
_ENDS_THEM = "whoever waits for such a reply gets an empty one, and nginx before it answers 502"
DROPPED: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "look in the log of {who} for an error or a time limit of its own at these times, and "
            "let it reply with an error",
            _ENDS_THEM,
        ),
    ),
    "gunicorn": (
        restart(
            "look in the log of gunicorn for `WORKER TIMEOUT` and errors; raise --timeout only "
            "where requests may take that long",
            _ENDS_THEM,
        ),
    ),
    "uwsgi": (
        restart(
            "look in the log of uWSGI for `HARAKIRI` and errors; raise `harakiri` only where "
            "requests may take that long",
            _ENDS_THEM,
        ),
    ),
    "php-fpm": (
        restart(
            "look in the log of PHP-FPM for `terminating` and `exited on signal`; raise "
            "request_terminate_timeout only where requests may take that long",
            _ENDS_THEM,
        ),
    ),
}
_LOG_TELLS = "the replies say that it failed, and its log says why"
UNIT_LOG = look(
    "sudo journalctl -u {unit} -p warning -n 100 --no-pager",
    "read the warnings and errors of {unit}",
    _LOG_TELLS,
)
LOG = Row(
    "read the log of {who} at these times for errors{hint}",
    _LOG_TELLS,
    effect=LOOKS,
)
FAILING: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (UNIT_LOG, LOG),
    "nginx": (
        look(
            "sudo nginx -T 2>/dev/null | grep -nE 'limit_(req|conn)|return +5|error_log|_pass '",
            "see which of nginx's own rules answers so (limit_req and limit_conn: 503), and where "
            "its error log is",
            "it answers without having asked an upstream, or after an error that its log names",
        ),
        LOG,
    ),
    "envoy": (
        Row(
            "see in /stats of Envoy's admin address which of "
            "cluster.NAME.upstream_rq_pending_overflow, upstream_cx_none_healthy and "
            "upstream_rq_timeout grows",
            "it answers 503 by itself where a circuit breaker is open or no host is healthy, and "
            "504 after the time limit of its route",
            effect=LOOKS,
        ),
        restart(
            "where it is the overflow, raise max_pending_requests (and max_connections, if the "
            "upstream has time to spare) of the cluster's circuit_breakers.thresholds; then "
            "restart, or update the cluster by xDS",
            "with all connections busy, more requests than may wait are turned away at once",
        ),
        LOG,
    ),
    "haproxy": (
        look(
            'echo "show stat" | sudo socat stdio /run/haproxy/admin.sock | cut -d, -f1,2,18',
            "see which of its servers are down",
            "it answers 503 by itself where it has no server to ask, or a request waited in its "
            "queue for longer than `timeout queue`",
        ),
        Row(
            "read the log of {who} at these times: NOSRV and SC say that no server was there, sQ "
            "that the queue's time limit ended, PR that a rule of its own answered",
            "the termination state of each request in its log says who ended it",
            effect=LOOKS,
        ),
    ),
    "varnish": (
        look(
            "sudo varnishlog -d -g request -q 'RespStatus >= 500' -i FetchError,VCL_Error",
            "see why fetches fail: FetchError names the backend, and says busy where its "
            ".max_connections are taken",
            "it answers 503 by itself where it can fetch from no backend",
        ),
        look(
            "sudo varnishadm backend.list",
            "see which of its backends are sick",
            "a backend whose probe fails is asked no more",
        ),
    ),
    "uvicorn": (
        UNIT_LOG,
        restart(
            "read the log of {who} at these times; where it answers 503, raise --limit-concurrency "
            "or --workers",
            "above --limit-concurrency uvicorn answers 503",
        ),
    ),
}
PASSES_ON: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        look(
            "sudo udsprobe attach --pid {peer_pid}",
            "see whether {who} fails by itself or passes on what another answers",
            "it answers that it failed; who asks it only passes that on",
        ),
        Row(
            "read the log of {who} at these times for errors",
            _LOG_TELLS,
            effect=LOOKS,
        ),
    )
}
HOLDER: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        look(
            "sudo udsprobe attach --pid {peer_pid}",
            "see what {who} does while it holds the lock",
            "who waits for a file lock goes on when its holder lets it go, or ends",
        ),
    )
}
LOOKUPS: Dict[str, Tuple[Row, ...]] = {
    "nginx": (
        reload(
            "give `resolver` a longer valid= (300s), or name upstreams that keep their addresses "
            "in an `upstream` block, which is looked up once, then reload nginx; and see why {who} "
            "takes so long",
            "requests for one name wait together until its answer is there, each time it expires",
        ),
    ),
    GENERIC: (
        restart(
            "keep what was looked up: connections that stay open, a cache in the program, or one "
            "on the host (systemd-resolved, nscd, dnsmasq); and see why {who} takes so long",
            "a request that needs no lookup does not wait for one",
        ),
    ),
    "node": (
        restart(
            "new http.Agent({{ keepAlive: true }}), and a cache of names (cacheable-lookup) or "
            "addresses instead of names; lookups take the four threads of libuv, one each",
            "a request that needs no lookup does not wait for one",
        ),
    ),
}
LOOKUPS_LOST: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "put a name server that answers first in /etc/resolv.conf, or see why {who} does not; "
            "`options timeout:1 attempts:3` there asks again sooner",
            "a question without an answer is asked again after 5 s, as is the C library's default",
        ),
    ),
}
UPSTREAM: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        look(
            "sudo udsprobe attach --pid {peer_pid}",
            "see what {who} spends its time on",
            "where answers take long, the report of who answers says why",
        ),
        look(
            "sudo udsprobe attach --listener {address}",
            "see what {who} spends its time on",
            "shows the processes that listen there, and their children",
        ),
    )
}

_IN_TURN = "the answers are waited for one after the other"
_BY_JOIN = (
    restart(
        "ask {who} once for all that a request needs, and not once for each row: a join, or "
        "IN (...) (Django: select_related, prefetch_related; SQLAlchemy: selectinload; Rails: "
        "includes; Laravel: with; JPA: join fetch; Sequelize, Prisma: include); or keep the "
        "answers",
        _IN_TURN,
    ),
)
_BY_BATCH = (
    restart(
        "ask {who} once for all that a request needs: MGET, or a pipeline (of memcached: get with "
        "several keys); or keep the answers",
        _IN_TURN,
    ),
)
ASKS_AGAIN: Dict[str, Tuple[Row, ...]] = {
    **dict.fromkeys(("postgresql", "mysql", "pgbouncer"), _BY_JOIN),
    **dict.fromkeys(("redis", "memcached"), _BY_BATCH),
    GENERIC: (
        restart(
            "ask {who} once for all that a request needs, or for all at the same time "
            "(Promise.all, asyncio.gather, threads, goroutines); or keep the answers",
            _IN_TURN,
        ),
    ),
}
SERVED_ELSEWHERE: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        look(
            "sudo udsprobe attach --listener {address}",
            "observe all processes that serve there",
            "those that share the listener have the requests that these do not have",
        ),
    )
}
SENDER: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        look(
            "sudo udsprobe attach --pid {peer_pid}",
            "see what {who} does before it sends what is waited for, if clients wait for it too "
            "long",
            "the server answers as soon as that comes: a worker's answer, a replica's "
            "confirmation, a job",
        ),
    )
}
SENT_THROUGH: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "see whether those that send it through {who} keep up, and start more of them where "
            "all are busy (celery worker --concurrency, more processes of rq worker, more "
            "consumers of the queue); else make what each of them does shorter",
            "what is asked of {who} itself is answered at once: a worker's result, or the message "
            "of another client, is waited for",
        ),
    )
}
UPSTREAM_DROPS: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        look(
            "sudo udsprobe attach --pid {peer_pid}",
            "see in which way {who} ends them",
            "shows how long it had had them, and whether it still runs",
        ),
    )
}
KEPT_TOO_LONG: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "have {who} keep idle connections for longer than who asks it does (Node: "
            "server.keepAliveTimeout, 5 s by default; gunicorn: --keep-alive, 2 s), or ask again "
            "where a request fails so",
            "who closes first is never met by a request: the end that asks has to be the one",
        ),
    )
}

_ONE_EACH = "a connection carries one request at a time; the others queue for it"
_SERVES_NOBODY = "a loop that waits inside of a call serves nobody else meanwhile"
LOOP_WAITS: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "ask with the loop's own functions, which come back at once, or from a pool of threads",
            _SERVES_NOBODY,
        ),
    ),
    "python": (
        restart(
            "ask with a client that is awaited (psycopg.AsyncConnection, asyncpg, redis.asyncio, "
            "httpx.AsyncClient), or in a thread: await asyncio.to_thread(function); under gevent "
            "with one that yields to its hub (psycogreen for psycopg2)",
            _SERVES_NOBODY,
        ),
    ),
    "nginx": (
        restart(
            "ask with cosockets (ngx.socket.tcp, lua-resty-* libraries) in place of blocking "
            "sockets",
            _SERVES_NOBODY,
        ),
    ),
}
LOOP_SLEEPS: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "wait by a timer of the loop, or run what sleeps in a thread of a pool",
            _SERVES_NOBODY,
        ),
    ),
    "python": (
        restart(
            "wait with await (asyncio.sleep(), asyncio.create_subprocess_exec()), or run what "
            "sleeps in a thread: await asyncio.to_thread(function); in FastAPI and Starlette a "
            "handler with def in place of async def; under eventlet and gevent monkey_patch() or "
            "patch_all() before any other import, or eventlet.tpool.execute(function)",
            _SERVES_NOBODY,
        ),
    ),
    "node": (
        restart(
            "call what comes back at once, and takes a callback or is awaited (no ...Sync), "
            "or run it in a worker thread",
            _SERVES_NOBODY,
        ),
    ),
}
KEPT_POOL: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "let clients end what keeps a connection (a session, a transaction, a tunnel), limit "
            "how long they may, or allow more connections to that upstream",
            "who waits gets a connection when another client gives one back",
        ),
    ),
    "pgbouncer": (
        reload(
            "set pool_mode = transaction in pgbouncer.ini, where clients need no session of "
            "their own, and idle_transaction_timeout; or raise default_pool_size; then RELOAD in "
            "its console",
            "with pool_mode = session a client keeps its connection until it disconnects, with "
            "transaction until it commits; others wait meanwhile (cl_waiting in SHOW POOLS)",
        ),
    ),
    "haproxy": (
        reload(
            "raise maxconn on the backend's `server` line, or shorten `timeout tunnel` and "
            "`timeout server`, then reload HAProxy",
            "a tunnel (WebSocket) has its place of maxconn until it ends; others wait meanwhile "
            "(qcur in its statistics)",
        ),
    ),
}
POOL: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        restart(
            "raise the size of its pool of connections to that upstream, if the upstream has time "
            "to spare",
            _ONE_EACH,
        ),
    ),
    "node": (
        restart(
            "raise `max` of the pool (pg.Pool; connectionLimit of mysql2), or maxSockets of "
            "http.Agent, if the upstream has time to spare",
            _ONE_EACH,
        ),
    ),
    "pgbouncer": (
        reload(
            "raise default_pool_size (or pool_size of the database) in pgbouncer.ini, if "
            "PostgreSQL has time and connections to spare, then RELOAD in its console",
            "clients above pool_size wait for a server connection (cl_waiting in SHOW POOLS)",
        ),
    ),
    "haproxy": (
        reload(
            "raise maxconn on the backend's `server` line, then reload HAProxy; at once, by its "
            "stats socket: set maxconn server BACKEND/SERVER NUMBER",
            "requests above a server's maxconn wait in HAProxy's queue (qcur in its statistics)",
        ),
    ),
    "varnish": (
        reload(
            "where answers may not be cached, set beresp.uncacheable and a ttl of minutes in "
            "vcl_backend_response (hit-for-miss) in place of a ttl of 0, or `return (pass)` in "
            "vcl_recv; then load the VCL anew (varnishreload)",
            "requests for one object wait until another one's fetch is done, one after the other "
            "where each answer has a ttl of 0 (MAIN.busy_sleep in varnishstat counts them)",
        ),
        reload(
            "raise thread_pool_max where MAIN.thread_queue_len in varnishstat is above 0: sudo "
            "varnishadm param.set thread_pool_max NUMBER",
            "a request takes a thread, and its fetch another one",
        ),
    ),
    "envoy": (
        restart(
            "raise max_connections of the cluster's circuit_breakers.thresholds, if the upstream "
            "has time to spare; then restart, or update the cluster by xDS",
            "requests above it wait in Envoy for a free connection "
            "(cluster.NAME.upstream_rq_pending_active and upstream_cx_overflow in its statistics)",
        ),
    ),
    "caddy": (
        reload(
            "raise max_conns_per_host in `transport http` of that reverse_proxy in the Caddyfile, "
            "or leave it out, if the upstream has time to spare; then reload Caddy",
            _ONE_EACH,
        ),
    ),
    "java": (
        restart(
            "raise its pool of connections (maximumPoolSize of HikariCP, maxTotal of DBCP and "
            "Jedis, setMaxConnPerRoute of Apache HttpClient), if the upstream has time to spare",
            _ONE_EACH,
        ),
    ),
    "python": (
        restart(
            "raise its pool of connections (pool_size and max_overflow of SQLAlchemy, max_size of "
            "psycopg_pool and asyncpg, max_connections of redis and httpx, limit of aiohttp's "
            "connector, maxsize of urllib3), if the upstream has time to spare",
            _ONE_EACH,
        ),
    ),
    "ruby": (
        restart(
            "raise its pool of connections (`pool` in config/database.yml of ActiveRecord, size of "
            "ConnectionPool, max_connections of Sequel), if the upstream has time to spare",
            _ONE_EACH,
        ),
    ),
    "go": (
        restart(
            "raise the size of that pool (SetMaxOpenConns of database/sql, MaxConns of pgxpool, "
            "PoolSize of go-redis, MaxActive of redigo, MaxConnsPerHost of http.Transport), if the "
            "upstream has time to spare",
            _ONE_EACH,
        ),
    ),
}

_ASK_AT_ONCE = restart(
    "let several requests ask it at once: hold no lock meanwhile, and give the pool more than one "
    "connection",
    "one connection carries one request at a time; with a lock held around each, a larger pool "
    "alone changes nothing",
)
_OF_PROXIES = ("pgbouncer", "haproxy", "varnish")
POOL_OF_ONE: Dict[str, Tuple[Row, ...]] = {
    server: rows if server in _OF_PROXIES else (_ASK_AT_ONCE, *rows)
    for server, rows in POOL.items()
}

_KEPT = "a kept connection saves connect, accept, set-up and close"
CHURN: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        restart("keep connections open in the client and reuse them (keep-alive, a pool)", _KEPT),
    ),
    "nginx": (
        reload(
            "in the upstream block `keepalive 64;`, in the location `proxy_http_version 1.1; "
            'proxy_set_header Connection "";` (fastcgi: `fastcgi_keep_conn on;`), then reload '
            "nginx",
            _KEPT,
        ),
    ),
    "node": (
        restart(
            "one http.Agent({{ keepAlive: true }}) for all requests; for databases a pool "
            "(pg.Pool, createPool of mysql2)",
            _KEPT,
        ),
    ),
    "python": (
        restart(
            "one requests.Session() (or httpx.Client()) for all requests; for databases a pool "
            "(psycopg_pool, create_engine of SQLAlchemy)",
            _KEPT,
        ),
    ),
    "haproxy": (reload("option http-keep-alive and http-reuse safe, then reload HAProxy", _KEPT),),
    "lighttpd": (
        restart(
            'let lighttpd ask over a Unix socket: "socket" => in place of "host" and "port" {port}',
            "lighttpd keeps no connection to FastCGI, SCGI and proxied servers; on a Unix socket a "
            "new one costs less",
        ),
        restart(
            "serve with nginx in its place, which keeps such connections (fastcgi_keep_conn on, "
            "keepalive 64 in the upstream block)",
            "lighttpd opens a connection for each request that it passes on, and no setting keeps "
            "them",
        ),
    ),
    "caddy": (reload("leave `keepalive off` out of `transport http` in the Caddyfile", _KEPT),),
    "php-fpm": (
        restart("persistent connections (PDO::ATTR_PERSISTENT, pconnect of phpredis)", _KEPT),
    ),
    "java": (
        restart("one HttpClient for all requests; for databases a pool such as HikariCP", _KEPT),
    ),
    "go": (
        restart(
            "one http.Client for all requests, each reply read to its end and closed, and "
            "Transport.MaxIdleConnsPerHost above 2; for databases one sql.DB",
            _KEPT,
        ),
    ),
}
CHURN_PHP_FPM: Dict[str, Tuple[Row, ...]] = {
    **CHURN,
    "nginx": (
        reload(
            "in the upstream block `keepalive 2;` (times worker_processes, it has to stay below "
            "pm.max_children of PHP-FPM), in the location `fastcgi_keep_conn on;`, then reload "
            "nginx",
            f"{_KEPT}; but each holds a worker of PHP-FPM, also while it is idle, and with all of "
            "them held new connections wait for up to a minute",
        ),
    ),
}
LOGINS: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "put a proxy between that keeps connections, where the clients' own pools cannot",
            "each connection is a login",
        ),
    ),
    "postgresql": (
        restart(
            "put PgBouncer between (pool_mode = transaction), where the clients' own pools cannot "
            "keep connections, as of PHP or of many small processes",
            "each connection of PostgreSQL is a login and a process of its own",
        ),
    ),
    "mysql": (
        restart(
            "put ProxySQL between, where the clients' own pools cannot keep connections, as of PHP "
            "or of many small processes",
            "each connection of MySQL or MariaDB is a login",
        ),
    ),
}
_CLOSES_EACH = "closes each connection after its reply, whatever its client asks for"
KEEPS_NONE: Dict[str, Tuple[Row, ...]] = {
    "generic": CHURN["generic"],
    "gunicorn": (
        restart(
            "--worker-class gthread --threads 4 of gunicorn, with --keep-alive 75; its clients "
            "have to keep their connections as well",
            f"a sync worker, its default, {_CLOSES_EACH}",
        ),
    ),
    "unicorn": (
        restart(
            "serve with Puma, which keeps connections; or let Unicorn listen on a Unix socket, "
            "behind a proxy that keeps those of clients",
            f"Unicorn {_CLOSES_EACH}",
        ),
    ),
}
NODELAY: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        restart(
            "setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, …), or write a message in one call",
            "a small send then leaves at once; Unix sockets do not have this delay",
        ),
    ),
    "nginx": (reload("tcp_nodelay on; then reload nginx", "a small send then leaves at once"),),
    "node": (
        restart(
            "socket.setNoDelay(true), or net.createServer({{ noDelay: true }}, …)",
            "a small send then leaves at once; Unix sockets do not have this delay",
        ),
    ),
    "erlang": (
        restart(
            "{{nodelay, true}} among the options of gen_tcp:listen and connect; for all sockets at "
            "once erl -kernel inet_default_listen_options '[{{nodelay,true}}]'",
            "a small send then leaves at once; Unix sockets do not have this delay",
        ),
    ),
    "java": (
        restart(
            "Socket.setTcpNoDelay(true); -Dsun.net.httpserver.nodelay=true with "
            "com.sun.net.httpserver",
            "a small send then leaves at once; Unix sockets do not have this delay",
        ),
    ),
    "python": (
        restart(
            "connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), or "
            "disable_nagle_algorithm = True in a handler of socketserver",
            "a small send then leaves at once; Unix sockets do not have this delay",
        ),
    ),
}

_HAS_TO_READ = "a larger buffer only takes longer to fill; the reader has to read faster"
_READER = look(
    "sudo udsprobe attach --pid {peer_pid}", "see what {who} does instead of reading", _HAS_TO_READ
)
_FIND_READER = "find the process that reads at the other end"
READER_UNIX: Dict[str, Tuple[Row, ...]] = {
    "generic": (_READER, look("sudo ss -xp", _FIND_READER, _HAS_TO_READ))
}
READER_TCP: Dict[str, Tuple[Row, ...]] = {
    "generic": (_READER, look("sudo ss -tnp", _FIND_READER, _HAS_TO_READ))
}
SEND_BUFFER: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        restart(
            "leave SO_SNDBUF out of the program, or set {bytes} (the kernel doubles it)",
            "the kernel grows TCP buffers by itself, unless a program sets their size",
        ),
    )
}
WMEM_MAX: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        now(
            "sudo sysctl -w net.core.wmem_max={bytes}",
            "allow programs to set a send buffer of {bytes} bytes",
            "the kernel cuts what a program asks for to this limit, without an error",
            "sudo sysctl -w net.core.wmem_max={was}",
        ),
    )
}
DATAGRAMS: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        restart(
            "send without waiting (O_NONBLOCK), or write logs from a thread of their own",
            "a request then does not wait for the reader of its log",
        ),
        look(
            "sudo ss -xap | grep u_dgr",
            "find the reader of the datagrams",
            "the reader is the process whose Recv-Q is not 0",
        ),
    )
}
