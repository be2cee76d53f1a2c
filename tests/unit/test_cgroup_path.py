"""Where a process runs, from cgroup paths of the shapes that runtimes and systemd make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from udsprobe.model.threads.cgroup_path import Placement, placement

ID = "4f3c9a" + "0b" * 28 + "c1"
UID = "2d8f1a60-77f4-4e2c-9d1b-0c9e5a3b7f21"
UID_ = UID.replace("-", "_")
STATIC = "8a3c6f0e9b7d4c2f1e0a5b6c7d8e9f00"
assert len(ID) == 64

SHAPES = {
    # systemd
    "/system.slice/nginx.service": Placement(unit="nginx.service"),
    "/system.slice/system-getty.slice/getty@tty1.service": Placement(unit="getty@tty1.service"),
    "/user.slice/user-1000.slice/user@1000.service/app.slice/web.service": Placement("web.service"),
    "/user.slice/user-1000.slice/session-3.scope": Placement(unit="session-3.scope"),
    "/system.slice/app.service/workers/7": Placement(unit="app.service"),
    "/init.scope": Placement(unit="init.scope"),
    r"/system.slice/dev\x2dhugepages.mount": Placement(unit=r"dev\x2dhugepages.mount"),
    "/system.slice": Placement(),
    "/": Placement(),
    "": Placement(),
    # docker: systemd driver, cgroupfs driver, with --cgroup-parent, systemd inside
    f"/system.slice/docker-{ID}.scope": Placement(None, ID, "docker"),
    f"/docker/{ID}": Placement(None, ID, "docker"),
    f"/team.slice/docker-{ID}.scope/init.scope": Placement(None, ID, "docker"),
    f"/system.slice/docker-{ID}.scope/system.slice/nginx.service": Placement(None, ID, "docker"),
    # podman: as root, as a user, cgroupfs, its monitor
    f"/machine.slice/libpod-{ID}.scope": Placement(None, ID, "podman"),
    f"/machine.slice/libpod-{ID}.scope/container": Placement(None, ID, "podman"),
    f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope": Placement(
        "user@1000.service", ID, "podman"
    ),
    f"/libpod_parent/libpod-{ID}": Placement(None, ID, "podman"),
    f"/system.slice/web.service/libpod-payload-{ID}": Placement("web.service", ID, "podman"),
    f"/machine.slice/libpod-conmon-{ID}.scope": Placement(unit=f"libpod-conmon-{ID}.scope"),
    # Kubernetes, systemd driver
    f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice"
    f"/cri-containerd-{ID}.scope": Placement(None, ID, "containerd", UID),
    f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID_}.slice"
    f"/crio-{ID}.scope": Placement(None, ID, "cri-o", UID),
    f"/kubepods.slice/kubepods-pod{UID_}.slice/docker-{ID}.scope": Placement(
        None, ID, "docker", UID
    ),
    f"/kubepods.slice/kubepods-pod{UID_}.slice/crio-conmon-{ID}.scope": Placement(
        f"crio-conmon-{ID}.scope", None, None, UID
    ),
    f"/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{ID}.scope": Placement(
        None, ID, "containerd", STATIC
    ),
    # Kubernetes, cgroupfs driver
    f"/kubepods/burstable/pod{UID}/{ID}": Placement(None, ID, None, UID),
    f"/kubepods/pod{UID}/crio-{ID}": Placement(None, ID, "cri-o", UID),
    f"/kubepods/besteffort/pod{UID}": Placement(pod=UID),
    # containerd with the cgroupfs driver below systemd's slices
    f"/system.slice/containerd.service/kubepods-burstable-pod{UID_}.slice:cri-containerd:{ID}": (
        Placement("containerd.service", ID, "containerd", UID)
    ),
    # kind: a node is a container itself; the innermost counts
    f"/system.slice/docker-{ID}.scope/kubelet.slice/kubelet-kubepods.slice"
    f"/kubelet-kubepods-pod{UID_}.slice/cri-containerd-{ID[::-1]}.scope": Placement(
        None, ID[::-1], "containerd", UID
    ),
    # No container's: too short, in capitals, nobody's child
    f"/system.slice/docker-{ID[:12]}.scope": Placement(unit=f"docker-{ID[:12]}.scope"),
    f"/docker/{ID.upper()}": Placement(),
    f"/build/{ID}": Placement(),
}


@pytest.mark.parametrize(("path", "expected"), SHAPES.items(), ids=range(len(SHAPES)))
def test_shapes(path: str, expected: Placement) -> None:
    assert placement(path) == expected


def test_not_known_is_nowhere() -> None:
    assert placement(None) == Placement()


hexadecimal = st.text("0123456789abcdef", min_size=64, max_size=64)
names = st.text(st.characters(blacklist_characters="/"), max_size=20)


@given(path=st.text(max_size=300))
def test_any_text_is_read_without_error(path: str) -> None:
    found = placement(path)
    for each in (found.unit, found.container, found.runtime):
        assert each is None or each in path or each in ("containerd", "podman", "cri-o")


@given(above=st.lists(names, max_size=3), below=st.lists(names, max_size=2), container=hexadecimal)
def test_a_container_is_found_at_any_depth(above: list, below: list, container: str) -> None:
    path = "/".join(["", *above, f"docker-{container}.scope", *below])
    found = placement(path)
    assert (found.container, found.runtime) == (container, "docker")


@given(uid=st.uuids(), container=hexadecimal, quality=st.sampled_from(["", "-burstable"]))
def test_a_pod_keeps_its_uid(uid: object, container: str, quality: str) -> None:
    slice_ = f"kubepods{quality}-pod{str(uid).replace('-', '_')}.slice"
    assert placement(f"/{slice_}/crio-{container}.scope").pod == str(uid)
