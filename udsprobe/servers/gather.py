"""All facts of this moment, from every reader."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Dict, List, Optional, Sequence, Tuple

from udsprobe.doctor.facts import Facts, ProcessFacts
from udsprobe.host_facts import KernelFacts, NotChecked
from udsprobe.kernel.kernel_facts import kernel_facts
from udsprobe.kernel.proc.limits import host_limits
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.selectors import Selectors, resolve
from udsprobe.observe import stack_taking
from udsprobe.servers.caddy import caddy_facts
from udsprobe.servers.endpoints import Endpoints
from udsprobe.servers.network import Namespaces, remedy_for_hidden
from udsprobe.servers.nginx import masters, nginx_facts
from udsprobe.servers.processes import kind_of, process_facts, servers_found, with_masters
from udsprobe.servers.systemd import UnitFiles, units_of
from udsprobe.servers.target_files import TargetFiles
from udsprobe.servers.upstream_connections import upstream_connections


def gather(asked: Sequence[int], procfs: Optional[Procfs] = None) -> Facts:
    """What rules need to know about this host and these processes.

    Args:
        asked: PIDs, their children are added; empty for every server found.

    Raises:
        NoTargetError: `no-such-pid`, `thread-id`, `kernel-thread`.
        UsageError: this process itself.
    """
    procfs = procfs or Procfs()
    wanted = [one.pid for one in resolve(Selectors(pids=tuple(asked)), procfs)] if asked else None
    kernel, unchecked = _kernel()
    namespaces = Namespaces(procfs)
    owners = {pid for one in namespaces.listeners for pid in one.pids or ()}
    pids = with_masters(procfs, wanted if wanted is not None else servers_found(procfs, owners))
    processes = process_facts(procfs, pids)
    of_these = {one.pid for one in processes}
    listeners = tuple(
        one for one in namespaces.listeners if not asked or of_these.intersection(one.pids or ())
    )
    networks = {one.netns for one in listeners} | {one.netns for one in processes}
    facts = Facts(
        kernel=kernel,
        host=host_limits(),
        networks=tuple(one for one in namespaces.limits if one.own or one.netns in networks),
        processes=processes,
        listeners=listeners,
        not_checked=(*unchecked, *namespaces.not_checked),
    )
    return _with_servers(facts, procfs, namespaces)


def _kernel() -> Tuple[KernelFacts, Tuple[NotChecked, ...]]:
    kernel, unchecked = kernel_facts()
    if not kernel.measurements:
        return kernel, unchecked
    return replace(kernel, measurements=(*kernel.measurements, stack_taking.tried())), unchecked


def _with_servers(facts: Facts, procfs: Procfs, namespaces: Namespaces) -> Facts:
    endpoints = Endpoints(namespaces, _kinds(procfs, namespaces))
    read = (nginx_facts(one, facts.processes, endpoints) for one in masters(facts.processes))
    nginx = [replace(one, open_upstream=upstream_connections(one, procfs)) for one in read]
    caddies = [caddy_facts(one) for one in facts.processes if one.kind == "caddy"]
    # Whoever manages the units sees their files as PID 1 does.
    files = UnitFiles(TargetFiles(_manager(procfs)))
    services, sockets = units_of(facts.processes, files)
    missed: List[NotChecked] = [entry for _, entries in caddies for entry in entries]
    return replace(
        facts,
        nginx=tuple(nginx),
        caddy=tuple(one for one, _ in caddies),
        services=services,
        sockets=sockets,
        unit_errors=tuple(files.errors),
        not_checked=(*facts.not_checked, *missed, *_hidden(facts.processes)),
    )


def _manager(procfs: Procfs) -> int:
    first = procfs.process(1)
    is_manager = first is not None and kind_of(procfs, first) == "systemd" and os.geteuid() == 0
    return 1 if is_manager else os.getpid()


def _kinds(procfs: Procfs, namespaces: Namespaces) -> Dict[int, str]:
    owners = {pid for one in namespaces.listeners for pid in one.pids or ()}
    found = ((pid, procfs.process(pid)) for pid in owners)
    return {pid: kind_of(procfs, process) for pid, process in found if process is not None}


def _hidden(processes: Sequence[ProcessFacts]) -> Sequence[NotChecked]:
    hidden = [one for one in processes if one.nofile_soft is None and one.fds_open is None]
    if not hidden:
        return ()
    return (
        NotChecked(f"limits of {len(hidden)} processes", "/proc hides them", remedy_for_hidden()),
    )
