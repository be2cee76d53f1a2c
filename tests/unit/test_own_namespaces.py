"""Where udsprobe itself runs, from a /proc made for the test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from udsprobe.errors import KernelCannotError
from udsprobe.kernel.abilities.lockdown import forbids_reading
from udsprobe.kernel.proc.own_namespaces import in_pid_namespace, in_user_namespace


def proc(root: Path, status: str = "NSpid:\t7\n") -> Path:
    (root / "self" / "ns").mkdir(parents=True)
    (root / "self" / "status").write_text(f"Name:\tx\n{status}")
    for kind in ("pid", "user", "time"):
        (root / "self" / "ns" / kind).write_text("")
    os.link(root / "self" / "ns" / "time", root / "self" / "ns" / "time_for_children")
    return root


def test_a_namespace_that_is_not_the_host_s(tmp_path: Path) -> None:
    assert in_pid_namespace(proc(tmp_path))
    assert in_user_namespace(tmp_path)


def test_nothing_is_said_where_nothing_is_shown(tmp_path: Path) -> None:
    assert not in_pid_namespace(tmp_path / "none")
    assert not in_user_namespace(tmp_path / "none")


@pytest.mark.parametrize("status", ["NSpid:\t4711\t7\n", "NSpid:\t4711\t12\t1\n"])
def test_a_proc_of_another_namespace(tmp_path: Path, status: str) -> None:
    with pytest.raises(KernelCannotError, match="another PID namespace"):
        in_pid_namespace(proc(tmp_path, status))


def test_a_proc_that_we_are_not_in(tmp_path: Path) -> None:
    with pytest.raises(KernelCannotError, match="another PID namespace"):
        in_pid_namespace(tmp_path)


def test_shifted_clocks(tmp_path: Path) -> None:
    offsets = proc(tmp_path) / "self" / "timens_offsets"
    offsets.write_text("monotonic           0         0\nboottime            0         0\n")
    assert in_pid_namespace(tmp_path)
    offsets.write_text("monotonic           0         0\nboottime         1000         0\n")
    with pytest.raises(KernelCannotError, match="time namespace"):
        in_pid_namespace(tmp_path)


OLD = "unknown func bpf_probe_read_kernel#113\nprocessed 9 insns"
NEW = "program of this type cannot use helper bpf_probe_read_kernel_str#115"


@pytest.mark.parametrize(
    ("log", "level", "forbidden"),
    [
        ("R9 !read_ok", "confidentiality", True),
        (OLD, "integrity", False),
        (OLD, None, True),
        (NEW, None, True),
        ("R9 !read_ok\ncall bpf_probe_read_kernel#113", None, False),
        ("unknown func bpf_loop#181", None, False),
    ],
)
def test_lockdown_as_the_reason(log: str, level: str | None, forbidden: bool) -> None:
    assert forbids_reading(log, level) is forbidden
