"""nginx configurations with the findings they deserve: faults planted one by one, and none.

FOLDER, PORT, TCP (`127.0.0.1:N` of the backend), UNIX (its socket file), NOBODY (a free
port) and SOMAXCONN are replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

KEPT = 'proxy_http_version 1.1; proxy_set_header Connection "";'
UPSTREAM = "upstream app { server TCP; keepalive 8; }"
SERVER = "server { listen 127.0.0.1:PORT; location / { %s } }"


@dataclass(frozen=True)
class Case:
    """A configuration and the truth about it.

    Attributes:
        findings: ids, sorted; empty for a sound configuration.
        reused: whether a second request takes the connection of the first, which the
            backend counts; None where there is no backend.
        files: name → content, beside nginx.conf.
    """

    name: str
    http: str
    findings: Tuple[str, ...] = ()
    reused: Optional[bool] = None
    main: str = ""
    events: str = ""
    files: Tuple[Tuple[str, str], ...] = ()


def proxied(text: str) -> str:
    return SERVER % f"{text} proxy_pass http://app;"


BROKEN = (
    Case(
        "an upstream without keepalive",
        "upstream app { server TCP; }" + proxied(KEPT),
        ("nginx-upstream-no-keepalive",),
        reused=False,
    ),
    Case(
        "an address instead of an upstream",
        SERVER % f"{KEPT} proxy_pass http://TCP/;",
        ("nginx-upstream-no-keepalive",),
        reused=False,
    ),
    Case(
        "a Unix socket instead of an upstream",
        SERVER % f"{KEPT} proxy_pass http://unix:UNIX:/;",
        ("nginx-upstream-no-keepalive",),
        reused=False,
    ),
    Case(
        "HTTP/1.0 by default",
        UPSTREAM + proxied(""),
        ("nginx-proxy-http-1-0",),
        reused=False,
    ),
    Case(
        "HTTP/1.0 by choice",
        UPSTREAM + proxied('proxy_http_version 1.0; proxy_set_header Connection "";'),
        ("nginx-proxy-http-1-0",),
        reused=False,
    ),
    Case(
        "the header is not cleared",
        UPSTREAM + proxied("proxy_http_version 1.1;"),
        ("nginx-connection-close",),
        reused=False,
    ),
    Case(
        "a block with a header of its own inherits none",
        KEPT + UPSTREAM + proxied("proxy_set_header Host $host;"),
        ("nginx-connection-close",),
        reused=False,
    ),
    Case(
        "a map for WebSockets closes all others",
        "map $http_upgrade $connection_upgrade { default upgrade; '' close; }"
        + UPSTREAM
        + proxied("proxy_http_version 1.1; proxy_set_header Connection $connection_upgrade;"),
        ("nginx-connection-close",),
        reused=False,
    ),
    Case(
        "fewer idle connections than servers",
        "upstream app { server TCP; server unix:UNIX; keepalive 1; }" + proxied(KEPT),
        ("nginx-keepalive-too-small",),
        reused=False,
    ),
    Case(
        "the balancing method stands after keepalive",
        "upstream app { server TCP; keepalive 8; least_conn; }" + proxied(KEPT),
        ("nginx-keepalive-overridden",),
        reused=False,
    ),
    Case(
        "a map chooses an upstream without keepalive",
        "map $host $backend { default bare; kept.example app; } upstream bare { server TCP; }"
        + UPSTREAM
        + (SERVER % (KEPT + " proxy_pass http://$backend;")),
        ("nginx-upstream-no-keepalive",),
        reused=False,
    ),
    Case(
        "inside an if, inside an include, among several servers",
        UPSTREAM
        + "upstream bare { zone bare 64k; server TCP max_fails=2; }"
        + "server { listen 127.0.0.1:PORT; server_name a; location / { return 204; } }"
        + "include sites/*.conf;",
        ("nginx-upstream-no-keepalive",),
        files=(
            (
                "sites/b.conf",
                "server { listen 127.0.0.1:PORT; server_name b;\n location / {\n"
                ' if ($arg_x = "{") { proxy_pass http://bare; }\n }\n}\n',
            ),
        ),
    ),
    Case(
        "a socket that does not exist",
        "upstream app { server unix:FOLDER/absent.sock; keepalive 8; }" + proxied(KEPT),
        ("nginx-upstream-unreachable",),
    ),
    Case(
        "a file that is no socket",
        "upstream app { server unix:FOLDER/nginx.conf; keepalive 8; }" + proxied(KEPT),
        ("nginx-upstream-unreachable",),
    ),
    Case(
        "a port where nobody listens",
        "upstream app { server 127.0.0.1:NOBODY; keepalive 8; }" + proxied(KEPT),
        ("nginx-upstream-unreachable",),
    ),
    Case(
        "more connections than descriptors",
        SERVER % "return 204;",
        ("nginx-worker-connections-nofile",),
        events="worker_connections 8192;",
    ),
    Case(
        "more connections than the descriptors it gives its workers",
        SERVER % "return 204;",
        ("nginx-worker-connections-nofile",),
        main="worker_rlimit_nofile 1000;",
        events="worker_connections 2000;",
    ),
    Case(
        "a limit that the kernel refuses",
        SERVER % "return 204;",
        ("nginx-rlimit-not-applied",),
        main="worker_rlimit_nofile 3000000000;",
    ),
    Case(
        "accept_mutex with two workers",
        SERVER % "return 204;",
        ("nginx-accept-mutex",),
        main="worker_processes 2;",
        events="accept_mutex on;",
    ),
    Case(
        "a backlog above somaxconn",
        "server { listen 127.0.0.1:PORT backlog=SOMAXCONN1; }",
        ("backlog-clamped",),
    ),
    Case(
        "a backlog above somaxconn, on a Unix socket",
        "server { listen unix:FOLDER/n.sock backlog=SOMAXCONN1; }",
        ("backlog-clamped",),
    ),
    Case(
        "a receive buffer above the kernel's limit",
        "server { listen 127.0.0.1:PORT rcvbuf=512m; }",
        ("nginx-buffer-clamped",),
    ),
    Case(
        "keepalive for uwsgi",
        UPSTREAM + (SERVER % "uwsgi_pass app;"),
        ("nginx-keepalive-no-effect",),
    ),
    Case(
        "keepalive for FastCGI that closes",
        UPSTREAM + (SERVER % "fastcgi_pass app;"),
        ("nginx-fastcgi-keep-conn",),
    ),
    Case(
        "three faults at once",
        "upstream app { server TCP; } upstream b { server TCP; keepalive 4; }"
        + "server { listen 127.0.0.1:PORT backlog=SOMAXCONN1; location / { proxy_pass http://app; }"
        + " location /b { proxy_pass http://b; proxy_http_version 1.1; } }",
        ("backlog-clamped", "nginx-connection-close", "nginx-upstream-no-keepalive"),
    ),
)

SOUND = (
    Case("static files only", SERVER % "return 204;"),
    Case("kept, set at the location", UPSTREAM + proxied(KEPT), reused=True),
    Case("kept, set for all", KEPT + UPSTREAM + proxied(""), reused=True),
    Case(
        "HTTP/1.0 that asks to be kept",
        UPSTREAM + proxied("proxy_set_header Connection keep-alive;"),
        reused=True,
    ),
    Case(
        "a map for WebSockets that keeps the others",
        "map $http_upgrade $connection_upgrade { default upgrade; '' ''; }"
        + UPSTREAM
        + proxied("proxy_http_version 1.1; proxy_set_header Connection $connection_upgrade;"),
        reused=True,
    ),
    Case(
        "the balancing method before keepalive, two servers, a zone",
        "upstream app { zone app 64k; least_conn; server TCP; server unix:UNIX; keepalive 2; }"
        + proxied(KEPT),
    ),
    Case(
        "a server that is down does not count",
        "upstream app { server TCP; server 127.0.0.1:NOBODY down; keepalive 1; }" + proxied(KEPT),
        reused=True,
    ),
    Case(
        "FastCGI kept, FastCGI not kept, uwsgi",
        "upstream app { server TCP; keepalive 8; } upstream bare { server TCP; }"
        "server { listen 127.0.0.1:PORT; location / { fastcgi_keep_conn on; fastcgi_pass app; }"
        " location /f { fastcgi_pass bare; } location /u { uwsgi_pass bare; } }",
    ),
    Case(
        "includes: relative, by wildcard that matches nothing, quoted",
        UPSTREAM + 'include "more dirs/a b.conf"; include none/*.conf; ' + (SERVER % "return 204;"),
        files=(("more dirs/a b.conf", "# nothing; { here } but a comment\n"),),
    ),
    Case(
        "accept_mutex where it does nothing",
        "server { listen 127.0.0.1:PORT reuseport; }",
        main="worker_processes 2;",
        events="accept_mutex on;",
    ),
    Case("accept_mutex of one worker", SERVER % "return 204;", events="accept_mutex on;"),
    Case(
        "descriptors for every connection",
        SERVER % "return 204;",
        main="worker_rlimit_nofile 6000;",
        events="worker_connections 5000;",
    ),
    Case(
        "a destination that only the request knows",
        SERVER % 'resolver 127.0.0.1; proxy_pass "http://$arg_h";',
    ),
    Case(
        "a backlog that fits",
        "server { listen 127.0.0.1:PORT backlog=SOMAXCONN; listen unix:FOLDER/n.sock; }",
    ),
)
