"""One program of BCC from source to attached: compile, load, attach, read its maps, close.

Knows BCC's Python module and nothing of what is counted. Maps are read by their descriptors
through libbpf, so errors are those of every other map.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Dict, Iterator, List, Mapping, Optional, Tuple

from udsprobe.errors import KernelCannotError
from udsprobe.kernel.bcc.library import WITHOUT, bcc_module
from udsprobe.kernel.objects.libbpf import LibbpfError, ProgInfo, libbpf

DETAIL_LINES = 40
WORD_BYTES = 8


class BccObject:
    """A compiled program and its maps.

    Args:
        source: in C; its folder is searched for what it includes.
        macros: constants that it is compiled with.
        cpus: possible CPUs, each with a value of its own in per-CPU maps.

    Raises:
        KernelCannotError: `no-bcc`, `no-kernel-headers`; `bcc-failed` when it does not compile.
    """

    def __init__(self, source: Path, macros: Mapping[str, int], cpus: int) -> None:
        self._library = bcc_module()
        self._cpus = cpus
        self._bpf = libbpf()
        self._descriptors: Dict[str, int] = {}
        flags = [f"-D{name}={value}" for name, value in macros.items()]
        with _failures_told("compile the probes against this kernel's headers"):
            self._module = self._library.BPF(
                text=source.read_bytes(), cflags=["-I", str(source.parent), *flags]
            )
        self._attached: List[str] = []

    def attach(self, event: str) -> None:
        """Load and attach function `on_EVENT` to the raw tracepoint of that name.

        Raises:
            KernelCannotError: `bcc-failed`, with the verifier's words in `detail`.
        """
        with _failures_told(f"load or attach the probe of {event}"):
            self._module.attach_raw_tracepoint(tp=event.encode(), fn_name=f"on_{event}".encode())
        self._attached.append(event)

    def chain(self, name: str, index: int, event: str) -> None:
        """Load function `on_EVENT` and let others call it by its index in a map of programs.

        Raises:
            KernelCannotError: `bcc-failed`. LibbpfError.
        """
        with _failures_told(f"load the probe of {event}"):
            kind = self._library.BPF.RAW_TRACEPOINT
            function = self._module.load_func(f"on_{event}".encode(), kind)
        self.update(name, struct.pack("<I", index), struct.pack("<I", function.fd))

    def detach(self) -> None:
        """Detach every program, the last attached first; maps stay readable."""
        while self._attached:
            self._module.detach_raw_tracepoint(tp=self._attached.pop().encode())

    def close(self) -> None:
        """Give everything back. May be called twice."""
        self._attached.clear()
        self._module.cleanup()

    def recursion_misses(self) -> Dict[str, int]:
        """Event → runs of its program that the kernel skipped; raises LibbpfError."""
        found = {}
        for name, function in self._module.funcs.items():
            info = ProgInfo()
            size = ctypes.c_uint32(ctypes.sizeof(info))
            arguments = function.fd, ctypes.addressof(info), ctypes.byref(size)
            self._bpf.call("bpf_obj_get_info_by_fd", *arguments)
            found[name.decode().partition("_")[2]] = info.recursion_misses
        return found

    def words(self, name: str, key: bytes, words: int) -> List[Tuple[int, ...]]:
        """A value of 64-bit words of a per-CPU map, one for each CPU; empty when it is gone."""
        raw = self.value(name, key, WORD_BYTES * words * self._cpus)
        return [] if raw is None else list(struct.iter_unpack(f"<{words}Q", raw))

    def value(self, name: str, key: bytes, value_bytes: int) -> Optional[bytes]:
        """The value of a key, of every CPU one behind the other; None when there is none."""
        value = ctypes.create_string_buffer(value_bytes)
        try:
            self._bpf.call("bpf_map_lookup_elem", self._descriptor(name), key, value)
        except LibbpfError as error:
            if error.errno != errno.ENOENT:
                raise
            return None
        return value.raw

    def keys(self, name: str, key_bytes: int) -> List[bytes]:
        """The keys of a hash map, each once.

        One that is deleted meanwhile sends the kernel back to the first one.
        """
        found: Dict[bytes, None] = {}
        following = ctypes.create_string_buffer(key_bytes)
        last: Optional[bytes] = None
        while self._has_next(name, last, following) and following.raw not in found:
            last = following.raw
            found[last] = None
        return list(found)

    def update(self, name: str, key: bytes, value: bytes) -> None:
        """Set the value of a key. Raises LibbpfError (E2BIG when the map is full)."""
        self._bpf.call("bpf_map_update_elem", self._descriptor(name), key, value, 0)

    def delete(self, name: str, key: bytes) -> None:
        """Delete a key; one that is gone already is no error."""
        self._bpf.functions.bpf_map_delete_elem(self._descriptor(name), key)

    def _has_next(self, name: str, last: Optional[bytes], following: object) -> bool:
        try:
            self._bpf.call("bpf_map_get_next_key", self._descriptor(name), last, following)
        except LibbpfError as error:
            if error.errno != errno.ENOENT:
                raise
            return False
        return True

    def _descriptor(self, name: str) -> int:
        if name not in self._descriptors:
            # Any types do: who reads knows the layout.
            table = self._module.get_table(name.encode(), ctypes.c_uint64, ctypes.c_uint64)
            self._descriptors[name] = table.map_fd
        return self._descriptors[name]


@contextmanager
def _failures_told(attempt: str) -> Iterator[None]:
    """BCC tells its reasons to the terminal, and its library ends the process now and then."""
    with tempfile.TemporaryFile() as said:
        try:
            with _overheard(said):
                yield
        except (Exception, SystemExit) as error:
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines()
            raise KernelCannotError(
                "bcc-failed",
                f"BCC cannot {attempt} ({_reason(lines) or error})",
                f"--debug shows what it said; {WITHOUT}",
                detail="\n".join([*lines[:DETAIL_LINES], *lines[DETAIL_LINES:][-DETAIL_LINES:]]),
            ) from error


def _reason(lines: List[str]) -> str:
    return next((line.strip() for line in lines if "error:" in line), "")


@contextmanager
def _overheard(said: BinaryIO) -> Iterator[None]:
    """While it lasts, what this process writes to its standard streams goes there."""
    streams = (1, 2)
    saved = [os.dup(stream) for stream in streams]
    _flush()
    for stream in streams:
        os.dup2(said.fileno(), stream)
    try:
        yield
    finally:
        _flush()
        for stream, kept in zip(streams, saved):
            os.dup2(kept, stream)
            os.close(kept)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    ctypes.CDLL(None).fflush(None)
