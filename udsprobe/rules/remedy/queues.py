"""Remedies for accept queues: too small a backlog, somaxconn below it, all seats of a server taken.

Sources: each server's manual, listen(2), pidfd_getfd(2); docs/remedies.md has what was tried.
"""

from __future__ import annotations

from typing import Dict, Tuple

from udsprobe.rules.remedy.row import Row, now, reload, restart

# A second listen() on the same socket sets its backlog.
_SOCKET = (
    "import ctypes,os,socket,struct;"
    'd="/proc/{pid}/fd/";'
    'f=[int(f) for f in os.listdir(d) if os.readlink(d+f)=="socket:[{inode}]"][0];'
    "s=socket.socket(fileno=ctypes.CDLL(None).syscall(438,os.pidfd_open({pid}),f,0));"
)
# A Unix socket notes who called listen() (SO_PEERCRED): it stays whose it was, not root's.
_AS_BEFORE = (
    '_,u,g=struct.unpack("3i",s.getsockopt(1,17,12)) if s.family==1 else (0,0,0);'
    "os.setegid(g);os.seteuid(u);"
)
_AGAIN = f"sudo python3 -c '{_SOCKET}{_AS_BEFORE}s.listen("
_LISTEN, _LISTEN_BACK = f"{_AGAIN}{{backlog}})'", f"{_AGAIN}{{was}})'"
_SYSCTL = "sudo nsenter -t {pid} -n sysctl -w net.core.somaxconn="

LISTEN_UNIX = now(
    _LISTEN,
    "raise the backlog of the running server to {backlog}; until it restarts, clients that ask "
    "for its process id (SO_PEERCRED) get one that has ended",
    "listen() once more on the same socket: no connection is lost, nothing restarts",
    _LISTEN_BACK,
)
LISTEN_TCP = now(
    _LISTEN,
    "raise the backlog of the running server to {backlog}",
    "listen() once more on the same socket: no connection is lost, nothing restarts",
    _LISTEN_BACK,
)
SOMAXCONN = now(
    _SYSCTL + "{backlog}",
    "raise net.core.somaxconn to {backlog} where the server runs, for good in /etc/sysctl.d; a "
    "server that has called listen() before has to restart, or to listen again",
    "the kernel cuts what a server asks for to this limit, at listen()",
    _SYSCTL + "{was_somaxconn}",
)
SOMAXCONN_AND_LISTEN = now(
    f"{_SYSCTL}{{backlog}} && {_LISTEN}",
    "raise net.core.somaxconn to {backlog} where the server runs, and the backlog of the running "
    "server with it; for good: a line in /etc/sysctl.d",
    "the kernel cut what the server asked for at listen(), which is called once more",
    f"{_LISTEN_BACK} && {_SYSCTL}{{was_somaxconn}}",
)
SOMAXCONN_HERE = now(
    "sudo sysctl -w net.core.somaxconn={backlog}",
    "raise net.core.somaxconn to {backlog} in the network namespace of the server, then restart it",
    "the kernel cuts what a server asks for to this limit, at listen()",
)

_ITS_OWN = "that many connections then have room until the server accepts them"
_TAKES_SOMAXCONN = restart(
    "raise net.core.somaxconn to {backlog} (a line in /etc/sysctl.d), then restart the server",
    "it asks for net.core.somaxconn by itself, as it was when the server started",
)

