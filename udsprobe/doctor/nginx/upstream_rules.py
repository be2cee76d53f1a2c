"""Whether nginx keeps its upstream connections, and whether there is anybody at their other end.

Sources are nginx's own: `ngx_http_upstream_keepalive_module.c`,
`ngx_http_proxy_module.c`, `ngx_http_upstream.c`; docs/doctor.md names functions and commits.
"""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from udsprobe.doctor.facts import Endpoint, NginxFacts
from udsprobe.doctor.finding import Evidence, Finding, shown_places
from udsprobe.doctor.nginx.config import NginxConfig, Pass, Upstream
from udsprobe.model.action import by_hand

# nginx commits 4fbe4b62746f "Upstream: enabled keepalive by default for explicit upstreams."
# and 6bb27a631299 "Proxy: enabled HTTP/1.1 by default for upstream connections."
KEPT_BY_DEFAULT = (1, 29, 7)
DEFAULT_KEEPALIVE = 32
DEFAULT_IDLE_MS = 60_000
NODE_IDLE_MS = 5_000
"""server.keepAliveTimeout unless the program sets it (lib/_http_server.js)."""
# The only modules that ever set `u->keepalive`; uwsgi and SCGI have no such thing.
_KEEPERS = frozenset({"proxy_pass", "grpc_pass", "memcached_pass"})
_NEVER_KEPT = frozenset({"uwsgi_pass", "scgi_pass"})


def upstream_findings(nginx: NginxFacts) -> Iterator[Finding]:
    """Everything about the upstreams of one nginx."""
    if nginx.config is None:
        return
    yield from _unkept(nginx, nginx.config)
    for group in nginx.config.upstreams:
        if not group.stream:
            yield from _group_findings(nginx, nginx.config, group)
    yield from _unreachable(nginx, nginx.config)


def kept(nginx: NginxFacts, group: Upstream) -> Optional[int]:
    """How many idle connections each worker keeps; None when the version decides and is unknown."""
    if group.keepalive is not None:
        modern = nginx.version is not None and nginx.version >= KEPT_BY_DEFAULT
        return 0 if group.overridden_by is not None and not modern else group.keepalive
    if nginx.version is None:
        return None
    return DEFAULT_KEEPALIVE if nginx.version >= KEPT_BY_DEFAULT else 0


def _group_findings(nginx: NginxFacts, config: NginxConfig, group: Upstream) -> Iterator[Finding]:
    users = [one for one in config.passes if group.name in one.targets and not one.stream]
    size = kept(nginx, group)
    if group.overridden_by is not None and nginx.version is not None and not size:
        yield from _overridden(group)
    if not size:
        return
    proxied = [one for one in users if one.directive == "proxy_pass"]
    yield from _closed(nginx, group, size, proxied)
    if group.keepalive is not None:
        yield from _without_effect(group, users)
    members = len(group.servers)
    if size < members and any(one.directive in _KEEPERS for one in users):
        yield _too_small(group, size, members)
    if any(kept_by(nginx, one) for one in users):
        yield from _race_with_node(nginx, group)


def _unkept(nginx: NginxFacts, config: NginxConfig) -> Iterator[Finding]:
    """Destinations that get a new connection for each request."""
    users: Dict[str, List[Pass]] = {}
    for handed in config.passes:
        if handed.directive in _KEEPERS and not handed.stream:
            for name in handed.targets:
                users.setdefault(name, []).append(handed)
    for name, passes in users.items():
        group = config.upstream(name, stream=False)
        if group is None:
            yield _no_group(name, passes)
        elif kept(nginx, group) == 0 and group.overridden_by is None:
            yield _no_keepalive(group, passes)


def _no_keepalive(group: Upstream, passes: Sequence[Pass]) -> Finding:
    places, total = shown_places([group.place, *(one.place for one in passes)])
    line = "keepalive 32;"
    if group.keepalive == 0:
        line = f"keepalive 32;  (instead of keepalive 0, {group.keepalive_place})"
    return Finding(
        "nginx-upstream-no-keepalive",
        "warning",
        f"upstream {group.name}",
        f"every request to upstream {group.name} opens a new connection",
        (Evidence("keepalive", group.keepalive, group.keepalive_place or group.place),),
        (
            by_hand(
                f"in upstream {group.name}: {line}",
                "each worker then keeps up to 32 idle connections; before nginx 1.29.7 it "
                'also takes proxy_http_version 1.1 and proxy_set_header Connection ""',
            ),
        ),
        places,
        total,
    )


def _no_group(name: str, passes: Sequence[Pass]) -> Finding:
    places, total = shown_places(one.place for one in passes)
    kind = passes[0].directive
    return Finding(
        "nginx-upstream-no-keepalive",
        "warning",
        name,
        f"every request to {name} opens a new connection: it is not an upstream block",
        (Evidence(kind, name, places[0]),),
        (
            by_hand(
                f"upstream NAME {{ server {name}; keepalive 32; }} and {kind} to NAME",
                "nginx keeps connections of explicit upstream blocks only, in every version",
            ),
        ),
        places,
        total,
    )


