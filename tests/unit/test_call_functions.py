"""Which function makes which call, by names that a kernel may have or lack."""

from __future__ import annotations

from typing import Iterable

import pytest

from udsprobe.kernel.abilities.call_functions import RETURNS, CallFunction, call_functions
from udsprobe.kernel.abilities.syscall_table import ALIASES, STARTS, TRAITS, syscall_tables
from udsprobe.kernel.programs.function_programs import prototypes

CALLS = {
    machine: [
        name
        for name in syscall_tables(machine)[0].names.values()
        if ALIASES.get(name, name) in TRAITS or name in (*RETURNS, *STARTS)
    ]
    for machine in ("x86_64", "aarch64")
}

NO_ARGUMENTS = (*RETURNS, "fork", "vfork")


def names(found: Iterable[str]) -> bytes:
    return b"\0" + b"\0".join(name.encode() for name in found) + b"\0"


def kernel(prefix: str, machine: str, *, without: str = "") -> list[str]:
    """Its functions, those of calls without arguments by another name as on x86."""
    found = []
    for call in CALLS[machine]:
        defined = "sendfile64" if call == "sendfile" else call
        if call != without:
            found.append(f"{'__do_sys_' if call in NO_ARGUMENTS else prefix}{defined}")
    return found


@pytest.mark.parametrize(
    ("machine", "prefix"), [("x86_64", "__x64_sys_"), ("aarch64", "__arm64_sys_")]
)
def test_every_call_that_is_followed_has_its_function(machine: str, prefix: str) -> None:
    found = dict(call_functions(names(kernel(prefix, machine)), machine))
    assert sorted(found) == sorted(CALLS[machine])
    assert found["read"] == f"{prefix}read"
    assert found["sendfile"] == f"{prefix}sendfile64"
    assert found["rt_sigreturn"] == "__do_sys_rt_sigreturn"


def test_a_call_that_this_kernel_does_not_have_is_left_out() -> None:
    types = names(kernel("__x64_sys_", "x86_64", without="epoll_pwait2"))
    assert "epoll_pwait2" not in dict(call_functions(types, "x86_64"))
    assert "epoll_pwait" in dict(call_functions(types, "x86_64"))


@pytest.mark.parametrize("part", ["__se_sys_", "__do_sys_", "__ia32_sys_"])
def test_one_call_made_where_nobody_can_attach_and_there_are_none(part: str) -> None:
    types = [*kernel("__x64_sys_", "x86_64", without="recvfrom"), f"{part}recvfrom"]
    assert call_functions(names(types), "x86_64") == ()


def test_a_machine_without_wrappers_has_none() -> None:
    assert call_functions(names(kernel("__x64_sys_", "x86_64")), "riscv64") == ()


def test_one_function_of_each_prototype() -> None:
    one, other, third = (
        CallFunction(call, f"__x64_sys_{call}", at, prototype)
        for at, (call, prototype) in enumerate([("read", 7), ("write", 7), ("poll", 9)])
    )
    assert prototypes([one, other, third]) == [one, third]
    assert prototypes([]) == []
