"""nginx's own limits: descriptors, accept queues, buffers, what it reads and when."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Tuple

from udsprobe.doctor.backlog_rules import named_backlog
from udsprobe.doctor.facts import Facts, ListenerFacts, NginxFacts
from udsprobe.doctor.finding import Evidence, Finding, shown_places
from udsprobe.doctor.nginx.concurrency_rules import concurrency_findings
from udsprobe.doctor.nginx.config import Listen, NginxConfig
from udsprobe.doctor.nginx.upstream_rules import upstream_findings
from udsprobe.model.action import CHANGES, by_hand, command

LISTEN_BACKLOG = 511
"""NGX_LISTEN_BACKLOG (src/os/unix/ngx_linux_config.h)."""
WORKER_CONNECTIONS = 512
"""DEFAULT_CONNECTIONS (src/event/ngx_event.c)."""
MUTEX_OFF_SINCE = (1, 11, 3)


def nginx_findings(facts: Facts, nginx: NginxFacts) -> Iterator[Finding]:
    """Everything about one running nginx."""
    if nginx.changed:
        yield _changed(nginx)
    config = nginx.config
    if config is None:
        return
    yield from _connections(nginx, config)
    yield from _rlimit(nginx, config)
    yield from _mutex(nginx, config)
    yield from _reuseport_on_unix(config)
    yield from _backlogs(facts, nginx, config)
    for one in config.listens:
        yield from _buffers(facts, one)
    yield from upstream_findings(nginx)
    yield from concurrency_findings(nginx)


def _changed(nginx: NginxFacts) -> Finding:
    places, total = shown_places(nginx.changed)
    return Finding(
        "nginx-config-changed",
        "info",
        f"nginx {nginx.pid}",
        f"{total} configuration file{'s' if total > 1 else ''} changed after nginx's workers "
        "started: these findings are about the files, not about the running configuration",
        tuple(Evidence("changed", "after the workers started", path) for path in places),
        (
            command(
                "sudo nginx -t && sudo nginx -s reload",
                "check the files, then let nginx read them again",
                "a reload drops no connection",
                effect=CHANGES,
            ),
        ),
        places,
        total,
    )


def _connections(nginx: NginxFacts, config: NginxConfig) -> Iterator[Finding]:
    wanted = config.number("worker_connections") or WORKER_CONNECTIONS
    allowed = config.number("worker_rlimit_nofile") or nginx.worker_nofile
    if allowed is None or wanted <= allowed:
        return
    setting = config.settings.get("worker_connections")
    place = setting.place if setting else nginx.config_path
    yield Finding(
        "nginx-worker-connections-nofile",
        "warning",
        f"nginx {nginx.pid}",
        f"a worker may have {wanted} connections and {allowed} open files: "
        "accept() fails with EMFILE first",
        (
            Evidence("worker_connections", wanted, place),
            Evidence("RLIMIT_NOFILE of a worker", allowed, _nofile_source(nginx, config)),
        ),
        (
            by_hand(
                f"worker_rlimit_nofile {_room_for(wanted)};",
                "a connection takes a descriptor, files and logs take more; "
                "worker_connections counts connections to upstreams too",
            ),
        ),
        (place,),
        1,
    )


def _nofile_source(nginx: NginxFacts, config: NginxConfig) -> str:
    setting = config.settings.get("worker_rlimit_nofile")
    if setting is not None:
        return setting.place
    return f"/proc/{(nginx.workers or (nginx.pid,))[0]}/limits"


def _room_for(connections: int) -> int:
    return 1 << (connections + connections // 4).bit_length()


def _rlimit(nginx: NginxFacts, config: NginxConfig) -> Iterator[Finding]:
    asked, given = config.number("worker_rlimit_nofile"), nginx.worker_nofile
    if asked is None or given is None or asked == given or nginx.changed or not nginx.workers:
        return
    place = config.settings["worker_rlimit_nofile"].place
    yield Finding(
        "nginx-rlimit-not-applied",
        "warning",
        f"nginx {nginx.pid}",
        f"worker_rlimit_nofile asks for {asked} open files, the workers have {given}",
        (
            Evidence("worker_rlimit_nofile", asked, place),
            Evidence("RLIMIT_NOFILE", given, f"/proc/{nginx.workers[0]}/limits"),
        ),
        (
            by_hand(
                f"LimitNOFILE={asked} in the service's unit, or start the master as root",
                "setrlimit() above the hard limit needs CAP_SYS_RESOURCE; nginx logs the failure "
                "and continues",
            ),
        ),
        (place,),
        1,
    )


def _mutex(nginx: NginxFacts, config: NginxConfig) -> Iterator[Finding]:
    setting = config.settings.get("accept_mutex")
    old = nginx.version is not None and nginx.version < MUTEX_OFF_SINCE
    if not (setting.value == "on" if setting else old):
        return
    shared = [one for one in config.listens if not one.reuseport and not one.datagram]
    if len(nginx.workers) < 2 or not shared:
        return
    place = setting.place if setting else nginx.config_path
    yield Finding(
        "nginx-accept-mutex",
        "info",
        f"nginx {nginx.pid}",
        f"accept_mutex lets one of {len(nginx.workers)} workers accept at a time",
        (
            Evidence("accept_mutex", "on", place),
            Evidence("workers", len(nginx.workers), "/proc"),
        ),
        (
            by_hand(
                "accept_mutex off;",
                "off since nginx 1.11.3: with EPOLLEXCLUSIVE (Linux 4.5) a new connection wakes "
                "one worker without it; a worker that lost the race waits accept_mutex_delay",
            ),
        ),
        (place,),
        1,
    )


def _reuseport_on_unix(config: NginxConfig) -> Iterator[Finding]:
    for one in config.listens:
        if one.reuseport and one.address.startswith("unix:"):
            yield Finding(
                "nginx-reuseport-unix",
                "warning",
                one.address,
                f"reuseport has no use on {one.address}: Unix sockets do not support it",
                (Evidence("listen", f"{one.address} reuseport", one.place),),
                (
                    by_hand(
                        "remove `reuseport`",
                        "current kernels refuse SO_REUSEPORT on Unix sockets (EOPNOTSUPP), "
                        "older ones accept it without effect; workers share one queue anyway",
                    ),
                ),
                (one.place,),
                1,
            )


def _backlogs(facts: Facts, nginx: NginxFacts, config: NginxConfig) -> Iterator[Finding]:
    """One look at each socket: of several `listen` for it, one may say how long its queue is."""
    by_socket: Dict[str, Tuple[ListenerFacts, List[Listen]]] = {}
    for one in config.listens:
        listener = None if one.datagram else _listener_of(facts, nginx, one)
        if listener is not None:
            by_socket.setdefault(listener.address, (listener, []))[1].append(one)
    for listener, listens in by_socket.values():
        said = next((one for one in listens if one.backlog is not None), listens[0])
        asked = LISTEN_BACKLOG if said.backlog is None else said.backlog
        what = "nginx's default" if said.backlog is None else "listen … backlog="
        yield from named_backlog(
            listener, asked, what, said.place, "nginx", default=said.backlog is None
        )


def _listener_of(facts: Facts, nginx: NginxFacts, one: Listen) -> Optional[ListenerFacts]:
    """The socket that this nginx holds for a `listen`; None when in doubt."""
    held = {nginx.pid, *nginx.workers}
    ours = [each for each in facts.listeners if held & set(each.pids or ())]
    if one.address.startswith("unix:"):
        path = one.address[len("unix:") :]
        found = [each for each in ours if each.path == path]
    else:
        port = _port(one.address)
        found = [each for each in ours if each.transport == "tcp" and each.port == port]
    # With reuseport each worker has one of its own.
    return found[0] if len({each.address for each in found}) == 1 else None


def _port(address: str) -> Optional[int]:
    last = address.rsplit(":", 1)[-1]
    if last.isdigit() and len(last) < 6:
        return int(last)
    return None if address.startswith("[") and not address.endswith("]") else 80


def _buffers(facts: Facts, one: Listen) -> Iterator[Finding]:
    host = facts.host
    for name, asked, most, limit in (
        ("rcvbuf", one.receive_bytes, host.rmem_max_bytes, "net.core.rmem_max"),
        ("sndbuf", one.send_bytes, host.wmem_max_bytes, "net.core.wmem_max"),
    ):
        if asked is None or most is None or asked <= most:
            continue
        yield Finding(
            "nginx-buffer-clamped",
            "warning",
            one.address,
            f"listen {one.address} asks for {name}={asked}, and the kernel gives {most}",
            (
                Evidence(name, asked, one.place),
                Evidence(limit, most, f"/proc/sys/{limit.replace('.', '/')}"),
            ),
            (
                command(
                    f"sudo sysctl -w {limit}={asked}",
                    f"raise the host's {limit} to what nginx asks for",
                    "sock_setsockopt() takes the smaller of the two, without an error",
                    effect=CHANGES,
                ),
            ),
            (one.place,),
            1,
        )
