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
class Processor:
    """One architecture.

    Attributes:
        machine: what `uname -m` says.
        debian: the archive's name for it.
        qemu: the emulator.
        package: what brings the emulator.
        board: the emulator's options.
        arguments: the kernel's.
        runs_32_bit: the tests' 32-bit programs are built for it.
    """

    machine: str
    debian: str
    qemu: str
    package: str
    board: Tuple[str, ...]
    arguments: str
    runs_32_bit: bool


X86_64 = Processor(
    "x86_64",
    "amd64",
    "qemu-system-x86_64",
    "qemu-system-x86",
    ("-machine", "q35", *EMULATION, "-cpu", "max"),
    f"console=ttyS0 {ARGUMENTS} tsc=reliable no_timer_check",
    runs_32_bit=True,
)
ARM64 = Processor(
    "aarch64",
    "arm64",
    "qemu-system-aarch64",
    "qemu-system-arm",
    ("-machine", "virt", *EMULATION, "-cpu", "cortex-a57"),
    f"console=ttyAMA0 {ARGUMENTS}",
    runs_32_bit=False,
)
