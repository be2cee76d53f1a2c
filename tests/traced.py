"""Stacks of a thread at any of its instructions, taken by ptrace(2): no kernel program needed."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from pathlib import Path
from typing import Dict, Iterator

import pytest

from tests.patience import PATIENCE_S
from udsprobe.kernel.stacks.raw_stacks import RawStack, Registers

# include/uapi/linux/ptrace.h
_GETREGS, _DETACH, _SEIZE, _INTERRUPT = 12, 17, 0x4206, 0x4207
_ALL = 0x40000000
# `struct user_regs_struct` of x86-64, and registers by their numbers in DWARF.
_NAMES = (
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx"),
    *("rsi", "rdi", "orig", "rip", "cs", "flags", "rsp", "ss", "fs_base", "gs_base", "ds", "es"),
    *("fs", "gs"),
)
_DWARF = (
    *("rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp"),
    *(f"r{number}" for number in range(8, 16)),
    "rip",
)
_RED_ZONE_BYTES, _COPY_BYTES = 128, 16 << 10

needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="registers of x86-64")


def _ptrace(request: int, tid: int, data: int = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype, libc.ptrace.argtypes = ctypes.c_long, [ctypes.c_long] * 4
    if libc.ptrace(request, tid, 0, data) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def taken(pid: int, tid: int) -> RawStack:
    """Where a thread of a child is now; it goes on after that."""
    _ptrace(_SEIZE, tid)
    try:
        _ptrace(_INTERRUPT, tid)
        os.waitpid(tid, _ALL)
        words = (ctypes.c_ulong * len(_NAMES))()
        _ptrace(_GETREGS, tid, ctypes.addressof(words))
        found = dict(zip(_NAMES, words))
        with open(f"/proc/{pid}/mem", "rb", 0) as memory:
            copy = os.pread(memory.fileno(), _COPY_BYTES, found["rsp"] - _RED_ZONE_BYTES)
    finally:
        _ptrace(_DETACH, tid)
    registers = tuple(found[name] for name in _DWARF)
    where = Registers(found["rip"], found["rsp"], found["rbp"], 0, registers)
    return RawStack(pid, tid, (), (), where, copy)


def running(pid: int, tid: int, count: int) -> Iterator[RawStack]:
    """Stacks of a thread of a child that computes, between any two of which it has run."""
    ran = Path(f"/proc/{pid}/task/{tid}/schedstat")
    give_up_at = time.monotonic() + PATIENCE_S
    for _ in range(count):
        yield taken(pid, tid)
        before = ran.read_text()
        while ran.read_text() == before:
            assert time.monotonic() < give_up_at, "it does not run"
            os.sched_yield()


def threads(pid: int) -> Dict[str, int]:
    """Names of a process's threads → their ids."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {(task / "comm").read_text().strip(): int(task.name) for task in tasks}
