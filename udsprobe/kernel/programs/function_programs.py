"""The programs on functions: each jumps into a body of the object, by an array of programs.

The kernel verifies a program for each function it is attached to; these are of six
instructions, and the body is verified once for each prototype.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

from udsprobe.kernel.abilities.call_functions import CallFunction
from udsprobe.kernel.objects.libbpf import (
    TRACING_PROGRAM,
    LibbpfError,
    LoadOptions,
    libbpf,
    program_info,
)

# include/uapi/linux/bpf.h
FENTRY, FEXIT = 24, 25
MOVE, LOAD_64, CALL, EXIT = 0xB7, 0x18, 0x85, 0x95
MAP_DESCRIPTOR, TAIL_CALL = 1, 12
NAME_MAX = 15
LOG_BYTES = 1 << 16
# Of `bpf/fentry.bpf.c`: the arrays `enters_N`, `returns_N` and the bodies `call_enters_N`, ….
KINDS = {"enters": FENTRY, "returns": FEXIT}


class Account(NamedTuple):
    """What programs took while the kernel's statistics were on, and the runs it skipped."""

    run_time_ns: int
    runs: int
    misses: int


def prototypes(functions: Sequence[CallFunction]) -> List[CallFunction]:
    """One function of each prototype, in order."""
    first: Dict[int, CallFunction] = {}
    for function in functions:
        first.setdefault(function.prototype, function)
    return list(first.values())


class FunctionPrograms:
    """Two programs for each function, where it is entered and where it returns.

    Args:
        functions: to attach to.
        arrays: kind and prototype → descriptor of the array with the body to jump to.

    Raises:
        LibbpfError: the kernel refuses one; nothing is left then.
    """

    def __init__(
        self, functions: Sequence[CallFunction], arrays: Mapping[Tuple[str, int], int]
    ) -> None:
        self._programs: Dict[str, List[int]] = {kind: [] for kind in KINDS}
        self._links: List[int] = []
        try:
            for kind in KINDS:
                for function in functions:
                    loaded = _load(kind, function, arrays[kind, function.prototype])
                    self._programs[kind].append(loaded)
        except LibbpfError:
            self.close()
            raise

    def attach(self) -> None:
        """Returns first, so that no call begins whose end would not be seen.

        Raises:
            LibbpfError: the kernel refuses.
        """
        for kind in reversed(list(KINDS)):
            for loaded in self._programs[kind]:
                self._links.append(libbpf().call("bpf_link_create", loaded, 0, KINDS[kind], None))

    def attached(self) -> int:
        """How many functions have programs."""
        return len(self._links) // len(KINDS)

    def account(self, kind: str) -> Account:
        """Of all programs of a kind together."""
        infos = [program_info(loaded) for loaded in self._programs[kind]]
        return Account(
            run_time_ns=sum(info.run_time_ns for info in infos),
            runs=sum(info.run_cnt for info in infos),
            misses=sum(info.recursion_misses for info in infos),
        )

    def detach(self) -> None:
        """Take all away. The kernel waits for its own tasks at each function, 0.1 s or more."""
        while self._links:
            os.close(self._links.pop())

    def close(self) -> None:
        """Give everything back. May be called twice."""
        self.detach()
        for loaded in self._programs.values():
            while loaded:
                os.close(loaded.pop())


def _load(kind: str, function: CallFunction, array: int) -> int:
    code = _jump(array)
    options = LoadOptions(ctypes.sizeof(LoadOptions), 1, KINDS[kind])
    options.attach_btf_id = function.type_id
    log = ctypes.create_string_buffer(LOG_BYTES)
    options.log_level, options.log_size = 1, LOG_BYTES
    options.log_buf = ctypes.addressof(log)
    name = f"{kind[:-1]}_{function.call}"[:NAME_MAX].encode()
    arguments = (TRACING_PROGRAM, name, b"Dual BSD/GPL", code, len(code) // 8)
    try:
        return libbpf().call("bpf_prog_load", *arguments, ctypes.addressof(options))
    except LibbpfError as error:
        what = f"prog '{kind}:{function.name}': BPF program load failed: {error.strerror}"
        said = log.value.decode(errors="replace")
        raise LibbpfError("bpf_prog_load", error.errno or 0, f"{said}\n{what}") from error


def _jump(array: int) -> bytes:
    """The context stays in the first register; nothing is done when the body is not there."""
    return b"".join(
        (
            _instruction(LOAD_64, 2, MAP_DESCRIPTOR, array),
            _instruction(0, 0, 0, 0),
            _instruction(MOVE, 3, 0, 0),
            _instruction(CALL, 0, 0, TAIL_CALL),
            _instruction(MOVE, 0, 0, 0),
            _instruction(EXIT, 0, 0, 0),
        )
    )


def _instruction(code: int, destination: int, source: int, value: int) -> bytes:
    return struct.pack("<BBhi", code, destination | source << 4, 0, value)
