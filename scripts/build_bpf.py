#!/usr/bin/env python3
"""Compiles `bpf/*.bpf.c` into `udsprobe/_bpf/`, one object per strategy and architecture.

What BCC compiles on the user's machine, `bpf/bcc_*.c`, is laid beside them with its headers.

Run by setup.py when a wheel, an sdist or an editable install is made, or by
hand. Objects are current when `sources.crc32` beside them matches the
sources and flags; then no compiler is needed. Time stamps are not used:
unpacking an archive does not keep their order.

Knows the compiler and nothing of udsprobe's Python code: the standard
library only, because it runs in an isolated build environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import List, Mapping, NamedTuple, Optional

ROOT = Path(__file__).resolve().parent.parent

# As in os.uname().machine → as in libbpf's bpf_tracing.h.
ARCHITECTURES = {"x86_64": "x86", "aarch64": "arm64"}

FLAGS = ("-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", "-I", "bpf")

# Headers of a libbpf that scripts/build_libbpf made, for releases whose own is too old.
OWN_HEADERS = Path("udsprobe", "_bpf", "include")
# What BCC's programs include of bpf/.
HEADERS_FOR_BCC = ("calls.h", "udsprobe.h")
# Objects of earlier ones are not tested; docs/packaging.md has those that are.
CLANG_MIN, CLANG_MAX = 13, 30

PACKAGES = (
    "Debian/Ubuntu: apt install clang libbpf-dev; Fedora: dnf install clang "
    "libbpf-devel; Alpine: apk add clang libbpf-dev linux-headers"
)


class BuildError(Exception):
    """Says in one line what is missing or wrong; `detail` is the compiler's own output."""

    def __init__(self, line: str, detail: str = "") -> None:
        super().__init__(line)
        self.detail = detail


class Toolchain(NamedTuple):
    clang: str
    strip: Optional[str]  # llvm-strip, where it is installed


class Source(NamedTuple):
    program: Path
    arch: str


def build(root: Path = ROOT) -> List[Path]:
    """Compile what is not current in a source tree; returns every object's path.

    With `CLANG=…` it compiles in any case: by that compiler.

    Raises:
        BuildError: a tool or header is missing, or the compiler refused.
    """
    wanted = wanted_objects(root)
    digest = source_digest(root)
    if "CLANG" in os.environ or not _current(root, wanted, digest):
        _compile_all(root, wanted, digest)
    return list(wanted)


def wanted_objects(root: Path = ROOT) -> Mapping[Path, Source]:
    """Object path → what it is compiled from.

    Raises:
        BuildError: the tree has no program.
    """
    programs = sorted((root / "bpf").glob("*.bpf.c"))
    if not programs:
        raise BuildError("no BPF program (bpf/*.bpf.c) here; take a complete checkout or sdist")
    objects = root / "udsprobe" / "_bpf"
    return {
        objects / f"{program.name[: -len('.bpf.c')]}.{arch}.bpf.o": Source(program, arch)
        for program in programs
        for arch in ARCHITECTURES
    }


def sources_for_bcc(root: Path = ROOT) -> List[Path]:
    """What is not compiled here but taken along, `bpf/bcc_*.c` and what it includes."""
    found = sorted((root / "bpf").glob("bcc_*.c"))
    headers = [root / "bpf" / name for name in HEADERS_FOR_BCC]
    return [*found, *headers] if found else []


def source_digest(root: Path = ROOT) -> str:
    """CRC-32 over this file, which has the flags, and every C source and header.

    `udsprobe/kernel/abilities/built_objects.py` asks the same when it runs from a checkout.
    """
    digest = zlib.crc32(Path(__file__).read_bytes())
    for path in sorted([*(root / "bpf").glob("*.c"), *(root / "bpf").glob("*.h")]):
        digest = zlib.crc32(f"\0{path.name}\0".encode() + path.read_bytes(), digest)
    return f"{digest:08x}"


