"""System-call numbers, against the kernel's own header and the traits' rules."""

from __future__ import annotations

import errno
from typing import Dict

import pytest

from udsprobe.kernel.abilities.syscall_table import (
    ALIASES,
    OTHER_LIMITS,
    STARTS,
    TABLES,
    TRAITS,
    WAITS,
    SyscallTable,
    syscall_tables,
)

LISTED = (*TRAITS, "socketcall")
CALLS = {f"CALL_{name.upper()}": at for at, name in enumerate(LISTED, 1)}
BITS = {
    name: 1 << at
    for at, name in enumerate(
        ("FD", "FD_THIRD", "FD_EITHER", "FAMILY", "SENDS", "RECEIVES", "MESSAGES", "CONNECTS")
    )
}
WAIT_VALUES = {
    f"WAITS_{name}": at
    for at, name in enumerate(
        (
            *("OTHER", "POLL", "RECV", "SEND", "ACCEPT", "CONNECT", "LOCK", "DISK"),
            *("FILE_LOCK", "CHILD", "SLEEP"),
        )
    )
}
ENUMS = {
    "call": CALLS,
    "trait": {f"TRAIT_{name}": bit for name, bit in BITS.items()},
    "waits": WAIT_VALUES,
    "call_limit": {"LIMIT_OTHER": 1, "LIMIT_STARTS": 2},
}

# arch/x86/entry/syscalls/syscall_{64,32}.tbl, include/uapi/asm-generic/unistd.h, arch/arm
KNOWN: Dict[str, Dict[str, int]] = {
    "x86_64": {"read": 0, "sendto": 44, "accept4": 288, "epoll_pwait2": 441, "rt_sigreturn": 15},
    "aarch64": {
        "read": 63,
        "sendto": 206,
        "accept4": 242,
        "epoll_pwait2": 441,
        "rt_sigreturn": 139,
    },
}
KNOWN_32: Dict[str, Dict[str, int]] = {
    "x86_64": {"read": 3, "sendto": 369, "accept4": 364, "_newselect": 142, "rt_sigreturn": 173},
    "aarch64": {"read": 3, "sendto": 290, "accept4": 366, "_newselect": 142, "rt_sigreturn": 173},
}


@pytest.mark.parametrize("machine", TABLES)
def test_numbers_are_the_kernels(machine: str) -> None:
    native, compat = syscall_tables(machine)
    assert {name: native.number(name) for name in KNOWN[machine]} == KNOWN[machine]
    assert {name: compat.number(name) for name in KNOWN_32[machine]} == KNOWN_32[machine]


def test_an_unknown_machine_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        syscall_tables("vax")


@pytest.mark.parametrize("machine", TABLES)
def test_every_call_has_a_number_in_one_table_at_least(machine: str) -> None:
    names = {name for table in syscall_tables(machine) for name in table.names.values()}
    assert set(TRAITS) - {ALIASES.get(name, name) for name in names} == set()


@pytest.mark.parametrize("machine", TABLES)
def test_entries_are_one_for_each_number(machine: str) -> None:
    for table in syscall_tables(machine):
        entries = table.entries(ENUMS)
        assert [number for number, *_ in entries] == list(table.names)
        for number, call, bits, waits, limits in entries:
            name = ALIASES.get(table.names[number], table.names[number])
            assert call == (CALLS[f"CALL_{name.upper()}"] if name in LISTED else 0)
            assert bool(bits) == bool(TRAITS.get(name))
            assert waits == WAIT_VALUES[f"WAITS_{WAITS.get(name, 'OTHER')}"]
            assert limits == (name in OTHER_LIMITS) + 2 * (name in STARTS)


def test_an_alias_has_the_traits_of_its_call() -> None:
    table = SyscallTable({5: "recvmmsg_time64", 6: "recvmmsg", 7: "getppid"})
    first, second, third = table.entries(ENUMS)
    bits = BITS["FD"] | BITS["RECEIVES"] | BITS["MESSAGES"]
    waits = WAIT_VALUES["WAITS_RECV"]
    assert first == (5, CALLS["CALL_RECVMMSG"], bits, waits, 0)
    assert second == (6, CALLS["CALL_RECVMMSG"], bits, waits, 0)
    assert third == (7, 0, 0, WAIT_VALUES["WAITS_OTHER"], 0)


def test_send_and_recv_of_32_bit_arm_are_listed() -> None:
    _, compat = syscall_tables("aarch64")
    calls = {number: (call, bits) for number, call, bits, *_ in compat.entries(ENUMS)}
    # arch/arm/tools/syscall.tbl
    assert calls[289] == calls[290] == (CALLS["CALL_SENDTO"], BITS["FD"] | BITS["SENDS"])
    assert calls[291] == calls[292] == (CALLS["CALL_RECVFROM"], BITS["FD"] | BITS["RECEIVES"])


def test_a_call_that_the_abi_lacks_has_no_number() -> None:
    assert SyscallTable({0: "read"}).number("restart_syscall") is None


@pytest.mark.parametrize("name", TRAITS)
def test_traits_make_sense(name: str) -> None:
    traits = set(TRAITS[name])
    assert traits <= set(BITS)
    assert not {"SENDS", "RECEIVES"} <= traits
    assert len(traits & {"FD", "FD_THIRD", "FD_EITHER", "FAMILY"}) <= 1
    if traits & {"SENDS", "RECEIVES"}:
        assert "FD" in traits
    if "MESSAGES" in traits:
        assert name.endswith("mmsg")
    assert ("CONNECTS" in traits) == (name in ("accept", "accept4", "connect", "listen"))


@pytest.mark.parametrize(
    ("prefix", "trait"),
    [
        ("read", "RECEIVES"),
        ("pread", "RECEIVES"),
        ("recv", "RECEIVES"),
        ("write", "SENDS"),
        ("pwrite", "SENDS"),
        ("send", "SENDS"),
    ],
)
def test_calls_that_move_bytes_say_which_way(prefix: str, trait: str) -> None:
    assert [name for name in TRAITS if name.startswith(prefix)]
    assert all(trait in TRAITS[name] for name in TRAITS if name.startswith(prefix))


def test_errno_names_of_this_python_cover_the_slots() -> None:
    from udsprobe.kernel.tables.counters import errors_by_name

    slots = [0] * 134
    slots[errno.EAGAIN], slots[errno.EDEADLK], slots[errno.EOPNOTSUPP], slots[0] = 3, 1, 2, 4
    assert errors_by_name(slots) == {
        "EAGAIN": 3,
        "EDEADLK": 1,
        "EOPNOTSUPP": 2,
        "above EHWPOISON": 4,
    }