def _overridden(group: Upstream) -> Iterator[Finding]:
    method = group.overridden_by
    if method is None or not group.keepalive:
        return
    yield Finding(
        "nginx-keepalive-overridden",
        "warning",
        f"upstream {group.name}",
        f"keepalive of upstream {group.name} has no effect: {method.name} comes after it",
        (
            Evidence("keepalive", group.keepalive, group.keepalive_place or group.place),
            Evidence("balancing method", method.name, method.place),
        ),
        (
            by_hand(
                f"move `keepalive {group.keepalive};` below `{method.name}`",
                "before nginx 1.29.7 both set the upstream's start-up function, and the last wins",
            ),
        ),
        (method.place,),
        1,
    )


def _closed(
    nginx: NginxFacts, group: Upstream, size: int, passes: Iterable[Pass]
) -> Iterator[Finding]:
    """Keepalive is there, and the request asks the server to close."""
    old_http = [one for one in passes if _http10(nginx, one)]
    closing = [one for one in passes if one not in old_http and _says_close(nginx, one)]
    for slug, users, what, line in (
        (
            "nginx-proxy-http-1-0",
            old_http,
            "are made with HTTP/1.0 and close it",
            'proxy_http_version 1.1; proxy_set_header Connection "";',
        ),
        (
            "nginx-connection-close",
            closing,
            "say Connection: close",
            'proxy_set_header Connection "";',
        ),
    ):
        if not users:
            continue
        places, total = shown_places(one.place for one in users)
        yield Finding(
            slug,
            "warning",
            f"upstream {group.name}",
            f"upstream {group.name} keeps {size} idle connections, "
            f"but requests from {total} place{'s' if total > 1 else ''} {what}",
            (Evidence("keepalive", size, group.keepalive_place or group.place), *_said(users[0])),
            (by_hand(f"beside the proxy_pass: {line}", _why_cleared(slug, users[0])),),
            places,
            total,
        )


def _said(handed: Pass) -> Iterator[Evidence]:
    yield Evidence("proxy_http_version", handed.http_version or "not set", handed.place)
    said = "not set here" if handed.connection is None else " or ".join(handed.connection)
    yield Evidence("Connection", said, handed.connection_place or handed.place)


def _why_cleared(slug: str, handed: Pass) -> str:
    if slug == "nginx-proxy-http-1-0":
        return "HTTP/1.0, nginx's default before 1.29.7, keeps no connection"
    if handed.connection is None:
        return (
            "a block with a proxy_set_header of its own inherits none from outside, "
            "and before nginx 1.29.7 the default is Connection: close"
        )
    return "a connection is kept only if the server does not close it after its reply"


def _http10(nginx: NginxFacts, handed: Pass) -> bool:
    if handed.connection == ("keep-alive",) or handed.connection == ():
        return False
    if handed.http_version is not None:
        return handed.http_version == "1.0"
    return nginx.version is not None and nginx.version < KEPT_BY_DEFAULT


def _says_close(nginx: NginxFacts, handed: Pass) -> bool:
    if handed.http_version == "2":  # has no such header
        return False
    if handed.connection is None:
        return nginx.version is not None and nginx.version < KEPT_BY_DEFAULT
    return any("close" in value.replace(",", " ").split() for value in handed.connection)


def kept_by(nginx: NginxFacts, handed: Pass) -> bool:
    """Whether requests from there leave a connection that can be kept."""
    if handed.directive == "proxy_pass":
        unknown = nginx.version is None or handed.connection == ()
        return not (unknown or _http10(nginx, handed) or _says_close(nginx, handed))
    return handed.directive in _KEEPERS


def _without_effect(group: Upstream, users: Sequence[Pass]) -> Iterator[Finding]:
    never = [one for one in users if one.directive in _NEVER_KEPT]
    unkept = [one for one in users if one.directive == "fastcgi_pass" and not one.keep_conn]
    for slug, severity, found, why, line in (
        (
            "nginx-keepalive-no-effect",
            "info",
            never,
            "nginx closes every uwsgi and SCGI connection after its reply",
            f"remove `keepalive {group.keepalive};`",
        ),
        (
            "nginx-fastcgi-keep-conn",
            "warning",
            unkept,
            "without it nginx asks the FastCGI server to close",
            "beside the fastcgi_pass: fastcgi_keep_conn on;",
        ),
    ):
        if found and group.keepalive and len(found) == len(users):
            places, total = shown_places(one.place for one in found)
            yield Finding(
                slug,
                severity,
                f"upstream {group.name}",
                f"keepalive of upstream {group.name} has no effect for {found[0].directive}",
                (Evidence("keepalive", group.keepalive, group.keepalive_place or group.place),),
                (by_hand(line, why),),
                places,
                total,
            )


