"""Whether this kernel lets programs iterate over the elements of a map: a trial load."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from udsprobe.errors import KernelCannotError
from udsprobe.kernel.abilities.privileges import missing_capabilities
from udsprobe.kernel.objects.libbpf import TRACING_PROGRAM, LibbpfError, LoadOptions, libbpf

ITERATOR = 28  # BPF_TRACE_ITER (include/uapi/linux/bpf.h)
RETURN_0 = struct.pack("<BBhi", 0xB7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0)


class MapIteratorTrial:
    """Loads an iterator that does nothing.

    Attributes:
        are_forbidden: by a policy; False before `run`.
    """

    def __init__(self) -> None:
        self.are_forbidden = False

    def run(self) -> None:
        """Ask, unless this process lacks what it needs for any program.

        It takes libbpf's reading of the kernel's types, some 10 ms.
        """
        if missing_capabilities():
            return
        try:
            bpf = libbpf()
            target = bpf.call("libbpf_find_vmlinux_btf_id", b"bpf_map_elem", ITERATOR)
            options = LoadOptions(ctypes.sizeof(LoadOptions), 1, ITERATOR, attach_btf_id=target)
            arguments = (TRACING_PROGRAM, b"", b"GPL", RETURN_0, len(RETURN_0) // 8)
            os.close(bpf.call("bpf_prog_load", *arguments, ctypes.addressof(options)))
        except LibbpfError as error:
            self.are_forbidden = error.errno == errno.EPERM
        except KernelCannotError:
            pass  # No libbpf: who loads the object says so.