BACKLOG: Dict[str, Tuple[Row, ...]] = {
    "nginx": (
        reload(
            "set backlog={backlog} on nginx's `listen` line for {address}, then reload it: "
            "nginx -t && nginx -s reload",
            "nginx's default is 511; a reload calls listen() again with the new value",
        ),
    ),
    "node": (
        restart(
            "server.listen({{ path or port, backlog: {backlog} }}) in the program that listens "
            "on {address}",
            "Node's default is 511",
        ),
    ),
    "postgresql": (
        restart(
            "put a pooler such as PgBouncer in front of PostgreSQL, or raise max_connections "
            "(and restart): its backlog grows by twice as much",
            "each connection is a process of PostgreSQL: keeping them is cheaper than queueing",
        ),
    ),
    "mysql": (
        restart(
            "back_log = {backlog} under [mysqld] in my.cnf, then restart",
            "back_log is what MySQL and MariaDB give to listen(), of Unix sockets too",
        ),
    ),
    "redis": (
        restart(
            "tcp-backlog {backlog} in redis.conf, then restart",
            "Redis's default is 511, for Unix sockets too; CONFIG SET does not accept it",
        ),
    ),
    "php-fpm": (
        restart(
            "listen.backlog = {backlog} in the pool's file of PHP-FPM, then restart: a reload "
            "keeps the socket as it is",
            "PHP-FPM's default on Linux is 511",
        ),
    ),
    "uwsgi": (
        restart(
            "listen = {backlog} in uWSGI's file (--listen {backlog}), then restart; "
            "net.core.somaxconn has to be as large, or uWSGI does not start",
            "uWSGI's default is 100",
        ),
    ),
    "gunicorn": (
        restart("gunicorn --backlog {backlog}, then restart", "gunicorn's default is 2048"),
    ),
    "uvicorn": (restart("uvicorn --backlog {backlog}, then restart", "uvicorn's default is 2048"),),
    "puma": (
        restart(
            'add ?backlog={backlog} to the address of `bind` in config/puma.rb, as in bind "'
            'unix:///run/app.sock?backlog={backlog}", then restart',
            "Puma's default is 1024",
        ),
    ),
    "unicorn": (
        restart(
            'listen "/run/app.sock", backlog: {backlog} in config/unicorn.rb, then restart',
            "Unicorn's default is 1024",
        ),
    ),
    "apache": (
        restart(
            "ListenBacklog {backlog} in Apache's configuration, then restart: a graceful restart "
            "keeps the socket as it is",
            "Apache's default is 511",
        ),
    ),
    "lighttpd": (
        restart(
            "server.listen-backlog = {backlog} in lighttpd.conf, then restart",
            "lighttpd's default is 1024",
        ),
    ),
    "haproxy": (
        restart(
            "add `backlog {backlog}` to HAProxy's bind line for {address}, then restart it: a "
            "reload hands the socket on as it is",
            "without it the backlog is the frontend's maxconn",
        ),
    ),
    "varnish": (
        restart(
            "varnishd -p listen_depth={backlog}, then restart",
            "Varnish's default is 1024; it calls listen() when its child starts",
        ),
    ),
    "envoy": (
        restart(
            "set tcp_backlog_size: {backlog} of the listener in Envoy's configuration, then "
            "restart (a listener of the API of xDS is updated at once)",
            "Envoy takes net.core.somaxconn where it is left out",
        ),
    ),
    "squid": (_TAKES_SOMAXCONN,),
    "pgbouncer": (
        restart(
            "listen_backlog = {backlog} in pgbouncer.ini, then restart",
            "PgBouncer's default is 128",
        ),
    ),
    "memcached": (restart("memcached -b {backlog}, then restart", "memcached's default is 1024"),),
    "rabbitmq": (
        restart(
            "tcp_listen_options.backlog = {backlog} in rabbitmq.conf, then restart RabbitMQ",
            "RabbitMQ's default is 128",
        ),
    ),
    "erlang": (
        restart(
            "{{backlog, {backlog}}} among the options of gen_tcp:listen (Cowboy: socket_opts of "
            "its listener), then restart",
            "gen_tcp's default is 5, Cowboy's 1024",
        ),
    ),
    "java": (
        restart(
            "new ServerSocket(port, {backlog}) or ServerSocketChannel.bind(address, {backlog}); "
            "Tomcat: acceptCount, Jetty: acceptQueueSize",
            "Java's default is 50, Tomcat's 100",
        ),
    ),
    "go": (_TAKES_SOMAXCONN,),
    "python": (
        restart(
            "sock.listen({backlog}); asyncio: backlog={backlog} of start_server(); socketserver: "
            "request_queue_size = {backlog} in the server's class",
            "socketserver asks for 5, asyncio for 100",
        ),
    ),
    "ruby": (
        restart(
            "server.listen({backlog}) on the TCPServer or UNIXServer that listens on {address}",
            "Ruby asks for SOMAXCONN of the C library that it was built with: 4096, or 128",
        ),
    ),
    "caddy": (_TAKES_SOMAXCONN,),
    "systemd": (
        restart(
            "Backlog={backlog} under [Socket] of the unit that listens on {address}, then "
            "systemctl daemon-reload and restart that socket unit",
            "systemd listens for the service",
        ),
    ),
    "generic": (
        restart(
            "listen(fd, {backlog}) in the program that listens on {address}, or its option of "
            "that name",
            _ITS_OWN,
        ),
    ),
}