def _too_small(group: Upstream, size: int, members: int) -> Finding:
    place = group.keepalive_place or group.place
    return Finding(
        "nginx-keepalive-too-small",
        "warning",
        f"upstream {group.name}",
        f"each worker keeps {size} idle connections for {members} servers: "
        "used in turn, they push each other's connections out",
        (Evidence("keepalive", size, place), Evidence("servers", members, group.place)),
        (
            by_hand(
                f"in upstream {group.name}: keepalive {max(DEFAULT_KEEPALIVE, members)};",
                "each worker has one cache for all servers; it should hold the requests one "
                "worker has in flight (`attach` shows them), and at least one connection "
                "per server",
            ),
        ),
        (place,),
        1,
    )


def _race_with_node(nginx: NginxFacts, group: Upstream) -> Iterator[Finding]:
    idle_ms = DEFAULT_IDLE_MS if group.idle_ms is None else group.idle_ms
    nodes = [
        (address, nginx.endpoints[address])
        for address in group.servers
        if address in nginx.endpoints and nginx.endpoints[address].kind == "node"
    ]
    if not nodes or idle_ms < NODE_IDLE_MS:
        return
    yield Finding(
        "node-keepalive-race",
        "info",
        f"upstream {group.name}",
        f"nginx keeps idle connections to Node {idle_ms / 1000:g} s, Node 5 s unless its program "
        "says otherwise (not readable from outside): a POST sent as Node closes gets a 502",
        tuple(
            Evidence("listens", f"node {one.pid}" if one.pid else "node", address)
            for address, one in nodes[:3]
        ),
        (
            by_hand(
                f"in upstream {group.name}: keepalive_timeout 4s;",
                "nginx then closes first; it repeats methods other than POST, LOCK and "
                "PATCH by itself",
            ),
            by_hand(
                f"or, in the program, server.keepAliveTimeout = {idle_ms + 5000};",
                "longer than nginx keeps them",
            ),
        ),
        (group.place,),
        1,
    )


def _unreachable(nginx: NginxFacts, config: NginxConfig) -> Iterator[Finding]:
    places: Dict[str, List[str]] = {}
    for address, where in _used(config):
        places.setdefault(address, []).append(where)
    for address, endpoint in nginx.endpoints.items():
        found = _endpoint_finding(nginx, endpoint, shown_places(places.get(address, ())))
        if found is not None:
            yield found


def _used(config: NginxConfig) -> Iterator[Tuple[str, str]]:
    for handed in config.passes:
        for name in handed.targets:
            group = config.upstream(name, stream=handed.stream)
            if group is None:
                yield name, handed.place
                continue
            for address in (*group.servers, *group.backups):
                yield address, group.place


def _endpoint_finding(
    nginx: NginxFacts, endpoint: Endpoint, where: Tuple[Tuple[str, ...], int]
) -> Optional[Finding]:
    if endpoint.writable is False:
        return _denied(nginx, endpoint, where)
    says = {
        "missing": ("the socket file does not exist", "ENOENT"),
        "not-a-socket": ("the file is not a socket", "ECONNREFUSED"),
        "refusing": ("nothing listens there", "ECONNREFUSED"),
    }.get(endpoint.state)
    if says is None:
        return None
    what, error = says
    unix = endpoint.address.startswith("unix:")
    return Finding(
        "nginx-upstream-unreachable",
        # A packet filter may lead a TCP address elsewhere; a path it may not.
        "critical" if unix else "warning",
        endpoint.address,
        f"nginx hands requests to {endpoint.address}, and {what}: they end in {error}"
        + ("" if unix else ", unless a packet filter sends them elsewhere"),
        (Evidence("state", endpoint.state, endpoint.address),),
        (
            by_hand(
                "start the server that listens there, or correct the address",
                "`udsprobe listeners` shows what listens on this host",
            ),
        ),
        *where,
    )


def _denied(nginx: NginxFacts, endpoint: Endpoint, where: Tuple[Tuple[str, ...], int]) -> Finding:
    user = nginx.worker_user or "the workers' user"
    at = endpoint.denied_at or endpoint.address
    socket = endpoint.address == f"unix:{at}"
    return Finding(
        "nginx-socket-permissions",
        "critical",
        endpoint.address,
        f"nginx's workers ({user}) have no permission to connect to {endpoint.address}: "
        f"{at} is {endpoint.mode}, of {endpoint.owner}",
        (
            Evidence("mode", endpoint.mode, at),
            Evidence("owner", endpoint.owner, at),
            Evidence("worker", user, f"/proc/{(nginx.workers or (nginx.pid,))[0]}/status"),
        ),
        (
            by_hand(
                f"give {user} {'write permission on' if socket else 'search permission in'} {at}: "
                "a common group, and "
                + ("mode 0660 where the server makes its socket" if socket else f"chmod g+x {at}"),
                "connect() asks for write permission on the socket and search permission in "
                "every directory above it (unix_find_bsd)",
            ),
        ),
        *where,
    )
