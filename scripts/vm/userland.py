"""The programs and files a guest runs with: this machine's own, or Debian's for its processor.

Debian's are unpacked and nothing of them is run here, so that no package is set up: what the tests
need of that is written by `_set_up`. Python's packages are this environment's, where they are pure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import List, Tuple

from .archive import Archive, ArchiveError
from .processors import Processor

# Python → the release of Debian that has it, and the library of its GCC.
PYTHONS = {(3, 11): ("bookworm", "libgcc-12-dev"), (3, 13): ("trixie", "libgcc-14-dev")}
PROGRAMS = (
    *("python3", "libbpf1", "bpftool", "busybox-static", "strace"),
    *("bash", "coreutils", "grep", "hostname", "iproute2", "libc-bin", "procps", "util-linux"),
)
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
}
MADE_OF = ".made-of"


@dataclass(frozen=True)
class Share:
    """A folder of this machine in a guest, which has a layer of its own above it.

    Attributes:
        name: what 9p calls it.
        folder: here.
        place: in the guest.
    """

    name: str
    folder: Path
    place: str


@dataclass(frozen=True)
class Userland:
    """What a kernel is started with.

    Attributes:
        busybox: the first program's.
        shares: the root first.
        python: in the guest.
    """

    busybox: Path
    shares: Tuple[Share, ...]
    python: str


def this_machine_s() -> Userland:
    """The files and the environment that run this program."""
    return Userland(Path("/bin/busybox"), (Share("host", Path("/"), "/"),), sys.executable)


def debian_s(processor: Processor, checkout: Path, cache: Path) -> Userland:
    """Debian's for another processor, downloaded when the cache lacks them.

    Raises:
        ArchiveError: they cannot be had, or the workloads not be compiled with them.
    """
    version = sys.version_info[:2]
    suite, libraries = suite_of(version)
    root = unpacked(cache, suite, processor.debian, [*PROGRAMS, *libraries])
    workloads = checkout / "tests" / "workloads" / "bin"
    scenarios = checkout / "tests" / "scenarios" / "bin"
    for target in processor.targets:
        own = target.debian == processor.debian
        needed = root if own else unpacked(cache, suite, target.debian, libraries)
        options = [str(target.bits), target.triple, str(needed), str(workloads / processor.machine)]
        _compile("workloads", options, checkout)
        if own:
            options = [target.triple, str(root), str(scenarios / processor.machine)]
            _compile("scenarios", options, checkout)
    # Where Debian's Python looks for what its owner installed.
    packages = f"/usr/local/lib/python{version[0]}.{version[1]}/dist-packages"
    shares = (
        Share("host", root, "/"),
        Share("checkout", checkout, str(checkout)),
        Share("packages", Path(sysconfig.get_paths()["purelib"]), packages),
        Share("workloads", workloads / processor.machine, str(workloads)),
        Share("scenarios", scenarios / processor.machine, str(scenarios)),
    )
    return Userland(_busybox(root), shares, "/usr/bin/python3")


def _busybox(root: Path) -> Path:
    places = [root / folder / "busybox" for folder in ("bin", "usr/bin")]
    return next(place for place in places if place.is_file())


def unpacked(cache: Path, suite: str, debian: str, packages: List[str]) -> Path:
    """A root folder with these packages and all they need, which is made when it has others.

    Raises:
        ArchiveError: they cannot be had.
    """
    root = cache / f"userland-{suite}-{debian}"
    made_of = root / MADE_OF
    if not made_of.is_file() or made_of.read_text().split() != packages:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".userland-", dir=cache) as folder:
            made = Path(folder) / "root"
            _unpack(Archive(suite, Path(folder) / "apt", debian), packages, made)
            _set_up(made)
            (made / MADE_OF).write_text("\n".join(packages) + "\n")
            shutil.rmtree(root, ignore_errors=True)
            made.replace(root)
    return root


def suite_of(version: Tuple[int, int]) -> Tuple[str, List[str]]:
    """The suite whose Python runs this environment's packages, and what clang needs of it.

    Raises:
        ArchiveError: there is none.
    """
    if version not in PYTHONS:
        raise ArchiveError(f"no suite with Python {version[0]}.{version[1]} for another processor")
    suite, libgcc = PYTHONS[version]
    return suite, ["libc6-dev", libgcc]


def _unpack(archive: Archive, packages: List[str], root: Path) -> None:
    for package in archive.download_with_what_they_need(packages):
        subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True)


def _set_up(root: Path) -> None:
    """Accounts, and Python's own modules compiled: an emulated processor takes long for that."""
    (root / "etc").mkdir(exist_ok=True)
    for name, content in FILES.items():
        (root / name).write_text(content)
    # Beside them, wherever this Python is told to put its own.
    environment = {name: at for name, at in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    for library in (root / "usr" / "lib").glob("python3.*"):
        command = [sys.executable, "-m", "compileall", "-qq", "-s", str(root), str(library)]
        subprocess.run(command, env=environment, check=False)


def _compile(whose: str, options: List[str], checkout: Path) -> None:
    """Programs of the tests, where they are older than their sources, with a root's libraries."""
    command = ["-m", f"tests.{whose}.cross", *options]
    python = [sys.executable, *command]
    done = subprocess.run(python, cwd=checkout, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip()[-400:]
        raise ArchiveError(f"python {' '.join(command)}: {said}")
