"""A BPF object on a kernel that refuses iterators over the elements of a map.

The same bodies are in programs there that walk over the whole map when they are run, and write
their records into an array which is mapped here (bpf/listings.bpf.h).
"""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Iterator, Optional

from udsprobe.kernel.objects.probe_object import ProbeObject
from udsprobe.kernel.objects.shared_memory import SharedGlobals, whole_pages

RECORDS = {
    "list_connections": "connection_record",
    "list_handshakes": "handshake_record",
    "list_listeners": "listener_record",
}
"""Iterator program → the structure that it writes; others write nothing."""

MAP_ITERATORS = frozenset({*RECORDS, "sweep_connections"})
"""Of the programs over elements of maps: each has a twin that walks."""


def walk_of(program: str) -> str:
    """The twin's name."""
    return f"walk_{program}"


class _RunOptions(ctypes.Structure):
    """`struct bpf_test_run_opts` (libbpf, src/bpf.h) up to what is never set here."""

    _fields_ = [("sz", ctypes.c_size_t)]


class WalkedObject(ProbeObject):
    """The same object, whose map iterators are walks. Nothing else is different.

    It takes BPF_PROG_RUN of `syscall` programs (Linux 5.14).
    """

    def prepare_iterator(self, program: str, *, over: Optional[str] = None) -> None:
        """Nothing is to be attached for a walk."""
        if over is None:
            super().prepare_iterator(program)

    def parts(self, program: str, *, over: Optional[str] = None) -> Iterator[bytes]:
        """The records of a walk: as many at once as there is room for.

        What goes between two such parts makes the next one skip an element, as it does in an
        iterator's bucket (Linux kernel/bpf/hashtab.c, bpf_hash_map_seq_find_next).
        """
        if over is None:
            yield from super().parts(program)
            return
        shared, room = self._globals, self._room()
        walked, put = 0, room
        while put == room:
            shared.set("walk_from", walked)
            shared.set("elements_walked", 0)
            shared.set("records_put", 0)
            self._run(walk_of(program))
            walked, put = shared.get("elements_walked"), shared.get("records_put")
            yield self._records(program, put)

    @cached_property
    def _globals(self) -> SharedGlobals:
        return SharedGlobals(self)

    def _room(self) -> int:
        return int(self._bpf.functions.bpf_map__max_entries(self._map("records")))

    def _run(self, program: str) -> None:
        options = _RunOptions(ctypes.sizeof(_RunOptions))
        descriptor = self._bpf.call("bpf_program__fd", self._program(program))
        self._bpf.call("bpf_prog_test_run_opts", descriptor, ctypes.byref(options))

    def _records(self, program: str, count: int) -> bytes:
        if not count:
            return b""
        step = ctypes.sizeof(self.btf.structure("connection_record"))
        size = ctypes.sizeof(self.btf.structure(RECORDS[program]))
        mapped = self.mapped("records", whole_pages(step * self._room()))
        if size == step:
            return mapped[: step * count]
        return b"".join(mapped[at : at + size] for at in range(0, step * count, step))
