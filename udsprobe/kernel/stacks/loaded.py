"""The programs of the stack sampler in the kernel, for one sampler after the other."""

from __future__ import annotations

import os
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Optional

from udsprobe.kernel.abilities.built_objects import built_program
from udsprobe.kernel.objects.libbpf import LibbpfError
from udsprobe.kernel.objects.probe_object import HASH, ProbeObject

LEAVING, SLEEPERS = "leave_cpu", "tell_sleepers"
"""The programs that tell of sleep."""

SERVERS = "servers"
"""The map of another object that this one reads."""

_OBJECT = "stacks"
_OWN_PID_NAMESPACE = Path("/proc/self/ns/pid")
_FIRST = struct.pack("<I", 0)


@dataclass(frozen=True)
class LoadedStacks:
    """Verified, with their maps, and attached to nothing.

    Attributes:
        object: with the programs and maps.
        sees_sleep: this kernel takes those that see where threads fall asleep.
        sees_owing: and whether they owe a reply then.
        loading_s: CPU time of this process that loading took.
    """

    object: ProbeObject
    sees_sleep: bool
    sees_owing: bool
    loading_s: float


def load_stacks(*, in_pid_namespace: bool = False, requests: Optional[int] = None) -> LoadedStacks:
    """Load as much of them as this kernel takes.

    Args:
        in_pid_namespace: udsprobe runs in a PID namespace that is not the host's.
        requests: descriptor of the map with the processes' open requests; None: there is none.

    Raises:
        LibbpfError: the kernel refuses the program of running threads.
        KernelCannotError: `no-object`, `stale-object`.
    """
    began_s = time.process_time()
    options = _own_pid_namespace() if in_pid_namespace else {}

    def loaded(
        change: Callable[[ProbeObject], None], *, sees_sleep: bool, sees_owing: bool
    ) -> LoadedStacks:
        made = _load(options, change)
        return LoadedStacks(made, sees_sleep, sees_owing, time.process_time() - began_s)

    if requests is not None:
        with suppress(LibbpfError):
            return loaded(
                lambda made: made.share(SERVERS, requests), sees_sleep=True, sees_owing=True
            )
    with suppress(LibbpfError):
        return loaded(lambda made: None, sees_sleep=True, sees_owing=False)
    return loaded(_without_sleep, sees_sleep=False, sees_owing=False)


def make_fresh(loaded: ProbeObject) -> None:
    """Nothing of what was sampled is there any more.

    Args:
        loaded: with all events off, which waits for the programs, and an empty ring.

    Raises:
        LibbpfError: the kernel refuses.
    """
    for shape in loaded.shapes():
        if shape.kind == HASH and shape.name != SERVERS:
            loaded.empty(shape)
        elif shape.name == ".bss":
            loaded.update(shape.name, _FIRST, bytes(shape.value_bytes))


def _load(options: Dict[str, bytes], change: Callable[[ProbeObject], None]) -> ProbeObject:
    made = ProbeObject(built_program(_OBJECT))
    try:
        made.set_options(options)
        change(made)
        made.load()
    except BaseException:
        made.close()
        raise
    return made


def _without_sleep(made: ProbeObject) -> None:
    made.leave_out(LEAVING)
    made.leave_out(SLEEPERS)


def _own_pid_namespace() -> Dict[str, bytes]:
    own = _OWN_PID_NAMESPACE.stat()
    # As the kernel encodes it for itself, include/linux/kdev_t.h.
    device = os.major(own.st_dev) << 20 | os.minor(own.st_dev)
    inside = {"device": device, "inode": own.st_ino}
    return {f"own_pid_ns_{name}": struct.pack("<Q", each) for name, each in inside.items()}
