"""Debian's package archive, through a private configuration of the machine's own apt.

Knows apt-get and apt-cache. Other suites are read from the address that the
machine's sources name, signatures are checked by apt, and nothing is installed.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import List

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# Newer suites split an image's package into these.
COMMON_HEADERS = re.compile(r"\b(linux-headers-[0-9][^ ,(]*-common)\b")
PARTS = re.compile(r"\b(linux-(?:image|binary|modules)-[0-9][^ ,(]*)")


class ArchiveError(Exception):
    """Says in one line what the archive or apt does not have."""


class Archive:
    """One suite of the archive.

    Args:
        suite: such as `bookworm`.
        folder: where apt's lists and the downloads go.
        architecture: the archive's name for it, such as `amd64`.
    """

    def __init__(self, suite: str, folder: Path, architecture: str) -> None:
        self._folder = folder
        self._architecture = architecture
        self._sources = folder / "sources.list"
        for part in ("state/lists/partial", "cache/archives/partial", "packages"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        self._sources.write_text(
            f"deb [arch={architecture} signed-by={KEYRING}] {_debian_address()} {suite} main\n"
        )

    def newest_kernel(self) -> List[str]:
        """Names of the packages that make the suite's generic kernel, after reading its lists."""
        self._read_lists()
        image = f"linux-image-{self._architecture}"
        found = _parts(self._depends(image))
        if not found:
            raise ArchiveError(f"{image} depends on no kernel")
        below = [name for package in found for name in _parts(self._depends(package))]
        return sorted({*found, *below})

    def headers_of(self, release: str) -> List[str]:
        """Names of the packages that hold a kernel's headers, after reading the suite's lists.

        Raises:
            ArchiveError: it has none of this release (any more).
        """
        self._read_lists()
        package = f"linux-headers-{release}"
        common = COMMON_HEADERS.findall(self._depends(package))
        if not common:
            raise ArchiveError(f"the archive has no {package}; --refresh takes a newer kernel")
        return [package, *common]

    def _read_lists(self) -> None:
        _run(["apt-get", *self._options(), "-qq", "update"])

    def download(self, packages: List[str]) -> List[Path]:
        """Fetch the packages' files."""
        target = self._folder / "packages"
        for old in target.glob("*.deb"):
            old.unlink()
        _run(["apt-get", *self._options(), "-qq", "download", *packages], target)
        return sorted(target.glob("*.deb"))

    def download_with_what_they_need(self, packages: List[str]) -> List[Path]:
        """Fetch the packages' files and those of all they depend on, after reading the lists."""
        self._read_lists()
        options = ["-qq", "-y", "--no-install-recommends", "--download-only"]
        _run(["apt-get", *self._options(), *options, "install", *packages])
        return sorted((self._folder / "cache" / "archives").glob("*.deb"))

    def _depends(self, package: str) -> str:
        shown = _run(["apt-cache", *self._options(), "show", "--no-all-versions", package])
        return "".join(line for line in shown.splitlines() if line.startswith("Depends:"))

    def _options(self) -> List[str]:
        settings = {
            "Dir::Etc::sourcelist": self._sources,
            "Dir::Etc::sourceparts": "-",
            "Dir::State": self._folder / "state",
            "Dir::State::status": self._folder / "status",
            "Dir::Cache": self._folder / "cache",
            "APT::Architecture": self._architecture,
            "APT::Architectures::": self._architecture,
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
        }
        return [f"-o{name}={value}" for name, value in settings.items()]


def _parts(depends: str) -> List[str]:
    return PARTS.findall(depends)


def _debian_address() -> str:
    form = "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)"
    listed = _run(["apt-get", "indextargets", "--format", form, "Created-By: Packages"])
    for line in listed.splitlines():
        if line.startswith("Debian|Debian|main|"):
            return line.split("|")[3]
    raise ArchiveError("apt's sources name no archive of Debian; run apt-get update first")


def _run(command: List[str], folder: Path = Path("/")) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise ArchiveError(f"{command[0]} is missing: the kernels come by apt") from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ArchiveError(f"{command[0]} failed: {reason}")
    return done.stdout
