"""Remedies for kinds of code that CPU time goes to: garbage collection, TLS handshakes, and so on.

Sources: each server's and runtime's manual. None of them was tried by doing it and measuring again.
"""

from __future__ import annotations

from typing import Dict, Tuple

from udsprobe.rules.remedy.row import Row, look, now, reload, restart
from udsprobe.rules.remedy.work import PROFILE_MANY
from udsprobe.rules.servers import GENERIC

Rows = Dict[str, Tuple[Row, ...]]

# ------------------------------------------------------------ garbage collection

_NEARLY_FULL = "a heap that is nearly full is collected again and again, for little"
_LESS_GARBAGE = restart(
    "make fewer objects for each request, or keep and reuse large ones",
    "a collector's work grows with what is allocated and with what is alive",
)
_JSTAT = look(
    "sudo jstat -gcutil {pid} 1000 5",
    "see how full its heap is (O: old generation, in %) and the time in collections (GCT), for 5 s "
    "(package default-jdk-headless)",
    "an old generation that stays near 100 % after collections (FGC grows) is too small",
)
_HEAP_INFO = look(
    "sudo jcmd {pid} GC.heap_info",
    "see the size of its heap and what is used of it (package default-jdk-headless)",
    "shows each generation's size beside what is used",
)
_PYTHON_GC = restart(
    "call gc.freeze() once everything is loaded, and gc.set_threshold(50000, 20, 100), or more "
    "than that, before requests come",
    "each full collection visits all objects that are alive; frozen ones are left out",
)
_RUBY_GC = restart(
    "RUBY_GC_HEAP_INIT_SLOTS (Ruby 3.3: RUBY_GC_HEAP_0_INIT_SLOTS and so on) and "
    "RUBY_GC_HEAP_GROWTH_FACTOR larger, then restart",
    _NEARLY_FULL,
)
_GO_GC = (
    restart(
        "where GOMEMLIMIT is set, raise it to twice what is alive or more: near that a larger GOGC "
        "changes little; else start it with a larger GOGC (200; it is 100 where nothing sets it), "
        "and GOMEMLIMIT as the bound of its memory",
        "Go collects when the heap has grown by GOGC per cent of what is alive, and all the time "
        "at GOMEMLIMIT, whatever GOGC is",
    ),
    look(
        "sudo grep -zE '^GO(GC|MEMLIMIT)=' /proc/{pid}/environ | tr '\\0' '\\n'",
        "see which of the two it was started with",
        "the program may also have set them itself (debug.SetMemoryLimit, debug.SetGCPercent)",
    ),
    restart(
        "see each collection in its error output: GODEBUG=gctrace=1",
        "a line has the time of a collection, and the heap before and after it",
    ),
)
GARBAGE: Rows = {
    GENERIC: (_LESS_GARBAGE,),
    "java": (
        restart("start it with a larger heap (-Xmx, -Xms the same)", _NEARLY_FULL),
        _JSTAT,
        _HEAP_INFO,
    ),
    "node": (
        restart(
            "node --max-old-space-size=MB, larger than now (or NODE_OPTIONS), if memory is free",
            _NEARLY_FULL,
        ),
        restart("see each collection in its output: node --trace-gc", "a line has its time"),
    ),
    "go": _GO_GC,
    "caddy": _GO_GC,
    "python": (_PYTHON_GC,),
    "ruby": (_RUBY_GC,),
    "php-fpm": (
        restart(
            "break reference cycles in long-running code, or call gc_disable() there",
            "PHP looks for cycles whenever many objects may be part of one",
        ),
    ),
}
YOUNG_GARBAGE: Rows = {
    GENERIC: (_LESS_GARBAGE,),
    "java": (
        restart(
            "start it with more room for short-lived objects: a larger heap (-Xmx), or -Xmn of it",
            "a larger young generation is collected less often, and most of it is garbage then",
        ),
        _JSTAT,
        _HEAP_INFO,
    ),
    "node": (
        restart(
            "node --max-semi-space-size=64 (MB; 16 where nothing sets it)",
            "with more room for short-lived objects fewer are copied, and less often",
        ),
        restart("see each collection in its output: node --trace-gc", "a line has its time"),
    ),
}

