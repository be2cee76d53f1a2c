"""What kernels are built for, and the board that QEMU emulates for each.

Knows names of Debian and options of QEMU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

# One of the emulator's threads for all processors, and a nanosecond an instruction: the guest's
# clock stands still while its host runs others, and the guest sees an idle machine of 1 GHz. By the
# host's clock, which a guest on a busy host cannot calibrate, its hours were seconds.
EMULATION = ("-accel", "tcg,thread=single", "-icount", "shift=0")
ARGUMENTS = "quiet panic=-1 oops=panic mitigations=off"


@dataclass(frozen=True)
class Target:
    """What clang compiles for.

    Attributes:
        bits: 64 or 32.
        triple: clang's and binutils' name.
        debian: the archive's, of its C library.
    """

    bits: int
    triple: str
    debian: str


@dataclass(frozen=True)
class Processor:
    """One architecture.

    Attributes:
        machine: what `uname -m` says.
        debian: the archive's name for it.
        qemu: the emulator.
        package: what brings the emulator.
        board: the emulator's options.
        arguments: the kernel's.
        targets: what the workloads are compiled for where the guest has no compiler.
    """

    machine: str
    debian: str
    qemu: str
    package: str
    board: Tuple[str, ...]
    arguments: str
    targets: Tuple[Target, ...]


X86_64 = Processor(
    "x86_64",
    "amd64",
    "qemu-system-x86_64",
    "qemu-system-x86",
    ("-machine", "q35", *EMULATION, "-cpu", "max"),
    f"console=ttyS0 {ARGUMENTS} tsc=reliable no_timer_check",
    (),
)
ARM64 = Processor(
    "aarch64",
    "arm64",
    "qemu-system-aarch64",
    "qemu-system-arm",
    ("-machine", "virt", *EMULATION, "-cpu", "cortex-a57"),
    f"console=ttyAMA0 {ARGUMENTS}",
    (Target(64, "aarch64-linux-gnu", "arm64"), Target(32, "arm-linux-gnueabihf", "armhf")),
)