_FREES = "a queued connection is accepted when a served one ends"
# redis-cli is a client itself, and waits for a free place as well.
_REDIS_MORE = (
    'timeout 30 sh -c \'until redis-cli "$@" CONFIG SET maxclients 10000 | tee /dev/stderr '
    "| grep -qx OK; do sleep 0.1; done' sh "
)
_REDIS_SAYS = (
    "raise maxclients of Redis or Valkey to 10000, its default (package redis-tools; a password: "
    "REDISCLI_AUTH), as soon as a client leaves: there is no place for redis-cli before; where "
    "none does, end one, or restart Redis; for good: maxclients in redis.conf",
    "connections above maxclients get an error and are closed",
)
_ONE_ACCEPTS = restart(
    "serve connections in more threads or processes, and let one of them do nothing but accept",
    _FREES,
)
SENT_SLOWLY: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        restart(
            "have a proxy in front that takes requests in whole before it passes them on (nginx: "
            "proxy_request_buffering on, as is its default)",
            "a worker then gets each at once, however slowly its client sends",
        ),
    ),
}
SEATS: Dict[str, Tuple[Row, ...]] = {
    "nginx": (
        reload(
            "raise worker_connections in nginx's events block (and worker_rlimit_nofile with it), "
            "or lower keepalive_timeout, then reload it: nginx -t && nginx -s reload",
            "a worker with worker_connections open accepts no more",
        ),
    ),
    "node": (
        restart(
            "raise or remove server.maxConnections, and close idle connections sooner "
            "(server.keepAliveTimeout)",
            "connections above maxConnections are closed as soon as they are accepted",
        ),
    ),
    "postgresql": (
        restart(
            "put a pooler such as PgBouncer in front of PostgreSQL, or raise max_connections and "
            "restart",
            "each connection holds a process, idle or not",
        ),
    ),
    "mysql": (
        now(
            'sudo "$(command -v mariadb || command -v mysql)" -S {path} -e '
            '"SET GLOBAL max_connections = 2 * @@GLOBAL.max_connections"',
            "double max_connections of MySQL or MariaDB; for good: max_connections in my.cnf",
            "each connection holds a thread, idle or not",
            'sudo "$(command -v mariadb || command -v mysql)" -S {path} -e '
            '"SET GLOBAL max_connections = @@GLOBAL.max_connections DIV 2"',
        ),
        reload(
            "raise max_connections of MySQL or MariaDB: SET GLOBAL max_connections = …, and the "
            "same in my.cnf",
            "each connection holds a thread, idle or not",
        ),
    ),
    "redis": (
        now(_REDIS_MORE + "-s {path}", *_REDIS_SAYS),
        now(_REDIS_MORE + "-h {host} -p {port}", *_REDIS_SAYS),
        reload(
            "raise maxclients: CONFIG SET maxclients …, and the same in redis.conf; or close idle "
            "clients: CONFIG SET timeout 300",
            "connections above maxclients get an error and are closed",
        ),
    ),
    "php-fpm": (
        reload(
            "raise pm.max_children in the pool's file of PHP-FPM, then reload it",
            "a child serves one request at a time, and with keepalive one connection",
        ),
    ),
    "uwsgi": (
        restart("raise `processes` or `threads` of uWSGI, then restart", "each serves one request"),
    ),
    "gunicorn": (
        restart(
            "raise --workers of gunicorn, or --threads with --worker-class gthread; SIGTTIN to "
            "its master adds one worker at once",
            "a sync worker serves one connection at a time",
        ),
    ),
    "uvicorn": (
        restart(
            "raise --limit-concurrency or --workers of uvicorn",
            "above --limit-concurrency it answers 503",
        ),
    ),
    "puma": (
        restart(
            "raise `threads` or `workers` in config/puma.rb, then restart",
            "a thread serves one request at a time, and Puma accepts while one is free",
        ),
    ),
    "unicorn": (
        restart(
            "raise `worker_processes` in config/unicorn.rb, then restart; SIGTTIN to its master "
            "adds one worker at once",
            "a worker serves one request at a time",
        ),
    ),
    "apache": (
        restart(
            "raise MaxRequestWorkers (and ServerLimit), or lower KeepAliveTimeout, then restart",
            "Apache accepts no more while all workers are taken",
        ),
    ),
    "lighttpd": (
        restart(
            "raise server.max-connections of lighttpd (and server.max-fds with it), or lower "
            "server.max-keep-alive-idle, then restart",
            "lighttpd accepts no more while max-connections are open",
        ),
    ),
    "haproxy": (
        reload(
            "raise maxconn of HAProxy's global section and of the frontend, then reload it; at "
            "once, by its stats socket: set maxconn frontend NAME NUMBER",
            "a frontend with maxconn connections accepts no more",
        ),
    ),
    "varnish": (
        reload(
            "raise thread_pool_max of Varnish, at once by `sudo varnishadm param.set "
            "thread_pool_max NUMBER`, and for good by -p thread_pool_max=NUMBER of varnishd",
            "a thread has one request until its backend has answered, and accepts none meanwhile",
        ),
    ),
    "envoy": (
        restart(
            "raise max_active_downstream_connections of the overload manager "
            "(envoy.resource_monitors.global_downstream_max_connections), or max_connections of "
            "the filter connection_limit, then restart",
            "Envoy closes what comes above these",
        ),
    ),
    "squid": (
        restart(
            "raise max_filedescriptors in squid.conf (and LimitNOFILE with it), then restart",
            "Squid accepts no more while its descriptors are nearly all open",
        ),
    ),
    "pgbouncer": (
        reload(
            "raise max_client_conn in pgbouncer.ini (and LimitNOFILE with it), then RELOAD; "
            "where queries wait for a server, default_pool_size",
            "connections above max_client_conn are refused",
        ),
    ),
    "memcached": (
        restart(
            "raise -c of memcached (and its limit of open files with it), then restart",
            "above -c it closes connections at once; with -o no_maxconns_fast it accepts no more",
        ),
    ),
    "rabbitmq": (
        restart(
            "raise connection_max in rabbitmq.conf, or the limit of the virtual host (rabbitmqctl "
            "set_vhost_limits), then restart RabbitMQ",
            "connections above them are closed",
        ),
    ),
    "erlang": (
        restart(
            "raise max_connections of the listener (Cowboy, in transport_opts; "
            "ranch:set_max_connections(Name, N) at once), or call accept in more processes",
            "Cowboy's is 1024 for each listener: above it, it accepts no more",
        ),
    ),
    "java": (
        restart(
            "raise the server's threads or connections (Tomcat: maxThreads, maxConnections), "
            "or close idle connections sooner (keepAliveTimeout)",
            _FREES,
        ),
    ),
    "go": (
        restart(
            "raise or remove the limit around the listener (netutil.LimitListener), and set "
            "http.Server.IdleTimeout",
            _FREES,
        ),
    ),
    "python": (
        restart(
            "raise its limit where it has one (max_size of eventlet.wsgi.server(), spawn of "
            "gevent's WSGIServer, threads of waitress)",
            _FREES,
        ),
        _ONE_ACCEPTS,
    ),
    "ruby": (_ONE_ACCEPTS,),
    "caddy": (
        restart(
            "raise LimitNOFILE of Caddy's unit, and lower `idle` of its server timeouts",
            "Caddy has no connection limit; it is limited by its file descriptors",
        ),
    ),
    "systemd": (
        restart(
            "raise MaxConnections= under [Socket] (64 with Accept=yes), then systemctl "
            "daemon-reload and restart that socket unit",
            "systemd starts no further instance above it",
        ),
    ),
    "generic": (
        restart(
            "raise the server's limit that is reached (connections, workers or threads), or "
            "close idle connections sooner (keep-alive time)",
            _FREES,
        ),
    ),
}