# ------------------------------------------------------------ TLS

_ONE_EACH = "each new connection costs a handshake; a kept one costs none"
_RESUMED = "a resumed session needs no signature by the server's key (TLS 1.2), or less work"
_KEEP = restart("keep connections open: keep-alive in the server and in its clients", _ONE_EACH)
_RESUME = restart("let clients resume sessions: a session cache, or session tickets", _RESUMED)
_ECDSA_WHY = "a signature by P-256 takes a small part of the time of one by RSA"
_ECDSA = restart("use a certificate with an ECDSA key (P-256) in place of RSA", _ECDSA_WHY)
_KEY = look(
    "openssl s_client -connect {host}:{port} </dev/null 2>/dev/null | "
    "openssl x509 -noout -text | grep -A1 'Public Key Algorithm'",
    "see the kind and the size of the certificate's key (package openssl)",
    "to sign by RSA of 4096 bits takes many times as long as by 2048; ECDSA less than both",
)
_KEEP_NODE = restart(
    "keep connections open: server.keepAliveTimeout longer than clients pause (5 s where nothing "
    "sets it), and keepAlive in their Agent",
    _ONE_EACH,
)
HANDSHAKES: Rows = {
    GENERIC: (_KEEP, _RESUME, _ECDSA, _KEY),
    "nginx": (
        reload(
            "keep connections open: keepalive_timeout 75s and keepalive_requests 1000, or more, in "
            "nginx, and keep-alive in its clients; then reload nginx",
            _ONE_EACH,
        ),
        reload(
            "let clients resume sessions: ssl_session_cache shared:SSL:10m; ssl_session_timeout "
            "1h; and leave ssl_session_tickets on; then reload nginx",
            _RESUMED,
        ),
        reload(
            "use a certificate with an ECDSA key (P-256): ssl_certificate and ssl_certificate_key, "
            "beside the RSA one for old clients; then reload nginx",
            _ECDSA_WHY,
        ),
        _KEY,
    ),
    "apache": (
        reload(
            "keep connections open: KeepAlive On, KeepAliveTimeout 15, MaxKeepAliveRequests 1000; "
            "then reload Apache",
            _ONE_EACH,
        ),
        reload(
            "let clients resume sessions: SSLSessionCache shmcb:/run/apache2/ssl_scache(512000); "
            "then reload Apache",
            _RESUMED,
        ),
        _ECDSA,
        _KEY,
    ),
    "haproxy": (
        reload(
            "keep connections open: option http-keep-alive, timeout http-keep-alive 60s; then "
            "reload HAProxy",
            _ONE_EACH,
        ),
        reload(
            "let clients resume sessions: tune.ssl.cachesize and tune.ssl.lifetime larger in "
            "`global`, without no-tls-tickets on the bind line; then reload HAProxy",
            _RESUMED,
        ),
        _ECDSA,
        _KEY,
    ),
    "node": (_KEEP_NODE, _RESUME, _ECDSA, _KEY),
}
RECORDS: Rows = {
    GENERIC: (
        restart(
            "send fewer bytes (compressed, cached by the client), or use a cipher that the CPU has "
            "instructions for (AES-GCM); on one host a Unix socket needs no TLS",
            "each byte is encrypted once",
        ),
        look(
            "grep -m1 -ow aes /proc/cpuinfo",
            "see whether the CPU has instructions for AES (prints aes)",
            "without them ChaCha20-Poly1305 is the faster cipher",
        ),
    ),
    "nginx": (
        reload(
            "let the kernel encrypt what nginx sends from files: ssl_conf_command Options KTLS; "
            "with sendfile on (OpenSSL 3, nginx 1.21.4); then reload nginx",
            "files then need no copy to nginx and back",
        ),
    ),
}

