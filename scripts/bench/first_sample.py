#!/usr/bin/env python3
"""How soon the first figures are there, from the command to the report and to the screen.

Run as root: scripts/bench/first_sample.py [--runs N]. Prints one JSON document, in seconds:
the whole process of `attach --duration 0.2 --json`, the part of it until every probe is live and
the first sample taken, the time until the dashboard, in a terminal of 80×24, shows a rate of
served requests, and from SIGINT until the process, and with it every probe, is gone. Resident
memory in MB, without and with the screen. Python's byte code is there, as it is behind an
installation: a first run makes it, also where PYTHONDONTWRITEBYTECODE is set.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import re
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Dict, List, Optional

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.cost.own_python import go_on_in_own_python  # noqa: E402

UDSPROBE = [sys.executable, "-m", "udsprobe"]
DEMO = [sys.executable, "-m", "udsprobe.demo"]
# What the requests panel says once there is a figure, whatever colours it has.
FIGURE = re.compile(rb"served[^0-9]*[1-9][0-9,.]*/s")
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
PATIENCE_S = 20.0
SETTLED_S = 3.0
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@dataclass(frozen=True)
class Seen:
    """One observation.

    Attributes:
        first_s: from the command to its first sample, or to its first figure on the screen.
        gone_s: from the signal until it has ended.
        resident_mb: 3 s later; None when that was not asked for.
    """

    first_s: float
    gone_s: float
    resident_mb: Optional[float]


def main() -> None:
    go_on_in_own_python()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=10)
    runs = range(parser.parse_args().runs)
    serving = subprocess.Popen(
        [*DEMO, "serve"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert serving.stdout is not None
    service = json.loads(serving.stdout.readline())
    loading = subprocess.Popen(
        [*DEMO, "load", "--socket", service["socket"], "--seconds", "300", "--rate", "500"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    try:
        pid = str(service["pid"])
        whole_process_s(pid)
        whole = [whole_process_s(pid) for _ in runs]
        live = [until_live(pid, settle=run == 0) for run in runs]
        screen = [until_on_screen(pid, settle=run == 0) for run in runs]
    finally:
        for process in (loading, serving):
            process.terminate()
            process.wait()
    print(
        json.dumps(
            {
                "whole_process_s": summary(whole),
                "until_probes_live_s": summary([one.first_s for one in live]),
                "until_figures_on_screen_s": summary([one.first_s for one in screen]),
                "until_gone_s": summary([one.gone_s for one in live]),
                "resident_mb": live[0].resident_mb,
                "resident_with_screen_mb": screen[0].resident_mb,
            },
            indent=2,
        )
    )


def summary(seconds: List[float]) -> Dict[str, float]:
    """Median, least and most, to the millisecond."""
    return {
        name: round(of(seconds), 3) for name, of in (("median", median), ("min", min), ("max", max))
    }


def whole_process_s(pid: str) -> float:
    """`attach --duration 0.2 --json` from its start to its end."""
    began = time.monotonic()
    subprocess.run(
        [*UDSPROBE, "attach", "--pid", pid, "--duration", "0.2", "--json"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.monotonic() - began


def resident_mb(pid: int) -> float:
    """Now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 1e6, 1)


def until_live(pid: str, settle: bool) -> Seen:
    """From the start of `attach` until its ready file is there."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready"
        began = time.monotonic()
        process = subprocess.Popen(
            [*UDSPROBE, "attach", "--pid", pid, "--ready-file", str(ready), "--json"],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        while not ready.exists() and process.poll() is None:
            time.sleep(0.001)
        took_s = time.monotonic() - began
        if settle:
            time.sleep(SETTLED_S)
        resident = resident_mb(process.pid) if settle else None
        ending = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait()
    return Seen(took_s, time.monotonic() - ending, resident)


def until_on_screen(pid: str, settle: bool) -> Seen:
    """From the start of `attach` on a terminal until it has drawn a figure."""
    began = time.monotonic()
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(ROOT)
        os.environ["TERM"] = "xterm-256color"
        os.execv(UDSPROBE[0], [*UDSPROBE, "attach", "--pid", pid])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    try:
        drawn = b""
        while not FIGURE.search(ESCAPES.sub(b"", drawn)):
            if not select.select([terminal], [], [], PATIENCE_S)[0]:
                raise TimeoutError("no figure on the screen")
            drawn += os.read(terminal, 65536)
        took_s = time.monotonic() - began
        resident = settled(child, terminal) if settle else None
    finally:
        ending = time.monotonic()
        os.kill(child, signal.SIGTERM)
        drain(terminal)
        os.close(terminal)
        os.waitpid(child, 0)
    return Seen(took_s, time.monotonic() - ending, resident)


def settled(child: int, terminal: int) -> float:
    """Its memory, while what it draws is taken."""
    until = time.monotonic() + SETTLED_S
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            os.read(terminal, 65536)
    return resident_mb(child)


def drain(terminal: int) -> None:
    """Take what is still written, until the other side is closed."""
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:  # EIO: nobody has it open any more
        return


if __name__ == "__main__":
    main()
