"""A running nginx: which files it was given, what they say, and where its upstreams lead."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterable, Optional, Sequence, Tuple

from udsprobe.doctor.facts import ConfigError, Endpoint, NginxFacts, ProcessFacts
from udsprobe.doctor.nginx.config import destinations, read
from udsprobe.doctor.nginx.values import StartedWith, built_with, started_with, version_of
from udsprobe.servers.endpoints import Endpoints
from udsprobe.servers.nginx_files import read_tree
from udsprobe.servers.target_files import TargetFiles

EXECUTABLE_MAX = 64 << 20
_CMDLINE_MAX = 1 << 20
# A worker that still serves its last connections after a reload has this title.
_LEAVING = b"is shutting down"
_MASTER = b"master process"
_NO_WORKERS = (_LEAVING, _MASTER, b"cache manager", b"cache loader")
DEFAULT_PREFIX = "/usr/local/nginx"
DEFAULT_CONFIG = "conf/nginx.conf"


def masters(processes: Iterable[ProcessFacts]) -> Tuple[ProcessFacts, ...]:
    """Of nginx's processes those that no other nginx started, or that replace one in place."""
    ours = {one.pid: one for one in processes if one.kind == "nginx"}
    return tuple(
        one for one in ours.values() if one.ppid not in ours or _MASTER in _cmdline(one.pid)
    )


def nginx_facts(
    master: ProcessFacts, processes: Sequence[ProcessFacts], endpoints: Endpoints
) -> NginxFacts:
    """What a master was started with and what its files say now."""
    workers = [one for one in processes if one.ppid == master.pid and _works(one)]
    worker = min(workers, key=lambda one: one.started_s or 0.0, default=master)
    given = started_with(_cmdline(master.pid))
    executable = _executable(master.pid)
    path = _config_path(given, executable)
    facts = NginxFacts(
        pid=master.pid,
        config_path=path or "nginx.conf",
        version=version_of(executable),
        workers=tuple(one.pid for one in workers),
        worker_nofile=worker.nofile_soft,
        worker_user=_user(worker),
        netns=master.netns,
    )
    if path is None:
        says = "this user may not read its program, which names the path"
        error = ConfigError("unreadable", f"/proc/{master.pid}/exe", says)
        return replace(facts, errors=(error,))
    return _with_files(facts, given, worker, endpoints)


def _with_files(
    facts: NginxFacts, given: StartedWith, worker: ProcessFacts, endpoints: Endpoints
) -> NginxFacts:
    tree = read_tree(TargetFiles(facts.pid), facts.config_path, given.directives)
    config = None if tree.errors else read(tree.tree)
    since = worker.started_s
    found: Dict[str, Endpoint] = {}
    for address in destinations(config) if config is not None else ():
        found[address] = endpoints.of(address, worker)
    return replace(
        facts,
        config=config,
        files=len(tree.files),
        lines=tree.lines,
        errors=tuple(tree.errors),
        endpoints=found,
        changed=tuple(
            # The clock of a file system ticks every few milliseconds.
            path
            for path, changed_s in tree.files
            if since is not None and changed_s > since + 1.0
        ),
    )


def _works(process: ProcessFacts) -> bool:
    title = _cmdline(process.pid)
    return process.kind == "nginx" and not any(words in title for words in _NO_WORKERS)


def _cmdline(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(_CMDLINE_MAX)
    except OSError:
        return b""


def _executable(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/exe", "rb") as file:
            return file.read(EXECUTABLE_MAX)
    except OSError:
        return b""


def _config_path(given: StartedWith, executable: bytes) -> Optional[str]:
    prefix = given.prefix or built_with(executable, "prefix")
    path = given.config or built_with(executable, "conf-path")
    if path is not None and path.startswith("/"):
        return path
    if not executable and prefix is None:
        return None
    return f"{(prefix or DEFAULT_PREFIX).rstrip('/')}/{path or DEFAULT_CONFIG}"


def _user(process: ProcessFacts) -> Optional[str]:
    if process.identity is None:
        return None
    import pwd

    uid = process.identity.uid
    try:
        return f"{pwd.getpwuid(uid).pw_name}, uid {uid}"
    except KeyError:
        return f"uid {uid}"
