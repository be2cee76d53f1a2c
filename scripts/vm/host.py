"""This machine in the place of a guest: the same script, started here, without emulation."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .guest import Bounds, LostGuestError

HOST = "host"


@dataclass(frozen=True)
class Host:
    """The running kernel; what `kernels.Kernel` is for one that is booted.

    Attributes:
        release: the version that `uname -r` says, without what its builder adds.
    """

    release: str
    name: str = HOST


def this_host() -> Host:
    """The kernel that runs this program."""
    return Host(os.uname().release.split("-")[0])


def run_here(host: Host, command: str, results: Path, bounds: Bounds) -> int:
    """Run a bash script here; what it prints is in `results/output`.

    Returns:
        The script's exit status.

    Raises:
        LostGuestError: it was not over in time; it and what it started in its session were killed.
    """
    (results / "run").write_text(command)
    with (results / "output").open("wb") as output:
        started = subprocess.Popen(
            ["bash", str(results / "run")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        status = started.wait(bounds.seconds)
    except subprocess.TimeoutExpired as error:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        what = f"the tests on {host.release} were ended after {bounds.seconds} s"
        raise LostGuestError(what, True) from error
    (results / "status").write_text(f"{status}\n")
    return status
