"""One guest: a kernel under QEMU's software emulation, with the host's files and one command.

After drgn's vmtest: the host's root is the guest's, read-only, with a layer in
memory above it. What comes back comes through a folder of its own, so a
guest that dies is told from a command that fails.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional

from .kernels import Kernel

QEMU = "qemu-system-x86_64"
# A nanosecond an instruction: the guest's clock stands still while its host runs others, and the
# guest sees an idle machine of 1 GHz. By the host's clock, which a guest on a busy host cannot
# calibrate, its hours were seconds. It takes one thread for all processors.
EMULATION = ["-accel", "tcg,thread=single", "-icount", "shift=0", "-cpu", "max"]
# Emulated processors now and then trip over code that the kernel patches while it boots.
BOOTS = 3
ARGUMENTS = "console=ttyS0 quiet panic=-1 oops=panic mitigations=off tsc=reliable no_timer_check"


@dataclass(frozen=True)
class Bounds:
    """What one guest may use; a second processor waits for its turn in the emulator's thread."""

    memory_mib: int = 2048
    cpus: int = 1
    seconds: int = 1800


class LostGuestError(Exception):
    """The guest ended without an exit status, or not in time.

    Attributes:
        began: it had begun to run the command.
    """

    def __init__(self, what: str, began: bool) -> None:
        super().__init__(what)
        self.began = began


def run(kernel: Kernel, command: str, results: Path, bounds: Bounds) -> int:
    """Boot the kernel, run a bash script in it, and wait for its end.

    Args:
        command: the script; what it prints is in `results/output`, and `/results` is `results`.

    Returns:
        The script's exit status.

    Raises:
        LostGuestError: there is none; `results/console` has the kernel's last words.
    """
    results.mkdir(parents=True, exist_ok=True)
    (results / "run").write_text(command)
    for attempt in range(BOOTS):
        try:
            return _run_once(kernel, results, bounds)
        except LostGuestError as error:
            if error.began or attempt == BOOTS - 1:
                raise
    raise AssertionError("unreachable")


def _run_once(kernel: Kernel, results: Path, bounds: Bounds) -> int:
    for name in ("status", "output"):
        (results / name).unlink(missing_ok=True)
    first = results / "initramfs"
    first.write_bytes(kernel.initramfs())
    try:
        _boot(kernel, first, results, bounds)
    finally:
        first.unlink()
    status = _status(results)
    if status is None:
        raise LostGuestError(
            f"kernel {kernel.release} ended without a result", (results / "output").exists()
        )
    return status


def _boot(kernel: Kernel, first: Path, results: Path, bounds: Bounds) -> None:
    command = ["nice", "-n", "19", QEMU, "-nodefaults", "-display", "none", "-no-reboot"]
    command += ["-machine", "q35", *EMULATION]
    command += ["-smp", str(bounds.cpus), "-m", f"{bounds.memory_mib}M"]
    command += ["-kernel", str(kernel.image), "-initrd", str(first), "-append", ARGUMENTS]
    command += ["-serial", f"file:{results / 'console'}"]
    command += [*_share("host", Path("/"), ",readonly=on"), *_share("results", results)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=bounds.seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise LostGuestError(
            f"kernel {kernel.release} was ended after {bounds.seconds} s", True
        ) from error
    except FileNotFoundError as error:
        raise LostGuestError(f"{QEMU} is missing: apt install qemu-system-x86", True) from error
    if done.returncode:
        raise LostGuestError(f"{QEMU} failed: {done.stderr.strip()}", True)


def _share(name: str, folder: Path, more: str = "") -> List[str]:
    device = f"local,id={name},path={folder},mount_tag={name},security_model=none"
    return ["-virtfs", f"{device},multidevs=remap{more}"]


def _status(results: Path) -> Optional[int]:
    try:
        return int((results / "status").read_text())
    except (OSError, ValueError):
        return None
