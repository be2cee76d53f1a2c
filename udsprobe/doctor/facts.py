"""What was found on the host: the only thing the rules see.

None is not known, and never 0. Strings from files and other processes are as
they were read: whoever shows them escapes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional, Tuple

from udsprobe.doctor.nginx.config import NginxConfig
from udsprobe.host_facts import HostLimits, Identity, KernelFacts, NotChecked


@dataclass(frozen=True)
class NetworkLimits:
    """Limits of one network namespace.

    Attributes:
        netns: its inode number. own: it is the one that this program runs in.
    """

    netns: int
    own: bool
    somaxconn: Optional[int] = None
    max_dgram_qlen: Optional[int] = None
    tcp_abort_on_overflow: Optional[int] = None
    tcp_syncookies: Optional[int] = None


@dataclass(frozen=True)
class ProcessFacts:
    """One process that serves, or belongs to a server.

    Attributes:
        kind: `nginx`, `node`, `caddy`, `systemd` or `other`, by its executable.
        unit: the systemd unit of its cgroup, `app.service`.
        started_s: seconds since the epoch.
        nofile_soft, nofile_hard: RLIMIT_NOFILE; None when hidden or unlimited.
    """

    pid: int
    ppid: int
    comm: str
    kind: str
    netns: Optional[int] = None
    unit: Optional[str] = None
    started_s: Optional[float] = None
    fds_open: Optional[int] = None
    nofile_soft: Optional[int] = None
    nofile_hard: Optional[int] = None
    identity: Optional[Identity] = None


@dataclass(frozen=True)
class ListenerFacts:
    """One listener, with the limit of its own network namespace.

    Attributes:
        transport: `unix` or `tcp`. pids: owners; None when hidden.
        path: of a Unix socket file, as bound. port, host: of TCP.
    """

    transport: str
    address: str
    netns: int
    pids: Optional[Tuple[int, ...]]
    depth_now: Optional[int]
    backlog: int
    somaxconn: Optional[int]
    path: Optional[str] = None
    host: Optional[str] = None
    port: Optional[int] = None


@dataclass(frozen=True)
class Endpoint:
    """What a server's configured destination leads to, on this host.

    Attributes:
        state: `listening`, `missing` (no such file), `not-a-socket`, `refusing`
            (nobody listens there), or `unknown`.
        writable: whether the server's process may connect; None when it cannot be told.
        denied_at: the file or directory that keeps it out.
        mode, owner: of what is at `denied_at`: `0660`, `1000:1000`.
        kind: of the process that listens, as of `ProcessFacts.kind`.
        pid: that process.
    """

    address: str
    state: str
    writable: Optional[bool] = None
    denied_at: Optional[str] = None
    mode: Optional[str] = None
    owner: Optional[str] = None
    kind: Optional[str] = None
    pid: Optional[int] = None


@dataclass(frozen=True)
class ConfigError:
    """Why a configuration, or a part of it, is not known.

    Attributes:
        reason: `unreadable` or `broken`. says: one clause, no contents of the file.
        line: where; None when it is no matter of a line.
    """

    reason: str
    path: str
    says: str
    line: Optional[int] = None


@dataclass(frozen=True)
class NginxFacts:
    """A running nginx and the files it was given.

    Attributes:
        pid: of the master. workers: their PIDs, without those that shut down.
        version: (1, 22, 1); None when its executable does not tell.
        config: what the files say; None when not even the first can be read.
        files: how many were read; lines: in all of them.
        changed: files that are younger than the oldest worker, their paths.
        endpoints: destination as configured → what it leads to.
        worker_nofile: soft limit of a worker; None when not known.
        open_upstream: at some moments, address as configured → worker → its connections there;
            empty when they could not be seen.
    """

    pid: int
    config_path: str
    version: Optional[Tuple[int, int, int]] = None
    workers: Tuple[int, ...] = ()
    config: Optional[NginxConfig] = None
    files: int = 0
    lines: int = 0
    changed: Tuple[str, ...] = ()
    errors: Tuple[ConfigError, ...] = ()
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    worker_nofile: Optional[int] = None
    worker_user: Optional[str] = None
    netns: Optional[int] = None
    open_upstream: Tuple[Mapping[str, Mapping[int, int]], ...] = ()


@dataclass(frozen=True)
class ServiceUnit:
    """A systemd service of a process, from its unit files.

    Attributes:
        name: `app.service`. main_pid: its first process.
        path: the unit's own file. limit_nofile: (soft, hard) of the files with drop-ins; None
            when they set none.
    """

    name: str
    main_pid: int
    path: str
    limit_nofile: Optional[Tuple[Optional[int], Optional[int]]] = None


@dataclass(frozen=True)
class SocketUnit:
    """A systemd socket of a service.

    Attributes:
        listens: its stream and sequential-packet addresses as written.
        backlog: `Backlog=`; None when the files set none.
        netns: of the service's main process.
    """

    name: str
    path: str
    listens: Tuple[str, ...]
    backlog: Optional[int]
    netns: Optional[int] = None


@dataclass(frozen=True)
class CaddyHop:
    """A proxied destination: which of Caddy's servers sends where."""

    server: str
    listens: Tuple[str, ...]
    dial: str


@dataclass(frozen=True)
class CaddyFacts:
    """A running Caddy and what its configuration file says."""

    pid: int
    config_path: Optional[str]
    hops: Tuple[CaddyHop, ...] = ()
    errors: Tuple[ConfigError, ...] = ()
    netns: Optional[int] = None


@dataclass(frozen=True)
class Facts:
    """All of it."""

    kernel: KernelFacts = field(default_factory=KernelFacts)
    host: HostLimits = field(default_factory=HostLimits)
    networks: Tuple[NetworkLimits, ...] = ()
    processes: Tuple[ProcessFacts, ...] = ()
    listeners: Tuple[ListenerFacts, ...] = ()
    nginx: Tuple[NginxFacts, ...] = ()
    caddy: Tuple[CaddyFacts, ...] = ()
    services: Tuple[ServiceUnit, ...] = ()
    sockets: Tuple[SocketUnit, ...] = ()
    unit_errors: Tuple[ConfigError, ...] = ()
    not_checked: Tuple[NotChecked, ...] = ()

    def process(self, pid: int) -> Optional[ProcessFacts]:
        """The process with this PID, if it is among those looked at."""
        return next((one for one in self.processes if one.pid == pid), None)

    def network(self, netns: Optional[int]) -> Optional[NetworkLimits]:
        """The limits of a network namespace, if it was looked at."""
        return next((one for one in self.networks if one.netns == netns), None)
