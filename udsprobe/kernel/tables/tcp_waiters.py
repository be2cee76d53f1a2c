"""Which listener a TCP client waits for when its SYN is not answered.

The kernel half lists handshakes in progress to this network namespace itself; here they are
matched with listeners, as the kernel would: who is bound to the address goes before who is
bound to all. Knows nothing of when or why.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from typing import Any, Dict, Iterable, List, Optional, Tuple

from udsprobe.kernel.sockets.socket_names import SocketName

# Network namespace, port, address as of IPv6.
Place = Tuple[int, int, bytes]
_MAPPED = bytes(10) + b"\xff\xff"
_ANY_V4, _ANY = _MAPPED + bytes(4), bytes(16)


def waiting_at(
    handshakes: Iterable[Any], listeners: Iterable[Tuple[int, int, SocketName]]
) -> Dict[int, Optional[int]]:
    """Inode of a listener → clients that wait for it.

    None where clients wait for listeners that share their address (SO_REUSEPORT): the kernel says
    at the end only whose the connection is.

    Args:
        handshakes: ctypes twins of `struct handshake_record`.
        listeners: inode, network namespace and name of those that are open; TCP ones only.
    """
    at_place: Dict[Place, List[int]] = defaultdict(list)
    for inode, netns, name in listeners:
        at_place[netns, name.port, _as_of_ipv6(name)].append(inode)
    clients: Dict[Place, int] = defaultdict(int)
    for record in handshakes:
        meant = next((p for p in _places(record) if p in at_place), None)
        if meant is not None:
            clients[meant] += 1
    return {
        inode: count if len(at_place[place]) == 1 else None
        for place, count in clients.items()
        for inode in at_place[place]
    }


def _places(record: Any) -> Iterable[Place]:
    name = SocketName.of(record.peer)
    address = _as_of_ipv6(name)
    wildcards = (_ANY_V4, _ANY) if address.startswith(_MAPPED) else (_ANY,)
    return [(record.netns, name.port, each) for each in (address, *wildcards)]


def _as_of_ipv6(name: SocketName) -> bytes:
    return _MAPPED + name.raw if name.family == socket.AF_INET else name.raw