# ------------------------------------------------------------ work on data

_LEVEL_WHY = "the highest levels take several times as long for a few per cent fewer bytes"
_LEVEL = restart("lower the level of compression (1 to 4), or keep compressed replies", _LEVEL_WHY)
COMPRESSION: Rows = {
    GENERIC: (_LEVEL,),
    "nginx": (
        reload("gzip_comp_level 1 (brotli_comp_level 4); then reload nginx", _LEVEL_WHY),
        reload(
            "compress files once, by gzip -9 -k, and gzip_static on; then reload nginx",
            "a file that lies there compressed is only sent",
        ),
    ),
    "apache": (
        reload(
            "DeflateCompressionLevel 1 (BrotliCompressionQuality 4); then reload Apache", _LEVEL_WHY
        ),
    ),
    "haproxy": (
        reload("tune.comp.maxlevel 1 in HAProxy's `global`, then reload HAProxy", _LEVEL_WHY),
    ),
    "node": (
        restart(
            "compression({{ level: 1 }}), or level of zlib's options; better, let the proxy in "
            "front compress",
            _LEVEL_WHY,
        ),
    ),
    "caddy": (reload("lower the level of `encode gzip`, or use precompressed files", _LEVEL_WHY),),
}
_EACH_FIELD = "each field of each row is visited and written anew for each reply"
_FEWER_ROWS = restart(
    "reply with fewer rows and fields: a page of them (a limit and a cursor), and only the fields "
    "that clients use",
    _EACH_FIELD,
)
_KEEP_JSON = restart(
    "where many requests get the same, keep the reply as bytes in place of objects, or answer 304 "
    "to If-None-Match (ETag)",
    "what is made once costs nothing for each reply",
)
JSON_WRITING: Rows = {
    GENERIC: (_FEWER_ROWS, _KEEP_JSON),
    "python": (
        restart(
            "orjson in place of json (pip install orjson); in FastAPI: return "
            'Response(orjson.dumps(rows), media_type="application/json")',
            "orjson takes about a tenth of the time of json; what a handler of FastAPI returns is "
            "checked and copied before, value by value, which takes ten times as long as json",
        ),
        _FEWER_ROWS,
        _KEEP_JSON,
    ),
    "node": (
        _FEWER_ROWS,
        restart(
            "where many requests get the same, keep the reply as Buffer.from(JSON.stringify(rows))",
            "a Buffer is sent as it is; a string is measured and converted for each reply",
        ),
    ),
}
JSON_READING: Rows = {
    GENERIC: (
        restart(
            "let clients send less in a request: only what changed, and batches that are bounded",
            "each value of what comes is read and made an object of",
        ),
    ),
    "python": (
        restart(
            "orjson.loads() in place of json.loads() (pip install orjson)",
            "it makes the same objects in less time",
        ),
    ),
}
ENCODING: Rows = {
    GENERIC: (
        restart(
            "where many requests get the same text, keep it as bytes (Node: Buffer.from(text)); "
            "else reply with less of it",
            "bytes are sent as they are; a string is measured and converted for each reply",
        ),
    )
}
_FEWER_ON_A_PAGE = restart(
    "put fewer rows on a page: a limit, and links to the pages that follow",
    "a template does the same work for each row, for each reply",
)
_KEEP_PAGES = restart(
    "keep what was rendered where many requests get the same: the page in a proxy's cache, or the "
    "part of it that seldom changes",
    "what is made once costs nothing for each reply",
)
TEMPLATES: Rows = {
    GENERIC: (_FEWER_ON_A_PAGE, _KEEP_PAGES),
    "node": (
        _FEWER_ON_A_PAGE,
        _KEEP_PAGES,
        restart(
            "of EJS: the option {{ _with: false }}, and locals.rows for rows in templates",
            "inside of `with` JavaScript looks for each name at run time",
        ),
    ),
}
_COMPILED_ONCE = "a template is read and made code of once, in place of for each request"
COMPILING: Rows = {
    GENERIC: (restart("make templates when the program starts, and keep them", _COMPILED_ONCE),),
    "python": (
        restart(
            "make the Environment (Jinja2) or the TemplateLookup (Mako) once, outside of handlers, "
            "and get templates from it, in place of Template(text) in each request",
            "it keeps the templates that it has made",
        ),
    ),
    "node": (
        restart(
            "call compile() of EJS, Pug or Handlebars once for each template, outside of handlers; "
            "or the option cache: true, and NODE_ENV=production for Express",
            _COMPILED_ONCE,
        ),
    ),
    "go": (
        restart(
            "template.Must(template.ParseFiles(…)) in a package variable, not in handlers",
            _COMPILED_ONCE,
        ),
    ),
}
_BACKTRACKS = (
    "nested and overlapping repetitions, as in (a+)+ or .*.*, take time that doubles with each "
    "further byte of some inputs"
)
EXPRESSIONS: Rows = {
    GENERIC: (
        restart(
            "rewrite the expression so that it does not backtrack (no repetition inside of a "
            "repetition), bound the length of its input, or match by RE2",
            _BACKTRACKS,
        ),
    ),
    "nginx": (
        reload(
            "rewrite the expression of `location ~`, `rewrite`, `map` or `if` so that it does not "
            "backtrack, or use a prefix in its place; pcre_jit on; then reload nginx",
            _BACKTRACKS,
        ),
    ),
    "postgresql": (
        *PROFILE_MANY["postgresql"],
        reload(
            "make an index for the expression of that query (USING gin (COLUMN gin_trgm_ops), of "
            "the extension pg_trgm), match by LIKE or = where that says the same, or let other "
            "conditions leave fewer rows first",
            "an expression is matched with each row that the other conditions leave",
        ),
    ),
    "go": (
        restart(
            "compile expressions once (regexp.MustCompile in a package variable), or use functions "
            "of the package strings",
            "Go's regexp does not backtrack, and is slow for each byte",
        ),
    ),
}
PASSWORDS: Rows = {
    GENERIC: (
        restart(
            "hash in threads or processes beside those that serve, and keep sessions, so that a "
            "client logs in once and not with each request",
            "a password's hash is slow on purpose: fewer of them help, faster ones are less safe",
        ),
    ),
    "node": (
        restart(
            "use the asynchronous forms (crypto.pbkdf2, crypto.scrypt, bcrypt.hash), and keep "
            "sessions, so that a client logs in once",
            "the Sync forms hold up every other request; the others run in libuv's pool "
            "(UV_THREADPOOL_SIZE)",
        ),
    ),
}

