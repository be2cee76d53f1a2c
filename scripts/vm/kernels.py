"""Kernels ready to boot: downloaded once, unpacked without installing, cached.

Knows what a Debian kernel package holds. The cache is outside the checkout.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Tuple

from .archive import Archive, ArchiveError
from .initramfs import initramfs
from .processors import ARM64, X86_64, Processor
from .userland import Userland

# Asked for by this name → the suite that has it; a name says a processor that is not x86-64.
SUITES = {
    "5.10": "bullseye",
    "6.1": "bookworm",
    "6.12": "trixie",
    "7.2": "sid",
    "6.1-arm64": "bookworm",
    "6.12-arm64": "trixie",
}
WANTED = (
    "virtio_pci",
    "9pnet_virtio",
    "9p",
    "overlay",
    "unix_diag",
    "inet_diag",
    "tcp_diag",
)
INIT = Path(__file__).with_name("init")
DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")
MODULE = re.compile(r"([^/]+)\.ko(\.xz)?$")


@dataclass(frozen=True)
class Kernel:
    """One kernel on this machine's disk.

    Attributes:
        name: as in `SUITES`.
        release: what `uname -r` says in it.
        folder: holds `vmlinuz` and `modules/*.ko` with their order in `modules/order`.
        processor: what it runs on.
    """

    name: str
    release: str
    folder: Path
    processor: Processor

    @property
    def image(self) -> Path:
        """What QEMU boots."""
        return self.folder / "vmlinuz"

    def initramfs(self, userland: Userland) -> bytes:
        """This kernel's first file system, with today's `init` and what that is to mount."""
        modules = {f"modules/{path.name}": path.read_bytes() for path in self._modules()}
        order = (self.folder / "modules" / "order").read_bytes()
        shares = "".join(f"{share.name} {share.place}\n" for share in userland.shares)
        return initramfs(
            {"init": INIT.read_bytes(), "bin/busybox": userland.busybox.read_bytes()},
            {**modules, "modules/order": order, "shares": shares.encode()},
        )

    def _modules(self) -> List[Path]:
        return sorted((self.folder / "modules").glob("*.ko"))


def cache_folder() -> Path:
    """Where kernels are kept: `$XDG_CACHE_HOME/udsprobe-kernels`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "udsprobe-kernels"


def kernel(name: str, *, refresh: bool = False) -> Kernel:
    """The kernel `name`, downloaded when it is not in the cache.

    Raises:
        ArchiveError: it cannot be had.
    """
    folder = cache_folder() / name
    if refresh or not (folder / "release").is_file():
        _fetch(name, folder)
    return Kernel(name, (folder / "release").read_text().strip(), folder, processor_of(name))


def processor_of(name: str) -> Processor:
    """What the kernel `name` of `SUITES` is built for."""
    return ARM64 if name.endswith(f"-{ARM64.debian}") else X86_64


def headers(one: Kernel) -> Path:
    """Where the kernel's headers are unpacked, as `/` would hold them; downloaded when missing.

    Raises:
        ArchiveError: they cannot be had.
    """
    place = one.folder / f"headers-{one.release}"
    if not place.is_dir():
        with tempfile.TemporaryDirectory(prefix=".headers-", dir=one.folder) as folder:
            work = Path(folder)
            archive = Archive(SUITES[one.name], work / "apt", one.processor.debian)
            for package in archive.download(archive.headers_of(one.release)):
                subprocess.run(["dpkg-deb", "-x", str(package), str(work / "root")], check=True)
            (work / "root").replace(place)
    return place


def _fetch(name: str, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as place:
        work = Path(place)
        archive = Archive(SUITES[name], work / "apt", processor_of(name).debian)
        for package in archive.download(archive.newest_kernel()):
            subprocess.run(["dpkg-deb", "-x", str(package), str(work / "root")], check=True)
        made = work / "made"
        _keep(work / "root", made)
        shutil.rmtree(folder, ignore_errors=True)
        made.replace(folder)


def _keep(root: Path, made: Path) -> None:
    images = [path for path in root.rglob("vmlinuz*") if path.is_file()]
    trees = [path for path in root.glob("**/lib/modules/*") if path.is_dir()]
    if len(images) != 1 or not trees:
        raise ArchiveError(f"the packages hold {len(images)} kernels, {len(trees)} module trees")
    (made / "modules").mkdir(parents=True)
    shutil.copyfile(images[0], made / "vmlinuz")
    order = _keep_modules(trees, made / "modules")
    (made / "modules" / "order").write_text("".join(f"{name}\n" for name in order))
    (made / "release").write_text(trees[0].name + "\n")


def _keep_modules(trees: List[Path], target: Path) -> List[str]:
    found = _modules_of(trees)
    order: List[str] = []
    for name in WANTED:
        _add(name, found, order, target)
    return order


def _modules_of(trees: List[Path]) -> Dict[str, Path]:
    found = {}
    for tree in trees:
        for path in (tree / "kernel").rglob("*.ko*"):
            match = MODULE.search(path.name)
            if match:
                found[match[1].replace("-", "_")] = path
    return found


def _add(name: str, found: Dict[str, Path], order: List[str], target: Path) -> None:
    """Append a module behind those it needs; one that is built in has no file."""
    if name in order or name not in found:
        return
    raw = found[name].read_bytes()
    if found[name].suffix == ".xz":
        raw = lzma.decompress(raw)
    for needed in _depends(raw):
        _add(needed, found, order, target)
    (target / f"{name}.ko").write_bytes(raw)
    order.append(name)


def _depends(raw: bytes) -> Tuple[str, ...]:
    match = DEPENDS.search(raw)
    names = match[1].decode().split(",") if match else []
    return tuple(name.replace("-", "_") for name in names if name)