_POOL = restart(
    "keep connections open in the clients (a pool), so that fewer are made",
    "the process that accepts also starts what serves each connection",
)
ACCEPT_LATE: Dict[str, Tuple[Row, ...]] = {
    "postgresql": (_POOL,),
    "mysql": (_POOL,),
    "pgbouncer": (
        restart(
            "run a second PgBouncer on the same port (so_reuseport = 1)", "PgBouncer is one thread"
        ),
    ),
    "memcached": (restart("raise -t of memcached", "its first thread accepts for all others"),),
    "generic": (
        restart(
            "accept in a thread or loop that does nothing else, or serve with more workers",
            "the thread that accepts connections comes too late",
        ),
    ),
    "node": (
        restart(
            "move what computes or blocks out of the loop (worker_threads), or run the program "
            "in more processes (node:cluster)",
            "a loop accepts when it comes back to its poller",
        ),
    ),
    "nginx": (
        reload(
            "worker_processes auto; and `thread_pool` with `aio threads` for slow disks, then "
            "reload nginx",
            "a worker accepts when it comes back to its poller",
        ),
    ),
    "redis": (
        restart(
            "find the slow commands (SLOWLOG GET) and spread the keys over several instances",
            "Redis runs commands in one thread, which also accepts",
        ),
    ),
}
_KEPT = "a process that is kept needs no start, which costs more than a request"
RECYCLED: Dict[str, Tuple[Row, ...]] = {
    "generic": (
        restart(
            "let a process of {who} serve thousands of requests before it ends (what most servers "
            "call max requests), or see in its log why it ends",
            _KEPT,
        ),
    ),
    "php-fpm": (
        restart(
            "raise pm.max_requests of the pool to thousands (0: workers are kept), with pm = "
            "ondemand also pm.process_idle_timeout, then restart PHP-FPM",
            _KEPT,
        ),
    ),
    "gunicorn": (
        restart("raise --max-requests of gunicorn to thousands (0: workers are kept)", _KEPT),
    ),
    "uwsgi": (
        restart(
            "raise max-requests of uWSGI to thousands, or leave it out: workers are kept", _KEPT
        ),
    ),
    "apache": (
        restart(
            "raise MaxConnectionsPerChild of Apache to thousands (0: workers are kept)",
            _KEPT,
        ),
    ),
}
