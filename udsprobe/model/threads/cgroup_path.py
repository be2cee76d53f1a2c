"""Where a process runs, by the path of its cgroup: systemd unit, container, pod.

Knows how container runtimes and systemd name cgroups, v1 and v2, and nothing of
the system. Names are of whoever made the cgroup: this reads shapes, it proves nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Optional, Sequence

_ID = r"(?P<id>[0-9a-f]{64})"
# runc's systemd driver writes RUNTIME-ID.scope; the cgroupfs driver a directory named ID, below
# one that says whose.
_SCOPES = (
    (re.compile(rf"docker-{_ID}\.scope"), "docker"),
    (re.compile(rf"cri-containerd-{_ID}\.scope"), "containerd"),
    (re.compile(rf"crio-(?:conmon-)?{_ID}(?:\.scope)?"), "cri-o"),
    (re.compile(rf"libpod-(?:payload-)?{_ID}(?:\.scope)?"), "podman"),
)
# containerd's cgroupfs driver, when systemd made the slice: SLICE:cri-containerd:ID.
_COLON = re.compile(rf"[^/:]+:cri-containerd:{_ID}")
_BARE = re.compile(_ID)
_PARENTS = {"docker": "docker", "libpod_parent": "podman"}
_UID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}"
# A static pod's uid is the hash of its manifest, 32 digits and no dashes.
_POD = re.compile(
    rf"(?:(?:kubelet-)?kubepods(?:-besteffort|-burstable)?-)?pod(?P<uid>{_UID}|[0-9a-f]{{32}})(?:\.slice)?"
    r"(?::cri-containerd:[0-9a-f]{64})?"
)
_UNITS = (".service", ".scope", ".socket", ".mount", ".swap")


@dataclass(frozen=True)
class Placement:
    """Each is None where the path does not say.

    Attributes:
        unit: the innermost systemd unit that is no slice; of a container, the one it is in.
            As systemctl writes it.
        container: id of 64 hexadecimal digits. runtime: `docker`, `containerd`,
            `cri-o` or `podman`; None when only the id is there.
        pod: uid of the Kubernetes pod, with dashes.
    """

    unit: Optional[str] = None
    container: Optional[str] = None
    runtime: Optional[str] = None
    pod: Optional[str] = None


@lru_cache(maxsize=4096)
def placement(path: Optional[str]) -> Placement:
    """Read the path of a cgroup, as /proc/PID/cgroup has it; anything else is nowhere."""
    parts = [part for part in (path or "").split("/") if part]
    pod = next((uid for uid in map(_pod_of, reversed(parts)) if uid), None)
    for index in range(len(parts) - 1, -1, -1):
        found = _container_of(parts, index)
        if found is not None:
            return Placement(_unit_of(parts[:index]), found.container, found.runtime, pod)
    return Placement(unit=_unit_of(parts), pod=pod)


def _container_of(parts: Sequence[str], index: int) -> Optional[Placement]:
    part = parts[index]
    for shape, runtime in _SCOPES:
        named = shape.fullmatch(part)
        if named:
            # conmon watches a container from outside of it.
            return None if "conmon" in part else Placement(container=named["id"], runtime=runtime)
    named = _COLON.fullmatch(part)
    if named:
        return Placement(container=named["id"], runtime="containerd")
    named = _BARE.fullmatch(part)
    parent = parts[index - 1] if index else ""
    if named and (parent in _PARENTS or _pod_of(parent)):
        return Placement(container=named["id"], runtime=_PARENTS.get(parent))
    return None


def _pod_of(part: str) -> Optional[str]:
    named = _POD.fullmatch(part)
    return named["uid"].replace("_", "-") if named else None


def _unit_of(parts: Sequence[str]) -> Optional[str]:
    units = [
        part
        for index, part in enumerate(parts)
        if part.endswith(_UNITS) and part not in _UNITS and _container_of(parts, index) is None
    ]
    return units[-1] if units else None
