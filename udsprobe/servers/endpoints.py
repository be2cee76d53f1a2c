"""Where a configured address leads on this host: to a socket, to a listener, to nobody."""

from __future__ import annotations

import stat
from typing import Dict, Mapping, Optional

from udsprobe.doctor.addresses import answers_on_loopback, host_and_port, loopback_port
from udsprobe.doctor.facts import Endpoint, ListenerFacts, ProcessFacts
from udsprobe.servers.network import Namespaces
from udsprobe.servers.target_files import Barrier, TargetFiles, Unreadable

_UNDECODABLE = "\N{REPLACEMENT CHARACTER}"


class Endpoints:
    """Answers for one moment, from what was listening then.

    Args:
        kinds: PID → kind of process.
    """

    def __init__(self, namespaces: Namespaces, kinds: Mapping[int, str]) -> None:
        self._namespaces = namespaces
        self._kinds = kinds

    def of(self, address: str, client: ProcessFacts) -> Endpoint:
        """What `client` finds at an address, `unix:/run/app.sock` or `127.0.0.1:3000`."""
        if "$" in address or _UNDECODABLE in address:
            return Endpoint(address, "unknown")
        if address.startswith("unix:"):
            return self._unix(address, address[len("unix:") :], client)
        return self._tcp(address, client)

    def _unix(self, address: str, path: str, client: ProcessFacts) -> Endpoint:
        files = TargetFiles(client.pid)
        try:
            found = files.status(path)
            barrier = None
            if found is not None and stat.S_ISSOCK(found.st_mode) and client.identity is not None:
                barrier = files.barrier(path, client.identity)
        except Unreadable:
            return Endpoint(address, "unknown")
        if found is None:
            return Endpoint(address, "missing")
        if not stat.S_ISSOCK(found.st_mode):
            return Endpoint(address, "not-a-socket")
        listener = self._namespaces.bound_to(found)
        state = "listening" if listener is not None else "refusing"
        if listener is None and not self._namespaces.complete:
            state = "unknown"
        return self._reached(address, state, listener, client, barrier)

    def _tcp(self, address: str, client: ProcessFacts) -> Endpoint:
        port = loopback_port(address)
        if port is None or client.netns is None or not self._namespaces.seen(client.netns):
            return Endpoint(address, "unknown")
        host = (host_and_port(address, 80) or ("", 0))[0]
        inside = [
            one
            for one in self._namespaces.listeners
            if one.transport == "tcp" and one.netns == client.netns and one.port == port
        ]
        listener = next((one for one in inside if _answers(one, host)), None)
        state = "listening" if listener is not None else "refusing"
        return self._reached(address, state, listener, client, None)

    def _reached(
        self,
        address: str,
        state: str,
        listener: Optional[ListenerFacts],
        client: ProcessFacts,
        barrier: Optional[Barrier],
    ) -> Endpoint:
        pids = listener.pids or () if listener is not None else ()
        kinds: Dict[int, str] = {pid: self._kinds.get(pid, "other") for pid in pids}
        # A cluster's primary and workers, or systemd and the service: the server is meant.
        pid = next((pid for pid in pids if kinds[pid] != "systemd"), None)
        return Endpoint(
            address=address,
            state=state,
            writable=None if client.identity is None else barrier is None,
            denied_at=None if barrier is None else barrier.path,
            mode=None if barrier is None else f"{barrier.mode:04o}",
            owner=None if barrier is None else f"{barrier.uid}:{barrier.gid}",
            kind=None if pid is None else kinds[pid],
            pid=pid,
        )


def _answers(listener: ListenerFacts, host: str) -> bool:
    if host in ("localhost", ""):
        return answers_on_loopback(listener.host)
    if host == listener.host:
        return True
    if ":" in host:
        return listener.host == "::"
    v6_only = listener.address.startswith("[::]")
    return listener.host == "0.0.0.0" or (listener.host == "::" and not v6_only)
