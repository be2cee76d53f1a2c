"""One guest: a kernel under QEMU's software emulation, with the host's files and one command.

After drgn's vmtest: folders of the host are the guest's, read-only, with a layer in
memory above each. What comes back comes through a folder of its own, so a
guest that dies is told from a command that fails.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional

from .kernels import Kernel
from .userland import Userland

# Emulated processors now and then trip over code that the kernel patches while it boots.
BOOTS = 3


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


def run(kernel: Kernel, userland: Userland, command: str, results: Path, bounds: Bounds) -> int:
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
            return _run_once(kernel, userland, results, bounds)
        except LostGuestError as error:
            if error.began or attempt == BOOTS - 1:
                raise
    raise AssertionError("unreachable")


def _run_once(kernel: Kernel, userland: Userland, results: Path, bounds: Bounds) -> int:
    for name in ("status", "output"):
        (results / name).unlink(missing_ok=True)
    first = results / "initramfs"
    first.write_bytes(kernel.initramfs(userland))
    try:
        _boot(kernel, userland, first, results, bounds)
    finally:
        first.unlink()
    status = _status(results)
    if status is None:
        raise LostGuestError(
            f"kernel {kernel.release} ended without a result", (results / "output").exists()
        )
    return status


def _boot(kernel: Kernel, userland: Userland, first: Path, results: Path, bounds: Bounds) -> None:
    qemu = kernel.processor.qemu
    command = _command(kernel, userland, first, results, bounds)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=bounds.seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise LostGuestError(
            f"kernel {kernel.release} was ended after {bounds.seconds} s", True
        ) from error
    except FileNotFoundError as error:
        package = kernel.processor.package
        raise LostGuestError(f"{qemu} is missing: apt install {package}", True) from error
    if done.returncode:
        raise LostGuestError(f"{qemu} failed: {done.stderr.strip()}", True)


def _command(
    kernel: Kernel, userland: Userland, first: Path, results: Path, bounds: Bounds
) -> List[str]:
    processor = kernel.processor
    command = ["nice", "-n", "19", processor.qemu, "-nodefaults", "-display", "none", "-no-reboot"]
    command += [*processor.board, "-smp", str(bounds.cpus), "-m", f"{bounds.memory_mib}M"]
    command += ["-kernel", str(kernel.image), "-initrd", str(first)]
    command += ["-append", processor.arguments, "-serial", f"file:{results / 'console'}"]
    for share in userland.shares:
        command += _share(share.name, share.folder, ",readonly=on")
    return [*command, *_share("results", results)]


def _share(name: str, folder: Path, more: str = "") -> List[str]:
    device = f"local,id={name},path={folder},mount_tag={name},security_model=none"
    return ["-virtfs", f"{device},multidevs=remap{more}"]


def _status(results: Path) -> Optional[int]:
    try:
        return int((results / "status").read_text())
    except (OSError, ValueError):
        return None