PASSWORDS_BESIDE: Rows = {
    GENERIC: (
        restart(
            "keep sessions, so that a client logs in once and not with each request; give it more "
            "CPUs, or where CPUs are idle its pool more threads (UV_THREADPOOL_SIZE of Node)",
            "they are hashed beside its event loop already: what they need is CPU time",
        ),
    )
}

# ------------------------------------------------------------ the kernel

RECLAIM: Rows = {
    GENERIC: (
        look(
            'g=$(sed -n "s/^0:://p" /proc/{pid}/cgroup); grep -H . "/sys/fs/cgroup$g"/memory.max '
            '"/sys/fs/cgroup$g"/memory.high "/sys/fs/cgroup$g"/memory.current',
            "see the memory limit of its cgroup and what is used of it (cgroup v2)",
            "at memory.high or memory.max the kernel takes back pages that are needed again",
        ),
        restart(
            "raise the memory limit of its cgroup (systemd: MemoryHigh=, MemoryMax=; docker update "
            "--memory), or give the host more memory",
            "the pages that are taken back are then left where they are",
        ),
    )
}
COMPACTION: Rows = {
    GENERIC: (
        now(
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled "
            "/sys/kernel/mm/transparent_hugepage/defrag",
            "make huge pages only for programs that ask for them",
            "the kernel moves and clears memory for a huge page while the program waits",
        ),
        look(
            "grep . /sys/kernel/mm/transparent_hugepage/enabled "
            "/sys/kernel/mm/transparent_hugepage/defrag",
            "see for whom huge pages are made (the setting in brackets)",
            "`always` makes them for every program",
        ),
    )
}
FAULTS: Rows = {
    GENERIC: (
        restart(
            "keep memory in place of giving it back: MALLOC_TRIM_THRESHOLD_=268435456 and "
            "MALLOC_MMAP_THRESHOLD_=268435456 in its environment (glibc), or jemalloc",
            "each page that is used for the first time, or again after it was given back, costs a "
            "fault",
        ),
    )
}
LOCKS: Rows = {
    GENERIC: (
        restart(
            "use fewer threads, or let each have its own data: they take turns at a lock, and wake "
            "each other",
            "a lock that is free is taken without the kernel",
        ),
        look(
            "sudo perf trace -s -e futex -p {pid} -- sleep 5",
            "see which of its threads call futex, and how often (package linux-perf)",
            "those with most calls share a lock",
        ),
    )
}
_MAY_LOSE = "what the last {} wrote is lost when the host loses power or its kernel crashes"
_EACH_SECOND = (
    "let Redis write its log to the disk once a second, in another thread (package redis-tools)",
    f"with `always` it does so before it replies; {_MAY_LOSE.format('second')}",
)
SYNC: Rows = {
    GENERIC: (
        restart(
            "call fsync once for many changes (a transaction, a batch), or let a thread do so for "
            "all that wait",
            "each call waits for the disk, and takes CPU time for it, however little was written",
        ),
    ),
    "redis": (
        now(
            "redis-cli -s {path} CONFIG SET appendfsync everysec",
            *_EACH_SECOND,
            undo="redis-cli -s {path} CONFIG SET appendfsync always",
        ),
        now(
            "redis-cli -h {host} -p {port} CONFIG SET appendfsync everysec",
            *_EACH_SECOND,
            undo="redis-cli -h {host} -p {port} CONFIG SET appendfsync always",
        ),
    ),
    "postgresql": (
        restart(
            "put several changes into a transaction; or synchronous_commit = off, for sessions "
            "whose last changes may be lost",
            f"each commit waits for the disk; without, {_MAY_LOSE.format('half second')}, and "
            "nothing is damaged",
        ),
    ),
    "mysql": (
        restart(
            "put several changes into a transaction; or innodb_flush_log_at_trx_commit = 2, and "
            "sync_binlog = 0 (MariaDB 10.8 and later: innodb_log_file_buffering = ON as well, or "
            "each commit still writes past the page cache)",
            f"each commit waits for the disk; with them, {_MAY_LOSE.format('second')}",
        ),
    ),
}
PROCESSES: Rows = {
    GENERIC: (
        restart(
            "keep processes and threads for many requests: a pool of workers, in place of one "
            "started for each",
            "to start and end a process costs a millisecond or more, much of it for its memory",
        ),
    ),
    "php-fpm": (
        reload(
            "pm = static, or a larger pm.max_requests (0: children are kept), then reload PHP-FPM",
            "a child that is kept needs no start",
        ),
    ),
    "postgresql": (
        restart(
            "put a pooler such as PgBouncer in front of PostgreSQL, or keep connections in clients",
            "each connection of PostgreSQL is a process of its own",
        ),
    ),
    "apache": (
        reload(
            "MaxConnectionsPerChild 0, and mpm_event in place of mpm_prefork; then restart Apache",
            "a child that is kept needs no start",
        ),
    ),
}