def build_or_exit() -> None:
    """`build`, for callers that end the process with one line on failure."""
    try:
        build()
    except BuildError as error:
        if error.detail:
            print(error.detail, file=sys.stderr)
        sys.exit(f"udsprobe: error[build]: {error}")


def _stamp(root: Path) -> Path:
    return root / "udsprobe" / "_bpf" / "sources.crc32"


def _current(root: Path, wanted: Mapping[Path, Source], digest: str) -> bool:
    stamp = _stamp(root)
    return (
        stamp.is_file()
        and stamp.read_text().strip() == digest
        and all(path.is_file() for path in wanted)
        and all((_stamp(root).parent / path.name).is_file() for path in sources_for_bcc(root))
    )


def _compile_all(root: Path, wanted: Mapping[Path, Source], digest: str) -> None:
    tools = _find_toolchain(root)
    objects = _stamp(root).parent
    objects.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=objects) as built:
        # A compiler has one thread.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            compiled = [
                pool.submit(_compile, root, tools, source, Path(built) / target.name)
                for target, source in wanted.items()
            ]
        for each in compiled:
            each.result()
        for stale in objects.glob("*.bpf.o"):
            stale.unlink()
        for target in wanted:
            (Path(built) / target.name).replace(target)
    for path in sources_for_bcc(root):
        shutil.copyfile(path, objects / path.name)
    _stamp(root).write_text(digest + "\n")


def _compile(root: Path, tools: Toolchain, source: Source, target: Path) -> None:
    relative = source.program.relative_to(root)
    # Objects name their source in .BTF.ext: keep the build machine's paths out of them.
    places = [f"-ffile-prefix-map={root}=.", f"-D__TARGET_ARCH_{ARCHITECTURES[source.arch]}"]
    _run(
        [tools.clang, *FLAGS, *_own_headers(root), *places, "-c", str(relative), "-o", str(target)],
        root,
        f"{relative} does not compile for {source.arch}",
    )
    if tools.strip is not None:
        # Drops DWARF, which nothing reads, and keeps .BTF.
        _run([tools.strip, "-g", str(target)], root, f"cannot strip the object of {relative}")


def _own_headers(root: Path) -> List[str]:
    return ["-I", str(OWN_HEADERS)] if (root / OWN_HEADERS).is_dir() else []


def _run(command: List[str], root: Path, failure: str) -> None:
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{failure} ({Path(command[0]).name})", done.stderr.strip())


def _find_toolchain(root: Path) -> Toolchain:
    clang = find_clang()
    if clang is None:
        raise BuildError(
            f"clang {CLANG_MIN} or later is not installed and is needed to build from sources; "
            f"{PACKAGES}"
        )
    if not _has_libbpf_headers(clang, root):
        raise BuildError(f"libbpf's headers (bpf/bpf_helpers.h) are not installed; {PACKAGES}")
    return Toolchain(clang, _find_strip(clang))


def find_clang() -> Optional[str]:
    """The path of `CLANG`, or of a clang that is new enough; scripts/setup asks this too."""
    named = os.environ.get("CLANG")
    if named:
        return shutil.which(named)
    names = ["clang", *(f"clang-{n}" for n in range(CLANG_MAX, CLANG_MIN - 1, -1))]
    found = (path for path in map(shutil.which, names) if path)
    return next((path for path in found if _version(path) >= CLANG_MIN), None)


def _version(clang: str) -> int:
    """The major version of a clang, 0 where it does not say."""
    said = _output(clang, "-dumpversion").split(".")[0]
    return int(said) if said.isdigit() else 0


def _find_strip(clang: str) -> Optional[str]:
    beside = _output(clang, "--print-prog-name=llvm-strip")
    return shutil.which(beside) or shutil.which("llvm-strip")


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _has_libbpf_headers(clang: str, root: Path) -> bool:
    probe = subprocess.run(
        [clang, "-target", "bpf", *_own_headers(root), "-E", "-x", "c", "-"],
        input="#include <bpf/bpf_helpers.h>\n",
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return probe.returncode == 0


if __name__ == "__main__":
    build_or_exit()
