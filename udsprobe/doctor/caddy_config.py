"""Where Caddy's own configuration (JSON) sends requests on.

Knows the two places that matter: `apps.http.servers.*.listen` and every
`reverse_proxy` handler's `upstreams[].dial`, at whatever depth of routes.
"""

from __future__ import annotations

from typing import Any, Iterator, List, Tuple

from udsprobe.doctor.facts import CaddyHop

_DEPTH_MAX = 100


def hops(config: Any) -> Tuple[CaddyHop, ...]:
    """Every destination of every server, once each; anything malformed has none."""
    found: List[CaddyHop] = []
    servers = _member(_member(_member(config, "apps"), "http"), "servers")
    if not isinstance(servers, dict):
        return ()
    for name, server in servers.items():
        listens = _member(server, "listen")
        addresses = tuple(map(str, listens)) if isinstance(listens, list) else ()
        for dial in _dials(_member(server, "routes"), 0):
            hop = CaddyHop(str(name), addresses, dial)
            if hop not in found:
                found.append(hop)
    return tuple(found)


def _dials(value: Any, depth: int) -> Iterator[str]:
    if depth > _DEPTH_MAX:
        return
    if isinstance(value, list):
        for each in value:
            yield from _dials(each, depth + 1)
    elif isinstance(value, dict):
        if value.get("handler") == "reverse_proxy":
            upstreams = value.get("upstreams")
            for one in upstreams if isinstance(upstreams, list) else ():
                dial = _member(one, "dial")
                if isinstance(dial, str):
                    yield dial
        for each in value.values():
            if isinstance(each, (list, dict)):
                yield from _dials(each, depth + 1)


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None
