"""Root folders of Debian's and Ubuntu's releases, made by mmdebstrap, and commands run in them.

A root sees this machine's kernel, processes and network and has files of its own. What it is
told of this machine: the archive's address, the certificates, and pip's settings.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# A package that makes the bundle anew (Java's in Debian 11) takes them from here.
CERTIFICATES_OF_HOST = "usr/local/share/ca-certificates/host.crt"
TOLD = re.compile(r"PIP_|npm_config_|\w+_proxy$", re.IGNORECASE)
# What a user has on a fresh machine before the first command of the README.
FRESH = ("apt", "ca-certificates", "git", "sudo")


class RootError(Exception):
    """Says in one line why a root cannot be had."""


class Release(NamedTuple):
    """A release of a distribution.

    Attributes:
        keyring: of its archive. address: of it; None: the one that this machine's apt uses.
        components: of its archive, as a fresh machine has them.
        keyring_package: Debian 13's package that has the keyring, for machines that do not.
    """

    name: str
    suite: str
    keyring: Path
    address: Optional[str] = None
    components: str = "main"
    keyring_package: Optional[str] = None


def _debian(name: str, suite: str) -> Release:
    return Release(name, suite, Path("/usr/share/keyrings/debian-archive-keyring.gpg"))


RELEASES: Dict[str, Release] = {
    each.name: each
    for each in (
        _debian("debian-11", "bullseye"),
        _debian("debian-12", "bookworm"),
        _debian("debian-13", "trixie"),
        _debian("debian-sid", "sid"),
        Release(
            "ubuntu-24.04",
            "noble",
            Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg"),
            os.environ.get("UBUNTU_ARCHIVE", "http://archive.ubuntu.com/ubuntu"),
            "main,universe",
            "ubuntu-keyring",
        ),
    )
}


class Root(NamedTuple):
    """A root folder of a release."""

    release: Release
    folder: Path

    def run(
        self, command: Sequence[str], *, seconds: int = 1800, shares: Mapping[Path, str] = {}
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in it, with this machine's /proc, /sys and /dev.

        Args:
            shares: folder of this machine → where the root sees it.
        """
        mounts = [f"mount --rbind /{name} {self.folder}/{name}" for name in ("proc", "sys", "dev")]
        for folder, place in shares.items():
            inside = self.folder / place.lstrip("/")
            inside.mkdir(parents=True, exist_ok=True)
            mounts.append(f"mount --bind {folder} {inside}")
        script = "\n".join(["set -e", *mounts, f'exec chroot {self.folder} "$@"'])
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *command],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def install(self, packages: Sequence[str]) -> None:
        """Install packages of the release. Raises RootError where it cannot."""
        install = ["apt-get", "-qq", "install", "-y", "--no-install-recommends", *packages]
        done = self.run(["env", "DEBIAN_FRONTEND=noninteractive", *install])
        if done.returncode:
            raise RootError(f"{self.release.name}: {_last_line(done.stderr)}")

    def packages(self, pattern: str) -> List[str]:
        """Names in the release's archive that match a regular expression."""
        return self.run(["apt-cache", "--names-only", "search", pattern]).stdout.split("\n")


def made(release: Release, folder: Path, *, expired: bool = False) -> Root:
    """A fresh root in `folder`, which must not be there yet.

    Args:
        expired: take the archive's lists though they say that newer ones should be there.

    Raises:
        RootError: mmdebstrap, the keys or the archive are missing.
    """
    if shutil.which("mmdebstrap") is None:
        raise RootError("mmdebstrap is missing: apt install mmdebstrap")
    options = ["--mode=root", "--variant=minbase", f"--include={','.join(FRESH)}"]
    options += [f"--components={release.components}"]
    options += ['--aptopt=Acquire::Check-Valid-Until "false"'] * expired
    with _keyring(release) as keyring:
        _bootstrap(release, folder, [*options, f"--keyring={keyring}"])
    for told in (CERTIFICATES, Path("/etc/pip.conf"), Path("/etc/resolv.conf"), Path("/etc/hosts")):
        if told.is_file():
            shutil.copy(told, folder / str(told).lstrip("/"))
    if CERTIFICATES.is_file():
        shutil.copy(CERTIFICATES, folder / CERTIFICATES_OF_HOST)
    root = Root(release, folder)
    root.run(["apt-get", "-qq", "update"])
    return root


def _bootstrap(release: Release, folder: Path, options: Sequence[str]) -> None:
    command = ["mmdebstrap", *options, release.suite, str(folder), _address(release)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RootError(f"{release.name} cannot be made: {_last_line(done.stderr)}")


@contextlib.contextmanager
def _keyring(release: Release) -> Iterator[Path]:
    """The archive's keys: this machine's, or those in Debian 13's package, signed by Debian."""
    if release.keyring.is_file():
        yield release.keyring
        return
    if release.keyring_package is None:
        raise RootError(f"{release.name}: {release.keyring} is missing: install its keyring")
    with tempfile.TemporaryDirectory(prefix="udsprobe-keyring-") as folder:
        Path(folder).chmod(0o755)  # apt downloads as a user of its own
        debian = RELEASES["debian-13"]
        include = f"--include={release.keyring_package}"
        options = ["--mode=root", "--variant=extract", include, f"--keyring={debian.keyring}"]
        _bootstrap(debian, Path(folder) / "root", options)
        yield Path(folder) / "root" / str(release.keyring).lstrip("/")


def _environment() -> Dict[str, str]:
    told = {name: value for name, value in os.environ.items() if TOLD.match(name)}
    certificates = {"SSL_CERT_FILE": str(CERTIFICATES), "PIP_CERT": str(CERTIFICATES)}
    places = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {**told, **certificates, "PATH": places, "HOME": "/root", "LC_ALL": "C.UTF-8"}


def _address(release: Release) -> str:
    if release.address is not None:
        return release.address
    listed = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"]
    sites = subprocess.run(listed, capture_output=True, text=True, check=False).stdout.split()
    found = [site for site in sites if site.rstrip("/").endswith("debian")]
    if not found:
        raise RootError("this machine's apt names no archive of Debian")
    return found[0]


def _last_line(text: str) -> str:
    """The last that names an error, or the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason given"]
    return next((line for line in reversed(lines) if line.startswith(("E:", "Err"))), lines[-1])


def versions(root: Root, programs: Sequence[Tuple[str, str]]) -> Dict[str, str]:
    """Program → what it prints of its version, `–` where it is not installed."""
    said = {name: root.run(["sh", "-c", ask]).stdout.strip() for name, ask in programs}
    return {name: text or "–" for name, text in said.items()}
