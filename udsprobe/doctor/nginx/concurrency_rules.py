"""Whether the idle connections that nginx keeps are as many as it has open right now.

Source: `ngx_http_upstream_free_keepalive_peer()`: when the cache of a worker is full, a
connection that becomes idle pushes out, and closes, the one used longest ago.
"""

from __future__ import annotations

from typing import Iterator, Tuple

from udsprobe.doctor.facts import NginxFacts
from udsprobe.doctor.finding import Evidence, Finding
from udsprobe.doctor.nginx.config import Upstream
from udsprobe.doctor.nginx.upstream_rules import kept, kept_by
from udsprobe.model.action import by_hand


def concurrency_findings(nginx: NginxFacts) -> Iterator[Finding]:
    """Upstreams to which a worker has more connections open than it keeps."""
    if nginx.config is None:
        return
    for group in nginx.config.upstreams:
        size = kept(nginx, group)
        users = [one for one in nginx.config.passes if group.name in one.targets]
        if group.stream or not size or not any(kept_by(nginx, one) for one in users):
            continue
        worker, most = most_open(nginx, group)
        # With fewer places than servers nothing is kept at all: a finding of its own.
        if most > size >= len(group.servers):
            yield _below(group, size, worker, most)


def most_open(nginx: NginxFacts, group: Upstream) -> Tuple[int, int]:
    """(worker, connections) of the worker with most connections to a group at one moment."""
    best = (0, 0)
    for moment in nginx.open_upstream:
        for worker in nginx.workers:
            addresses = (*group.servers, *group.backups)
            total = sum(moment.get(address, {}).get(worker, 0) for address in addresses)
            best = max(best, (worker, total), key=lambda one: one[1])
    return best


def _below(group: Upstream, size: int, worker: int, most: int) -> Finding:
    place = group.keepalive_place or group.place
    return Finding(
        "nginx-keepalive-below-concurrency",
        "warning",
        f"upstream {group.name}",
        f"worker {worker} has {most} connections to upstream {group.name} open now and keeps "
        f"{size} idle ones: when more are idle at once, it closes them and opens others",
        (
            Evidence("keepalive", size, place),
            Evidence("connections of a worker", most, "sock_diag"),
        ),
        (
            by_hand(
                f"in upstream {group.name}: keepalive {_room_for(most)};",
                "room for every connection that one worker uses at once, as counted just now; "
                "`attach` counts the connections that are opened",
            ),
        ),
        (place,),
        1,
    )


def _room_for(most: int) -> int:
    """The next power of two."""
    return int(1 << (most - 1).bit_length())
